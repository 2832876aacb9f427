"""A process that is killed, or joined by another one, at a chosen change of a folder: without a process of its own.

What a kill leaves on a disk is what the calls before it have done. So here the call that is to be the first not to
happen raises `Killed`, and so does every later one: nothing that runs while the stack unwinds changes the folder, and
locks are released as the kernel releases those of a dead process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_FILE_CHANGES = frozenset(("link", "remove", "rename", "replace", "unlink"))
_CHANGES = (*sorted(_FILE_CHANGES), "mkdir", "rmdir", "fsync", "ftruncate")
"""Calls that change names, make them or bytes durable, or empty a file; a kill between them leaves the same names."""


class Killed(BaseException):
    """The process ends here; no exception that code would handle."""


@contextmanager
def killed_at(root: Path, number: int) -> Iterator[None]:
    """From change `number` below `root` on, counted from 1, this thread changes nothing there: it raises `Killed`."""
    count = 0

    def on_change(_: str) -> None:
        nonlocal count
        count += 1
        if count >= number:
            raise Killed

    with _watched(root, on_change):
        yield


@contextmanager
def joined_at(root: Path, number: int, action: Callable[[], object]) -> Iterator[None]:
    """Calls `action` once, right before this thread creates, replaces or removes a file below `root`, time `number`."""
    count = 0

    def on_change(name: str) -> None:
        nonlocal count
        if name in _FILE_CHANGES:
            count += 1
            if count == number:
                action()

    with _watched(root, on_change):
        yield


@contextmanager
def _watched(root: Path, on_change: Callable[[str], None]) -> Iterator[None]:
    """Calls `on_change` with the name of each call of this thread that is about to change something below `root`."""
    owner, is_reporting = threading.get_ident(), False

    def watching(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(target: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal is_reporting
            is_owners = threading.get_ident() == owner and not is_reporting
            if is_owners and root in (path := _path_of(target, kwargs.get("dir_fd")), *path.parents):
                is_reporting = True
                try:
                    on_change(name)
                finally:
                    is_reporting = False
            return function(target, *args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in _CHANGES:
            patch.setattr(os, name, watching(name, getattr(os, name)))
        yield


def _path_of(target: Any, folder_descriptor: int | None) -> Path:
    if isinstance(target, int):
        return Path(f"/proc/self/fd/{target}").readlink()
    folder = Path.cwd() if folder_descriptor is None else Path(f"/proc/self/fd/{folder_descriptor}").readlink()
    return folder / str(target)
