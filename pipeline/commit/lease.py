"""One driver per OUT."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..files import writing
from ..lock import hold


@contextmanager
def hold_lease(path: Path, on_wait: Callable[[str], object] = lambda _: None) -> Iterator[None]:
    """Holds OUT for the length of the block; raises `RefusedError` naming whoever holds it already.

    `on_wait`: see `lock.hold`.
    """
    with ExitStack() as held:
        with writing(path):
            held.enter_context(hold(path, work="precompute", on_wait=on_wait))
        yield
