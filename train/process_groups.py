"""The end of torch.distributed's process groups, before that of the interpreter."""

from __future__ import annotations

import atexit
import gc

from torch import distributed


def destroy_process_groups_at_exit() -> None:
    """Destroys all process groups when the process exits; for ranks that all end alike.

    Gloo's threads may hold tensors that are Python objects too. A thread that frees one while the interpreter shuts
    down aborts the process, and a job whose training is done would have failed. A group's destructor waits for its
    threads, but torch's caches keep the default group under FSDP. Where other ranks wait for this one, the destructor
    would wait for them too, until gloo's timeout.
    """
    keep_process_groups_at_exit()  # once, however many runs a process has
    atexit.register(_destroy_process_groups)


def keep_process_groups_at_exit() -> None:
    """Revokes `destroy_process_groups_at_exit`, before a further run: its ranks may not end alike."""
    atexit.unregister(_destroy_process_groups)


def _destroy_process_groups() -> None:
    gc.collect()  # modules under DDP hold a group, and are parts of cycles
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
