"""An exclusive lock on a folder: a lock file that names its holder.

On one machine (and on network file systems with working locks) `flock` decides; the kernel releases it when the holder
dies. Where locks are missing or do not reach other hosts, a heartbeat decides: a holder on another host is stale once
the modification time of its lock file is a minute old. A holder that may be dead is waited for until it is stale; a
heartbeat ends the wait with an error. A holder that was paused for longer, as a suspended machine is, may have lost the
lock to another meanwhile: it leaves the lock file alone from then on, and finds out by `HeldLock.check`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import psutil

from .console import first_names
from .errors import FacefeedError, RefusedError, StoppedError
from .json_records import parse_json

ADVICE = "; wait for it, or stop it and run this again"
"""End of the message of a refusal."""
HEARTBEAT_SECONDS = 10.0
STALE_SECONDS = 60.0
_POLL_SECONDS = 1.0
_MAX_PID = 2**31 - 1
_LOCKS_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


class HeldLock:
    """A lock that this process has taken, with the record that it wrote into the lock file."""

    def __init__(self, path: Path, record: dict[str, object]) -> None:
        self._path, self._record = path, record

    @property
    def is_own(self) -> bool:
        """Whether the lock file still names this process. Raises `OSError`."""
        return _read_state(self._path)[0] == self._record

    def check(self) -> None:
        """Raises `StoppedError` where another process has taken the lock: what it writes must not be overwritten."""
        if not self.is_own:
            raise taken_over_error(str(self._path.parent), _read_state(self._path)[0])


@contextmanager
def hold_lock(path: Path, *, work: str, on_wait: Callable[[str], object] = lambda _: None) -> Iterator[HeldLock]:
    """Holds the lock file `path`, and with it the file's folder, for the length of the block.

    A holder on another host that may have been killed is waited for, for a minute at most.

    Args:
        path: the lock file; created if it is missing, empty once released.
        work: the command that holds it, for the messages of others, such as "facefeed precompute".
        on_wait: called before a wait, with a sentence that names the holder and the seconds.

    Raises:
        RefusedError: another process holds the lock; the message names it.
        OSError: the file cannot be written.

    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        locked = _try_lock(descriptor, path)
        holder = _read_holder(descriptor)
        is_local = holder.get("host") == socket.gethostname()
        waited = False
        if holder.get("host") is not None and not (locked and is_local):
            if is_local and process_exists(holder.get("pid")) and _seconds_until_stale(path) > 0:
                raise refused_error(str(path.parent), holder)
            waited = _wait_until_stale(path, holder, on_wait)
        record = _write_holder(descriptor, work)
        if waited:  # several processes may have waited: the last to write its record has the lock
            time.sleep(_POLL_SECONDS)
            if (holder := _read_state(path)[0]) != record:
                raise refused_error(str(path.parent), holder)
        held = HeldLock(path, record)

        def beat() -> None:
            if held.is_own:
                os.utime(descriptor)

        try:
            with heartbeat(beat):
                yield held
        finally:
            with suppress(OSError):  # the work is done, and without a heartbeat the record is stale in a minute
                if held.is_own:
                    os.ftruncate(descriptor, 0)  # empty: released, also after an error
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock file `path`, or may: on another host, if it was alive less than a minute ago."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        is_locked_here = _try_lock(descriptor, path)
        host = _read_holder(descriptor).get("host")
        is_dead = is_locked_here and host == socket.gethostname()
        return host is not None and not is_dead and _seconds_until_stale(path) > 0
    except RefusedError:
        return True
    finally:
        os.close(descriptor)


def supports_locks(path: Path) -> bool:
    """Whether the file system of `path`, a file that no other process knows, has locks."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return _try_lock(descriptor, path)
    finally:
        os.close(descriptor)


def advice_to_wait(folder: Path) -> str | None:
    """Names those who hold leases of `folder`, for others that wait for what they make; None where nobody does.

    For readers: goes by records and heartbeats and takes no lock, so that nobody is refused because of it.
    """
    return waiting_advice([text for path in sorted(folder.glob("*.lease")) if (text := _live_holder(path)) is not None])


def waiting_advice(holders: Sequence[str]) -> str | None:
    """The same of holders, each as `holder_text` names it; None without any."""
    if not holders:
        return None
    are = "is" if len(holders) == 1 else "are"
    return f"{first_names(holders)} {are} at work on it; wait, the last to end finishes it"


def _live_holder(path: Path) -> str | None:
    try:
        holder = _read_state(path)[0]
        is_stale = _seconds_until_stale(path) <= 0
    except OSError:
        return None
    is_local = holder.get("host") == socket.gethostname()
    if not holder or is_stale or (is_local and not process_exists(holder.get("pid"))):
        return None
    return holder_text(holder)


def holder_text(holder: dict[str, object]) -> str:
    """Names a holder: its work, its process and its host."""
    return f"{_work(holder)} ({_describe(holder)})"


def _try_lock(descriptor: int, path: Path) -> bool:
    """Takes the lock: True if this process holds it now, False where the file system does not support locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise refused_error(str(path.parent), _read_holder(descriptor)) from error
    except OSError as error:
        if error.errno not in _LOCKS_UNSUPPORTED:
            raise
        return False
    return True


def _read_holder(descriptor: int) -> dict[str, object]:
    try:
        holder = parse_json(os.pread(descriptor, 4096, 0))
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def _read_state(path: Path) -> tuple[dict[str, object], float]:
    """The holder and the time of its last heartbeat; reopens the file, since network file systems cache its state."""
    if not path.is_file() and path.exists():  # a pipe would wait for a writer
        return {}, path.stat().st_mtime
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _read_holder(descriptor), os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def _seconds_until_stale(path: Path) -> float:
    """Seconds until the holder counts as stale; at most `STALE_SECONDS`, whatever the file server's clock says."""
    return min(_read_state(path)[1] + STALE_SECONDS - time.time(), STALE_SECONDS)


def process_exists(pid: object) -> bool:
    """Whether this host has a process of that id."""
    return isinstance(pid, int) and 0 < pid <= _MAX_PID and psutil.pid_exists(pid)


def _wait_until_stale(path: Path, holder: dict[str, object], on_wait: Callable[[str], object]) -> bool:
    """Waits until the holder is stale or has released the lock; returns whether a wait was needed.

    Raises `RefusedError` as soon as the holder's heartbeat or record changes.
    """
    left_seconds = _seconds_until_stale(path)
    if left_seconds <= 0:
        return False
    on_wait(waiting_text(str(path.parent), holder, left_seconds))
    first_state = _read_state(path)
    deadline = time.monotonic() + left_seconds
    while (now := time.monotonic()) < deadline:
        time.sleep(min(_POLL_SECONDS, deadline - now))
        if (state := _read_state(path)) == first_state:
            continue
        if state[0]:
            raise refused_error(str(path.parent), state[0])
        break  # released
    return True


def _write_holder(descriptor: int, work: str) -> dict[str, object]:
    record = own_record(work)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(record).encode(), 0)
    os.fsync(descriptor)
    return record


def own_record(work: str) -> dict[str, object]:
    """What a holder says of itself: host, process, since when, and its `work`, the command."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return {"host": socket.gethostname(), "pid": os.getpid(), "since": since, "work": work}


@contextmanager
def heartbeat(beat: Callable[[], object]) -> Iterator[None]:
    """Calls `beat` every `HEARTBEAT_SECONDS` during the block.

    Ignores its errors of the disk or the store: these are reported by whoever writes data.
    """
    stop = threading.Event()

    def beat_until_stopped() -> None:
        while not stop.wait(HEARTBEAT_SECONDS):
            with suppress(OSError, FacefeedError):
                beat()

    thread = threading.Thread(target=beat_until_stopped, name="facefeed-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _describe(holder: dict[str, object]) -> str:
    return "process {pid} on {host}, since {since}".format_map({"pid": "?", "host": "?", "since": "?", **holder})


def _work(holder: dict[str, object]) -> object:
    return holder.get("work", "another facefeed command")


def refused_error(place: str, holder: dict[str, object]) -> RefusedError:
    """The error where another process holds a lock; `place`: what it works on."""
    return RefusedError(f"{place}: {_work(holder)} is working on it ({_describe(holder)}){ADVICE}")


def taken_over_error(place: str, holder: dict[str, object]) -> StoppedError:
    """The error where another process has taken the lock of this one."""
    return StoppedError(
        f"{place}: {_describe(holder)} has taken it over, since this process showed no sign of life for "
        f"{STALE_SECONDS:.0f} s (was the machine suspended?); finished work is kept{ADVICE}"
    )


def waiting_text(place: str, holder: dict[str, object], seconds: float) -> str:
    """Says who is waited for, as a sentence without a full stop."""
    return (
        f"{place}: {_describe(holder)} held it and may have been killed; waiting for a sign of life for {seconds:.0f} s"
    )
