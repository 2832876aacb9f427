"""`write_outline`: the names, sizes and times of a store's files as a folder, which layouts list like any other."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ..console import first_names, plural
from ..dataset.stores.concurrent import map_on_threads
from ..dataset.stores.fetching import fetch_latest
from ..dataset.stores.remote_files import MissingInStoreError, RefusedByStoreError, RemoteFiles
from ..dataset.stores.stored_file import StoredFile
from ..errors import StoppedError, UsageError
from ..files import stop_on_disk_error

METADATA_SUFFIXES = (".csv", ".json", ".jsonl", ".tsv", ".txt", ".xml", ".yaml", ".yml")
"""Files that layouts may read. They are fetched; all others are as empty as a sparse file of their size can be."""

_MAX_NAME_BYTES = 255


@dataclass(frozen=True)
class OddFiles:
    """Names of files that an outline lacks (no path can have such a name, a folder has it, the store refuses it, or
    lists it alone), and of those whose time it lacks.
    """

    unnameable: list[str] = field(default_factory=list)
    shadowed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    undated: list[str] = field(default_factory=list)

    @property
    def warnings(self) -> list[str]:
        """What a user should know of them, as sentences without a full stop."""
        reasons = (
            (self.unnameable, "{} left out, since no path can have such a name"),
            (self.shadowed, "{} left out, since a folder has the same name"),
            (self.refused, "{} left out, since the store refuses to read such metadata"),
            (self.missing, "{} left out: listed, but missing in the store"),
            (self.undated, "{} without ETag and time: one that another of its size replaces stays unnoticed"),
        )
        return [
            f"{text.format(plural(len(names), 'file'))} ({first_names(sorted(names))})"
            for names, text in reasons
            if names
        ]


def write_outline(files: RemoteFiles, folder: Path, table: str | None = None) -> OddFiles:
    """Writes a folder with the files of a store, of which those that hold metadata have their content.

    Args:
        files: of the store.
        folder: to be written.
        table: the source, where it is a table in there; then metadata is what lies beside it.

    Returns:
        What is odd about them.

    Raises:
        UsageError: the store has no files there, or refuses to read them.
        StoppedError: the store does not return a file, or the local disk fails.

    """
    odd_files, metadata = OddFiles(), list[str]()
    listed = files.list(on_unnameable=odd_files.unnameable.append, on_missing=odd_files.missing.append)
    found = [stored for stored in listed if not _is_folder_marker(stored)]
    if not found:
        reasons = "; ".join(["the store has no file there", *odd_files.warnings])
        raise UsageError(f"SRC={str(files.address)!r}: {reasons}; check the address")
    folders = {str(parent) for stored in found for parent in PurePosixPath(stored.name).parents}
    with stop_on_disk_error(folder):
        folder.mkdir(parents=True)
        for stored in found:
            if not is_path(stored.name):
                odd_files.unnameable.append(stored.name)
            elif stored.name in folders:
                if stored.size_bytes:  # else a tool has marked the folder by it
                    odd_files.shadowed.append(stored.name)
            elif stored.name == table or _may_be_metadata(stored.name, table):
                metadata.append(stored.name)
            else:
                _write_empty(stored, folder)
                if not stored.mtime_ns:
                    odd_files.undated.append(stored.name)
        refused = map_on_threads(lambda name: _fetch(files, name, folder, is_needed=name == table), metadata)
    odd_files.refused.extend(filter(None, refused))
    return odd_files


def _is_folder_marker(stored: StoredFile) -> bool:
    return not stored.size_bytes and (not stored.name or stored.name.endswith("/"))


def _may_be_metadata(name: str, table: str | None) -> bool:
    return name.lower().endswith(METADATA_SUFFIXES) and (table is None or "/" not in name)


def is_path(name: str) -> bool:
    """Whether a file below a folder can have the name that a file has in a store."""
    parts = name.split("/")
    return "\0" not in name and all(
        part not in ("", ".", "..") and len(part.encode(errors="replace")) <= _MAX_NAME_BYTES for part in parts
    )


def _write_empty(stored: StoredFile, folder: Path) -> None:
    path = folder / stored.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(stored.size_bytes)
    os.utime(path, ns=(stored.modified_ns, stored.mtime_ns))  # the first is for plans from before ETags counted


def _fetch(files: RemoteFiles, name: str, folder: Path, *, is_needed: bool) -> str | None:
    """Returns the name where the store refuses it; one that is gone meanwhile is left out."""
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not fetch_latest(files, name, target):
            raise StoppedError(f"{files.address}/{name}: changes while it is read; run the same command again")
    except MissingInStoreError:
        target.unlink(missing_ok=True)
    except RefusedByStoreError as error:
        if is_needed or error.by_credentials or not files.accepts_credentials():
            raise
        target.unlink(missing_ok=True)
        return name
    return None
