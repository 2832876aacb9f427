"""File system calls that fail: how a process counts its own below some folders, and which errors each may have.

A small library, `failing_calls.c`, is preloaded into a process and stands between it and libc, so that Arrow's calls
are counted and fail as Python's do.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assets_paths import needs_program

_RANDOM: Final = re.compile(r"[0-9a-f]{32}|#\d+|tmp\w+(?=$|/)")
"""What differs from run to run in names of temporary files, and from unit to unit."""
_DISK: Final = (errno.ENOSPC, errno.EIO)
ERRORS: Final[dict[str, tuple[int, ...]]] = {
    "open": (errno.EIO, errno.EACCES, errno.ESTALE, errno.EMFILE, errno.ENOENT),
    "create": (*_DISK, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EMFILE),
    "read": (errno.EIO, errno.ESTALE),
    "write": (*_DISK, errno.EDQUOT),
    "truncate": _DISK,
    "fsync": (*_DISK, errno.EDQUOT),
    "fsync_folder": _DISK,
    "flock": (errno.ENOLCK, errno.EIO),
    "mmap": (errno.ENOMEM,),
    "link": (*_DISK, errno.EDQUOT, errno.EROFS, errno.EACCES),
    "rename": (*_DISK, errno.EROFS, errno.EACCES),
    "unlink": (errno.EIO, errno.EROFS, errno.EACCES),
    "mkdir": (*_DISK, errno.EROFS, errno.EACCES),
    "rmdir": (errno.EIO, errno.EROFS),
    "list": (errno.EIO, errno.EACCES, errno.ESTALE, errno.EMFILE),
    "names": (errno.EIO,),
    "stat": (errno.EIO, errno.EACCES, errno.ESTALE),
    "readlink": (errno.EIO,),
    "fstat": (),  # of this Arrow does not say why it failed, and `os.access` never does
    "access": (),
    "memory": (errno.ENOMEM,),
}
"""Errors by kind of call. `open`: to read. `list`: of a folder, and `names` the first read of what it holds.

`memory`: a request for 64 KiB or more.
"""
ERRORS_OF_DONE: Final[dict[str, tuple[int, ...]]] = {
    "link": (errno.EEXIST, errno.EIO),
    "rename": (errno.ENOENT, errno.EIO),
    "unlink": (errno.ENOENT, errno.EIO),
    "mkdir": (errno.EEXIST, errno.EIO),
    "rmdir": (errno.ENOENT,),
    "close": (*_DISK, errno.EDQUOT),
}
"""Errors of calls that were done: a network file system repeats a call whose answer was lost, and reports late, when a
file is closed, what it could not write."""
NEEDS_ROOM: Final = ("create", "write", "link", "mkdir")
ALL_KINDS: Final = (*(kind for kind in ERRORS if kind != "memory"), "close")
"""All that has an effect beyond the process."""


@dataclass(frozen=True)
class Call:
    """One call: what kind it is of, and the path that it is about; of a request for memory its size."""

    kind: str
    path: Path


@dataclass(frozen=True)
class Fault:
    """The `at`-th call of its kind, from 1, fails with `error`, `is_done` or not; then all of the kinds `onwards` do.

    `at` of 0: these do from the start.

    `call`: that one, in an undisturbed run.
    """

    call: Call
    at: int
    error: int
    is_done: bool = False
    onwards: tuple[str, ...] = ()

    @property
    def is_death(self) -> bool:
        """Whether nothing that the process does has an effect from then on: what SIGKILL leaves is the same."""
        return self.onwards == ALL_KINDS

    def __str__(self) -> str:
        where = f"{self.call.kind} {self.at}, {self.call.path}"
        if self.is_death:
            return f"killed before {where}"
        late = " although it was done" if self.is_done else ""
        since = f", and so does each {' or '.join(self.onwards)} from then on" if self.onwards else ""
        return f"{where}, fails with {errno.errorcode[self.error]}{late}{since}"


def faults(calls: Sequence[Call]) -> Iterator[Fault]:
    """Every way in which one of `calls` may fail: alone, as the first on a full disk or without memory, by SIGKILL.

    Of calls of one kind on one file, the first, the last and one between them: most are of a loop over its pages.
    """
    numbered: dict[tuple[str, str], list[tuple[int, Call]]] = {}
    counts = Counter[str]()
    for call in calls:
        counts[call.kind] += 1
        name = _RANDOM.sub("", str(call.path))
        numbered.setdefault((call.kind, name), []).append((counts[call.kind], call))
    for (kind, _), same in numbered.items():
        for at, call in dict((same[0], same[len(same) // 2], same[-1])).items():
            yield from (Fault(call, at, error) for error in ERRORS.get(kind, ()))
            yield from (Fault(call, at, error, is_done=True) for error in ERRORS_OF_DONE.get(kind, ()))
            if kind in NEEDS_ROOM:
                yield Fault(call, at, errno.ENOSPC, onwards=NEEDS_ROOM)
            if kind == "memory":
                yield Fault(call, at, errno.ENOMEM, onwards=("memory",))
            else:
                yield Fault(call, at, errno.EIO, onwards=ALL_KINDS)


class FileCalls:
    """The calls of this process, into which `library()` was preloaded, on files below `folders`, real paths."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = "\n".join(map(str, folders)).encode()
        self._library = ctypes.CDLL(os.environ["LD_PRELOAD"])
        self._library.calls_log.restype = ctypes.c_char_p
        self._library.calls_begin.argtypes = [
            ctypes.c_char_p, ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_char_p,
        ]  # fmt: skip
        self.made: list[Call] = []
        """Those of the last block, in order."""
        self.has_failed = False
        """Whether one of them has failed."""

    @contextmanager
    def counted(self, fault: Fault | None = None) -> Iterator[None]:
        """Counts the calls within the block, of which one fails with `fault`."""
        if fault is None:
            self._library.calls_begin(self._folders, None, 0, 0, 0, None)
        else:
            kinds = f" {' '.join(fault.onwards)} ".encode() if fault.onwards else None
            kind = fault.call.kind.encode()
            self._library.calls_begin(self._folders, kind, fault.at, fault.error, fault.is_done, kinds)
        try:
            yield
        finally:
            self.has_failed = bool(self._library.calls_end())
            lines = os.fsdecode(self._library.calls_log()).splitlines()
            self.made = [Call(kind, Path(path)) for kind, _, path in (line.partition(" ") for line in lines)]


def library(folder: Path) -> Path:
    """Compiles the library to preload; skips where there is no compiler."""
    compiler, source = needs_program("cc"), Path(__file__).with_name("failing_calls.c")
    target = folder / "failing_calls.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(target), str(source), "-ldl"], check=True)
    return target
