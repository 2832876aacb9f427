"""What a `ColumnMaker` returns, checked against the columns that it declares, as Arrow arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class WrongValuesError(ValueError):
    """Values that are not those of the declared columns; the message says which, and what they must be."""


def as_batch(returned: Any, schema: pa.Schema, num_faces: int) -> list[pa.Array]:
    """The returned columns in the order of `schema`, one value a face each. Raises `WrongValuesError`."""
    if isinstance(returned, (pa.Table, pa.RecordBatch)):
        returned = {name: returned.column(name) for name in returned.column_names}
    if not isinstance(returned, Mapping):
        raise WrongValuesError(f"returned {type(returned).__name__}: must be a dict of columns, or a pyarrow table")
    if set(returned) != set(schema.names):
        raise WrongValuesError(f"returned columns {sorted(map(str, returned))}: must be {sorted(schema.names)}")
    columns = [_as_column(returned[field.name], field) for field in schema]
    for field, column in zip(schema, columns, strict=True):
        if len(column) != num_faces:
            raise WrongValuesError(f"{field.name}: has {len(column)} values: must be one for each of {num_faces} faces")
        if column.null_count and not field.nullable:
            raise WrongValuesError(f"{field.name}: has {column.null_count} nulls: the column is declared without nulls")
    return columns


def _as_column(values: Any, field: pa.Field) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        if values.type != field.type:
            raise WrongValuesError(f"{field.name}: is {values.type}: must be {field.type}")
        return values
    if not isinstance(values, (list, tuple)) and hasattr(values, "__array__"):
        array = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
        if array.dtype.kind in "biuf":
            return _from_numpy(array, field)
        values = array.tolist()
    try:
        column = pa.array(values, type=field.type)
        precise = pa.array(values, type=_as_double(field.type)) if _has_floats(field.type) else column
        given = pa.array(values).type if pa.types.is_integer(_innermost(field.type)) else None
    except MemoryError:  # Arrow's is one of its own errors too
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise WrongValuesError(f"{field.name}: is no column of {field.type} ({error})") from error
    if given is not None and pa.types.is_floating(_innermost(given)):  # pyarrow cuts off their fractions
        raise WrongValuesError(f"{field.name}: is {given}: must be {field.type}")
    _check_overflow(precise, column, field)
    return column


def _from_numpy(array: NDArray[Any], field: pa.Field) -> pa.Array:
    lengths, kind = [], field.type
    while pa.types.is_fixed_size_list(kind):
        lengths.append(kind.list_size)
        kind = kind.value_type
    if array.ndim == 0 or list(array.shape[1:]) != lengths:
        wanted = ", ".join(map(str, lengths))
        raise WrongValuesError(f"{field.name}: has shape {array.shape}: must be (faces, {wanted})".replace(", )", ",)"))
    if lengths and np.ma.is_masked(array):
        raise WrongValuesError(f"{field.name}: has masked values in lists: must be a full list or None for each face")
    wanted_dtype = None if pa.types.is_string(kind) else kind.to_pandas_dtype()
    if wanted_dtype is None or not np.can_cast(array.dtype, wanted_dtype, "same_kind"):
        raise WrongValuesError(f"{field.name}: is {array.dtype}: must be {kind}")
    given = pa.array(array.reshape(-1))
    try:
        column = given.cast(kind, safe=not pa.types.is_floating(kind))
    except MemoryError:
        raise
    except pa.ArrowException as error:
        raise WrongValuesError(f"{field.name}: does not fit {kind} ({error})") from error
    _check_overflow(given, column, field)
    for length in reversed(lengths):
        column = pa.FixedSizeListArray.from_arrays(column, length)
    return column.cast(field.type)


def _check_overflow(given: pa.Array, stored: pa.Array, field: pa.Field) -> None:
    """Raises `WrongValuesError` where a finite number became infinite as it was stored: too large for float32."""
    if not _has_floats(field.type):
        return
    before, after = (_flat(column) for column in (given, stored))
    if (is_lost := np.isinf(after) & np.isfinite(before)).any():
        raise WrongValuesError(f"{field.name}: does not fit {field.type} ({before[is_lost][0]:g} is too large)")


def _flat(column: pa.Array) -> NDArray[Any]:
    while pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)


def _has_floats(kind: pa.DataType) -> bool:
    """Whether it is of floats, or of lists of them of one length, as users' columns are."""
    return _has_floats(kind.value_type) if pa.types.is_fixed_size_list(kind) else bool(pa.types.is_floating(kind))


def _innermost(kind: pa.DataType) -> pa.DataType:
    """The type of the values in lists of lists; of any other type itself."""
    while pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return kind


def _as_double(kind: pa.DataType) -> pa.DataType:
    """A type of numbers, or lists of these, with float64 in place of them."""
    return pa.list_(_as_double(kind.value_type), kind.list_size) if pa.types.is_fixed_size_list(kind) else pa.float64()
