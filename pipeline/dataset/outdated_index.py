"""`OutdatedIndex`: in place of an index that was pickled, where OUT has another state by now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import CorruptDataError


class OutdatedIndex:
    """Every use raises `CorruptDataError`: later than unpickling, which ends a worker process without an answer."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself asks for
            raise AttributeError(name)
        raise CorruptDataError(changed_text(self._out))


def changed_text(out: Path) -> str:
    """Error message where OUT has another state than a reader began with."""
    return f"{out}: has changed since it was opened; open it again, as by another loader"
