"""`RowRange`: rows of the index that follow one another, without memory for each; `Selection`: rows of either form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError

MAX_ROWS = 1 << 32
"""Row numbers are uint32."""


class RowRange:
    """The row numbers `start` .. `stop` - 1; indexed like an array of them, it gives uint32 arrays."""

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop

    def __repr__(self) -> str:
        return f"RowRange({self.start}, {self.stop})"

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, positions: Any) -> Any:
        """The row at a position, or uint32 rows by a slice, positions from 0 on, or bool (rows,).

        Raises `IndexError` on any others: beyond the range are rows too, of another split.
        """
        rows = range(self.start, self.stop)
        if isinstance(positions, slice):
            taken = rows[positions]
            return np.arange(taken.start, taken.stop, taken.step, dtype=np.uint32)
        chosen = np.asarray(positions)
        if chosen.dtype == np.bool_ and chosen.shape == (len(self),):
            chosen = np.flatnonzero(chosen)
        if chosen.size and chosen.dtype.kind not in "iu":
            raise IndexError(
                f"{self!r}: positions of {chosen.dtype} {chosen.shape}: must be whole numbers, or bool ({len(self)},)"
            )
        if not chosen.ndim:
            return np.uint32(rows[int(chosen)])
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < len(self)):
            raise IndexError(f"{self!r}: positions {chosen.min()} to {chosen.max()}: must be 0 to {len(self) - 1}")
        return chosen.astype(np.uint32) + np.uint32(self.start)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.arange(self.start, self.stop, dtype=np.uint32 if dtype is None else dtype)


Selection: TypeAlias = NDArray[np.uint32] | RowRange
"""Ascending row numbers (rows,)."""


def joined(parts: Iterable[NDArray[np.uint32]]) -> Selection:
    """Ascending parts as one selection: a range where none of the rows between the first and the last is missing."""
    whole: list[Selection] = []
    for part in parts:
        if not len(part):
            continue
        first, stop = int(part[0]), int(part[-1]) + 1
        last = whole[-1] if whole else None
        if stop - first > len(part):
            whole.append(part)
        elif isinstance(last, RowRange) and last.stop == first:
            last.stop = stop
        else:
            whole.append(RowRange(first, stop))
    if len(whole) == 1 and isinstance(whole[0], RowRange):
        return whole[0]
    rows = np.empty(sum(map(len, whole)), np.uint32)
    end = len(rows)
    while whole:  # from the last on, so that each is freed as it is copied
        copied = whole.pop()
        rows[end - len(copied) : end] = copied
        end -= len(copied)
    return rows


def check_row_count(count: int, where: str) -> None:
    """Raises `UsageError` where there are more rows than row numbers."""
    if count > MAX_ROWS:
        raise UsageError(
            f"{where}: {count:,} rows, of at most {MAX_ROWS:,}, which row numbers count; take fewer videos"
        )
