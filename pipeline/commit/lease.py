"""The driver lease: one driver per OUT."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..files import stop_on_disk_error
from ..lock import hold_lock


@contextmanager
def hold_lease(
    path: Path, on_wait: Callable[[str], object] = lambda _: None, *, work: str = "facefeed precompute"
) -> Iterator[None]:
    """Holds the lease of OUT during the block; raises `RefusedError` naming the holder where another driver has it.

    `on_wait`, `work`: see `lock.hold_lock`.
    """
    with ExitStack() as stack:
        with stop_on_disk_error(path):
            stack.enter_context(hold_lock(path, work=work, on_wait=on_wait))
        yield
