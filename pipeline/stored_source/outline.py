"""`write_outline`: the names, sizes and times of a store's files as a folder, which layouts list like any other."""

from __future__ import annotations

import os
from pathlib import Path

from ..dataset.stores.concurrent import map_on_threads
from ..dataset.stores.fetching import fetch_latest
from ..dataset.stores.remote_files import RemoteFiles, StoredFile
from ..errors import StoppedError, UsageError
from ..files import stop_on_disk_error

_METADATA_SUFFIXES = (".csv", ".json", ".txt")
"""Files that layouts read. They are fetched; all others are as empty as a sparse file of their size can be."""

_MAX_NAME_BYTES = 255


def write_outline(files: RemoteFiles, folder: Path, table: str | None = None) -> list[str]:
    """Writes a folder with the files of a store, of which those that hold metadata have their content.

    Args:
        files: of the store.
        folder: to be written.
        table: a further file that is fetched, whatever its suffix.

    Returns:
        Names in the store that no path can have.

    Raises:
        UsageError: the store has no files there, or refuses to read them.
        StoppedError: the store does not return a file, or the local disk fails.

    """
    odd_names, metadata, count = list[str](), list[str](), 0
    with stop_on_disk_error(folder):
        folder.mkdir(parents=True)
        for stored in files.list():
            count += 1
            if not _is_path(stored.name):
                odd_names.append(stored.name)
            elif stored.name == table or stored.name.lower().endswith(_METADATA_SUFFIXES):
                metadata.append(stored.name)
            elif not _write_empty(stored, folder):
                odd_names.append(stored.name)
        if not count:
            raise UsageError(f"SRC={str(files.address)!r}: the store has no file there; check the address")
        map_on_threads(lambda name: _fetch(files, name, folder), metadata)
    return sorted(odd_names)


def _is_path(name: str) -> bool:
    parts = name.split("/")
    return "\0" not in name and all(
        part not in ("", ".", "..") and len(part.encode(errors="replace")) <= _MAX_NAME_BYTES for part in parts
    )


def _write_empty(stored: StoredFile, folder: Path) -> bool:
    """Returns False where a store has a file with the name of a folder."""
    path = folder / stored.name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(stored.size_bytes)
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        return False
    os.utime(path, ns=(stored.mtime_ns, stored.mtime_ns))
    return True


def _fetch(files: RemoteFiles, name: str, folder: Path) -> None:
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if not fetch_latest(files, name, target):
        raise StoppedError(f"{files.address}/{name}: changes while it is read; run the same command again")
