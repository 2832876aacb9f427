"""The checks of added columns: every file is the one that was computed for the rows as they are now."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from ..commit.column_files import check_columns
from ..console import plural
from ..dataset.added_columns import ColumnSet
from ..dataset.index import Index
from ..dataset.manifest import Receipt
from ..dataset.out import OutPaths
from ..errors import CorruptDataError, FacefeedError, StoppedError, UsageError
from ..files import raise_unless_damage
from .findings import Finding
from .ordered import OrderedMap

_CHUNK_FILES: Final = 32
"""That a worker reads at a time."""


def check_added_columns(
    out: Path, units: Sequence[Receipt], intact: Container[str], replaced: Container[str], run: OrderedMap
) -> Iterator[Finding]:
    """Findings on the sets of added columns of OUT; `units`: receipts of all units with rows; `run`: reads files.

    `intact`: ids of the units whose own file has no finding; with that of another, added columns cannot be compared.
    `replaced`: ids of units that later ones replace; what is left of these is not reported here.
    A set that the index has must be complete; what one lacks that it has not is reported once, with the command that
    completes it.
    """
    indexed, quoted = _indexed_sets(out), shlex.quote(str(out))
    folder = OutPaths(out).columns
    present = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    for name in sorted(indexed.keys() - set(present)):
        rebuild = f"run `facefeed verify {quoted} --rebuild-index`, and add them again"
        yield Finding("columns", f"columns/{name}", "missing, although the index has its columns", rebuild)
    for name in present:
        location = f"columns/{name}"
        remove = f"run `facefeed remove {quoted} {name}`" if (folder / name).is_dir() else "delete it"
        try:
            column_set = ColumnSet.read(out, name)
        except CorruptDataError as error:
            yield Finding("columns", location, str(error), remove)
            continue
        if column_set is None:
            yield Finding("columns", location, "has no _set.json: does not say what it is", remove)
            continue
        yield from _unknown_files(column_set, units, replaced)
        if name in indexed:
            yield from _check_set(column_set, units, intact, run)
        elif not column_set.is_being_removed:
            missing: list[Receipt] = []
            there: list[Receipt] = []
            for unit in units:
                (there if column_set.has_file_for(unit) else missing).append(unit)
            yield from _check_set(column_set, there, intact, run)  # `facefeed add` would take them as they are
            rows = plural(sum(unit.rows for unit in missing), "row")
            lacks = f"not finished, it lacks {plural(len(missing), 'unit')} of {len(units):,} with {rows}"
            detail = lacks if missing else "not in the index"
            remedy = f"run `{column_set.command}`, which completes them, or `{column_set.remove_command}`"
            yield Finding("columns", location, detail, remedy)


def _indexed_sets(out: Path) -> dict[str, str]:
    try:
        return Index(out).added
    except (CorruptDataError, UsageError):  # reported as a finding on the index
        return {}


@dataclass(frozen=True, kw_only=True)
class _ColumnFile:
    """A file of added columns. `unit`: whose rows it is of; `is_intact`: whether that one's file has no finding."""

    location: str
    unit: Receipt
    is_intact: bool


def _check_set(
    column_set: ColumnSet, units: Sequence[Receipt], intact: Container[str], run: OrderedMap
) -> Iterator[Finding]:
    files = [
        _ColumnFile(
            location=column_set.unit_file(unit.unit).relative_to(column_set.root).as_posix(),
            unit=unit,
            is_intact=unit.unit in intact,
        )
        for unit in units
    ]
    chunks = (files[start : start + _CHUNK_FILES] for start in range(0, len(files), _CHUNK_FILES))
    for findings in chain.from_iterable(run(partial(_check_files, column_set), chunks)):
        yield from findings


def _check_files(
    column_set: ColumnSet,
    paths: OutPaths,  # noqa: ARG001 (a set has its own)
    files: Sequence[_ColumnFile],
) -> list[list[Finding]]:
    return [[*_check_file(column_set, file)] for file in files]


def _check_file(column_set: ColumnSet, file: _ColumnFile) -> Iterator[Finding]:
    path, unit, location = column_set.unit_file(file.unit.unit), file.unit, file.location
    remedy = f"delete the file and run `{column_set.command}`, which recomputes it, or `{column_set.remove_command}`"
    try:
        check_columns(column_set, unit)
        with pq.ParquetFile(path) as opened:
            if not opened.schema_arrow.equals(column_set.file_schema):
                yield Finding("columns", location, "is not of the schema of its _set.json", remedy)
            elif file.is_intact and not _same_faces(path, column_set.root / str(unit.file)):
                yield Finding("columns", location, f"its faces are not those of {unit.file}, in their order", remedy)
    except StoppedError:
        raise
    except Exception as error:  # whatever a parser raises on damaged bytes
        raise_unless_damage(path, error)
        detail = str(error).removeprefix(f"{location}: ").removeprefix(f"{path.name}: ")
        if not path.exists():
            remedy = f"run `{column_set.command}`, which recomputes it, or `{column_set.remove_command}`"
        yield Finding("columns", location, detail if isinstance(error, FacefeedError) else repr(error), remedy)


def _same_faces(path: Path, unit_path: Path) -> bool:
    own, expected = (pq.read_table(each, columns=["face_id"], partitioning=None) for each in (path, unit_path))
    return bool(own.column("face_id").equals(expected.column("face_id")))


def _unknown_files(column_set: ColumnSet, units: Sequence[Receipt], replaced: Container[str]) -> Iterator[Finding]:
    known = {unit.unit for unit in units}
    for path in sorted(column_set.folder.iterdir()):  # not `glob`, which finds nothing where it cannot read
        if path.suffix == ".parquet" and path.stem not in known and path.stem not in replaced:
            location = path.relative_to(column_set.root).as_posix()
            detail = "is of no unit of this dataset; other readers would see its rows"
            yield Finding("columns", location, detail, "delete the file")
