"""What is wrong with an argument, said where it is given: before any process starts, with what to use instead."""

from __future__ import annotations

import inspect
import io
import operator
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
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
    if not isinstance(dataset, (str, Path)):
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
        try:
            inspect.signature(transform).bind(**dict.fromkeys(words))
        except TypeError as error:
            call = ", ".join(f"{word}=" for word in words)
            raise UsageError(f"{name}: is called with {call} and returns a dict with 'image': {error}") from error
        except ValueError:  # written in C, says nothing of its arguments
            continue


def words(dtype: Any, on_corrupt: Any, device: Any, fields: Any) -> None:
    """Raises `UsageError` on a word that none of these arguments knows."""
    if dtype not in ("float32", "uint8"):
        raise UsageError(f"dtype={dtype!r}: must be float32 or uint8, as a word")
    if on_corrupt not in ("replace", "raise"):
        raise UsageError(f"on_corrupt={on_corrupt!r}: must be 'replace' or 'raise'")
    if device is not None and torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device={device!r}: there is no CUDA device here; leave device out, or take 'cpu'")
    if isinstance(fields, str) or (fields is not None and not isinstance(fields, Sequence)):
        raise UsageError(f"fields={fields!r}: must be a tuple of names, such as ('image', 'label', 'video_id')")


def not_twice(of_dataset: Mapping[str, Any], constructor: Callable[..., Any]) -> None:
    """Raises `UsageError` on options of a dataset that was given as an object: it has its own."""
    defaults = inspect.signature(constructor).parameters
    for name, value in of_dataset.items():
        if value is not defaults[name].default and value != defaults[name].default:
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
    if sampler is not None and not isinstance(sampler, (DistributedSampler, SequentialSampler)):
        raise UsageError(
            "sampler: use balance=, filters= and shuffle=, or torch's DataLoader(FaceDataset(...), sampler=...)"
        )


def importable(**parts: Any) -> None:
    """Raises `UsageError` where a part has functions that a worker could not find: lambdas, and those of a notebook."""
    for name, part in parts.items():
        try:
            _Functions(name).dump(part)
        except UsageError:
            raise
        except Exception:  # noqa: S112 (whether the rest can be sent, the real sending says)
            continue


class _Functions(pickle.Pickler):
    """Goes through what would be sent to a worker, looks at its functions and classes, and keeps nothing."""

    def __init__(self, name: str) -> None:
        super().__init__(_Nowhere())
        self._name = name

    def reducer_override(self, found: Any) -> Any:
        """Called for each object on the way."""
        if isinstance(found, (FunctionType, type)):
            if "<" in found.__qualname__:  # <lambda>, <locals>
                raise UsageError(
                    f"{self._name}: workers cannot import {found.__qualname__}; write it at the top level of a module, "
                    "or take num_workers=0"
                )
            if found.__module__ == "__main__" and not Path(getattr(sys.modules["__main__"], "__file__", "")).is_file():
                raise UsageError(
                    f"{self._name}: workers cannot import {found.__qualname__} from a notebook or a prompt; move it to "
                    "a file, or take num_workers=0"
                )
        return NotImplemented


class _Nowhere(io.RawIOBase):
    def write(self, data: Any) -> int:
        return len(data)
