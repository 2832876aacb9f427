"""Selects the rows of a dataset: a split, filters on any column of the index, some frames a video."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ...pipeline.dataset.index import Index, RowRange, Selection, layout
from ...pipeline.dataset.index.reader import rows_of_batch
from ...pipeline.dataset.index.row_range import joined
from ...pipeline.dataset.index.whole_videos import whole_videos
from ...pipeline.dataset.schema import SPLITS
from ...pipeline.errors import UsageError

Rows: TypeAlias = NDArray[np.uint32]  # row numbers in the index (rows,)
Filters: TypeAlias = Any  # a pyarrow Expression, or a list of tuples in pyarrow's filter notation


@dataclass(frozen=True)
class ClipRows:
    """The images of some clips. rows: uint32 (N, T), of the index. num_valid: int64 (N,), how many of each are its own;
    the others repeat the last of these.
    """

    rows: Rows
    num_valid: NDArray[np.int64]


def select_rows(index: Index, split: str | None, filters: Filters | None, frames_per_video: int | None) -> Selection:
    """Returns rows, in the order of the index: a range where none is left out between the first and the last.

    Args:
        index: of the dataset.
        split: train, val, test, or None for all.
        filters: in pyarrow's notation, `[("score", ">", 0.9)]` or `pyarrow.compute.field("score") > 0.9`; None for all.
        frames_per_video: how many frames to keep of each video, evenly spaced over those that pass the filters, with
            all their faces; None for all.

    Raises:
        UsageError: on a value, column or filter that does not exist.

    """
    if split is not None and split not in SPLITS:
        raise UsageError(f"split={split!r}: must be one of {', '.join(SPLITS)}, or None for all")
    if filters is not None:
        rows = joined(_passing(index, split, _filter_expression(filters)))
    else:
        rows = RowRange(0, len(index)) if split is None else index.select("split", split)
    if frames_per_video is not None and len(rows):
        return joined(_evenly_spaced(index, rows, frames_per_video))
    return rows


def _passing(index: Index, split: str | None, expression: pc.Expression) -> Iterator[Rows]:
    """The rows of a split that pass a filter, batch by batch."""
    are_of_split = _are_of_split(index, split)
    for number, (passes, is_of_split) in enumerate(zip(_evaluate(index, expression), are_of_split, strict=False)):
        yield rows_of_batch(number, passes.fill_null(False).to_numpy(zero_copy_only=False) & is_of_split)


def _are_of_split(index: Index, split: str | None) -> Iterable[Any]:
    """Whether each row is of the split, batch by batch, for as many batches as are asked for."""
    return repeat(True) if split is None else index.matches("split", split)


def classes_lost_to_nulls(index: Index, split: str | None, filters: Filters | None, rows: Selection) -> list[str]:
    """A warning on each label of which the filters leave no row of the split, some since a column is null there.

    No comparison with null is true, not even "!=". A column that is compared by "==" alone names what is wanted, and
    gives no warning.

    Args:
        index: of the dataset.
        split: as for `select_rows`.
        filters: as for `select_rows`.
        rows: what that returned.

    """
    if filters is None:
        return []
    unfiltered = select_rows(index, split, None, None)
    lost = _labels(index, unfiltered) - _labels(index, rows)
    if not lost:
        return []
    expression = _filter_expression(filters)
    text, counts = str(expression), _nulls_by_label(index, split, expression)
    return [
        f"filters={text}: leaves out all faces of label {index.labels[label]!r}, {count:,} of them since {name} is null"
        f" there, and no comparison with null is true; pyarrow.compute.field({name!r}).is_null() | ... keeps these"
        for label in sorted(lost) for name, by_label in counts.items() if (count := by_label[label])
    ]  # fmt: skip


def _nulls_by_label(index: Index, split: str | None, expression: pc.Expression) -> dict[str, Counter[int]]:
    """By each column that an expression compares: where it is null and decides, how many rows of each label."""
    text = str(expression)
    mention = r"\b{}\b" if "invert(" in text else r"(?<!== )\b{}\b(?! ==)"
    named = [name for name in index.schema.names if re.search(rf"\b{re.escape(name)}\b", text)]
    compared = [name for name in named if re.search(mention.format(re.escape(name)), text)]
    # Where one of these is null, the row is not wanted, whatever the other columns say.
    deciding = [] if " or " in text else [name for name in named if name not in compared]
    counts = {name: Counter[int]() for name in compared}
    batches = zip(
        _are_of_split(index, split),
        _nulls(index, expression),
        *(_nulls(index, pc.field(name)) for name in named),
        strict=False,
    )
    for number, (is_of_split, is_undecided, *nulls) in enumerate(batches):
        is_null = dict(zip(named, nulls, strict=True))
        undecided = rows_of_batch(number, is_undecided & is_of_split & ~np.any([is_null[each] for each in deciding], 0))
        labels = index.numbers("label", undecided)
        for name, by_label in counts.items():
            by_label.update(labels[is_null[name][undecided % layout.BATCH_ROWS]].tolist())
    return counts


_ROWS_AT_ONCE = 1 << 20  # bounds the memory

_UINT64_REMEDY = "give a number for a column of uint64 as pyarrow.scalar(2**63, 'uint64')"


def _filter_expression(filters: Filters) -> pc.Expression:
    if isinstance(filters, pc.Expression):
        return filters
    if not _are_triples(filters):
        raise UsageError(
            f'filters={filters!r}: must be a list of (column, operator, value), such as [("score", ">", 0.9)], '
            "a list of such lists, of which one has to hold, or an expression of pyarrow.compute"
        )
    for column, operator, value in chain.from_iterable(_alternatives(filters)):
        if operator in ("in", "not in") and isinstance(value, (str, bytes)):  # pyarrow would take its letters
            raise UsageError(f"filters={filters!r}: {column} {operator} {value!r}: must be a list; try [{value!r}]")
    try:
        return pq.filters_to_expression(filters)
    except OverflowError as error:
        raise UsageError(f"filters={filters!r}: {error}; {_UINT64_REMEDY}") from error
    except (TypeError, ValueError, LookupError) as error:
        raise UsageError(f'filters={filters!r}: {error}; try [("score", ">", 0.9)]') from error


def _are_triples(filters: Any) -> bool:
    """Whether these are filters in pyarrow's notation: triples, or lists of triples."""
    if not isinstance(filters, (list, tuple)) or not filters:
        return False
    return all(
        isinstance(each, (list, tuple)) and each and all(map(_is_triple, each)) for each in _alternatives(filters)
    )


def _alternatives(filters: Any) -> Any:
    """The lists of which one has to hold."""
    return [filters] if _is_triple(filters[0]) else filters


def _is_triple(condition: Any) -> bool:
    return isinstance(condition, (list, tuple)) and len(condition) == 3 and isinstance(condition[0], str)


def _labels(index: Index, rows: Selection) -> set[int]:
    """The known labels of some rows."""
    parts = (rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE))
    return {label for part in parts for label in np.unique(index.numbers("label", part)).tolist() if label >= 0}


def _nulls(index: Index, expression: pc.Expression) -> Iterator[NDArray[np.bool_]]:
    """Whether an expression is null for each row, batch by batch."""
    return (np.asarray(values, np.bool_) for values in _evaluate(index, expression.is_null()))


def _evaluate(index: Index, expression: pc.Expression) -> Iterator[pa.Array]:
    """Whether each row of the index passes a filter, batch by batch: true, false or null."""
    text = str(expression)
    # Columns that it does not name would be read, and verified, in vain. A field by its number counts all of them.
    named = [name for name in index.schema.names if name in text or "FieldPath" in text]
    try:
        for batch in index.batches(named or index.schema.names):
            column = _values(expression, pa.Table.from_batches([batch]))
            if not pa.types.is_boolean(column.type):
                raise TypeError(f"gives {column.type}, must be true or false for each row")
            yield column.combine_chunks()
    except MemoryError:  # Arrow's is one of its own errors too
        raise
    except (pa.ArrowException, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[0]
        labels = ", ".join(f"{number} is {name}" for number, name in enumerate(index.labels))
        hint = f"; of label, {labels}" if labels and "label" in text else ""
        missing = index.hints(text) or f"; the columns are {', '.join(index.schema.names)}"
        if "not in range" in reason:  # pyarrow compares a column of uint64 and an int as int64
            missing = f"; {_UINT64_REMEDY}"
        raise UsageError(f"filters={expression}: {reason}{hint}{missing}") from error


def _values(expression: pc.Expression, table: pa.Table) -> pa.ChunkedArray:
    """The value of an expression for each row."""
    import pyarrow.dataset as ds  # noqa: PLC0415 (imports pandas: half a second that workers need not spend)

    def scan(table: pa.Table) -> pa.ChunkedArray:
        return ds.dataset(table).scanner(columns={"value": expression}).to_table()["value"]

    try:
        return scan(table)
    except pa.ArrowNotImplementedError:  # Arrow's functions of text, such as starts_with, take no encoded columns
        decoded = [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in table.schema
        ]
        return scan(table.cast(pa.schema(decoded)))


def _evenly_spaced(index: Index, rows: Selection, num_frames: int) -> Iterator[Rows]:
    """The rows of `num_frames` frames of each video."""
    for part, videos in whole_videos(index, rows):
        own: Rows = rows[part]
        yield own[_are_of_middles(videos, index.numbers("frame_index", own), num_frames)]


def _are_of_middles(videos: NDArray[np.int32], frame: NDArray[Any], num_frames: int) -> NDArray[np.bool_]:
    """Whether each row is of one of its video's `num_frames` kept frames: the middles of as many equal segments."""
    order = np.lexsort((frame, videos))
    video, frame = videos[order], frame[order]
    new_video = np.append(True, video[1:] != video[:-1])
    new_frame = new_video | np.append(True, frame[1:] != frame[:-1])
    frame_number = np.cumsum(new_frame) - 1
    first_of_video = np.maximum.accumulate(np.where(new_video, frame_number, 0))
    ordinal = frame_number - first_of_video
    ends = np.append(np.flatnonzero(new_video)[1:], len(video)) - 1
    available = np.repeat(ordinal[ends] + 1, np.diff(np.append(np.flatnonzero(new_video), len(video))))
    # The middle of segment i is frame floor((2i + 1) available / (2 num_frames)); solved for i, then checked.
    segment = -(-(2 * num_frames * ordinal - available) // (2 * available))
    is_middle = (2 * segment + 1) * available // (2 * num_frames) == ordinal
    kept = np.empty(len(videos), np.bool_)
    kept[order] = (available <= num_frames) | is_middle
    return kept
