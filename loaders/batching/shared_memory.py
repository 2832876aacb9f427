"""The memory of batches that are under way between processes: how much it is, and whether this machine has it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from ...pipeline.errors import UsageError
from .shared_blocks import SharedRing

SHARED = Path("/dev/shm")  # noqa: S108 (where the C library puts shared memory)
_HELD = 3  # batches that training holds: the one of this step, the next, and one that it forgot to drop


@dataclass(frozen=True, kw_only=True)
class SharedRoom:
    """What the file system of shared memory holds, in bytes."""

    total_bytes: int
    free_bytes: int

    @classmethod
    def here(cls, folder: Path = SHARED) -> SharedRoom | None:
        """That of the machine or the container; None where it has none."""
        try:
            found = os.statvfs(folder)
        except OSError:
            return None
        return cls(total_bytes=found.f_blocks * found.f_frsize, free_bytes=found.f_bavail * found.f_frsize)


@dataclass(frozen=True, kw_only=True)
class BatchesUnderWay:
    """The batches of one loader that workers make ahead, and those that training holds.

    `side_px`: of an image as workers write it; None where that is not known, so that no memory is set aside.
    """

    workers: int
    prefetch_factor: int
    batch_images: int
    side_px: int | None
    dtype: torch.dtype

    @property
    def batches(self) -> int:
        """How many may be under way or held without new memory."""
        return 0 if self.side_px is None else self.workers * self.prefetch_factor + _HELD

    @property
    def batch_bytes(self) -> int:
        """Of one batch."""
        return self.batch_images * (self.side_px or 0) ** 2 * 3 * self.dtype.itemsize

    @property
    def total_bytes(self) -> int:
        """Of all batches."""
        return self.batches * self.batch_bytes

    def ring(self, room: SharedRoom | None) -> SharedRing | None:
        """The memory, shared where there are workers; raises `UsageError` where that is more than `room` has."""
        if not self.batches:
            return None
        if self.workers and room is not None and self.total_bytes > room.free_bytes:
            raise UsageError(self._refusal(room))
        try:
            items = self.batch_bytes // self.dtype.itemsize
            return SharedRing(self.batches, items, self.dtype, shared=self.workers > 0)
        except RuntimeError as error:  # other ranks were first
            raise UsageError(self._refusal(room)) from error

    def _refusal(self, room: SharedRoom | None) -> str:
        size = "" if room is None else f", of whose {_mb(room.total_bytes)} {_mb(room.free_bytes)} are free"
        wanted_gb = -(-self.total_bytes * 5 // (4 * 10**9))  # a quarter for what else lies there
        return (
            f"num_workers={self.workers}, prefetch_factor={self.prefetch_factor}, batch_size={self.batch_images}: "
            f"{self.batches} batches under way of {_mb(self.batch_bytes)} need {_mb(self.total_bytes)} of {SHARED}"
            f"{size}; start the container with --shm-size={wanted_gb}g for each loader, or take a smaller num_workers, "
            "prefetch_factor or batch_size, or dtype='uint8' (a quarter of the bytes); num_workers=0 needs none"
        )


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
