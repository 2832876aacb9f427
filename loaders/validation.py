"""Checks of arguments: each raises `UsageError` where the argument is given, before any process starts."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch.utils.data import SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from ..pipeline.errors import FacefeedError, UsageError
from .real_numbers import as_float

_ALTERNATIVES = {
    "sampler": "use balance=, filters= and shuffle=, or torch's DataLoader(FaceDataset(...), sampler=...)",
    "batch_sampler": "use balance=, filters= and shuffle=, or torch's DataLoader(FaceDataset(...), batch_sampler=...)",
    "generator": "the order is a pure function of seed=; give that",
    "in_order": "batches always come in the one order that can be resumed; leave it out",
    "pin_memory_device": "give device= to get batches on it",
}


class UnknownArgumentError(FacefeedError, TypeError):
    """A keyword argument that a function does not have; Python's own error for one is a `TypeError`."""


def require_dataset_folder(dataset: Any) -> Path:
    """Returns the dataset folder as a path; raises `UsageError` where the argument is no such folder."""
    if isinstance(dataset, (list, tuple, Mapping)):
        raise UsageError(f"dataset={dataset!r}: only FaceDataLoader takes several datasets, as a mixture")
    if not isinstance(dataset, (str, os.PathLike)) or not os.fspath(dataset):
        raise UsageError(
            f"dataset={dataset!r}: must be the folder that `facefeed precompute` made, or a FaceDataset; for a part of "
            "one use split=, filters= and frames_per_video="
        )
    return Path(dataset)


def binding_error(function: Any, *arguments: Any, **keywords: Any) -> TypeError | None:
    """Why a function, or a module's forward, cannot be called with these arguments; None where it can."""
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        inspect.signature(called, follow_wrapped=False).bind(*arguments, **keywords)
    except TypeError as error:
        return error
    except ValueError:  # a C function without a signature
        return None
    return None


def accepts(function: Any, keyword: str) -> bool:
    """Whether a transform, or None, takes this keyword argument."""
    try:
        parameters = {} if function is None else inspect.signature(function).parameters
    except ValueError:  # a C function without a signature
        return False
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return function is None or takes_any or keyword in parameters


def check_face_transform(transform: Any, keywords: Sequence[str]) -> None:
    """Raises `UsageError` unless the transform is None or accepts the keyword arguments that the loader passes.

    An Albumentations pipeline in place of a `FaceCompose` is refused too: points would not follow.
    """
    if transform is None:
        return
    if not callable(transform):
        raise UsageError(f"face_transform={transform!r}: must be callable; try FaceCompose([...])")
    if (error := binding_error(transform, **dict.fromkeys(keywords))) is not None:
        call = ", ".join(f"{keyword}=" for keyword in keywords)
        raise UsageError(
            f"face_transform: is called with {call} and must return a dict with 'image': {error}; wrap it in a "
            "function that does"
        ) from error
    library = sys.modules.get("albumentations")  # only who has imported it can pass one
    if library is None or any(kind.__name__ == "FaceCompose" for kind in type(transform).__mro__):
        return
    if isinstance(transform, (library.BasicTransform, library.BaseCompose)):
        raise UsageError(
            f"face_transform: landmarks, hull and regions would not follow {type(transform).__name__}; give a list, "
            "[A.HorizontalFlip(p=0.5), ...], or a FaceCompose of it"
        )


def check_transform_list(transforms: Sequence[Any]) -> None:
    """Raises `UsageError` unless each item of a `face_transform` list is a transform of Albumentations or facefeed."""
    for transform in transforms:
        if not hasattr(transform, "available_keys") or isinstance(transform, type):
            raise UsageError(
                f"face_transform: {transform!r} in its list is no transform of Albumentations; of a function make one "
                "by A.Lambda(image=...), and give torchvision's to transform"
            )


def check_options(**options: Any) -> None:
    """Raises `UsageError` on the first of these options, in the order of `_OPTION_RULES`, that breaks its rule."""
    for name, is_valid, rule in _OPTION_RULES:
        if name in options and not is_valid(options[name]):
            raise UsageError(f"{name}={options[name]!r}: {rule}")


def _device_type(device: Any) -> str | None:
    try:
        return "cpu" if device is None else torch.device(device).type
    except (RuntimeError, TypeError):
        return None


def _is_flag(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _is_function_or_none(value: Any) -> bool:
    return value is None or callable(value)


_OPTION_RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("dtype", lambda value: value in ("float32", "uint8"), "must be float32 or uint8, as a word"),
    ("on_corrupt", lambda value: value in ("replace", "raise"), "must be 'replace' or 'raise'"),
    ("device", lambda value: _device_type(value) in ("cpu", "cuda"),
     "must be 'cpu' or 'cuda', with a number where there are several"),
    ("device", lambda value: _device_type(value) == "cpu" or torch.cuda.is_available(),
     "there is no CUDA device here; leave device out, or take 'cpu'"),
    ("fields", lambda value: value is None or (isinstance(value, Sequence) and not isinstance(value, str)),
     "must be a tuple of names, such as ('image', 'label', 'video_id')"),
    ("collate_fn", _is_function_or_none, "must be a function, or None"),
    ("worker_init_fn", _is_function_or_none, "must be a function, or None"),
    ("timeout", lambda value: as_float(value) >= 0,
     "must be a number of seconds of at least 0; 0 waits for ever"),
    ("persistent_workers", lambda value: value is None or _is_flag(value), "must be True or False"),
    ("drop_last", _is_flag, "must be True or False"),
    ("channels_last", _is_flag, "must be True or False"),
    ("pin_memory", _is_flag, "must be True or False"),
)  # fmt: skip
"""Options of `FaceDataLoader` with their checks and rules."""


def check_loader_options(unsupported: Mapping[str, Any], sampler: Any, **options: Any) -> None:
    """Checks the options of batches, and torch's that are `unsupported`; raises `UsageError` on what cannot hold."""
    check_unsupported(unsupported, sampler)
    check_options(**options)
    if options["collate_fn"] is not None and (options["dtype"] != "float32" or options["fields"] is not None):
        name = "fields" if options["fields"] is not None else "dtype"
        raise UsageError(
            f"collate_fn: gets (image, label) pairs of float32 and int, so {name} cannot hold; leave it out"
        )
    check_collate_device(options["collate_fn"], options["device"])


def check_collate_device(collate_fn: Any, device: Any) -> None:
    """Raises `UsageError` where the output of the user's collate_fn would have to be moved to a device."""
    if collate_fn is not None and _device_type(device) not in (None, "cpu"):
        raise UsageError(
            f"collate_fn: its output is delivered as it is, so device={str(device)!r} cannot hold; leave device out, "
            "and move batches in the training step"
        )


def check_dataset_options_unset(options: Mapping[str, Any], constructor: Callable[..., Any]) -> None:
    """Raises `UsageError` where an option of `constructor` differs from its default: the dataset object has its own."""
    defaults = inspect.signature(constructor).parameters
    for name, value in options.items():
        default = defaults[name].default
        if value is not default and (default is None or type(value) is not type(default) or value != default):
            raise UsageError(f"{name}: belongs to the dataset; give it to FaceDataset(...), or give the folder here")


def check_no_overrides(dataset: Any, base: type) -> None:
    """Raises `UsageError` where a subclass of a user overrides methods of `base`: the loader calls those of `base`."""
    replaceable = {name for name, member in vars(base).items() if isinstance(member, (FunctionType, property))}
    subclasses = takewhile(lambda cls: cls is not base, type(dataset).__mro__)
    own = {name for cls in subclasses if not cls.__module__.startswith("facefeed.") for name in vars(cls)}
    if overridden := sorted(own & replaceable - {"__init__"}):
        raise UsageError(
            f"{type(dataset).__name__}: {', '.join(overridden)} of its own would not be called, since a loader reads "
            "complete batches; give it as transform, face_transform or collate_fn, or take torch's DataLoader"
        )


def check_unsupported(arguments: Mapping[str, Any], sampler: Any) -> None:
    """Raises on arguments of torch's DataLoader that are not supported, unless they have torch's default."""
    parameters = inspect.signature(torch.utils.data.DataLoader).parameters
    for name, value in arguments.items():
        if name in parameters and value == parameters[name].default:
            continue
        if name not in _ALTERNATIVES:
            raise UnknownArgumentError(f"FaceDataLoader has no argument {name!r}; help(FaceDataLoader) lists them")
        raise UsageError(f"{name}: {_ALTERNATIVES[name]}")
    if sampler is not None and not _is_from_trainer(sampler):
        raise UsageError(f"sampler: {_ALTERNATIVES['sampler']}")


def _is_from_trainer(sampler: Any) -> bool:
    """Whether a trainer put this sampler around the loader's own as it rebuilds the loader."""
    if not isinstance(sampler, (DistributedSampler, SequentialSampler)):
        return False
    inner = getattr(sampler, "data_source", getattr(sampler, "dataset", None))
    classes = [kind.__name__ for kind in type(inner).__mro__]
    return not type(sampler).__module__.startswith("torch.") or "BatchDataset" in classes or "EpochSampler" in classes
