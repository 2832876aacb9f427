"""`IndexLike`: what is asked of an index, whether of one dataset, of several as one, or of clips.

`OutdatedIndex` stands in place of one where OUT has changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from ..errors import CorruptDataError


class IndexLike(Protocol):
    """Columns of rows by their numbers: an `Index`, or what has rows of its own and answers like one.

    Each method gives what the one of `Index` gives, in shape, dtype and order, and for nulls.
    """

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    @property
    def fingerprint(self) -> str:
        """Of the state of the data: the same rows have the same."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names by the numbers of the column `label`."""

    @property
    def categorical_columns(self) -> list[str]:
        """See `Index`."""

    def __len__(self) -> int:
        """Number of rows."""

    def hints(self, text: str) -> str:
        """See `Index`."""

    def value(self, name: str, row: int) -> Any:
        """See `Index`."""

    def number(self, name: str, row: int) -> Any:
        """See `Index`."""

    def numbers(self, name: str, rows: ArrayLike) -> NDArray[Any]:
        """See `Index`."""

    def text(self, name: str, row: int) -> str | None:
        """See `Index`."""

    def codes(self, name: str, rows: ArrayLike) -> NDArray[np.int32]:
        """See `Index`."""

    def categories(self, name: str) -> list[str]:
        """See `Index`."""

    def points(self, name: str, row: int) -> NDArray[np.float32]:
        """See `Index`."""

    def regions(self, row: int) -> dict[str, NDArray[np.float32]]:
        """See `Index`."""

    def boxes(self, name: str, rows: ArrayLike) -> NDArray[np.float32]:
        """See `Index`."""

    def vectors(self, name: str, rows: ArrayLike) -> NDArray[Any]:
        """See `Index`."""

    def landmarks(self, rows: ArrayLike) -> NDArray[np.float32]:
        """See `Index`."""


class OutdatedIndex:
    """In place of an index that was pickled, where OUT has another state by now.

    Every use raises `CorruptDataError`: later than unpickling, which ends a worker process without an answer.
    """

    def __init__(self, out: Path | str) -> None:
        self._out = out

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself asks for
            raise AttributeError(name)
        raise CorruptDataError(changed_text(self._out))


def changed_text(out: Path | str) -> str:
    """Error message where OUT has another state than a reader began with."""
    return f"{out}: has changed since it was opened; open it again, as by another loader"
