"""Which row replaces a damaged one: a fixed rule, the same on every run, worker and rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.index_like import IndexLike
from .selection import Rows

_MAX_CANDIDATES = 32


def replacement_candidates(index: IndexLike, row: int, selected: Rows, columns: Sequence[str] = ()) -> Iterator[int]:
    """Yields rows that may replace `row`, best first: selected ones with its label and its values of `columns`.

    The later rows of its own video, then the earlier ones from the nearest on; then a row of each other video of the
    same split, from the next one on, wrapping around. At most 32 of its own video, and 32 of others.

    Args:
        index: of the dataset.
        row: the damaged one.
        selected: rows of the dataset, ascending, so that rows excluded by filters are never used.
        columns: those that batches are balanced by, of strings or whole numbers; see `Quotas`.

    """
    yield from islice(_from_same_video(index, row, selected, columns), _MAX_CANDIDATES)
    yield from islice(_from_other_videos(index, row, selected, columns), _MAX_CANDIDATES)


def _from_same_video(index: IndexLike, row: int, selected: Rows, columns: Sequence[str]) -> Iterator[int]:
    video = index.text("video_id", row)
    at = int(np.searchsorted(selected, row))
    for rows in (selected[at:], selected[:at][::-1]):
        for other in map(int, rows):
            if index.text("video_id", other) != video:
                break
            if other != row and _matches(index, row, np.array([other]), columns)[0]:
                yield other


def _from_other_videos(index: IndexLike, row: int, selected: Rows, columns: Sequence[str]) -> Iterator[int]:
    """The first matching row of each other video; after these, their other matching rows."""
    rows = selected[_matches(index, row, selected, columns)]
    videos = index.codes("video_id", rows)
    eligible = (index.codes("split", rows) == _code(index, "split", row)) & (videos != _code(index, "video_id", row))
    rows, videos = rows[eligible], videos[eligible]
    not_first = np.append(False, videos[1:] == videos[:-1])[: len(rows)]
    for other in np.lexsort((rows, rows < row, not_first)):
        yield int(rows[other])


def _matches(index: IndexLike, row: int, rows: NDArray[Any], columns: Sequence[str]) -> NDArray[np.bool_]:
    """Which rows have the label of `row`, and its values of `columns`."""
    same: NDArray[np.bool_] = index.numbers("label", rows) == index.number("label", row)
    for column in columns:
        values = index.codes if column in index.categorical_columns else index.numbers
        same &= values(column, rows) == values(column, [row])
    return same


def _code(index: IndexLike, column: str, row: int) -> int:
    return int(index.codes(column, np.array([row]))[0])
