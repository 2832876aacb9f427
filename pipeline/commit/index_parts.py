"""Parts of the index, in a store: the end of a run reads these, and not the files of all units again."""

from __future__ import annotations

import uuid
from pathlib import Path

from ..dataset.index.part import part_of, read_part
from ..dataset.out import OutPaths
from ..errors import CorruptDataError
from ..files import sha256_of
from ..planning.run_state import RunState


def publish_index_part(paths: OutPaths, unit: str, unit_file: Path, sha256: str) -> Path:
    """Writes the part of a unit; `unit_file`: its file or a copy of that, with that SHA-256. Returns its local path.

    Raises `CorruptDataError` where the file is damaged.
    """
    part = paths.index_part(unit)
    attempt = paths.temporary / f"{part.name}.{uuid.uuid4().hex}"
    try:
        attempt.write_bytes(part_of(unit_file, sha256))
        paths.files.replace(attempt, part)
        attempt.replace(part)
    finally:
        attempt.unlink(missing_ok=True)
    return part


def files_to_index(run_state: RunState) -> list[tuple[Path, str]]:
    """What the index is built from, as `(path, name of the unit's file relative to OUT)`, sorted by name.

    That is the files of all units in a folder, and their parts of the index in a store. A part that is missing, damaged
    or of another file is written again, which fetches the unit's file once: copies of a dataset come without parts.
    Raises `CorruptDataError` where such a file is not the one of its receipt.
    """
    if not run_state.paths.files.is_remote:
        return run_state.parquet_files()
    paths = run_state.paths
    receipts = sorted(
        (receipt.file, receipt.unit, str(receipt.sha256)) for *_, receipt in run_state.finished_units() if receipt.file
    )
    parts = {paths.index_part(unit) for _, unit, _ in receipts}
    for other in {*paths.index_parts.iterdir()} - parts:
        other.unlink(missing_ok=True)
    paths.files.fetch(sorted(parts))
    return [(_current_part(paths, name, unit, sha256), name) for name, unit, sha256 in receipts]


def remove_index_parts(paths: OutPaths) -> None:
    """Removes all parts of an OUT in a store, so that they are written again from the files."""
    for path in paths.files.unit_files(paths.index_parts):
        paths.files.remove(path)


def _current_part(paths: OutPaths, name: str, unit: str, sha256: str) -> Path:
    part = paths.index_part(unit)
    if read_part(part, sha256) is not None:
        return part
    try:
        with paths.files.local(paths.root / name) as local:
            if sha256_of(local) != sha256:
                raise CorruptDataError(f"{name}: its SHA-256 is not the receipt's")
            return publish_index_part(paths, unit, local, sha256)
    except FileNotFoundError as error:
        raise CorruptDataError(f"{name}: missing") from error
