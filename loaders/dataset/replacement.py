"""Which row replaces a damaged one: a fixed rule, the same on every run, worker and rank."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.index_like import IndexLike
from .selection import Rows

_NEAREST = 32


def replacement_candidates(index: IndexLike, row: int, selected: Rows, columns: Sequence[str] = ()) -> Iterator[int]:
    """Yields rows that may replace `row`, best first: selected ones with its label and its values of `columns`.

    The later rows of its own video, then the earlier ones; then a row of each other video of the same split, from the
    next one on, wrapping around, then the same backwards. See `ahead` for which of them.

    Args:
        index: of the dataset.
        row: the damaged one.
        selected: rows of the dataset, ascending, so that rows excluded by filters are never used.
        columns: those that batches are balanced by, of strings or whole numbers; see `Quotas`.

    """
    for rows in _same_video(index, row, selected):
        matching = rows[_matches(index, row, rows, columns)]
        yield from map(int, matching[ahead(len(matching))])
    others = _other_videos(index, row, selected, columns)
    yield from map(int, others[around(len(others))])


def ahead(count: int) -> list[int]:
    """Positions to try of so many candidates: the first 32, then ever farther ones up to the last.

    Damage is contiguous on disk: the nearest candidates may all be damaged, and trying every one would take too long.

    >>> ahead(100)[30:]
    [30, 31, 38, 47, 58, 72, 90, 99]
    """
    positions = list(range(min(count, _NEAREST)))
    while positions and positions[-1] < count - 1:
        positions.append(min(positions[-1] + positions[-1] // 4, count - 1))
    return positions


def around(count: int) -> list[int]:
    """Positions to try of so many candidates around a damaged one: ahead, then as many backwards from the last.

    >>> around(100)[36:41]
    [90, 99, 98, 97, 96]
    """
    forwards = ahead(count)
    return list(dict.fromkeys([*forwards, *(count - 1 - position for position in forwards)]))


def _same_video(index: IndexLike, row: int, selected: Rows) -> Iterator[Rows]:
    """The selected rows after `row` of its video, then those before it, each from the nearest on."""
    video = _code(index, "video_id", row)
    start, end = np.searchsorted(selected, [row, row + 1])
    for rows in (selected[end:], selected[:start][::-1]):
        yield rows[: bisect_left(rows, True, key=lambda other: _code(index, "video_id", other) != video)]


def _other_videos(index: IndexLike, row: int, selected: Rows, columns: Sequence[str]) -> Rows:
    """The first matching row of each other video; after these, their other matching rows."""
    rows = selected[_matches(index, row, selected, columns)]
    videos = index.codes("video_id", rows)
    eligible = (index.codes("split", rows) == _code(index, "split", row)) & (videos != _code(index, "video_id", row))
    rows, videos = rows[eligible], videos[eligible]
    not_first = np.append(False, videos[1:] == videos[:-1])[: len(rows)]
    ordered: Rows = rows[np.lexsort((rows, rows < row, not_first))]
    return ordered


def _matches(index: IndexLike, row: int, rows: NDArray[Any], columns: Sequence[str]) -> NDArray[np.bool_]:
    """Which rows have the label of `row`, and its values of `columns`."""
    same: NDArray[np.bool_] = index.numbers("label", rows) == index.number("label", row)
    for column in columns:
        values = index.codes if column in index.categorical_columns else index.numbers
        same &= values(column, rows) == values(column, [row])
    return same


def _code(index: IndexLike, column: str, row: int) -> int:
    return int(index.codes(column, np.array([row]))[0])
