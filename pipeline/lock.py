"""One process at work on a folder: who holds it is written in a file, so that a second one can name the first.

On one machine (and on network file systems with working locks) `flock` decides, which the kernel releases when
the holder dies. Where there are no locks, or they do not reach other hosts, a heartbeat does: a holder on another
host is gone once its file has not been touched for a minute.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from .errors import RefusedError

HEARTBEAT_SECONDS = 10.0
STALE_SECONDS = 60.0
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def hold(path: Path, *, work: str) -> Iterator[None]:
    """Holds the folder of the file `path` for the length of the block; work: what the holder does, as "precompute".

    Raises `RefusedError` naming whoever holds it already, and `OSError` where the file cannot be written.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        locked = _lock(descriptor, path, work)
        holder = _holder(descriptor)
        host = holder.get("host")
        unseen = host is not None and not (locked and host == socket.gethostname())
        if unseen and time.time() - os.fstat(descriptor).st_mtime < STALE_SECONDS:
            raise _refusal(path, work, holder)
        _sign(descriptor)
        try:
            with _heartbeat(descriptor):
                yield
        finally:
            os.ftruncate(descriptor, 0)  # released, also after an error: nobody holds it
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, work: str) -> bool:
    """Whether the lock is ours; False where the file system knows no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _refusal(path, work, _holder(descriptor)) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


def _holder(descriptor: int) -> dict[str, object]:
    try:
        held = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:
        return {}
    return held if isinstance(held, dict) else {}


def _sign(descriptor: int) -> None:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    text = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": since})
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
    os.fsync(descriptor)


@contextmanager
def _heartbeat(descriptor: int) -> Iterator[None]:
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(HEARTBEAT_SECONDS):
            with suppress(OSError):  # a full or vanished disk is reported by whoever writes data
                os.utime(descriptor)

    thread = threading.Thread(target=beat, name="facefeed-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _refusal(path: Path, work: str, holder: dict[str, object]) -> RefusedError:
    who = "process {pid} on {host}, since {since}".format_map({"pid": "?", "host": "?", "since": "?", **holder})
    return RefusedError(
        f"{path.parent}: another {work} is working on it ({who}); wait for it, or stop it and run this again"
    )
