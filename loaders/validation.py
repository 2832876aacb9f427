"""Checks of arguments: each raises `UsageError` where the argument is given, before any process starts."""

from __future__ import annotations

import ast
import inspect
import io
import operator
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch.utils.data import SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from ..pipeline.errors import UsageError

_ALTERNATIVES = {
    "batch_sampler": "use balance=, filters= and shuffle=, or torch's DataLoader(FaceDataset(...), batch_sampler=...)",
    "generator": "the order is a pure function of seed=; give that",
    "in_order": "batches always come in the one order that can be resumed; leave it out",
    "pin_memory_device": "give device= to get batches on it",
}


def require_int(name: str, value: Any, *, minimum: int | None = 0, example: int) -> int:
    """Returns the value as an int; raises `UsageError` unless it is a Python or numpy integer of at least `minimum`."""
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (minimum is not None and number < minimum):
        kind = "a whole number" if number is None else ""
        bound = "" if minimum is None else f"at least {minimum}"
        raise UsageError(f"{name}={value!r}: must be {' of '.join(filter(None, (kind, bound)))}; try {example}")
    return number


def require_bools(**values: Any) -> None:
    """Raises `UsageError` unless each is True or False."""
    for name, value in values.items():
        if not isinstance(value, (bool, np.bool_)):
            raise UsageError(f"{name}={value!r}: must be True or False")


def require_dataset_folder(dataset: Any) -> Path:
    """Returns the dataset folder as a path; raises `UsageError` where the argument is no such folder."""
    if not isinstance(dataset, (str, os.PathLike)) or not os.fspath(dataset):
        raise UsageError(
            f"dataset={dataset!r}: must be the folder that `facefeed precompute` made, or a FaceDataset; for a part of "
            "one use split=, filters= and frames_per_video="
        )
    path = Path(dataset)
    if not (path / "manifest.json").exists() and (path.parent / "manifest.json").exists():
        raise UsageError(f"{path}: is a part of the dataset {path.parent}; give that")
    return path


def check_transforms(**transforms: Any) -> None:
    """Raises `UsageError` unless each is None or accepts the keyword arguments that the loader passes."""
    for name, transform in transforms.items():
        if transform is None:
            continue
        if isinstance(transform, (list, tuple)):
            raise UsageError(f"{name}={transform!r}: must be one transform; try A.Compose([...])")
        if not callable(transform):
            raise UsageError(
                f"{name}={transform!r}: must be callable; try an Albumentations pipeline, A.Compose([...])"
            )
        keywords = ("image",) if name == "transform" else ("image", "landmarks", "hull", "regions", "mask", "partner")
        function = transform.forward if isinstance(transform, torch.nn.Module) else transform
        try:
            inspect.signature(function, follow_wrapped=False).bind(**dict.fromkeys(keywords))
        except TypeError as error:
            call = ", ".join(f"{keyword}=" for keyword in keywords)
            raise UsageError(
                f"{name}: is called with {call} and must return a dict with 'image': {error}; wrap it in a function "
                "that does"
            ) from error
        except ValueError:  # a C function without a signature
            continue


def check_face_transform(transform: Any) -> None:
    """Raises `UsageError` on an Albumentations pipeline in place of a `FaceCompose`: points would not follow."""
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
                "by A.Lambda(image=...)"
            )


def check_choices(dtype: Any, on_corrupt: Any, device: Any, fields: Any) -> None:
    """Raises `UsageError` where one of these arguments has none of its allowed values."""
    if dtype not in ("float32", "uint8"):
        raise UsageError(f"dtype={dtype!r}: must be float32 or uint8, as a word")
    if on_corrupt not in ("replace", "raise"):
        raise UsageError(f"on_corrupt={on_corrupt!r}: must be 'replace' or 'raise'")
    kind = _device_type(device)
    if kind not in ("cpu", "cuda"):
        raise UsageError(f"device={device!r}: must be 'cpu' or 'cuda', with a number where there are several")
    if kind == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device={device!r}: there is no CUDA device here; leave device out, or take 'cpu'")
    if isinstance(fields, str) or (fields is not None and not isinstance(fields, Sequence)):
        raise UsageError(f"fields={fields!r}: must be a tuple of names, such as ('image', 'label', 'video_id')")


def _device_type(device: Any) -> str | None:
    try:
        return "cpu" if device is None else torch.device(device).type
    except (RuntimeError, TypeError):
        return None


def check_worker_options(*, collate_fn: Any, worker_init_fn: Any, timeout: Any, persistent_workers: Any) -> None:
    """Raises `UsageError` on values that torch would accept and that would fail in a worker."""
    for name, function in (("collate_fn", collate_fn), ("worker_init_fn", worker_init_fn)):
        if function is not None and not callable(function):
            raise UsageError(f"{name}={function!r}: must be a function, or None")
    if isinstance(timeout, bool) or not isinstance(timeout, Real) or not float(timeout) >= 0:
        raise UsageError(f"timeout={timeout!r}: must be a number of seconds of at least 0; 0 waits for ever")
    if persistent_workers is not None:
        require_bools(persistent_workers=persistent_workers)


def check_collate_options(*, dtype: str, fields: Any) -> None:
    """Raises `UsageError` on batch options that have no effect with the user's own collate_fn."""
    if dtype != "float32" or fields is not None:
        name = "fields" if fields is not None else "dtype"
        raise UsageError(
            f"collate_fn: gets (image, label) pairs of float32 and int, so {name} cannot hold; leave it out"
        )


def check_dataset_options_unset(options: Mapping[str, Any], constructor: Callable[..., Any]) -> None:
    """Raises `UsageError` where an option of `constructor` differs from its default: the dataset object has its own."""
    defaults = inspect.signature(constructor).parameters
    for name, value in options.items():
        default = defaults[name].default
        if value is not default and (default is None or type(value) is not type(default) or value != default):
            raise UsageError(f"{name}: belongs to the dataset; give it to FaceDataset(...), or give the folder here")


def check_unsupported(arguments: Mapping[str, Any], sampler: Any) -> None:
    """Raises on arguments of torch's DataLoader that are not supported, unless they have torch's default."""
    parameters = inspect.signature(torch.utils.data.DataLoader).parameters
    for name, value in arguments.items():
        if name in parameters and value == parameters[name].default:
            continue
        if name not in _ALTERNATIVES:
            raise TypeError(f"FaceDataLoader has no argument {name!r}")
        raise UsageError(f"{name}: {_ALTERNATIVES[name]}")
    if sampler is not None and not _is_from_trainer(sampler):
        raise UsageError(
            "sampler: use balance=, filters= and shuffle=, or torch's DataLoader(FaceDataset(...), sampler=...)"
        )


def _is_from_trainer(sampler: Any) -> bool:
    """Whether a trainer put this sampler around the loader's own as it rebuilds the loader."""
    if not isinstance(sampler, (DistributedSampler, SequentialSampler)):
        return False
    inner = getattr(sampler, "data_source", getattr(sampler, "dataset", None))
    classes = [kind.__name__ for kind in type(inner).__mro__]
    return not type(sampler).__module__.startswith("torch.") or "BatchDataset" in classes or "EpochSampler" in classes


def check_importable(**parts: Any) -> None:
    """Raises `UsageError` where a part cannot be pickled, or refers to functions that workers cannot import.

    These are lambdas, and functions defined in a notebook, at a prompt, or below `if __name__ == "__main__":`.
    """
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is not None and getattr(main, "__spec__", None) is None and not Path(file).is_file():
        raise UsageError(f"num_workers: workers cannot import the script from {file}; save it, or take num_workers=0")
    for name, part in parts.items():
        try:
            _ImportablePickler(name).dump(part)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise UsageError(f"{name}: cannot be sent to workers: {error}; fix that, or take num_workers=0") from error


class _ImportablePickler(pickle.Pickler):
    """Checks the functions and classes of an object as pickle visits them; discards the output."""

    def __init__(self, name: str) -> None:
        super().__init__(_NullStream())
        self._name = name

    def reducer_override(self, item: Any) -> Any:
        """Called by pickle for each object that it visits."""
        if type(item).__module__.split(".")[0] in ("torch", "multiprocessing"):
            return int, ()  # reduced by multiprocessing itself, only while a worker starts
        if isinstance(item, (FunctionType, type)):
            if "<" in item.__qualname__:  # <lambda>, <locals>
                raise UsageError(
                    f"{self._name}: workers cannot import {item.__qualname__}; write it at the top level of a module, "
                    "or take num_workers=0"
                )
            if item.__module__ == "__main__" and (why := _why_not_importable(item.__qualname__)):
                raise UsageError(
                    f"{self._name}: workers cannot import {item.__qualname__} {why}; move it to a module, or take "
                    "num_workers=0"
                )
        return NotImplemented


def _why_not_importable(name: str) -> str:
    """Why a worker cannot import this name of the main module; empty where it can."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if file is None:
        return "from a notebook or a prompt"
    if spec is not None and spec.name.split(".")[-1] == "__main__":
        return "from a package's __main__"
    try:
        top = ast.parse(Path(file).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return ""
    blocks = [statement.body for statement in top if isinstance(statement, ast.If)]
    inside = {node.name for block in blocks for node in block if isinstance(node, _DEFINITIONS)}
    outside = {node.name for node in top if isinstance(node, _DEFINITIONS)}
    guarded = name.split(".", maxsplit=1)[0] in inside - outside
    return "from below `if __name__ == '__main__':`" if guarded else ""


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class _NullStream(io.RawIOBase):
    def write(self, data: Any) -> int:
        return len(data)
