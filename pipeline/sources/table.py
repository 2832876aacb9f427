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
from .listing import Entry, Listing, find_named, split_name, trusted_splits
import itertools

_REQUIRED = ("path", "label")
_OPTIONAL = ("split", "source", "identity", "method", "compression", "dataset")


def fits(src: Path) -> bool:
    """Whether `src` is a file of a kind that this layout reads."""
    return src.is_file() and src.suffix.lower() in {".csv", ".parquet"}


def read(src: Path) -> Listing:
    """Labels real/fake become 0/1; any other set of names becomes classes in sorted order; an empty label is -1.

    Raises `UsageError` on a table that cannot be parsed, lacks a column, names a path twice, or an unknown split.
    """
    rows = _rows(src)
    labels = _class_names({row["label"] for row in rows if row["label"]})
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
    twice = next((a.video_id for a, b in itertools.pairwise(entries) if a.video_id == b.video_id), None)
    if twice is not None:
        raise UsageError(f"{src}: names {twice!r} more than once; each input has one row")
    return Listing(layout="table", root=src.parent, labels=labels, entries=entries, missing=missing)


def _rows(src: Path) -> list[dict[str, str]]:
    try:
        if src.suffix.lower() == ".csv":
            # Everything is read as text: a path like 007 must not become a number.
            with src.open("rb") as file:
                names = file.readline().decode("utf-8-sig").strip().split(",")
            types = {name.strip('"'): pa.string() for name in names}
            options = pa.csv.ConvertOptions(column_types=types, strings_can_be_null=False)
            table = pa.csv.read_csv(src, convert_options=options)
        else:
            table = pq.read_table(src)
    except (OSError, ValueError) as error:
        raise UsageError(f"{src}: cannot be read as a table ({error})") from error
    lacking = [name for name in _REQUIRED if name not in table.column_names]
    if lacking:
        raise UsageError(
            f"{src}: lacks the column {', '.join(lacking)}; columns are {', '.join(_REQUIRED)} and may be {', '.join(_OPTIONAL)}"
        )
    names = [name for name in (*_REQUIRED, *_OPTIONAL) if name in table.column_names]
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


def _class_names(given: set[str]) -> tuple[str, ...]:
    if {name.lower() for name in given} <= {"real", "fake"}:
        return ("real", "fake")
    if len(given) > 127:
        raise UsageError(f"label: {len(given)} classes; int8 holds at most 127")
    if all(name.lstrip("-").isdigit() for name in given):
        return tuple(sorted(given, key=int))
    return tuple(sorted(given))
