"""Page-locks the batches' shared memory, so that a GPU reads it directly, and keeps it from reuse while it does."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections import deque
from typing import Protocol

import torch

from ..batching.shared_pool import SharedBatchPool

_PORTABLE = 1  # for all devices of this process


class Event(Protocol):
    """What `PendingCopies` needs of `torch.cuda.Event`."""

    def query(self) -> bool:
        """Whether the device has reached it."""

    def synchronize(self) -> None:
        """Waits for that."""


class PendingCopies:
    """Host memory that copies to a device may still read: it is referenced here until they have ended.

    A slot of the pool is free as soon as its tensor is gone, which a copy that is enqueued does not see.
    """

    def __init__(self) -> None:
        self._copies: deque[tuple[Event, torch.Tensor]] = deque()

    def hold(self, memory: torch.Tensor, copied: Event) -> None:
        """Keeps memory until the device has reached `copied`."""
        self._copies.append((copied, memory))

    def release_finished(self) -> None:
        """Lets memory go whose copies have ended; does not wait. Copies of one stream end in order."""
        while self._copies and self._copies[0][0].query():
            self._copies.popleft()

    def wait(self) -> None:
        """Waits for all copies, and lets all memory go."""
        while self._copies:
            self._copies[0][0].synchronize()
            self._copies.popleft()


def page_lock(pool: SharedBatchPool, device: torch.device) -> None:
    """Page-locks the shared blocks of a pool for CUDA, once, as long as it lives, where the system lets it.

    Memory that is not shared moves to other pages where it is written to after a fork; the device would still read the
    old ones. Copying a batch of 64 images of 224 px to page-locked memory first takes the training thread milliseconds.
    """
    if pool.is_page_locked or not pool.blocks.is_shared():  # type: ignore[no-untyped-call]
        return
    cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address, size_bytes = pool.blocks.data_ptr(), pool.blocks.nbytes
    with torch.cuda.device(device):
        if cudart.cudaHostRegister(address, size_bytes, _PORTABLE) != cudart.cudaError.success:
            _clear_error()
            return
    pool.is_page_locked = True
    # Before the memory is unmapped: the device would go on reading these pages at an address that is used anew.
    weakref.finalize(pool, _unlock, os.getpid(), address).atexit = False


def _unlock(pid: int, address: int) -> None:
    if os.getpid() == pid:  # no forked process, which has no context
        torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]


def _clear_error() -> None:
    """The next launch reports, and thereby clears, the error of a call that failed."""
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device="cuda")
