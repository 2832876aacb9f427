"""From which set of added columns each column of an index is: sets come, go and change while the rows stay."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from .schema import recorded_schema

ADDED = b"facefeed.added"
"""Metadata of an index: of a field, the name of its set; of the schema, the fingerprints of all sets by name, JSON."""


def column_origins(schema: pa.Schema) -> dict[str, str]:
    """The set, with its fingerprint, of each column of an index that is an added one, by the column's name."""
    fingerprints = json.loads((schema.metadata or {}).get(ADDED, b"{}"))
    sets = {field.name: field.metadata[ADDED].decode() for field in schema if ADDED in (field.metadata or {})}
    return {column: f"{name} {fingerprints[name]}" for column, name in sets.items()}


def keeps_columns(schema: pa.Schema, origins: Mapping[str, str]) -> bool:
    """Whether an index has the columns that it had when they were of `origins`; others may have come since."""
    current = column_origins(schema)
    has_new_in_place_of_stored = not {*current} & {*recorded_schema(schema).names} <= origins.keys()
    return origins.items() <= current.items() and not has_new_in_place_of_stored
