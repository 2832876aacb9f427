"""Atomic file writes: a file appears complete, or not at all."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import re
import stat
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from .errors import CorruptDataError, StoppedError, UsageError
from .machine import memory_bytes

DISK_IS_FULL = {errno.ENOSPC, errno.EDQUOT}
NO_HARD_LINKS = {errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
NO_FOLDER_SYNC = {errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP, errno.ENOSYS}
NO_MAPPING = {errno.ENODEV}
TOO_MANY_FILES = {errno.EMFILE, errno.ENFILE}

RAISE_FILES_LIMIT = "raise the limit of open files (ulimit -n)"

_PART_BYTES = 1 << 16
_STORE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_MEMORY_ASKED = re.compile(r"of size (\d+) failed")
"""In Arrow's errors."""
_NO_THREAD = re.compile("can't start new thread|Failed to launch worker thread")
"""In plain errors of Python and of Arrow."""
_NO_MEMORY_TO_MAP = f"Memory mapping file failed: {os.strerror(errno.ENOMEM)}"
"""In an error of Arrow without an errno."""
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR}
_NO_PLACE = {errno.EINVAL, errno.EOVERFLOW}  # of a seek before the start of a file, or farther than any file reaches


def _stopped(path: Path, error: OSError) -> StoppedError:
    remedy = "make room" if error.errno in DISK_IS_FULL else "fix that"
    if error.errno == errno.EISDIR:
        remedy = "move that folder away"
    if error.errno in TOO_MANY_FILES:
        remedy = RAISE_FILES_LIMIT
    if error.errno in NO_MAPPING:
        remedy = "this file system cannot map files into memory: use another, or mount it without direct I/O,"
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StoppedError(f"{path}: {reason}; finished work is kept; {remedy} and run the same command again")


@contextmanager
def stop_on_disk_error(path: Path, *, unless: tuple[type[OSError], ...] = (FileExistsError,)) -> Iterator[None]:
    """Converts an `OSError` on `path` (disk full, I/O error) to a `StoppedError`, `unless` it is one of these."""
    try:
        yield
    except unless:
        raise
    except OSError as error:
        raise _stopped(path, error) from error


@contextmanager
def stop_on_any_disk_error(folder: Path) -> Iterator[None]:
    """Converts every `OSError` of a command on `folder` that nothing else has to a `StoppedError` on the file named.

    But that of a closed pipe: whoever read what the command prints is gone.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        named = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else folder
        # `shutil.rmtree` names files without their folders.
        where = named if named.is_absolute() or named.is_relative_to(folder) else folder
        raise _stopped(where, error) from error


def raise_unless_damage(path: Path, error: Exception) -> None:
    """Raises a `StoppedError` where the disk failed, or memory or a thread was refused, as `path` was parsed.

    That says nothing about what is on it. Other errors of a parser do: also an `OSError` without an errno, which Arrow
    raises for damaged bytes, that of a place that no file has, which the parser of an archive seeks where its end is
    cut off or damaged, and that of a size which no machine has.
    """
    if isinstance(error, OSError) and error.errno not in {None, *_NOT_THERE, *_NO_PLACE}:
        raise _stopped(path, error) from error
    asked = _MEMORY_ASKED.search(str(error))
    is_of_damage = asked is not None and int(asked[1]) > memory_bytes()
    if not is_of_damage and (refusal := refusal_text(error)) is not None:
        raise StoppedError(f"{path}: {refusal}") from error


def refusal_text(error: BaseException) -> str | None:
    """What to say and to advise where the system refused memory or a thread; None for any other error."""
    if isinstance(error, MemoryError) or _NO_MEMORY_TO_MAP in str(error):
        return memory_text(error)
    if (refused := _NO_THREAD.search(str(error))) is not None:
        return (
            f"{refused[0]}: you, or this container, have as many processes and threads as are allowed; finished work "
            "is kept; end others or raise the limit (ulimit -u), and run the same command again"
        )
    return None


def memory_text(error: BaseException) -> str:
    """What to say and to advise where memory ran out; `error`: which request failed."""
    request = f" ({error})" if str(error) else ""
    return f"{os.strerror(errno.ENOMEM)}{request}; finished work is kept; free memory and run the same command again"


def refuse_unmapped(file: Path) -> None:
    """Raises `UsageError` where the file system of `file`, which exists, cannot map it into memory."""
    if file.stat().st_size:
        map_file(file).close()


def map_file(file: Path) -> mmap.mmap:
    """Maps a file into memory, to be read.

    Raises `UsageError` where its file system cannot, `OSError` where it cannot be opened, `ValueError` where it is
    empty.
    """
    with file.open("rb") as opened:
        try:
            return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            if error.errno not in NO_MAPPING:
                raise
            raise UsageError(
                f"{file.parent}: its file system cannot map files into memory ({error.strerror}), by which the "
                "dataset is read; put the dataset on another one, or mount this one without direct I/O"
            ) from error


def read_stored(path: Path) -> bytes:
    """Reads a whole file.

    Raises `FileNotFoundError` where it is not there, `CorruptDataError` where a folder or a pipe is in its place, and
    `StoppedError` where the disk fails.
    """
    try:
        with stop_on_disk_error(path, unless=(FileNotFoundError, NotADirectoryError)):
            refuse_non_file(path)
            return path.read_bytes()
    except NotADirectoryError as error:
        raise FileNotFoundError(*error.args) from error


def read_stored_in_parts(path: Path) -> Iterator[bytes]:
    """The bytes of a file of any size, in parts; raises what `read_stored` does, once they are read."""
    try:
        with stop_on_disk_error(path, unless=(FileNotFoundError, NotADirectoryError)):
            refuse_non_file(path)
            with path.open("rb") as file:
                while part := file.read(_PART_BYTES):
                    yield part
    except NotADirectoryError as error:
        raise FileNotFoundError(*error.args) from error


def refuse_non_file(path: Path) -> None:
    """Raises `CorruptDataError` where something else is in a file's place: opening a pipe would wait for a writer.

    Raises `OSError` where nothing is.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CorruptDataError(f"{path}: is a link that leads back to itself, must be a file") from error
        raise
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
        raise CorruptDataError(f"{path}: is {kind}, must be a file")


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_address(path: Path, remedy: str) -> None:
    """Raises `UsageError` where a path was given as the address of an object store, such as ``s3://bucket/faces``.

    Else it would be a folder ``s3:`` of the working directory.
    """
    if path.parts and _STORE.fullmatch(path.parts[0]) and not Path(path.parts[0]).exists():
        address = f"{path.parts[0]}//{'/'.join(path.parts[1:])}"
        raise UsageError(f"{address}: is the address of an object store; {remedy}")


def can_create_files_in(folder: Path) -> bool:
    """Whether a file can be created in a folder: by trial, since permissions do not show it to the superuser."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def cache_folder() -> Path:
    """The user's cache of facefeed: ``$XDG_CACHE_HOME/facefeed``, else ``~/.cache/facefeed``; it may not exist."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return with_home(cache) / "facefeed"


def with_home(path: str | Path) -> Path:
    """The path with the user's home in place of a `~` at its beginning, if there is one."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 (`Path.expanduser` raises where there is no home)


def sync_folder(folder: Path) -> bool:
    """Calls fsync on `folder`, so that names created in it survive a power failure.

    False where the file system cannot do that, as some network and FUSE file systems: they decide when names are safe.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise
        return False
    finally:
        os.close(descriptor)
    return True


def make_folder(folder: Path) -> None:
    """Creates `folder`, and those above it, unless it exists; its name then survives a power failure.

    That of an existing folder is synced too: another process may have created it a moment ago.
    """
    if not folder.parent.is_dir():
        make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    with suppress(PermissionError):  # of a folder that cannot be listed, as /home may be: it cannot be opened
        sync_folder(folder.parent)


def files_below(folder: Path) -> list[Path]:
    """All files in a folder and below it, sorted. Unlike `Path.rglob`, raises `OSError` where one cannot be read.

    Without hidden files, which no reader of datasets opens: `.DS_Store`, or `.nfs*` while a removed file is in use.
    """
    walked = walk_strictly(folder)
    return sorted(Path(parent) / name for parent, _, names in walked for name in names if not name.startswith("."))


def walk_strictly(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Like `os.walk`, but raises `OSError` where a folder cannot be read: `os.walk` passes over it."""

    def fail(error: OSError) -> NoReturn:
        raise error

    return os.walk(folder, onerror=fail)


def write_at(descriptor: int, data: bytes, offset: int) -> None:
    """Writes all of `data` to an open file from byte `offset` on; raises `OSError`.

    A single call may write a part and report no error, as the one that fills a disk does.
    """
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def write_durably(target: Path, text: str | Iterable[str], temporary: Path, *, replace: bool = True) -> None:
    """Writes a small file atomically and with fsync, by way of a file in the folder `temporary`.

    `text`: whole or in parts. Raises `StoppedError` where the disk fails and, with `replace=False`, `FileExistsError`
    if `target` exists.
    """
    attempt = temporary / f"{target.name}.{uuid.uuid4().hex}"
    with stop_on_disk_error(target):
        try:
            with attempt.open("w", encoding="utf-8") as file:
                file.writelines([text] if isinstance(text, str) else text)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                attempt.replace(target)
            else:
                link_exclusive(attempt, target)
            sync_folder(target.parent)
        finally:
            attempt.unlink(missing_ok=True)


def link_exclusive(attempt: Path, target: Path) -> None:
    """Gives a complete file its final name and never overwrites: raises `FileExistsError` if `target` exists."""
    try:
        os.link(attempt, target)
    except FileExistsError:
        # A network file system repeats a call whose answer was lost: the name may be there by our own first call.
        if not attempt.samefile(target):
            raise
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        # No hard links here (some network and FAT file systems): the driver's lease then keeps writers apart,
        # and the rename is atomic.
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        attempt.rename(target)


def write_atomically(text: str, path: Path, option: str) -> int:
    """Writes `text` to a file beside `path`, renames it to `path` and returns its size in bytes.

    `option`: the command-line option that named the path, for the message.
    Raises `StoppedError` where the disk is full, and `UsageError` where it cannot be written; an existing file is then
    unchanged.
    """
    given_path, path = path, path.resolve()  # a link stays; its target is replaced
    content = text.encode("utf-8", "backslashreplace")  # a name on disk may be no UTF-8
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # /dev/null or a pipe: never replaced
            return path.write_bytes(content)
        try:
            size_bytes = temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in DISK_IS_FULL:
            raise StoppedError(f"{option} {given_path}: {error.strerror}; make room and run it again") from error
        raise UsageError(
            f"{option} {given_path}: cannot be written ({error.strerror}); name a file in a folder that is there"
        ) from error
    return size_bytes
