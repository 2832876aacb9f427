"""Layout of the index: its schema, the rows of a batch, and which of two files is the current one.

The index holds every column of the schema but the large ones (`UNINDEXED_COLUMNS`), and added columns, which may take
the place of one of the same name. For each image: `file` (relative to OUT), `image_offset`, `image_bytes`,
`image_crc32`; for each mask `mask_offset` and `mask_bytes`, both 0 where there is none (PNG has its own checksums).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from ...errors import CorruptDataError, UsageError
from ...files import raise_unless_damage, refuse_non_file
from ..added_columns import ADDED, ColumnSet, IncompleteSet
from ..manifest import Manifest
from ..out import OutPaths
from ..schema import UNINDEXED_COLUMNS, recorded_schema

BATCH_ROWS = 65_536
"""Rows of every batch but the last: a row's batch is found by division."""

MISSING = b"facefeed.missing"
"""Metadata of an index: for each column of an incomplete set of added ones, the set's description; JSON."""

_LOCATION = (
    pa.field("file", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    pa.field("image_offset", pa.int64(), nullable=False),
    pa.field("image_bytes", pa.int32(), nullable=False),
    pa.field("mask_offset", pa.int64(), nullable=False),
    pa.field("mask_bytes", pa.int32(), nullable=False),
)
INDEX_COLUMNS = tuple(field.name for field in _LOCATION)
"""Columns of the index alone: where the image and the mask of a row lie."""


def index_schema(
    faces: pa.Schema, fingerprint: str, added: Sequence[ColumnSet] = (), incomplete: Sequence[IncompleteSet] = ()
) -> pa.Schema:
    """Schema of ``OUT/index.arrow`` for files of the schema `faces`; strings that repeat are dictionary-encoded.

    `added`: sets of added columns that are part of it; `incomplete`: those that are not, to name them to readers.
    """
    fields = {column.name: column for column in faces if column.name not in UNINDEXED_COLUMNS}
    for column_set in added:
        fields |= {
            field.name: field.with_metadata({**(field.metadata or {}), ADDED: column_set.name})
            for field in column_set.indexed_fields
        }
    columns = []
    for column in fields.values():
        repeats = pa.types.is_string(column.type) and column.name != "face_id"
        columns.append(column.with_type(pa.dictionary(pa.int32(), pa.string())) if repeats else column)
    metadata = {**faces.metadata, b"facefeed.fingerprint": fingerprint.encode()}
    if added:
        metadata[ADDED] = json.dumps({each.name: each.fingerprint for each in added}).encode()
    if incomplete:
        missing = {name: each.portable for each in incomplete for name in each.column_set.schema.names}
        metadata[MISSING] = json.dumps(missing).encode()
    return pa.schema([*columns, *_LOCATION], metadata=metadata)


def has_expected_columns(schema: pa.Schema, fingerprint: str) -> bool:
    """Whether an index has the columns that `index_schema` gives, besides added ones."""
    added = {field.name for field in schema if ADDED in (field.metadata or {})}
    stored, expected = (
        pa.schema([field for field in fields if field.name not in added])
        for fields in (schema, index_schema(recorded_schema(schema), fingerprint))
    )
    return bool(stored.equals(expected))


def current_index_path(out: Path) -> Path:
    """Path of the index that belongs to OUT's manifest.

    The next index is written before the manifest and renamed after it, so that the current manifest has an index at any
    moment, even if a run is killed.
    """
    paths = OutPaths(out)
    try:
        refuse_non_file(paths.next_index)
        with pa.memory_map(str(paths.next_index)) as stored:
            fingerprint = pa.ipc.open_file(stored).schema.metadata[b"facefeed.fingerprint"].decode()
        return paths.next_index if fingerprint == Manifest.read(out).fingerprint else paths.index
    except (CorruptDataError, UsageError, KeyError, OSError, TypeError, ValueError, pa.ArrowException) as error:
        raise_unless_damage(paths.next_index, error)
        return paths.index
