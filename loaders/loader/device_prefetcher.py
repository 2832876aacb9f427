"""`DevicePrefetcher`: a loader whose batches come on a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ...pipeline.errors import UsageError
from .face_dataloader import FaceDataLoader


class DevicePrefetcher:
    """A loader whose batches come on a device: `for images, labels in DevicePrefetcher(loader, "cuda")`.

    It calls `loader.to(device)`, and passes everything else on to the loader: length, statistics, state and epochs. On
    CUDA the next batch is copied from page-locked memory as uint8, a quarter of the bytes, and normalised there on a
    side stream while the step works on the current one; the state counts the batches that were delivered. On the CPU it
    behaves as the loader itself.
    """

    def __init__(self, loader: FaceDataLoader, device: str | torch.device) -> None:
        if not hasattr(loader, "describe"):
            raise UsageError(f"DevicePrefetcher({type(loader).__name__}): takes a FaceDataLoader alone")
        loader.to(device)
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # while it is being unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)
