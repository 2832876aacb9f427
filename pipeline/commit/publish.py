"""The commit protocol: a unit becomes part of the dataset exactly once, whichever process dies at any time.

An attempt is written below ``_tmp`` under a name no reader opens, checked, made durable, and then published by
`link`, which fails where another attempt has already won. The receipt follows its file, so a file without a
receipt is an orphan that can be verified and adopted, and a receipt without its file does not arise.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..dataset.manifest import Receipt
from ..dataset.out import FolderFiles, OutFiles, OutPaths
from ..errors import CorruptDataError, TooManyFailedError, UsageError
from ..files import (
    DISK_IS_FULL,
    make_folder,
    raise_unless_damage,
    refuse_non_file,
    sha256_of,
    stop_on_disk_error,
)
from ..planning.plan import Unit
from ..planning.receipts import ReceiptReader, lists_inputs_of

QUARANTINED_SUFFIX = ".quarantined"


def make_folders(paths: OutPaths) -> None:
    """Creates OUT and its folders, durably; raises `UsageError` where this user may not write to them."""
    refuse_read_only(paths)
    # The plan's folder comes first: it marks OUT as a facefeed dataset.
    of_store = (paths.index_parts,) if paths.files.is_remote else ()
    for folder in (paths.root, paths.plan, paths.faces, paths.receipts, paths.temporary, *of_store):
        try:
            make_folder(folder)
        except OSError as error:
            if error.errno in DISK_IS_FULL:
                with stop_on_disk_error(folder):
                    raise
            raise UsageError(f"OUT={str(paths.root)!r}: {error.strerror}; name a folder you may write to") from error


def refuse_read_only(paths: OutPaths) -> None:
    """Raises `UsageError` where OUT, one of its folders or its lease may not be written to: waiting changes nothing.

    Likewise where a folder is in the place of a file, or a file in that of a folder.
    """
    folders = paths.faces, paths.receipts, paths.plan, paths.temporary
    _refuse_misplaced(folders, Path.is_dir, "folder")
    _refuse_misplaced((paths.lease, paths.manifest, paths.index, paths.next_index), Path.is_file, "file")
    for path in (
        paths.root, paths.plan, paths.faces, paths.receipts, paths.temporary, paths.columns, paths.lease,
    ):  # fmt: skip
        if path.exists() and not os.access(path, os.W_OK):
            raise UsageError(
                f"OUT={str(paths.root)!r}: {str(path)!r} may not be written to by this user, or is on a read-only file "
                "system; nothing was done: make it writable, or name another OUT"
            )


def _refuse_misplaced(places: Iterable[Path], is_sound: Callable[[Path], bool], kind: str) -> None:
    for path in places:
        if path.exists() and not is_sound(path):
            raise UsageError(f"{path}: is no {kind}, must be one; nothing was done: move it away and run this again")


@contextmanager
def remove_empty_folders_on_refusal(paths: OutPaths) -> Iterator[None]:
    """Where the block refuses the job before anything was planned, removes what `make_folders` created, and the lease.

    Not where another run has the lease, nor folders that hold something. In a store there are no folders.
    """
    try:
        yield
    except (UsageError, TooManyFailedError):
        if not paths.files.is_remote and not any(paths.plan.iterdir()) and not paths.lease.read_text():
            with suppress(OSError):
                paths.lease.unlink()
            for folder in (paths.faces, paths.receipts, paths.temporary, paths.plan, paths.root):
                with suppress(OSError):
                    folder.rmdir()
        raise


def attempt_path(paths: OutPaths, unit: str) -> Path:
    """A unique path to write one attempt at a unit to; never ends in ``.parquet``."""
    return paths.temporary / f"{unit}.{uuid.uuid4().hex}.inprogress"


def move_to_quarantine(path: Path, paths: OutPaths) -> None:
    """Moves a file that must not be read to `_tmp`, under a unique name; `remove_attempts` leaves it there."""
    paths.files.rename(path, paths.temporary / f"{path.name}.{uuid.uuid4().hex}{QUARANTINED_SUFFIX}")


def check_unit_file(path: Path, unit: str, content_key: str, rows: int | None = None) -> int:
    """Reads the whole file, see `read_unit_file`; returns its number of rows."""
    return sum(table.num_rows for table in read_unit_file(path, unit, content_key, rows))


def read_unit_file(path: Path, unit: str, content_key: str, rows: int | None = None) -> Iterator[pa.Table]:
    """Yields the row groups of a file and verifies their page checksums; checks the file as a whole at the end.

    `content_key`: what its rows depend on beside the unit: the hash of the job's config or, of a file of added columns,
    `ColumnSet.state_of` the unit.
    Raises `CorruptDataError` where it is not `unit`'s complete file under that key, `StoppedError` where the disk
    fails, which says nothing about the file.
    """
    counted = 0
    try:
        refuse_non_file(path)
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            stored = {key: (file.metadata.metadata or {}).get(key.encode(), b"").decode() for key in _METADATA_KEYS}
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, use_threads=False)  # units are read by several processes at a time
                counted += table.num_rows
                yield table
    except (OSError, ValueError, pa.ArrowException) as error:
        raise_unless_damage(path, error)
        raise CorruptDataError(f"{path.name}: {error}") from error
    expected = unit_file_metadata(unit, content_key, counted if rows is None else rows)
    if stored != expected:
        raise CorruptDataError(f"{path.name}: says {stored}, expected {expected}")
    if counted != int(stored["facefeed.rows"]):
        raise CorruptDataError(f"{path.name}: holds {counted} rows, says {stored['facefeed.rows']}")


_METADATA_KEYS = ("facefeed.unit", "facefeed.config", "facefeed.rows")


def unit_file_metadata(unit: str, content_key: str, rows: int) -> dict[str, str]:
    """Key-value metadata of a unit's Parquet file, by which an orphan is recognised; see `check_unit_file`."""
    return dict(zip(_METADATA_KEYS, (unit, content_key, str(rows)), strict=True))


def publish(
    attempt: Path, final: Path, unit: str, content_key: str, rows: int, *, files: OutFiles | None = None
) -> str | None:
    """Checks an attempt, makes it durable and gives it its final name; returns its SHA-256.

    `content_key`: see `check_unit_file`. `files`: those of OUT, None for a folder.
    None where another attempt was published first and its file is intact: that file stays, and this attempt is removed.
    """
    files = files or FolderFiles()
    with stop_on_disk_error(final):
        check_unit_file(attempt, unit, content_key, rows)
        digest: str | None = sha256_of(attempt)
        try:
            files.publish(attempt, final)
        except FileExistsError:
            try:
                with files.local(final) as other:
                    check_unit_file(other, unit, content_key)
                digest = None
            except (CorruptDataError, FileNotFoundError):
                files.replace(attempt, final)
        attempt.unlink(missing_ok=True)
    return digest


def write_receipt(paths: OutPaths, unit: Unit, receipt: Receipt) -> Receipt:
    """Writes the unit's receipt unless it has one already; returns the receipt on disk.

    So two attempts at a unit (an abandoned worker may still finish) end in one outcome. An existing receipt is replaced
    where it is no longer valid: damaged, or of other inputs, or its file is missing or was rewritten with other bytes.
    """
    path = paths.receipt(receipt.unit)
    try:
        paths.files.write(path, receipt.to_json(), paths.temporary, replace=False)
    except FileExistsError:
        existing = ReceiptReader(paths.unlisted, receipt.config_hash).trusted(receipt.unit)
        is_same = existing is not None and (existing.file != receipt.file or existing.sha256 == receipt.sha256)
        if existing is not None and is_same and lists_inputs_of(unit, existing):
            return existing
        paths.files.write(path, receipt.to_json(), paths.temporary)
    return receipt
