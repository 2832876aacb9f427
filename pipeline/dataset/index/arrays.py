"""A column of a batch of the index as NumPy arrays: read-only views, but for nulls, of which there is a copy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def numbers(column: pa.Array) -> NDArray[Any]:
    """Cells of a numeric column; null is 0 for integers, NaN for floats."""
    filled = column if not column.null_count else column.fill_null(np.nan if pa.types.is_floating(column.type) else 0)
    return _view(filled)


def codes(column: pa.DictionaryArray) -> NDArray[np.int32]:
    """Positions in the column's strings, -1 where null; raises `ValueError` on any other number."""
    indices = column.indices
    positions = _view(indices.fill_null(-1) if indices.null_count else indices)
    if len(positions) and not (positions.min() >= -1 and positions.max() < len(column.dictionary)):
        raise ValueError(f"a code is none of its {len(column.dictionary):,} strings")
    return positions


def points(column: pa.ListArray) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Offsets of a batch's lists of points, and all points, float32 (points, 2)."""
    return _view(column.offsets), _view(column.values.flatten()).reshape(-1, 2)


def boxes(column: pa.FixedSizeListArray) -> NDArray[np.float32]:
    """Boxes float32 (rows, 4)."""
    return _view(column.flatten()).reshape(-1, 4)


def vectors(column: pa.FixedSizeListArray) -> NDArray[Any]:
    """Lists of one length, of numbers or of such lists: (rows, *lengths); NaN where null."""
    shape, values = [len(column)], column
    while pa.types.is_fixed_size_list(values.type):
        shape.append(values.type.list_size)
        values = values.values.slice(values.offset * shape[-1], len(values) * shape[-1])  # also the lists that are null
    cells = numbers(values).reshape(shape)
    if column.null_count:
        cells = cells.astype(vectors_dtype(column.type, has_nulls=True))
        cells[np.asarray(column.is_null())] = np.nan
    return cells


def vectors_dtype(column: pa.DataType, *, has_nulls: bool) -> np.dtype[Any]:
    """The dtype of `vectors` of a column of that type: that of its numbers; float64 of integers with nulls."""
    while pa.types.is_fixed_size_list(column):
        column = column.value_type
    return np.dtype(np.float64 if has_nulls and pa.types.is_integer(column) else column.to_pandas_dtype())


def regions(column: pa.StructArray) -> dict[str, NDArray[np.float32]]:
    """Boxes float32 (rows, 4) by region."""
    return {field.name: boxes(column.field(field.name)) for field in column.type}


def by_value(numbers: NDArray[np.integer]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each distinct number, ascending, and the positions that have it, ascending: int64 (positions,)."""
    if len(numbers) and (numbers == numbers[0]).all():  # of one row, and mostly of a window: half the time
        yield int(numbers[0]), np.arange(len(numbers))
        return
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    for start, end in pairwise([0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(order)]):
        if start < end:
            yield int(ordered[start]), order[start:end]


def _view(array: pa.Array) -> NDArray[Any]:
    """A read-only view. By DLPack: `to_numpy` would import pandas, which takes 0.5 s in every worker."""
    view: NDArray[Any] = np.from_dlpack(array)
    return view
