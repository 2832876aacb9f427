"""What a power failure can leave of a folder: a recorder of changes and syncs, and every state that they permit.

The model is that of POSIX, which promises less than most file systems keep. What was written to a file is certain once
that file was synced; before, the disk may hold nothing of it, a part, or all. A name that was created, replaced or
removed is certain once its folder was synced; before, each such change may have reached the disk or not, in any order,
but for changes of the same name. A rename reaches the disk whole: it is certain once the folder of the new name was
synced. Where only that of the old name was, that name is gone for certain, and the new one may be missing. `sync` makes
everything certain, as it does on Linux, where it waits.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import pytest

Extent = Literal["none", "half", "all"]
"""How much of what was not synced the disk holds."""


Name = tuple[int, str]
"""The inode of a folder, and a name in it. A folder that is renamed keeps what is in it."""
_ROOT: Final = 0
"""Inode of the root of a recording."""


@dataclass(frozen=True)
class NameChange:
    """A change of names that reaches the disk whole: each name and its inode, or None where it is removed."""

    names: tuple[tuple[Name, int | None], ...]

    def after_sync(self, folder: int) -> tuple[NameChange | None, NameChange | None]:
        """What of it is certain once `folder` was synced, and what is not."""
        created = {name[0] for name, inode in self.names if inode is not None}
        folders = created or {name[0] for name, _ in self.names}
        if folder in folders:
            return self, None
        removed = tuple((name, inode) for name, inode in self.names if inode is None and name[0] == folder)
        if not removed:
            return None, self
        return NameChange(removed), NameChange(tuple(each for each in self.names if each not in removed))


@dataclass(frozen=True)
class Content:
    """The bytes of an inode as a process sees them."""

    inode: int
    data: bytes


@dataclass(frozen=True)
class Sync:
    """A call of fsync on the file or folder `inode`, or of `sync`: None. `caller`: functions of the product."""

    inode: int | None
    caller: str


Event = NameChange | Content | Sync
State = tuple[tuple[str, bytes | None], ...]
"""Files with their bytes, and folders with None, by name, sorted."""


@dataclass
class Recording:
    """All changes below a folder, in order. What was there at the beginning, `names` and `data`, is certain.

    `finished`: for each call of `step_finished`, the number of events before it.
    """

    root: Path
    names: dict[Name, int] = field(default_factory=dict)
    data: dict[int, bytes] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    folders: set[int] = field(default_factory=set)
    finished: list[int] = field(default_factory=list)
    _ids: dict[int, int] = field(default_factory=dict)
    _next_id: int = 0

    def begin(self) -> None:
        """Takes what is there as certain."""
        self.names, self.data = self._read()
        self._seen_names, self._seen_data = self.names, self.data

    def look(self) -> None:
        """Records what has changed since the last look: the two names of one rename as one change."""
        names, data = self._read()
        for inode, content in data.items():
            if self._seen_data.get(inode) != content:
                self.events.append(Content(inode, content))
        changed = sorted(
            name for name in names.keys() | self._seen_names.keys() if names.get(name) != self._seen_names.get(name)
        )
        gone = {self._seen_names[name]: name for name in changed if name not in names}
        renamed = {gone[names[name]] for name in changed if name in names and names[name] in gone}
        for name in changed:
            if name not in renamed:
                inode = names.get(name)
                old = [(gone[inode], None)] if inode in gone else []
                self.events.append(NameChange(((name, inode), *old)))
        self._seen_names, self._seen_data = names, data

    def synced(self, descriptor: int, caller: str) -> None:
        """Records a sync, if it was of something below the root."""
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path == self.root or self.root in path.parents:
            self.events.append(Sync(self._ids[os.fstat(descriptor).st_ino], caller))

    def step_finished(self) -> None:
        """From here on, a power failure must not cost what was done until now."""
        self.look()
        self.finished.append(len(self.events))

    def _read(self) -> tuple[dict[Name, int], dict[int, bytes]]:
        """Inodes by name and contents by inode; an inode is numbered anew where the disk uses its number again."""
        paths = sorted(self.root.rglob("*"))  # folders before what they hold
        stats = {path: path.stat() for path in paths}
        there = {stat.st_ino for stat in stats.values()}
        self._ids = {number: inode for number, inode in self._ids.items() if number in there}
        self._ids[self.root.stat().st_ino] = _ROOT
        names: dict[Name, int] = {}
        data: dict[int, bytes] = {}
        inodes = {self.root: _ROOT}
        for path, stat in stats.items():
            if stat.st_ino not in self._ids:
                self._ids[stat.st_ino] = self._next_id = self._next_id + 1
            inodes[path] = names[inodes[path.parent], path.name] = inode = self._ids[stat.st_ino]
            if path.is_dir():
                self.folders.add(inode)
            else:
                data[inode] = path.read_bytes()
        return names, data


_CHANGES_NAMES = ("replace", "rename", "link", "unlink", "remove", "mkdir", "rmdir")


@contextmanager
def recorded(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    """Records what this process does below `root`, which exists; what is there already counts as durable."""
    recording = Recording(root)
    recording.begin()

    def looking(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            recording.look()
            try:
                return function(*args, **kwargs)
            finally:
                recording.look()

        return call

    def fsync(descriptor: Any) -> None:
        recording.look()
        real_fsync(descriptor)
        recording.synced(descriptor if isinstance(descriptor, int) else descriptor.fileno(), _caller())

    def sync() -> None:  # not called: it would write what all of this machine's processes have written
        recording.look()
        recording.events.append(Sync(None, _caller()))

    real_fsync = os.fsync
    with monkeypatch.context() as patch:
        for name in _CHANGES_NAMES:
            patch.setattr(os, name, looking(getattr(os, name)))
        patch.setattr(os, "fsync", fsync)
        patch.setattr(os, "sync", sync)
        yield recording
        recording.look()


def _caller() -> str:
    """The product's function that called fsync or, where that is a helper for all, the helpers and who called them."""
    frame = sys._getframe(2)
    names: list[str] = []
    while frame is not None and (not names or names[-1].startswith("files.")):
        if frame.f_code.co_filename.endswith(".py") and "contextlib" not in frame.f_code.co_filename:
            names.append(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return " < ".join(names)


@dataclass
class _Disk:
    """What is certain at a moment, and what is not yet."""

    names: dict[Name, int] = field(default_factory=dict)
    data: dict[int, bytes] = field(default_factory=dict)
    pending: list[NameChange] = field(default_factory=list)
    unsynced: dict[int, bytes] = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        if isinstance(event, Content):
            self.unsynced[event.inode] = event.data
        elif isinstance(event, NameChange):
            self.pending.append(event)
        elif event.inode is None:
            self._make_certain(set(self.unsynced))
            for change in self.pending:
                _rename(self.names, change)
            self.pending = []
        else:
            self._make_certain({event.inode} & self.unsynced.keys())
            parts = [change.after_sync(event.inode) for change in self.pending]
            self.pending = [uncertain for _, uncertain in parts if uncertain is not None]
            for certain, _ in parts:
                if certain is not None:
                    _rename(self.names, certain)

    def _make_certain(self, inodes: set[int]) -> None:
        self.data |= {inode: self.unsynced.pop(inode) for inode in inodes}

    def states(self, folders: set[int]) -> Iterator[State]:
        """What a power failure now may leave: none, all, all but one, or one alone of the pending changes."""
        choices: list[list[NameChange]] = [[], self.pending]
        for left_out in self.pending:
            touched = {name for name, _ in left_out.names}
            later = self.pending[self.pending.index(left_out) :]
            choices.append([change for change in self.pending if not (change in later and _touches(change, touched))])
        for alone in self.pending:
            touched = {name for name, _ in alone.names}
            earlier = self.pending[: self.pending.index(alone) + 1]
            choices.append([change for change in earlier if _touches(change, touched)])
        for changes in choices:
            names = dict(self.names)
            for change in changes:
                _rename(names, change)
            for extent in ("none", "half", "all"):
                yield self._state(names, extent, folders)

    def _state(self, names: dict[Name, int], extent: Extent, folders: set[int]) -> State:
        inside: dict[int, list[tuple[str, int]]] = {}
        for (folder, name), inode in names.items():
            inside.setdefault(folder, []).append((name, inode))
        files: dict[str, bytes | None] = {}

        def add(folder: int, above: str) -> None:  # what a folder holds that has not reached the disk is lost
            for name, inode in inside.get(folder, ()):
                files[above + name] = None if inode in folders else self._bytes(inode, extent)
                if inode in folders:
                    add(inode, f"{above}{name}/")

        add(_ROOT, "")
        return tuple(sorted(files.items()))

    def _bytes(self, inode: int, extent: Extent) -> bytes:
        certain = self.data.get(inode, b"")
        written = self.unsynced.get(inode)
        if written is None or extent == "none":
            return certain
        return written if extent == "all" else written[: len(written) // 2]


def _rename(names: dict[Name, int], change: NameChange) -> None:
    for name, inode in change.names:
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


def _touches(change: NameChange, names: set[Name]) -> bool:
    return any(name in names for name, _ in change.names)


@dataclass(frozen=True)
class Crash:
    """One state, and how many steps had finished before the failure that left it; see `Recording.step_finished`."""

    state: State
    finished: int


def crashes(recording: Recording, *, without: Callable[[Sync], bool] = lambda _: False) -> Iterator[Crash]:
    """Yields what a power failure may leave, at every moment, each state once for each number of finished steps.

    `without`: syncs that are taken as if the code had not called them.
    """
    disk = _Disk(names=dict(recording.names), data=dict(recording.data))
    seen: set[Crash] = set()
    for number, event in enumerate(recording.events, start=1):
        if isinstance(event, Sync) and without(event):
            continue
        disk.apply(event)
        for state in disk.states(recording.folders):
            crash = Crash(state, sum(at <= number for at in recording.finished))
            if crash not in seen:
                seen.add(crash)
                yield crash


def lay(state: State, root: Path) -> None:
    """Makes `root` hold exactly this state."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for name, data in state:  # sorted: folders before what they hold
        if data is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(data)


def some(states: Iterable[Crash], one_in: int) -> list[Crash]:
    """Evenly spread states, and the last."""
    listed = list(states)
    return [*listed[::one_in], listed[-1]]


def problems(problem_of: Callable[[Crash], str], states: Iterable[Crash]) -> list[str]:
    """What is not as promised after each state; `problem_of`: that of one, empty where all is."""
    return [f"after {crash.finished} reports: {problem}" for crash in states if (problem := problem_of(crash))]


def needless_syncs(recording: Recording, is_broken: Callable[[Crash], bool]) -> set[str]:
    """Callers of syncs without which no state more breaks a promise. `is_broken`: whether one does."""
    possible = set(crashes(recording))

    def is_needless(caller: str) -> bool:
        more = crashes(recording, without=lambda sync: sync.caller == caller)
        return not any(is_broken(crash) for crash in more if crash not in possible)

    callers = {event.caller for event in recording.events if isinstance(event, Sync)}
    needless = {caller for caller in sorted(callers) if is_needless(caller)}
    print(f"{len(callers)} syncs: without each of {len(callers) - len(needless)} a promise is broken")
    return needless
