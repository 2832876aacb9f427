"""Batch memory that is reused: page faults on new pages cost more than writing the images.

A new float32 batch of 64 images is 38 MB, 9,400 page faults: four fifths of the time of filling it.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..torch_internals import empty_shared


def with_release_callback(block: torch.Tensor, on_release: Callable[[], None]) -> torch.Tensor:
    """Returns a tensor of the same memory; `on_release` is called when that tensor and all its views are gone.

    As with any tensor from numpy, the receiver may keep it for any time.
    """
    array = block.numpy().view()
    weakref.finalize(array, on_release).atexit = False
    return torch.from_numpy(array)  # its storage holds `array`


def empty_pinned(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialized page-locked tensor from torch's caching host allocator.

    The allocator reuses a block only when its tensor is gone and every copy that was enqueued from it has ended: each
    `to(device, non_blocking=True)` records an event on its stream. Reference counts alone do not cover copies.
    Raises `RuntimeError` where torch has no accelerator.
    """
    return torch.empty(tuple(shape), dtype=dtype, device="cpu", pin_memory=True)


class SharedBatchPool:
    """Slots of shared memory that workers write batches to: allocated once, passed to workers as they start.

    The memory has no name in the file system, so it is freed with its last process, however that ends. Only the
    loader's process knows which slots are free: each request names one, which is free again after use.

    Args:
        slots: how many batches it holds.
        slot_numel: most elements of a slot: images of any one size.
        dtype: of the images.
        shared: False where no other process writes to it.

    """

    def __init__(self, slots: int, slot_numel: int, dtype: torch.dtype, *, shared: bool = True) -> None:
        with torch.inference_mode(False):  # a validation's, after which an epoch of training could not write to them
            shape = slots, slot_numel
            self.blocks = empty_shared(shape, dtype) if shared else torch.empty(shape, dtype=dtype, device="cpu")
        self.images_were_too_large = False
        """Whether there were images that did not fit."""
        self.is_page_locked = False
        """Whether a GPU of this process reads the blocks directly; see `transfer.page_locking`."""
        self._free = list(range(slots))
        self._acquired: set[int] = set()

    def __getstate__(self) -> dict[str, Any]:
        """What is locked in this process is not where a copy lies."""
        return {**self.__dict__, "is_page_locked": False}

    def view(self, slot: int, shape: Sequence[int]) -> torch.Tensor | None:
        """The beginning of a slot as images (N, H, W, 3) of that shape; None where they do not fit."""
        items = math.prod(shape)
        return self.blocks[slot, :items].view(*shape) if items <= self.blocks.shape[1] else None

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in the blocks."""
        return 0 <= tensor.data_ptr() - self.blocks.data_ptr() < self.blocks.nbytes

    def acquire(self) -> int | None:
        """Takes a free slot for a worker to write to; None where all are in use."""
        if not self._free:
            return None
        slot = self._free.pop()
        self._acquired.add(slot)
        return slot

    def borrow(self, slot: int, shape: Sequence[int]) -> torch.Tensor:
        """The images (N, H, W, 3) in an acquired slot, which is freed when the tensor and all its views are gone."""
        self._acquired.remove(slot)
        images = self.view(slot, shape)
        assert images is not None
        return with_release_callback(images, lambda: self._free.append(slot))

    def release(self, slot: int) -> None:
        """Frees an acquired slot that was not written to."""
        self._acquired.remove(slot)
        self._free.append(slot)

    def reclaim(self) -> None:
        """Frees all slots that were acquired and neither borrowed nor released; only while no worker writes."""
        self._free.extend(self._acquired)
        self._acquired.clear()
