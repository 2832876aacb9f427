"""Files of added columns: published as a unit's own file is, each with a receipt after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from ..dataset.added_columns import ColumnReceipt, ColumnSet
from ..dataset.manifest import Receipt
from ..dataset.out import OutPaths
from ..dataset.schema import leaf_paths
from ..errors import CorruptDataError
from ..files import sha256_of, stop_on_disk_error, write_durably
from .publish import check_unit_file, publish, unit_file_metadata


def column_writer_options(schema: pa.Schema) -> dict[str, Any]:
    """Keyword arguments for `ParquetWriter`; `schema`: a set's `file_schema`.

    Thousands of floats a row compress to half byte by byte.
    """
    lists = [field for field in schema if pa.types.is_nested(field.type) and _is_floating(field.type)]
    strings = [field.name for field in schema if pa.types.is_string(field.type) and field.name != "face_id"]
    return {
        "compression": "zstd",
        "use_dictionary": strings,
        "column_encoding": dict.fromkeys(leaf_paths(pa.schema(lists)), "BYTE_STREAM_SPLIT"),
        "data_page_version": "1.0",
        "write_page_checksum": True,
    }


def _is_floating(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_floating(child.type) for child in kind)
    return _is_floating(kind.value_type) if pa.types.is_nested(kind) else pa.types.is_floating(kind)


def column_file_metadata(column_set: ColumnSet, unit: Receipt) -> dict[str, str]:
    """Key-value metadata of a column file, by which one without a receipt is recognised."""
    return unit_file_metadata(unit.unit, column_set.state_of(unit), unit.rows)


def adopt_columns(column_set: ColumnSet, unit: Receipt) -> bool:
    """Writes the receipt of a file that was published without one; returns whether there was such a file."""
    path = column_set.unit_file(unit.unit)
    if not path.exists():
        return False
    with stop_on_disk_error(path):
        try:
            check_unit_file(path, unit.unit, column_set.state_of(unit), unit.rows)
        except CorruptDataError:
            return False  # `publish_columns` replaces it
        _write_receipt(column_set, unit)
    return True


def publish_columns(column_set: ColumnSet, unit: Receipt, attempt: Path) -> None:
    """Publishes an attempt at the columns of a unit's rows; a file of another attempt, if it is intact, stays."""
    publish(attempt, column_set.unit_file(unit.unit), unit.unit, column_set.state_of(unit), unit.rows)
    _write_receipt(column_set, unit)


def _write_receipt(column_set: ColumnSet, unit: Receipt) -> None:
    path = column_set.unit_file(unit.unit)
    with stop_on_disk_error(path):
        receipt = ColumnReceipt(
            unit=unit.unit, state=column_set.state_of(unit), rows=unit.rows, bytes=path.stat().st_size,
            sha256=sha256_of(path),
        )  # fmt: skip
        target = column_set.receipt_file(unit.unit)
        write_durably(target, receipt.to_json(), OutPaths(column_set.root).temporary)


def check_columns(column_set: ColumnSet, unit: Receipt) -> None:
    """Reads a column file as a whole; raises `CorruptDataError` where it is not the one that its receipt vouches for.

    Raises `OSError` where the disk fails.
    """
    path, receipt = column_set.unit_file(unit.unit), column_set.receipt(unit.unit)
    name = path.relative_to(column_set.root)
    if not path.is_file():
        raise CorruptDataError(f"{name}: missing")
    if receipt is None:
        raise CorruptDataError(f"{name}: its receipt is missing")
    if receipt.state != column_set.state_of(unit):
        raise CorruptDataError(f"{name}: was computed for other rows: {unit.file} was written again after it")
    if (size_bytes := path.stat().st_size) != receipt.bytes:
        raise CorruptDataError(f"{name}: is {size_bytes} bytes, its receipt says {receipt.bytes}")
    if sha256_of(path) != receipt.sha256:
        raise CorruptDataError(f"{name}: its SHA-256 is not its receipt's")
    check_unit_file(path, unit.unit, receipt.state, unit.rows)
