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
        return _as_json(column)
    if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
        texts = column.cast(pa.string())
        return pc.if_else(pc.match_substring_regex(texts, _FORMULA_START), _joined("'", texts), texts)
    return column


def _as_json(column: pa.Array) -> pa.Array:
    """JSON text of each cell; lists, structs and numbers, none of them null."""
    type_ = column.type
    if pa.types.is_struct(type_):
        parts: list[Any] = []
        for field in type_:
            parts += [", " if parts else "", f'"{field.name}": ', _as_json(column.field(field.name))]
        return _joined("{", *parts, "}")
    if pa.types.is_fixed_size_list(type_) or pa.types.is_list(type_):
        lengths = np.asarray(pc.list_value_length(column))
        offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
        items = pa.ListArray.from_arrays(offsets, _as_json(column.flatten()))
        return _joined("[", pc.binary_join(items, ", "), "]")
    return column.cast(pa.string())


def _joined(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")
