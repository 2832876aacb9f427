"""Layout `table`: a CSV or Parquet file, one row an input: `path,label[,split,source,identity,method]`.

Paths and sources are relative to the table's own folder. Beside `emotions.csv`, `emotions.classes.txt` may name the
classes, one a line, in the order of their numbers.
"""

from __future__ import annotations

import posixpath
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ..errors import UsageError
from .files import find_named, is_there
from .listing import MOST_CLASSES, Entry, Listing, refuse_twice, split_name, trusted_splits

_REQUIRED = ("path", "label")
_OPTIONAL = ("split", "source", "identity", "method", "compression", "dataset")
_UNKNOWN_LABELS = {"", "-1"}  # -1 is how a dataset of facefeed's own writes it


class TableFile:
    """Labels real/fake become 0/1; other names become classes in sorted order, or in that of the file of classes.

    A label that is empty or -1 is unknown.
    """

    name = "table"
    needs = "a .csv or .parquet file"

    def fits(self, src: Path) -> bool:
        """See `Layout`."""
        return src.is_file() and src.suffix.lower() in {".csv", ".parquet"}

    def read(self, src: Path) -> Listing:
        """See `Layout`.

        Raises `UsageError` on a table that cannot be parsed, lacks a column, names a path twice, an unknown split, or
        a class that the file of classes lacks.
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
        return Listing(
            layout=self.name, root=src.parent, labels=labels, entries=entries, missing=missing,
            without_splits="leave out the column split",
        )  # fmt: skip


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
    classes = src.with_suffix(".classes.txt")
    if is_there(classes):
        return _listed_classes(classes, given)
    if {name.lower() for name in given} <= {"real", "fake"}:
        return ("real", "fake")
    if len(given) > MOST_CLASSES:
        raise UsageError(
            f"{src}: label has {len(given)} different values, at most {MOST_CLASSES} can be stored; "
            "is it the right column?"
        )
    if all(name.isdecimal() for name in given):
        return tuple(sorted(given, key=lambda name: (int(name), name)))
    return tuple(sorted(given))


def _listed_classes(path: Path, given: set[str]) -> tuple[str, ...]:
    try:
        names = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as a list of classes ({error}); mend it or take it away") from error
    if len(set(names)) < len(names) or not 1 <= len(names) <= MOST_CLASSES:
        raise UsageError(f"{path}: holds {len(names)} names; must be 1 to {MOST_CLASSES}, each once, one a line")
    if strangers := sorted(given - set(names)):
        raise UsageError(
            f"{path}: lacks {', '.join(map(repr, strangers[:5]))}, which the table has as a label; "
            f"it lists {', '.join(map(repr, names[:20]))}: add it, or mend the table"
        )
    return tuple(names)
