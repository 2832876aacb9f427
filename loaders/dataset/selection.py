"""Which rows of a dataset take part: a split, filters on any column of the index, some frames a video."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ...pipeline.dataset.index import Index
from ...pipeline.dataset.schema import SPLITS
from ...pipeline.errors import UsageError

Rows: TypeAlias = NDArray[np.uint32]  # row numbers in the index (rows,)
Filters: TypeAlias = Any  # a pyarrow Expression, or the list of tuples that pyarrow makes one of


def select(index: Index, split: str | None, filters: Filters | None, frames_per_video: int | None) -> Rows:
    """Row numbers uint32 (rows,) in the index's order.

    `split`: train, val, test, or None for all. `filters`: as pyarrow takes them, `[("score", ">", 0.9)]` or
    `pyarrow.compute.field("score") > 0.9`. `frames_per_video`: of each video that many frames, evenly spaced over
    those that are left, with all their faces. Raises `UsageError` on a value, column or filter that does not exist.
    """
    if split is not None and split not in SPLITS:
        raise UsageError(f"split={split!r}: must be one of {', '.join(SPLITS)}, or None for all")
    rows = np.arange(len(index), dtype=np.uint32) if split is None else index.rows_where("split", split)
    if filters is not None:
        rows = rows[_kept(index, _expression(filters))[rows]]
    if frames_per_video is not None and len(rows):
        rows = rows[_evenly(index, rows, frames_per_video)]
    return rows


def _expression(filters: Filters) -> pc.Expression:
    if isinstance(filters, pc.Expression):
        return filters
    try:
        return pq.filters_to_expression(filters)
    except (TypeError, ValueError) as error:
        raise UsageError(f'filters={filters!r}: {error}; try [("score", ">", 0.9)]') from error


def _kept(index: Index, expression: pc.Expression) -> np.ndarray[Any, np.dtype[np.bool_]]:
    import pyarrow.dataset as ds  # noqa: PLC0415 (imports pandas: half a second that workers need not spend)

    kept = []
    try:
        for batch in index.batches(index.schema.names):
            table = ds.dataset(pa.Table.from_batches([batch])).scanner(columns={"kept": expression}).to_table()
            if not pa.types.is_boolean(table["kept"].type):
                raise TypeError(f"gives {table['kept'].type}, must be true or false for each row")
            kept.append(table["kept"].fill_null(False).to_numpy())
        return np.concatenate(kept) if kept else np.empty(0, np.bool_)
    except (pa.ArrowException, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[0]
        labels = ", ".join(f"{number} is {name}" for number, name in enumerate(index.labels))
        hint = f"; of label, {labels}" if labels and "label" in str(expression) else ""
        raise UsageError(
            f"filters={expression}: {reason}{hint}; the columns are {', '.join(index.schema.names)}"
        ) from error


def _evenly(index: Index, rows: Rows, frames: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows stay if each video keeps `frames` of its frames, at the middles of as many equal stretches."""
    videos, frame = index.codes("video_id", rows).astype(np.int64), index.numbers("frame_index", rows)
    order = np.lexsort((frame, videos))
    video, frame = videos[order], frame[order]
    new_video = np.append(True, video[1:] != video[:-1])
    new_frame = new_video | np.append(True, frame[1:] != frame[:-1])
    frame_number = np.cumsum(new_frame) - 1
    first_of_video = np.maximum.accumulate(np.where(new_video, frame_number, 0))
    ordinal = frame_number - first_of_video
    ends = np.append(np.flatnonzero(new_video)[1:], len(video)) - 1
    have = np.repeat(ordinal[ends] + 1, np.diff(np.append(np.flatnonzero(new_video), len(video))))
    # The i-th stretch's middle is frame floor((2i + 1) have / 2 frames); which i could this frame be?
    stretch = -(-(2 * frames * ordinal - have) // (2 * have))
    stays = (have <= frames) | ((2 * stretch + 1) * have // (2 * frames) == ordinal)
    kept = np.empty(len(rows), np.bool_)
    kept[order] = stays
    return kept
