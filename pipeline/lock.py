"""One process at work on a folder: who holds it is written in a file, so that a second one can name the first.

On one machine (and on network file systems with working locks) `flock` decides, which the kernel releases when
the holder dies. Where there are no locks, or they do not reach other hosts, a heartbeat does: a holder on another
host is gone once its file has not been touched for a minute. Who may be gone is waited for; one sign of life ends that.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import psutil

from .errors import RefusedError

HEARTBEAT_SECONDS = 10.0
STALE_SECONDS = 60.0
_LOOK_SECONDS = 1.0
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def hold(path: Path, *, work: str, on_wait: Callable[[str], object] = lambda _: None) -> Iterator[None]:
    """Holds the folder of the file `path` for the length of the block; work: what the holder does, as "precompute".

    A holder on another host that may have been killed is waited for, for a minute at most: `on_wait` is told who and
    how long. Raises `RefusedError` naming whoever holds it, and `OSError` where the file cannot be written.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        locked = _lock(descriptor, path, work)
        holder = _holder(descriptor)
        here = holder.get("host") == socket.gethostname()
        waited = False
        if holder.get("host") is not None and not (locked and here):
            if here and _is_alive(holder.get("pid")) and _left_seconds(path) > 0:
                raise _refusal(path, work, holder)
            waited = _outlast(path, work, holder, on_wait)
        signed = _sign(descriptor)
        if waited:  # another one may have waited for the same: the last to sign has it
            time.sleep(_LOOK_SECONDS)
            if (holder := _look(path)[0]) != signed:
                raise _refusal(path, work, holder)
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


def _look(path: Path) -> tuple[dict[str, object], float]:
    """The holder and its last sign of life; the file is opened anew, or a network file system may show an old state."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _holder(descriptor), os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def _left_seconds(path: Path) -> float:
    """How long a holder may still be silent; never more than all of its time, whatever the file server's clock says."""
    return min(_look(path)[1] + STALE_SECONDS - time.time(), STALE_SECONDS)


def _is_alive(pid: object) -> bool:
    """Whether there is such a process on this host."""
    return isinstance(pid, int) and psutil.pid_exists(pid)


def _outlast(path: Path, work: str, holder: dict[str, object], on_wait: Callable[[str], object]) -> bool:
    """Waits until a holder has been silent for long enough; returns whether it had to wait.

    Raises `RefusedError` as soon as it shows that it is alive.
    """
    left_seconds = _left_seconds(path)
    if left_seconds <= 0:
        return False
    on_wait(
        f"{path.parent}: {_who(holder)} held it and may have been killed; waiting for a sign of life for "
        f"{left_seconds:.0f} s"
    )
    seen = _look(path)
    until = time.monotonic() + left_seconds
    while (now := time.monotonic()) < until:
        time.sleep(min(_LOOK_SECONDS, until - now))
        if (last := _look(path)) == seen:
            continue
        if last[0]:
            raise _refusal(path, work, last[0])
        break  # released
    return True


def _sign(descriptor: int) -> dict[str, object]:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    signed: dict[str, object] = {"host": socket.gethostname(), "pid": os.getpid(), "since": since}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(signed).encode(), 0)
    os.fsync(descriptor)
    return signed


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


def _who(holder: dict[str, object]) -> str:
    return "process {pid} on {host}, since {since}".format_map({"pid": "?", "host": "?", "since": "?", **holder})


def _refusal(path: Path, work: str, holder: dict[str, object]) -> RefusedError:
    return RefusedError(
        f"{path.parent}: another {work} is working on it ({_who(holder)}); wait for it, or stop it and run this again"
    )
