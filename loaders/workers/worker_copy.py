"""`worker_copy`: what a worker would get, in the loader's own process."""

from __future__ import annotations

import io
import pickle
from typing import Any, TypeVar

import torch

from .importable import is_reduced_by_multiprocessing

_Parts = TypeVar("_Parts")


def worker_copy(parts: _Parts) -> _Parts:
    """A copy of objects as pickle makes it for a worker, which shares with them what processes can share.

    These are tensors, locks and the like. A dataset opens its files anew, and a transform that opens something at its
    first image, which no worker could be sent, does so in the copy.
    """
    stream = io.BytesIO()
    pickler = _Pickler(stream)
    pickler.dump(parts)
    stream.seek(0)
    copied: _Parts = _Unpickler(stream, pickler.shared).load()
    return copied


class _Pickler(pickle.Pickler):
    """Refers to objects that are shared by their position in `shared`."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self.shared: list[Any] = []

    def persistent_id(self, item: Any) -> int | None:
        if isinstance(item, torch.Generator) or not is_reduced_by_multiprocessing(item):
            return None
        self.shared.append(item)
        return len(self.shared) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(stream)
        self._shared = shared

    def persistent_load(self, position: int) -> Any:
        return self._shared[position]
