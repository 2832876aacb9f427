"""`BatchFinalizer`: turns worker batches into the batches of the training loop, on the CPU or on a device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..batching.batch_dataset import WorkerBatch
from ..batching.shared_pool import SharedBatchPool, empty_pinned
from ..normalise import normalise
from .prefetch import prefetch_to_device

_log = logging.getLogger("facefeed.loaders")

_IMAGES_TOO_LARGE = (
    "transform returns images of %d x %d px, more than image_size: each batch takes new memory, which costs time; "
    "give image_size=%d"
)


@dataclass(kw_only=True)
class BatchFinalizer:
    """Turns worker batches into `(batch, number of images)`, one for one and in order.

    On the CPU, images stay as the worker wrote them; with `pin_memory`, they are copied to page-locked memory. For a
    device, they are copied as uint8 and normalised there; on CUDA the next batch is transferred on a side stream while
    the step works on the current one.

    Args:
        pool: that worker batches refer to, or None.
        dtype: of the images, "float32" or "uint8".
        channels_last: whether images stay in channels-last memory.
        as_dict: whether a batch is a dict of columns, else `(images, labels)`.
        device: that batches come on; None: the CPU.
        pin_memory: copy to page-locked memory; needs an accelerator.
        allocate_pinned: `allocate_pinned(shape, dtype)` is a block to copy from, not reused while a copy from it is
            pending, even if its tensor is gone; see `empty_pinned`.

    """

    pool: SharedBatchPool | None
    dtype: str
    channels_last: bool
    as_dict: bool
    device: str | torch.device | None
    pin_memory: bool
    allocate_pinned: Callable[[Sequence[int], torch.dtype], torch.Tensor] = empty_pinned

    def __post_init__(self) -> None:
        self._device = torch.device("cpu" if self.device is None else self.device)
        self._is_cuda = self._device.type == "cuda"

    def __call__(self, batches: Iterator[WorkerBatch]) -> Iterator[tuple[Any, int]]:
        """See the class. The output of the user's own collate_fn is passed on unchanged."""
        if self._is_cuda:
            return prefetch_to_device(batches, self._finalize, self._device)
        return (self._finalize(batch) for batch in batches)

    def _finalize(self, batch: WorkerBatch) -> tuple[Any, int]:
        """On CUDA this enqueues copies and kernels on the current stream, and does not wait for them."""
        if batch.collated is not None:
            return batch.collated, batch.count
        images = self._images(batch)
        if self.pin_memory or self._is_cuda:
            images = self.allocate_pinned(images.shape, images.dtype).copy_(images)
        images = images.to(self._device, non_blocking=self._is_cuda)
        return self._assemble(images, batch.columns), batch.count

    def _images(self, batch: WorkerBatch) -> torch.Tensor:
        """(N, H, W, 3) on the CPU, as the worker wrote them."""
        if self.pool is None or batch.slot is None:
            assert batch.images is not None
            return batch.images
        if batch.images is None:
            return self.pool.borrow(batch.slot, (batch.count, *batch.image_size, 3))
        self.pool.release(batch.slot)
        if not self.pool.images_were_too_large:
            self.pool.images_were_too_large = True
            height, width = batch.images.shape[1:3]
            _log.warning(_IMAGES_TOO_LARGE, height, width, max(height, width))
        return batch.images

    def _assemble(self, images: torch.Tensor, columns: dict[str, Any]) -> Any:
        """The batch, from images (N, H, W, 3) as the worker wrote them, on the device."""
        needs_normalising = images.dtype == torch.uint8 and self.dtype == "float32"
        images = normalise(images) if needs_normalising else images.movedim(-1, -3)
        if not self.channels_last:
            images = images.contiguous()
        tensors = _to_tensors(columns, self._device)
        return {"image": images, **tensors} if self.as_dict else (images, tensors["label"])


def _to_tensors(columns: Any, device: torch.device) -> Any:
    """Every array as a tensor on the device; strings unchanged."""
    if isinstance(columns, dict):
        return {name: _to_tensors(values, device) for name, values in columns.items()}
    if isinstance(columns, list):
        return [_to_tensors(value, device) for value in columns]
    return torch.from_numpy(columns).to(device) if isinstance(columns, np.ndarray) else columns
