"""What takes the place of a damaged image: a stated rule, the same on every run, worker and rank."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.index import Index
from .selection import Rows

_MOST_TRIED = 32


def substitutes(index: Index, row: int, selected: Rows, column: str = "label") -> Iterator[int]:
    """Rows that may stand in for `row`, best first: all of them `selected`, with its label and its value of `column`.

    The later rows of its own video, then the earlier ones from the nearest on; then a row of each other video of the
    same split, from the next one on and around. At most 32 are named of its own video, and 32 of others.

    Args:
        index: of the dataset.
        row: the damaged one.
        selected: rows that take part, ascending: what filters leave out never comes back in this way.
        column: that the batches' shares are of; see `Quotas`.

    """
    yield from islice(_of_its_video(index, row, selected, column), _MOST_TRIED)
    yield from islice(_of_others(index, row, selected, column), _MOST_TRIED)


def _of_its_video(index: Index, row: int, selected: Rows, column: str) -> Iterator[int]:
    video = index.text("video_id", row)
    at = int(np.searchsorted(selected, row))
    for rows in (selected[at:], selected[:at][::-1]):
        for other in map(int, rows):
            if index.text("video_id", other) != video:
                break
            if other != row and _alike(index, row, np.array([other]), column)[0]:
                yield other


def _of_others(index: Index, row: int, selected: Rows, column: str) -> Iterator[int]:
    """The first row of each video that is alike; where those are few, their other rows as well."""
    rows = selected[_alike(index, row, selected, column)]
    videos = index.codes("video_id", rows)
    alike = (index.codes("split", rows) == _code(index, "split", row)) & (videos != _code(index, "video_id", row))
    rows, videos = rows[alike], videos[alike]
    rest = np.append(False, videos[1:] == videos[:-1])[: len(rows)]
    for other in np.lexsort((rows, rows < row, rest)):
        yield int(rows[other])


def _alike(index: Index, row: int, rows: NDArray[Any], column: str) -> NDArray[np.bool_]:
    """Which rows have the label of `row`, and its value of `column`."""
    same: NDArray[np.bool_] = index.numbers("label", rows) == index.number("label", row)
    return same if column == "label" else same & (index.codes(column, rows) == _code(index, column, row))


def _code(index: Index, column: str, row: int) -> int:
    return int(index.codes(column, np.array([row]))[0])
