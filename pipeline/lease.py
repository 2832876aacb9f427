"""One driver per OUT."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .commit import writing
from .lock import hold


@contextmanager
def hold_lease(path: Path) -> Iterator[None]:
    """Holds OUT for the length of the block; raises `RefusedError` naming whoever holds it already."""
    with ExitStack() as held:
        with writing(path):
            held.enter_context(hold(path, work="precompute"))
        yield
