"""Checksums of the index: a CRC-32 (zlib) of each column of a batch, and of each dictionary, beside the first batch.

They lie in the batch's own metadata in the file, which readers that do not know them skip. A checksum is that of the
buffers as Arrow's columnar format orders them, without padding; of dictionary-encoded columns, of the codes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ...json_records import parse_json

CHECKSUMS = b"facefeed.crc32"
_DICTIONARY = "dictionary of "


def metadata_of(batch: pa.RecordBatch, *, is_first: bool) -> dict[bytes, bytes]:
    """Metadata of a batch that is written next; `is_first`: it comes with all dictionaries."""
    columns = {name: _without_dictionary(batch.column(name)) for name in batch.schema.names}
    checksums = _checksums(columns)
    if is_first:
        encoded = [name for name in columns if pa.types.is_dictionary(batch.schema.field(name).type)]
        for name in encoded:
            checksums |= _checksums({_DICTIONARY + name: batch.column(name).dictionary})
    return {CHECKSUMS: json.dumps(checksums).encode()}


def _checksums(columns: Mapping[str, pa.Array]) -> dict[str, int]:
    batch = pa.record_batch([*columns.values()], names=[*columns])
    written = pa.ipc.read_record_batch(batch.serialize(), batch.schema)  # a slice has its buffers from its first row on
    return {name: _crc32(column) for name, column in zip(columns, written.columns, strict=True)}


def read_checksums(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """The checksums of a batch, none of an index from before there were any; raises `ValueError` on anything else."""
    checksums = parse_json((metadata or {}).get(CHECKSUMS, b"{}"))
    if not isinstance(checksums, dict):
        raise ValueError("its checksums are no object")
    return checksums


def check_column(checksums: Mapping[str, Any], name: str, column: pa.Array) -> None:
    """Reads a column of a batch as a whole; raises `ValueError` where its bytes are not those that were written."""
    _check(checksums, name, _without_dictionary(column))


def check_dictionary(checksums: Mapping[str, Any], name: str, dictionary: pa.Array) -> None:
    """`check_column` of the dictionary of a column; `checksums`: of the first batch."""
    _check(checksums, _DICTIONARY + name, dictionary)


def _check(checksums: Mapping[str, Any], name: str, values: pa.Array) -> None:
    if name in checksums and checksums[name] != _crc32(values):
        raise ValueError("its bytes are not those that were written")


def _without_dictionary(column: pa.Array) -> pa.Array:
    return column.indices if pa.types.is_dictionary(column.type) else column


def _crc32(values: pa.Array) -> int:
    crc = 0
    for buffer in values.buffers():
        if buffer is not None:
            crc = zlib.crc32(buffer, crc)
    return crc
