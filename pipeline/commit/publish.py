"""The commit protocol: how bytes become part of a dataset exactly once, whatever dies when.

An attempt is written below ``_tmp`` under a name no reader opens, checked, made durable, and then published by
`link`, which fails where another attempt has already won. The receipt follows its file, so a file without a
receipt is an orphan that can be verified and adopted, and a receipt without its file does not arise.
"""

from __future__ import annotations

import errno
import hashlib
import os
import uuid
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq

from ..dataset.manifest import OutPaths, Receipt, trusted_receipt
from ..errors import CorruptDataError, UsageError
from ..files import DISK_IS_FULL, link_exclusive, stop_on_disk_error, sync_folder, write_durably

_NOT_THERE = {errno.ENOENT, errno.ENOTDIR}


def make_folders(paths: OutPaths) -> None:
    """Creates OUT and its folders, durably."""
    # The plan's folder comes first: it is what marks OUT as ours.
    for folder in (paths.root, paths.plan, paths.faces, paths.receipts, paths.temporary):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(folder.parent)
        except OSError as error:
            if error.errno in DISK_IS_FULL:
                with stop_on_disk_error(folder):
                    raise
            raise UsageError(f"OUT={str(paths.root)!r}: {error.strerror}; name a folder you may write to") from error


def remove_bare(paths: OutPaths) -> None:
    """Takes the folders away again that `make_folders` made, as far as nothing stands in them."""
    with suppress(OSError):
        paths.lease.unlink()
    for folder in (paths.faces, paths.receipts, paths.temporary, paths.plan, paths.root):
        with suppress(OSError):
            folder.rmdir()


def attempt_path(paths: OutPaths, unit: str) -> Path:
    """A fresh place to write one attempt at a unit; never ends in ``.parquet``."""
    return paths.temporary / f"{unit}.{uuid.uuid4().hex}.inprogress"


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(path: Path, unit: str, config_hash: str, rows: int | None = None) -> int:
    """Reads the whole file with its page checksums; returns its number of rows.

    Raises `CorruptDataError` where it is not `unit`'s complete file under `config_hash`, `OSError` where the disk
    fails, which says nothing about the file.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            found = {key: (file.metadata.metadata or {}).get(key.encode(), b"").decode() for key in _STAMPS}
            counted: int = sum(file.read_row_group(group).num_rows for group in range(file.num_row_groups))
    except (OSError, ValueError) as error:  # pyarrow raises OSError for damaged bytes too, then without a number
        if isinstance(error, OSError) and error.errno not in {None, *_NOT_THERE}:
            raise
        raise CorruptDataError(f"{path.name}: {error}") from error
    wanted = stamps(unit, config_hash, counted if rows is None else rows)
    if found != wanted:
        raise CorruptDataError(f"{path.name}: says {found}, expected {wanted}")
    if counted != int(found["facefeed.rows"]):
        raise CorruptDataError(f"{path.name}: holds {counted} rows, says {found['facefeed.rows']}")
    return counted


_STAMPS = ("facefeed.unit", "facefeed.config", "facefeed.rows")


def stamps(unit: str, config_hash: str, rows: int) -> dict[str, str]:
    """What a unit's file says of itself, so that an orphan can be recognised."""
    return dict(zip(_STAMPS, (unit, config_hash, str(rows)), strict=True))


def publish(attempt: Path, final: Path, unit: str, config_hash: str, rows: int) -> str | None:
    """Checks an attempt, makes it durable and gives it its final name; returns its SHA-256.

    None where another attempt was faster: what it published stands, if it is whole, and ours is dropped.
    """
    with stop_on_disk_error(final):
        check_file(attempt, unit, config_hash, rows)
        digest: str | None = sha256_of(attempt)
        descriptor = os.open(attempt, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            link_exclusive(attempt, final)
        except FileExistsError:
            try:
                check_file(final, unit, config_hash)
                digest = None
            except CorruptDataError:
                attempt.replace(final)
        sync_folder(final.parent)
        attempt.unlink(missing_ok=True)
    return digest


def write_receipt(paths: OutPaths, receipt: Receipt) -> Receipt:
    """Writes a unit's receipt, the first one to come; returns the one that stands.

    Two attempts at a unit (a worker that was given up may still finish) so end in one outcome. One that cannot be
    trusted any more, because it is damaged, or its file is gone or was made anew with other bytes, is replaced.
    """
    path = paths.receipt(receipt.unit)
    try:
        write_durably(path, receipt.to_json(), paths.temporary, replace=False)
    except FileExistsError:
        standing = trusted_receipt(paths, receipt.unit, receipt.config_hash)
        if standing is not None and (standing.file != receipt.file or standing.sha256 == receipt.sha256):
            return standing
        write_durably(path, receipt.to_json(), paths.temporary)
    return receipt
