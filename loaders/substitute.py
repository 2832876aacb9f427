"""What takes the place of a damaged image: a stated rule, the same on every run, worker and rank."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from ..pipeline.index import Index

_MOST_TRIED = 32


def substitutes(index: Index, row: int) -> Iterator[int]:
    """Rows that may stand in for `row`, best first.

    The later rows of its own video, then the earlier ones from the nearest on; then a row of each other video with the
    same label in the same split, from the next one on and around. Filters are not asked: within a video the rows are
    alike. At most 32 are named of its own video, and 32 of others.
    """
    yield from islice(_of_its_video(index, row), _MOST_TRIED)
    yield from islice(_of_others(index, row), _MOST_TRIED)


def _of_its_video(index: Index, row: int) -> Iterator[int]:
    video = index.text("video_id", row)
    later = row + 1
    while later < len(index) and index.text("video_id", later) == video:
        yield later
        later += 1
    earlier = row - 1
    while earlier >= 0 and index.text("video_id", earlier) == video:
        yield earlier
        earlier -= 1


def _of_others(index: Index, row: int) -> Iterator[int]:
    """The first row of each video that is alike; where those are few, their other rows as well."""
    rows = index.rows_where("split", str(index.text("split", row)))
    videos = index.codes("video_id", rows)
    alike = (index.numbers("label", rows) == index.number("label", row)) & (videos != index.codes("video_id", row))
    rows, videos = rows[alike], videos[alike]
    rest = np.append(False, videos[1:] == videos[:-1])[: len(rows)]
    for other in np.lexsort((rows, rows < row, rest)):
        yield int(rows[other])
