"""Parts of the index: the light columns of one unit, written as its file is published, so that nobody reads that again.

A part is an Arrow file with its CRC-32 behind it. It names the file that it is of by SHA-256.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import CorruptDataError
from ...files import raise_unless_damage, refuse_non_file
from ..parquet_pages import byte_ranges
from ..schema import UNINDEXED_COLUMNS

PART_SUFFIX = ".arrow"
_SHA256 = b"facefeed.file_sha256"
_CRC_BYTES = 4


def location_columns(path: Path) -> dict[str, pa.Array]:
    """Where images and masks lie in a unit's Parquet file, by the names of the index's columns.

    Raises `CorruptDataError` where the file is damaged.
    """
    columns: dict[str, pa.Array] = {}
    names = ("image", "mask")
    for column, (offsets, sizes) in zip(names, byte_ranges(path, *names), strict=True):
        columns[f"{column}_offset"], columns[f"{column}_bytes"] = pa.array(offsets), pa.array(sizes)
    return columns


def read_columns(path: Path, columns: Sequence[pa.Field]) -> pa.Table:
    """Reads some columns of a unit's Parquet file and verifies their page checksums.

    Raises `CorruptDataError` where they cannot be read, or are not of these types.
    """
    try:
        refuse_non_file(path)
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read(columns=[column.name for column in columns])
    except (OSError, ValueError, pa.ArrowException) as error:
        raise_unless_damage(path, error)
        raise CorruptDataError(f"{path.name}: {error}") from error
    if not table.schema.equals(pa.schema(columns)):
        raise CorruptDataError(f"{path.name}: its columns are not those of the schema")
    return table


def part_of(unit_file: Path, sha256: str) -> bytes:
    """The content of the part of a unit's file; `sha256`: of that. Raises `CorruptDataError` where it is damaged."""
    schema = pq.read_schema(unit_file)
    table = read_columns(unit_file, [field for field in schema if field.name not in UNINDEXED_COLUMNS])
    for name, values in location_columns(unit_file).items():
        table = table.append_column(name, values)
    table = table.replace_schema_metadata({_SHA256: sha256})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data + zlib.crc32(data).to_bytes(_CRC_BYTES, "little")


def read_part(part: Path, sha256: str | None = None) -> pa.Table | None:
    """All columns of a part; None where it is missing or damaged or, with `sha256`, of another file than that."""
    try:
        data = part.read_bytes()
        content, crc = data[:-_CRC_BYTES], int.from_bytes(data[-_CRC_BYTES:], "little")
        if zlib.crc32(content) != crc:
            return None
        table = pa.ipc.open_file(pa.BufferReader(content)).read_all()
    except (FileNotFoundError, pa.ArrowException, ValueError):
        return None
    is_wanted = sha256 is None or (table.schema.metadata or {}).get(_SHA256) == sha256.encode()
    return table if is_wanted else None
