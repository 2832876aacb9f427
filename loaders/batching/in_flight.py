"""How much shared memory the batches in flight need, and whether this machine has it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from ...pipeline.errors import StoppedError, UsageError
from ...pipeline.files import memory_text
from ...pipeline.machine import memory_bytes
from .shared_pool import SharedBatchPool

SHM_DIR = Path("/dev/shm")  # noqa: S108 (where the C library puts shared memory)
_HELD_BY_TRAINING = 3  # batches: that of the current step, the next, and one whose reference lives on


@dataclass(frozen=True, kw_only=True)
class SharedMemorySpace:
    """Size of the shared-memory file system, in bytes."""

    total_bytes: int
    free_bytes: int

    @classmethod
    def of(cls, folder: Path = SHM_DIR) -> SharedMemorySpace | None:
        """That of the machine or the container; None where it has none."""
        try:
            stat = os.statvfs(folder)
        except OSError:
            return None
        return cls(total_bytes=stat.f_blocks * stat.f_frsize, free_bytes=stat.f_bavail * stat.f_frsize)


@dataclass(frozen=True, kw_only=True)
class InFlightBatches:
    """The batches of one loader that workers prefetch, and those that training still holds.

    `batch_size`: images, or clips of `frames` images.
    `max_image_numel`: most elements of an image as workers write it; None where that is not known, so that no memory is
    allocated.
    """

    num_workers: int
    prefetch_factor: int
    batch_size: int
    max_image_numel: int | None
    dtype: torch.dtype
    frames: int | None = None

    @property
    def num_batches(self) -> int:
        """How many may be in flight or held without new memory."""
        return 0 if self.max_image_numel is None else self.num_workers * self.prefetch_factor + _HELD_BY_TRAINING

    @property
    def batch_bytes(self) -> int:
        """Size of one batch."""
        return self.batch_size * (self.frames or 1) * (self.max_image_numel or 0) * self.dtype.itemsize

    @property
    def total_bytes(self) -> int:
        """Size of all batches."""
        return self.num_batches * self.batch_bytes

    def allocate(self, space: SharedMemorySpace | None) -> SharedBatchPool | None:
        """Allocates the pool, shared where there are workers; raises `UsageError` where `space` is too small.

        Without workers: where the machine is, and `StoppedError` where the system refused it.
        """
        if not self.num_batches:
            return None
        if self.num_workers and space is not None and self.total_bytes > space.free_bytes:
            raise UsageError(self._too_small(space))
        try:
            items = self.batch_bytes // self.dtype.itemsize
            return SharedBatchPool(self.num_batches, items, self.dtype, shared=self.num_workers > 0)
        except (RuntimeError, TypeError) as error:  # other ranks have used it up; or a size has over 64 bits
            if not self.num_workers and self.total_bytes <= memory_bytes():
                raise StoppedError(f"{self._needs}: {memory_text(error)}") from error
            raise UsageError(self._too_small(space)) from error

    @property
    def _needs(self) -> str:
        clips = "" if self.frames is None else f", Clip(frames={self.frames})"
        return (
            f"batch_size={self.batch_size}{clips}: {self.num_batches} batches of {_mb(self.batch_bytes)} need "
            f"{_mb(self.total_bytes)} of memory"
        )

    def _too_small(self, space: SharedMemorySpace | None) -> str:
        clips, fewer = ("", "") if self.frames is None else (f", Clip(frames={self.frames})", "fewer frames, ")
        if not self.num_workers:
            return (
                f"{self._needs}, which this machine does not have; take {fewer}a smaller batch_size, or dtype='uint8' "
                "(a quarter of the bytes)"
            )
        size = "" if space is None else f", of whose {_mb(space.total_bytes)} {_mb(space.free_bytes)} are free"
        needed_gb = -(-self.total_bytes * 5 // (4 * 10**9))  # a quarter for other uses
        return (
            f"num_workers={self.num_workers}, prefetch_factor={self.prefetch_factor}, "
            f"batch_size={self.batch_size}{clips}: "
            f"{self.num_batches} batches under way of {_mb(self.batch_bytes)} need {_mb(self.total_bytes)} of {SHM_DIR}"
            f"{size}; start the container with --shm-size={needed_gb}g for each loader, or take {fewer}a smaller "
            "num_workers, prefetch_factor or batch_size, or dtype='uint8' (a quarter of the bytes); num_workers=0 "
            "needs none"
        )


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
