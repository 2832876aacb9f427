"""The last stretch: from a worker's uint8 batch to what the training loop gets, on the CPU or on a device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..batching.batch import RawBatch
from ..batching.shared_blocks import SharedRing, page_locked
from ..normalise import normalise
from .prefetch import one_ahead

_log = logging.getLogger("facefeed.loaders")

_OUTGROWN = (
    "transform returns images of %d x %d px, more than image_size: each batch takes new memory, which costs time; "
    "give image_size=%d"
)


@dataclass(kw_only=True)
class Delivery:
    """Turns raw batches into `(batch, images)`, one for one and in order.

    On the CPU they are what a worker made; with `pinned`, copied to page-locked memory. On a device they are copied as
    uint8 and normalised there; on CUDA the next one is always under way, on a stream of its own, while the step works
    on the one before.

    `pinned`: needs an accelerator. `host_memory(shape, dtype)`: a block to copy from, not handed out again while a
    copy from it is pending, even if its tensor is gone; see `page_locked`.
    """

    ring: SharedRing | None
    dtype: str
    channels_last: bool
    as_dict: bool
    device: str | torch.device | None
    pinned: bool
    host_memory: Callable[[Sequence[int], torch.dtype], torch.Tensor] = page_locked

    def __post_init__(self) -> None:
        self._device = torch.device("cpu" if self.device is None else self.device)

    def __call__(self, batches: Iterator[RawBatch]) -> Iterator[tuple[Any, int]]:
        """See the class. A batch that the user's own collate_fn made is handed on as it is."""
        if self._device.type == "cuda":
            return one_ahead(batches, self._started, self._device)
        return (self._finished(raw) for raw in batches)

    def _finished(self, raw: RawBatch) -> tuple[Any, int]:
        if raw.collated is not None:
            return raw.collated, raw.count
        images = self._images(raw)
        if self.pinned:
            images = self._locked(images)
        return self._packed(images.to(self._device), raw.columns), raw.count

    def _started(self, raw: RawBatch) -> tuple[Any, int]:
        if raw.collated is not None:
            return raw.collated, raw.count
        images = self._locked(self._images(raw)).to(self._device, non_blocking=True)
        return self._packed(images, raw.columns), raw.count

    def _locked(self, images: torch.Tensor) -> torch.Tensor:
        return self.host_memory(images.shape, images.dtype).copy_(images)

    def _images(self, raw: RawBatch) -> torch.Tensor:
        """(N, H, W, 3) on the CPU, as the worker made them."""
        if self.ring is None or raw.slot is None:
            assert raw.images is not None
            return raw.images
        if raw.images is None:
            return self.ring.lend(raw.slot, (raw.count, *raw.size, 3))
        self.ring.release(raw.slot)
        if not self.ring.outgrown:
            self.ring.outgrown = True
            height, width = raw.images.shape[1:3]
            _log.warning(_OUTGROWN, height, width, max(height, width))
        return raw.images

    def _packed(self, images: torch.Tensor, columns: dict[str, Any]) -> Any:
        """The batch, from images (N, H, W, 3) as the worker made them, on their device."""
        to_normalise = images.dtype == torch.uint8 and self.dtype == "float32"
        images = normalise(images) if to_normalise else images.movedim(-1, -3)
        if not self.channels_last:
            images = images.contiguous()
        tensors = _tensors(columns, self._device)
        return {"image": images, **tensors} if self.as_dict else (images, tensors["label"])


def _tensors(columns: Any, device: torch.device) -> Any:
    """Every array as a tensor on the device; strings as they are."""
    if isinstance(columns, dict):
        return {name: _tensors(values, device) for name, values in columns.items()}
    if isinstance(columns, list):
        return [_tensors(value, device) for value in columns]
    return torch.from_numpy(columns).to(device) if isinstance(columns, np.ndarray) else columns
