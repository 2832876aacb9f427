"""Light columns as CSV, batch by batch: nested ones as JSON text, and no text that a spreadsheet would run."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_FORMULA_START: Final = r"^[=+\-@\t\r]"


def as_csv_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns of a batch as `pyarrow.csv` can write them: numbers as they are, anything else as text."""
    return {name: _as_csv(batch.column(name)) for name in batch.schema.names}


def _as_csv(column: pa.Array) -> pa.Array:
    if pa.types.is_nested(column.type):
        return as_json(column)
    if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
        texts = column.cast(pa.string())
        return pc.if_else(pc.match_substring_regex(texts, _FORMULA_START), _joined("'", texts), texts)
    return column


def as_json(column: pa.Array) -> pa.Array:
    """JSON text of each cell of lists, structs and numbers; null where the cell is null.

    Within a cell, null stands for null, and for NaN and infinity, which JSON has not.

    >>> as_json(pa.array([[[0.5, 2.0]], [], None], pa.list_(pa.list_(pa.float64(), 2)))).to_pylist()
    ['[[0.5, 2]]', '[]', None]
    >>> as_json(pa.array([[1.0, None], [float("nan"), float("inf")]])).to_pylist()
    ['[1, null]', '[null, null]']
    """
    type_ = column.type
    if pa.types.is_struct(type_):
        parts: list[Any] = []
        for field in type_:
            parts += [", " if parts else "", f'"{field.name}": ', _json_values(column.field(field.name))]
        return pc.if_else(column.is_valid(), _joined("{", *parts, "}"), None)
    if pa.types.is_fixed_size_list(type_) or pa.types.is_list(type_):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(column), 0))
        offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
        items = pa.ListArray.from_arrays(offsets, _json_values(column.flatten()))
        return pc.if_else(column.is_valid(), _joined("[", pc.binary_join(items, ", "), "]"), None)
    return column.cast(pa.string())


def _json_values(column: pa.Array) -> pa.Array:
    """JSON text of each element of a list or a struct; "null" where there is none."""
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_finite(column), column, None)
    return pc.fill_null(as_json(column), "null")


def _joined(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")
