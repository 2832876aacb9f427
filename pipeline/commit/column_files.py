"""Files of added columns: published as a unit's own file is, each with a receipt after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..dataset.added_columns import ColumnReceipt, ColumnSet
from ..dataset.manifest import Receipt
from ..dataset.schema import leaf_paths
from ..errors import CorruptDataError, StoppedError
from ..files import sha256_of, stop_on_disk_error
from .publish import check_unit_file, publish, read_unit_file, unit_file_metadata


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
    if column_set.paths.files.size_bytes(path) is None:
        return False
    with stop_on_disk_error(path):
        try:
            with column_set.paths.files.local(path) as local:
                check_unit_file(local, unit.unit, column_set.state_of(unit), unit.rows)
                size_bytes, digest = local.stat().st_size, sha256_of(local)
        except (CorruptDataError, FileNotFoundError):
            return False  # `publish_columns` replaces it
    _write_receipt(column_set, unit, size_bytes, digest)
    return True


def publish_columns(column_set: ColumnSet, unit: Receipt, attempt: Path) -> None:
    """Publishes an attempt at the columns of a unit's rows; a file of another attempt, if it is intact, stays.

    Raises `StoppedError` where the disk fails, or that file is gone again.
    """
    path, state, size_bytes = column_set.unit_file(unit.unit), column_set.state_of(unit), attempt.stat().st_size
    digest = publish(attempt, path, unit.unit, state, unit.rows, files=column_set.paths.files)
    if digest is not None:
        _write_receipt(column_set, unit, size_bytes, digest)
    elif not adopt_columns(column_set, unit):
        raise StoppedError(f"{path}: another run has replaced it; run the same command again")


def _write_receipt(column_set: ColumnSet, unit: Receipt, size_bytes: int, digest: str) -> None:
    receipt = ColumnReceipt(
        unit=unit.unit, state=column_set.state_of(unit), rows=unit.rows, bytes=size_bytes, sha256=digest
    )
    paths = column_set.paths
    paths.files.write(column_set.receipt_file(unit.unit), receipt.to_json(), paths.temporary)


def check_columns(
    column_set: ColumnSet, unit: Receipt, on_sound: Callable[[Path], object] = lambda _: None
) -> pa.ChunkedArray:
    """Reads a column file as a whole; returns the ids of its faces.

    `on_sound`: called with the file, of a store with its copy, which is gone afterwards, once it was checked.
    Raises `CorruptDataError` where it is not the one that its receipt vouches for, `OSError` where the disk fails.
    """
    path, receipt = column_set.unit_file(unit.unit), column_set.receipt(unit.unit)
    name = column_set.paths.name_of(path)
    try:
        with column_set.paths.files.local(path) as local:
            if receipt is None:
                raise CorruptDataError(f"{name}: its receipt is missing")
            if receipt.state != column_set.state_of(unit):
                raise CorruptDataError(f"{name}: was computed for other rows: {unit.file} was written again after it")
            if (size_bytes := local.stat().st_size) != receipt.bytes:
                raise CorruptDataError(f"{name}: is {size_bytes} bytes, its receipt says {receipt.bytes}")
            if sha256_of(local) != receipt.sha256:
                raise CorruptDataError(f"{name}: its SHA-256 is not its receipt's")
            faces = _faces_of(column_set, local, receipt)
            on_sound(local)
            return faces
    except FileNotFoundError as error:
        raise CorruptDataError(f"{name}: missing") from error


def _faces_of(column_set: ColumnSet, local: Path, receipt: ColumnReceipt) -> pa.ChunkedArray:
    """The ids of the faces of a file, or of a copy of it, which is read as a whole."""
    path, faces = column_set.unit_file(receipt.unit), []
    try:
        for table in read_unit_file(local, receipt.unit, receipt.state, receipt.rows):
            if not table.schema.equals(column_set.file_schema):
                raise CorruptDataError(f"{path.name}: is not of the schema of its _set.json")
            faces += table.column("face_id").chunks
    except CorruptDataError as error:
        raise CorruptDataError(str(error).replace(local.name, path.name)) from error
    return pa.chunked_array(faces, pa.string())
