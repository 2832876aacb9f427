"""`BatchPostprocessor`: turns worker batches into the batches of the training loop, on the CPU or on a device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..batching.shared_pool import SharedBatchPool, empty_pinned
from ..batching.worker_batch import WorkerBatch
from ..device.seeded_transform import SeededTransform
from ..normalise import normalise
from ..torch_internals import pin_batch
from .jpeg_decoder import JpegDecoder
from .page_locking import PendingCopies, page_lock
from .prefetch import prefetch_to_device

_log = logging.getLogger("facefeed.loaders")

_IMAGES_TOO_LARGE = (
    "transforms return images of %d x %d px, more than image_size: each batch takes new memory, which costs time; "
    "give image_size=%d"
)


@dataclass(kw_only=True)
class BatchPostprocessor:
    """Turns worker batches into `(batch, number of images)`, one for one and in order.

    On the CPU, images stay as the worker wrote them; with `pin_memory`, batches are copied to page-locked memory. For a
    device, images are copied as uint8 and normalised there; on CUDA the next batch is transferred on a side stream
    while the step works on the current one, from where the worker wrote it.

    Args:
        pool: that worker batches refer to, or None.
        dtype: of the images, "float32" or "uint8".
        channels_last: whether images stay in channels-last memory.
        as_dict: whether a batch is a dict of columns, else `(images, labels)`.
        device: that batches come on; None: the CPU.
        pin_memory: copy to page-locked memory; needs an accelerator.
        frames: T where batches are of clips, whose images become (N, T, C, H, W); else None.
        transform: the `device_transform`, or None.
        decoder: of batches of JPEGs; None where workers decode.
        allocate_pinned: `allocate_pinned(shape, dtype)` is a block to copy from, not reused while a copy from it is
            pending, even if its tensor is gone; see `empty_pinned`.

    """

    pool: SharedBatchPool | None
    dtype: str
    channels_last: bool
    as_dict: bool
    device: str | torch.device | None
    pin_memory: bool
    frames: int | None = None
    transform: SeededTransform | None = None
    decoder: JpegDecoder | None = None
    allocate_pinned: Callable[[Sequence[int], torch.dtype], torch.Tensor] = empty_pinned

    def __post_init__(self) -> None:
        self._device = torch.device("cpu" if self.device is None else self.device)
        self._is_cuda = self._device.type == "cuda"
        self._pending = PendingCopies()

    def __call__(self, batches: Iterator[WorkerBatch]) -> Iterator[tuple[Any, int]]:
        """See the class. The output of the user's own collate_fn is passed on unchanged, on the CPU."""
        if self._is_cuda:
            return self._on_cuda(batches)
        return (self._finalize(batch) for batch in batches)

    def _on_cuda(self, batches: Iterator[WorkerBatch]) -> Iterator[tuple[Any, int]]:
        if self.pool is not None and self.decoder is None:
            page_lock(self.pool, self._device)
        try:
            yield from prefetch_to_device(batches, self._finalize, self._device)
        finally:
            self._pending.wait()

    def _finalize(self, batch: WorkerBatch) -> tuple[Any, int]:
        """On CUDA this enqueues copies and kernels on the current stream, and does not wait for them."""
        if batch.collated is not None:
            return pin_batch(batch.collated) if self.pin_memory else batch.collated, batch.count
        if batch.jpegs is None:
            images = self._images(batch)
            if self.pin_memory and not self.channels_last and not self._is_cuda:  # rearranged later, it would be copied
                images = self._transfer(images.movedim(-1, -3)).movedim(-3, -1)
            else:
                images = self._transfer(images)
        else:
            assert self.decoder is not None
            batch, images = self.decoder(batch)
        return self._assemble(images, batch), batch.count

    def _transfer(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the CPU on the device; to CUDA from page-locked memory, so that the host does not wait."""
        if self._is_cuda and self.pool is not None and self.pool.is_page_locked and self.pool.holds(tensor):
            self._pending.release_finished()
            on_device = tensor.to(self._device, non_blocking=True)
            self._pending.hold(tensor, torch.cuda.current_stream(self._device).record_event())
            return on_device
        if self.pin_memory or self._is_cuda:
            tensor = self.allocate_pinned(tensor.shape, tensor.dtype).copy_(tensor)
        return tensor.to(self._device, non_blocking=self._is_cuda)

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

    def _assemble(self, images: torch.Tensor, batch: WorkerBatch) -> Any:
        """The batch of the training loop, from images (N, H, W, 3) on the device."""
        if self.transform is not None:
            assert batch.seeds is not None
            images = self.transform(images, batch.seeds, self.frames or 1)
        elif images.dtype == torch.uint8 and self.dtype == "float32":
            images = normalise(images)
        else:
            images = images.movedim(-1, -3)
        images = images.contiguous(memory_format=torch.channels_last if self.channels_last else torch.contiguous_format)
        if self.frames is not None:
            images = images.view(-1, self.frames, *images.shape[1:])
        tensors = _to_tensors(batch.columns, self._transfer)
        return {"image": images, **tensors} if self.as_dict else (images, *tensors.values())


def _to_tensors(columns: Any, transfer: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Every array as a tensor on the device; strings unchanged."""
    if isinstance(columns, dict):
        return {name: _to_tensors(values, transfer) for name, values in columns.items()}
    if isinstance(columns, list):
        return [_to_tensors(value, transfer) for value in columns]
    return transfer(torch.from_numpy(columns)) if isinstance(columns, np.ndarray) else columns
