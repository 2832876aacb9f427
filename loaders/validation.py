"""What is wrong with an argument, said where it is given: before any process starts, with what to use instead."""

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

_INSTEAD = {
    "batch_sampler": "use balance=, filters= and shuffle=, or torch's DataLoader(FaceDataset(...), batch_sampler=...)",
    "generator": "the order is a pure function of seed=; give that",
    "in_order": "batches always come in the one order that can be resumed; leave it out",
    "pin_memory_device": "give device= to get batches on it",
}


def whole(name: str, value: Any, *, least: int | None = 0, such_as: int) -> int:
    """The value as an int; raises `UsageError` unless it is one, or one of numpy's, of at least `least`."""
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        kind = "a whole number" if number is None else ""
        bound = "" if least is None else f"at least {least}"
        raise UsageError(f"{name}={value!r}: must be {' of '.join(filter(None, (kind, bound)))}; try {such_as}")
    return number


def flags(**given: Any) -> None:
    """Raises `UsageError` unless each is True or False."""
    for name, value in given.items():
        if not isinstance(value, (bool, np.bool_)):
            raise UsageError(f"{name}={value!r}: must be True or False")


def folder(dataset: Any) -> Path:
    """The folder that was given in place of a dataset; raises `UsageError` where it is none."""
    if not isinstance(dataset, (str, os.PathLike)) or not os.fspath(dataset):
        raise UsageError(
            f"dataset={dataset!r}: must be the folder that `facefeed precompute` made, or a FaceDataset; for a part of "
            "one use split=, filters= and frames_per_video="
        )
    path = Path(dataset)
    if not (path / "manifest.json").exists() and (path.parent / "manifest.json").exists():
        raise UsageError(f"{path}: is a part of the dataset {path.parent}; give that")
    return path


def transforms(**given: Any) -> None:
    """Raises `UsageError` unless each is None or can be called as the loader calls it."""
    for name, transform in given.items():
        if transform is None:
            continue
        if isinstance(transform, (list, tuple)):
            raise UsageError(f"{name}={transform!r}: must be one transform; try A.Compose([...])")
        if not callable(transform):
            raise UsageError(
                f"{name}={transform!r}: must be callable; try an Albumentations pipeline, A.Compose([...])"
            )
        words = ("image",) if name == "transform" else ("image", "landmarks", "hull", "regions", "mask", "partner")
        called = transform.forward if isinstance(transform, torch.nn.Module) else transform
        try:
            inspect.signature(called, follow_wrapped=False).bind(**dict.fromkeys(words))
        except TypeError as error:
            call = ", ".join(f"{word}=" for word in words)
            raise UsageError(
                f"{name}: is called with {call} and must return a dict with 'image': {error}; wrap it in a function "
                "that does"
            ) from error
        except ValueError:  # written in C, says nothing of its arguments
            continue


def of_faces(transform: Any) -> None:
    """Raises `UsageError` on an Albumentations pipeline in place of a `FaceCompose`: its points would not follow."""
    library = sys.modules.get("albumentations")  # who hands one over has imported it
    if library is None or any(kind.__name__ == "FaceCompose" for kind in type(transform).__mro__):
        return
    if isinstance(transform, (library.BasicTransform, library.BaseCompose)):
        raise UsageError(
            f"face_transform: landmarks, hull and regions would not follow {type(transform).__name__}; give a list, "
            "[A.HorizontalFlip(p=0.5), ...], or a FaceCompose of it"
        )


def listed(transforms: Sequence[Any]) -> None:
    """Raises `UsageError` unless all of a `face_transform`'s list are Albumentations' or ours."""
    for one in transforms:
        if not hasattr(one, "available_keys") or isinstance(one, type):
            raise UsageError(
                f"face_transform: {one!r} in its list is no transform of Albumentations; of a function make one by "
                "A.Lambda(image=...)"
            )


def words(dtype: Any, on_corrupt: Any, device: Any, fields: Any) -> None:
    """Raises `UsageError` on a word that none of these arguments knows."""
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


def of_workers(*, collate_fn: Any, worker_init_fn: Any, timeout: Any, persistent_workers: Any) -> None:
    """Raises `UsageError` on what torch would take without a word, and stumble over in a worker."""
    for name, call in (("collate_fn", collate_fn), ("worker_init_fn", worker_init_fn)):
        if call is not None and not callable(call):
            raise UsageError(f"{name}={call!r}: must be a function, or None")
    if isinstance(timeout, bool) or not isinstance(timeout, Real) or not float(timeout) >= 0:
        raise UsageError(f"timeout={timeout!r}: must be a number of seconds of at least 0; 0 waits for ever")
    if persistent_workers is not None:
        flags(persistent_workers=persistent_workers)


def own_collating(*, dtype: str, fields: Any) -> None:
    """Raises `UsageError` on options of a batch that the user's own collate_fn makes."""
    if dtype != "float32" or fields is not None:
        name = "fields" if fields is not None else "dtype"
        raise UsageError(
            f"collate_fn: gets (image, label) pairs of float32 and int, so {name} cannot hold; leave it out"
        )


def not_twice(of_dataset: Mapping[str, Any], constructor: Callable[..., Any]) -> None:
    """Raises `UsageError` on options of a dataset that was given as an object: it has its own."""
    defaults = inspect.signature(constructor).parameters
    for name, value in of_dataset.items():
        default = defaults[name].default
        if value is not default and (default is None or type(value) is not type(default) or value != default):
            raise UsageError(f"{name}: belongs to the dataset; give it to FaceDataset(...), or give the folder here")


def none_of(refused: Mapping[str, Any], sampler: Any) -> None:
    """Raises on torch's arguments that cannot hold here, unless they have torch's default."""
    torchs = inspect.signature(torch.utils.data.DataLoader).parameters
    for name, value in refused.items():
        if name in torchs and value == torchs[name].default:
            continue
        if name not in _INSTEAD:
            raise TypeError(f"FaceDataLoader has no argument {name!r}")
        raise UsageError(f"{name}: {_INSTEAD[name]}")
    if sampler is not None and not _of_trainer(sampler):
        raise UsageError(
            "sampler: use balance=, filters= and shuffle=, or torch's DataLoader(FaceDataset(...), sampler=...)"
        )


def _of_trainer(sampler: Any) -> bool:
    """Whether a sampler is one that a trainer puts over a loader that it makes anew."""
    if not isinstance(sampler, (DistributedSampler, SequentialSampler)):
        return False
    over = getattr(sampler, "data_source", getattr(sampler, "dataset", None))
    ours = [kind.__name__ for kind in type(over).__mro__]
    return not type(sampler).__module__.startswith("torch.") or "BatchSource" in ours or "EpochSampler" in ours


def importable(**parts: Any) -> None:
    """Raises `UsageError` where a part cannot be sent to workers, or has functions that they could not find.

    These are lambdas, and what is defined in a notebook, at a prompt, or below `if __name__ == "__main__":`.
    """
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is not None and getattr(main, "__spec__", None) is None and not Path(file).is_file():
        raise UsageError(f"num_workers: workers cannot import the script from {file}; save it, or take num_workers=0")
    for name, part in parts.items():
        try:
            _Functions(name).dump(part)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise UsageError(f"{name}: cannot be sent to workers: {error}; mend that, or take num_workers=0") from error


class _Functions(pickle.Pickler):
    """Goes through what would be sent to a worker, looks at its functions and classes, and keeps nothing."""

    def __init__(self, name: str) -> None:
        super().__init__(_Nowhere())
        self._name = name

    def reducer_override(self, found: Any) -> Any:
        """Called for each object on the way."""
        if type(found).__module__.split(".")[0] in ("torch", "multiprocessing"):
            return int, ()  # these have ways of their own to a worker, which begin with it
        if isinstance(found, (FunctionType, type)):
            if "<" in found.__qualname__:  # <lambda>, <locals>
                raise UsageError(
                    f"{self._name}: workers cannot import {found.__qualname__}; write it at the top level of a module, "
                    "or take num_workers=0"
                )
            if found.__module__ == "__main__" and (why := _hidden(found.__qualname__)):
                raise UsageError(
                    f"{self._name}: workers cannot import {found.__qualname__} {why}; move it to a module, or take "
                    "num_workers=0"
                )
        return NotImplemented


def _hidden(name: str) -> str:
    """Why a worker would not find what the main module calls so; empty where it would."""
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
    inside = {one.name for part in top if isinstance(part, ast.If) for one in part.body if isinstance(one, _DEFINES)}
    outside = {one.name for one in top if isinstance(one, _DEFINES)}
    guarded = name.split(".", maxsplit=1)[0] in inside - outside
    return "from below `if __name__ == '__main__':`" if guarded else ""


_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class _Nowhere(io.RawIOBase):
    def write(self, data: Any) -> int:
        return len(data)
