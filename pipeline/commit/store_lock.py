"""Locks in a store: which process plans, processes or finishes an OUT there.

The lock NAME is the object ``leases/NAME.<number>`` with the highest number: a record of its holder that the holder
writes again every few seconds, or nothing once it is released. It is taken by creating the next number, which succeeds
for one process alone. A holder is taken for dead once its record is a minute old by the clock of the store, or at once
where its process was of this very machine and is gone.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..dataset.out import OutPaths
from ..dataset.stores.remote_files import MissingInStoreError, RefusedByStoreError
from ..dataset.stores.stored_file import StoredFile
from ..dataset.stores.writing import WritableFiles
from ..errors import FacefeedError
from ..json_records import parse_json
from ..lock import (
    STALE_SECONDS,
    heartbeat,
    holder_text,
    own_record,
    process_exists,
    refused_error,
    taken_over_error,
    waiting_advice,
    waiting_text,
)

_LEASES = OutPaths(Path()).leases.name
_POLL_SECONDS = 2.0
_DIGITS = 9


@dataclass(frozen=True)
class _Record:
    """The last object of a lock: its number, its holder (none: released), and its age by the store's clock."""

    number: int
    holder: dict[str, object]
    age_seconds: float

    @property
    def is_of_this_machine(self) -> bool:
        return self.holder.get("machine") == _machine()

    @property
    def is_held(self) -> bool:
        """Whether the holder lives, or may live."""
        is_gone = self.is_of_this_machine and not _is_running(self.holder)
        return bool(self.holder) and self.age_seconds < STALE_SECONDS and not is_gone


class _Objects:
    """The objects of one lock."""

    def __init__(self, files: WritableFiles, name: str) -> None:
        self.files, self._path = files, f"{_LEASES}/{name}"

    def name(self, number: int) -> str:
        return f"{self._path}.{number:0{_DIGITS}}"

    def numbers(self) -> list[int]:
        return sorted(self._listed())

    def _listed(self) -> dict[int, StoredFile]:
        found = ((each.name.rpartition("."), each) for each in self.files.list(f"{_LEASES}/"))
        return {int(number): each for (path, _, number), each in found if path == self._path and number.isdigit()}

    def last(self) -> _Record | None:
        """The one that decides; None where the lock was never taken."""
        while listed := self._listed():
            with suppress(MissingInStoreError):  # its holder has just been followed by another
                return _record(self.files, max(listed), listed[max(listed)], lambda: _now_ns(self.files))
        return None


class StoreLocks:
    """The locks of an OUT in a store. `sleep`: for waits; tests pass a fake."""

    def __init__(self, files: WritableFiles, sleep: Callable[[float], object] = time.sleep) -> None:
        self._files, self._sleep = files, sleep
        self._place = str(files.address)

    @contextmanager
    def hold(
        self, name: str, *, work: str, on_wait: Callable[[str], object] = lambda _: None
    ) -> Iterator[HeldStoreLock]:
        """Holds a lock during the block.

        Args:
            name: of the lock.
            work: the command that holds it, for the messages of others.
            on_wait: called before a wait for a holder that may have been killed, with a sentence.

        Raises:
            RefusedError: another process holds it; the message names it.
            UsageError: the store refuses it.
            StoppedError: the store does not answer.

        """
        objects = _Objects(self._files, name)
        last = objects.last()
        if last is not None and last.is_held:
            last = self._wait_until_stale(objects, last, on_wait)
        held = HeldStoreLock(objects, 0 if last is None else last.number + 1, work)
        held.take()
        try:
            with heartbeat(held.beat):
                yield held
        finally:
            held.release()

    def are_held(self) -> dict[str, bool]:
        """Whether a process holds a lock, or may, as it was alive less than a minute ago: by name, of all locks."""
        return {name: record.is_held for name, record in self._records().items()}

    def _records(self) -> dict[str, _Record]:
        """The last object of each lock, by its name: with one listing and one look at the clock for all."""
        last: dict[str, tuple[int, StoredFile]] = {}
        for each in self._files.list(f"{_LEASES}/"):
            name, _, number = each.name.removeprefix(f"{_LEASES}/").rpartition(".")
            if number.isdigit():
                last[name] = max(last.get(name, (-1, each)), (int(number), each), key=lambda found: found[0])
        now_ns = cache(lambda: _now_ns(self._files))
        records = {}
        for name, (last_number, stored) in sorted(last.items()):
            with suppress(MissingInStoreError):  # released and removed since
                records[name] = _record(self._files, last_number, stored, now_ns)
        return records

    def advice_to_wait(self) -> str | None:
        """See `lock.advice_to_wait`."""
        return waiting_advice([holder_text(record.holder) for record in self._records().values() if record.is_held])

    def remove(self, name: str) -> None:
        """Removes a lock that nobody holds, or that the caller holds."""
        objects = _Objects(self._files, name)
        for number in objects.numbers():
            self._files.remove(objects.name(number))

    def _wait_until_stale(self, objects: _Objects, record: _Record, on_wait: Callable[[str], object]) -> _Record | None:
        """Waits until a holder that may be dead counts as such; returns what the lock's last object is then.

        Raises `RefusedError` where it is alive.
        """
        if record.is_of_this_machine:
            raise refused_error(self._place, record.holder)
        on_wait(waiting_text(self._place, record.holder, STALE_SECONDS - record.age_seconds))
        while record.is_held:
            self._sleep(_POLL_SECONDS)
            if (last := objects.last()) is None:
                return None
            has_beaten = last.number != record.number or last.age_seconds < record.age_seconds
            if has_beaten and last.is_held:
                raise refused_error(self._place, last.holder)
            record = last
        return record


class HeldStoreLock:
    """A lock in a store that this process holds once it has taken it."""

    def __init__(self, objects: _Objects, number: int, work: str) -> None:
        self._objects, self._number = objects, number
        identity = {"machine": _machine(), "started": _started(os.getpid()), "token": uuid.uuid4().hex}
        record = {**own_record(work), **identity}
        self._content = json.dumps(record).encode()

    def take(self) -> None:
        """Creates the next object of the lock; raises `RefusedError` where another process was faster."""
        files, name = self._objects.files, self._objects.name(self._number)
        try:
            files.create(name, self._content)
        except FileExistsError:
            with suppress(MissingInStoreError):
                if files.read_all(name) == self._content:  # written by a request of this call, whose answer was lost
                    return
            raise refused_error(str(files.address), self._last_holder()) from None
        *earlier, last = self._objects.numbers() or [-1]
        if last != self._number:  # it was taken and released again, or removed, since it was looked at
            files.remove(name)
            raise refused_error(str(files.address), self._last_holder())
        for number in earlier:
            files.remove(self._objects.name(number))

    def _last_holder(self) -> dict[str, object]:
        last = self._objects.last()
        return {} if last is None else last.holder

    @property
    def is_own(self) -> bool:
        """Whether no other process has taken the lock since."""
        return self._objects.numbers()[-1:] == [self._number]

    def check(self) -> None:
        """Raises `StoppedError` where another process has taken the lock: what it writes must not be overwritten."""
        if not self.is_own:
            raise taken_over_error(str(self._objects.files.address), self._last_holder())

    def beat(self) -> None:
        """Writes the record again, unless another process has taken the lock since."""
        if self.is_own:
            self._objects.files.replace(self._objects.name(self._number), self._content)

    def release(self) -> None:
        """Leaves an empty object, by which the next holder knows its number."""
        with suppress(FacefeedError):  # the work is done, and without a heartbeat the record is stale in a minute
            if self.is_own:
                self._objects.files.replace(self._objects.name(self._number), b"")


def _now_ns(files: WritableFiles) -> int:
    """The store's clock, by which it says when a file was modified: that of this host may differ."""
    name = f"{_LEASES}/clock.{uuid.uuid4().hex}"
    try:
        files.replace(name, b"0")
    except RefusedByStoreError:  # of somebody who may read alone, and takes no lease
        return time.time_ns()
    try:
        return files.stat(name).modified_ns
    finally:
        files.remove(name)


def _record(files: WritableFiles, number: int, stored: StoredFile, now_ns: Callable[[], int]) -> _Record:
    """Reads an object of a lock; raises `MissingInStoreError` where it is gone."""
    holder = _parse(files.read_all(stored.name)) if stored.size_bytes else {}
    age_seconds = (now_ns() - stored.modified_ns) / 1e9 if holder else 0.0
    return _Record(number, holder, age_seconds)


def _machine() -> str:
    """Identifies what knows a process by its id: one boot of a machine, and one container of it."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"


def _is_running(holder: dict[str, object]) -> bool:
    """Whether the process of a holder on this machine exists.

    Its id is not enough: in a container that was started again it is the same, and the kernel may use the number of the
    old one's namespace for the new one.
    """
    pid, started = holder.get("pid"), holder.get("started")
    return process_exists(pid) and started in (None, _started(pid))  # None: of an earlier version


def _started(pid: object) -> int | None:
    """When a process was started, in clock ticks since the machine was; None where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])  # field 22: proc(5)


def _parse(content: bytes) -> dict[str, object]:
    try:
        holder = parse_json(content)
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}
