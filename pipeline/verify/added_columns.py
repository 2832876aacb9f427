"""The checks of added columns: every file is the one that was computed for the rows as they are now."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ..commit.column_files import check_columns
from ..console import plural
from ..dataset.added_columns import ColumnSet, names_of_sets, units_of_set
from ..dataset.index import Index
from ..dataset.index.part import read_columns
from ..dataset.manifest import Receipt
from ..dataset.out import OutPaths
from ..errors import CorruptDataError, FacefeedError, StoppedError, UsageError
from ..files import raise_unless_damage
from .findings import Finding, digest_of
from .ordered import OrderedMap

_CHUNK_FILES: Final = 32
"""That a worker reads at a time."""


def check_added_columns(
    paths: OutPaths,
    units: Sequence[Receipt],
    intact: Mapping[str, str],
    replaced: Container[str],
    run: OrderedMap,
    *,
    parts: OutPaths,
) -> Iterator[Finding]:
    """Findings on the sets of added columns of OUT; `units`: receipts of all units with rows; `run`: reads files.

    `parts`: of an OUT in a store, where files with those of the columns that the index has are written, for its check.
    `intact`: `digest_of` the faces of each unit whose own file has no finding, by its id; with that of another, added
    columns cannot be compared.
    `replaced`: ids of units that later ones replace; what is left of these is not reported here.
    A set that the index has must be complete; what one lacks that it has not is reported once, with the command that
    completes it.
    """
    indexed, quoted, folder = _indexed_sets(paths.root), shlex.quote(paths.place), paths.columns
    present = sorted(paths.files.names(folder)) if paths.files.is_remote or folder.is_dir() else []
    for name in sorted(indexed.keys() - set(present)):
        rebuild = f"run `facefeed verify {quoted} --rebuild-index`, and add them again"
        yield Finding("columns", f"columns/{name}", "missing, although the index has its columns", rebuild)
    for name in present:
        location = f"columns/{name}"
        remove = f"run `facefeed remove {quoted} {name}`" if name in names_of_sets(paths) else "delete it"
        try:
            column_set = ColumnSet.read(paths, name)
        except CorruptDataError as error:
            yield Finding("columns", location, str(error), remove)
            continue
        if column_set is None:
            yield Finding("columns", location, "has no _set.json: does not say what it is", remove)
            continue
        yield from _unknown_files(column_set, units, replaced)
        if name in indexed:
            yield from _check_set(column_set, units, intact, run, parts if paths.files.is_remote else None)
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
    """A file of added columns. `unit`: whose rows it is of; `faces`: `digest_of` these, if its own file is intact."""

    location: str
    unit: Receipt
    faces: str | None


def _check_set(
    column_set: ColumnSet,
    units: Sequence[Receipt],
    intact: Mapping[str, str],
    run: OrderedMap,
    parts: OutPaths | None = None,
) -> Iterator[Finding]:
    files = [
        _ColumnFile(
            location=column_set.paths.name_of(column_set.unit_file(unit.unit)),
            unit=unit,
            faces=intact.get(unit.unit),
        )
        for unit in units
    ]
    chunks = (files[start : start + _CHUNK_FILES] for start in range(0, len(files), _CHUNK_FILES))
    check = partial(_check_files, column_set, keeps_part=parts is not None)
    for file, (findings, part) in zip(files, chain.from_iterable(run(check, chunks)), strict=True):
        yield from findings
        if parts is not None and part is not None:
            path = replace(column_set, paths=parts).unit_file(file.unit.unit)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(part)


_Checked = tuple[list[Finding], bytes | None]
"""The findings on a file, and a Parquet file of what the index has of it."""


def _check_files(
    column_set: ColumnSet, paths: OutPaths, files: Sequence[_ColumnFile], *, keeps_part: bool
) -> list[_Checked]:
    return [_check_file(replace(column_set, paths=paths), file, keeps_part=keeps_part) for file in files]


def _check_file(column_set: ColumnSet, file: _ColumnFile, *, keeps_part: bool) -> _Checked:
    path, unit, location = column_set.unit_file(file.unit.unit), file.unit, file.location
    remedy = f"delete the file and run `{column_set.command}`, which recomputes it, or `{column_set.remove_command}`"
    parts: list[bytes] = []

    def keep(local: Path) -> None:
        if keeps_part:
            parts.append(_part_of(column_set, local))

    try:
        faces = check_columns(column_set, unit, keep)
        if file.faces is not None and digest_of(faces) != file.faces:
            detail = f"its faces are not those of {unit.file}, in their order"
            return [Finding("columns", location, detail, remedy)], None
    except StoppedError:
        raise
    except Exception as error:  # whatever a parser raises on damaged bytes
        raise_unless_damage(path, error)
        detail = str(error).removeprefix(f"{location}: ").removeprefix(f"{path.name}: ")
        if column_set.paths.files.size_bytes(path) is None:
            remedy = f"run `{column_set.command}`, which recomputes it, or `{column_set.remove_command}`"
        detail = detail if isinstance(error, FacefeedError) else repr(error)
        return [Finding("columns", location, detail, remedy)], None
    return [], parts[0] if parts else None


def _part_of(column_set: ColumnSet, file: Path) -> bytes:
    part = pa.BufferOutputStream()
    pq.write_table(read_columns(file, [column_set.file_schema.field("face_id"), *column_set.indexed_fields]), part)
    content: bytes = part.getvalue().to_pybytes()
    return content


def _unknown_files(column_set: ColumnSet, units: Sequence[Receipt], replaced: Container[str]) -> Iterator[Finding]:
    known = {unit.unit for unit in units}
    for unit in units_of_set(column_set.paths, column_set.name):
        if unit not in known and unit not in replaced:
            location = column_set.paths.name_of(column_set.unit_file(unit))
            detail = "is of no unit of this dataset; other readers would see its rows"
            yield Finding("columns", location, detail, "delete the file")
