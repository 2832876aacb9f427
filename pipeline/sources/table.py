"""Layout `table`: a CSV or Parquet file, one row an input: `path,label[,split,source,identity,method]`.

Paths and sources are relative to the table's own folder.
"""

from __future__ import annotations

import posixpath
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ..errors import UsageError
from .listing import Entry, Listing, find_named, refuse_twice, split_name, trusted_splits

_REQUIRED = ("path", "label")
_OPTIONAL = ("split", "source", "identity", "method", "compression", "dataset")
_UNKNOWN_LABELS = {"", "-1"}  # -1 is how a dataset of facefeed's own writes it
_MOST_CLASSES = 128  # labels are int8


def fits(src: Path) -> bool:
    """Whether `src` is a file of a kind that this layout reads."""
    return src.is_file() and src.suffix.lower() in {".csv", ".parquet"}


def read(src: Path) -> Listing:
    """Labels real/fake become 0/1; any other set of names becomes classes in sorted order; empty or -1 is unknown.

    Raises `UsageError` on a table that cannot be parsed, lacks a column, names a path twice, or an unknown split.
    """
    rows = _rows(src)
    labels = _class_names(src, {row["label"] for row in rows} - _UNKNOWN_LABELS)
    numbers = {name: number for number, name in enumerate(labels)}
    use_splits = trusted_splits({_split(src, row) for row in rows})
    entries: list[Entry] = []
    missing: list[str] = []
    for row in rows:
        found = find_named(src.parent, row["path"])
        if found is None:
            missing.append(row["path"])
            continue
        label = row["label"].lower() if labels == ("real", "fake") else row["label"]
        entries.append(
            Entry(
                video_id=found.relative,
                size_bytes=found.size_bytes,
                mtime_ns=found.mtime_ns,
                label=numbers.get(label, -1),
                split=_split(src, row) if use_splits else None,
                source_id=posixpath.normpath(row["source"]) if row.get("source") else None,
                identity=row.get("identity") or None,
                dataset=row.get("dataset") or None,
                method=row.get("method") or None,
                compression=row.get("compression") or None,
                problem=found.problem,
                detail=found.detail,
            )
        )
    entries.sort(key=lambda entry: entry.video_id)
    refuse_twice(src, entries)
    return Listing(layout="table", root=src.parent, labels=labels, entries=entries, missing=missing)


def _rows(src: Path) -> list[dict[str, str]]:
    try:
        if src.suffix.lower() == ".csv":
            # Everything is read as text: a path like 007 must not become a number.
            with pa.csv.open_csv(src) as head:
                types = {name: pa.string() for name in head.schema.names}
            options = pa.csv.ConvertOptions(column_types=types, strings_can_be_null=False)
            table = pa.csv.read_csv(src, convert_options=options)
        else:
            table = pq.read_table(src)
    except (OSError, ValueError) as error:
        raise UsageError(f"{src}: cannot be read as a table ({error})") from error
    lacking = [name for name in _REQUIRED if name not in table.column_names]
    if lacking:
        raise UsageError(
            f"{src}: lacks the column {', '.join(lacking)}; it has {', '.join(map(repr, table.column_names))}, "
            f"must have {', '.join(_REQUIRED)} and may have {', '.join(_OPTIONAL)}"
        )
    names = [name for name in (*_REQUIRED, *_OPTIONAL) if name in table.column_names]
    doubled = [name for name in names if table.column_names.count(name) > 1]
    if doubled:
        raise UsageError(f"{src}: has the column {', '.join(doubled)} more than once; keep the one that is meant")
    rows = table.select(names).to_pylist()
    return [{key: "" if value is None else str(value).strip() for key, value in row.items()} for row in rows]


def _split(src: Path, row: dict[str, str]) -> str | None:
    given = row.get("split")
    if not given:
        return None
    split = split_name(given)
    if split is None:
        raise UsageError(f"{src}: split {given!r} of {row['path']!r}: must be train, val or test")
    return split


def _class_names(src: Path, given: set[str]) -> tuple[str, ...]:
    if {name.lower() for name in given} <= {"real", "fake"}:
        return ("real", "fake")
    if len(given) > _MOST_CLASSES:
        raise UsageError(
            f"{src}: label has {len(given)} different values, at most {_MOST_CLASSES} can be stored; "
            "is it the right column?"
        )
    if all(name.isdecimal() for name in given):
        return tuple(sorted(given, key=lambda name: (int(name), name)))
    return tuple(sorted(given))
