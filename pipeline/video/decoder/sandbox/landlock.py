"""Landlock rules of the decoder process: which files it may read. Everything else below ``/`` is closed to it.

It may read the folders of the source, and installed software, from which libraries load parts on first use. Files that
are open stay open. Documents: landlock(7), the kernel's Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from .... import __path__ as _package_path

# The same numbers on all machines.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION = 1
_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
# By version: of version 1 all but these two is about programs and changes; later ones add refer, truncate, ioctl.
_NUM_ACCESS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_NUM_ACCESS_RIGHTS_NOW = 16

_SOFTWARE = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/null", "/dev/urandom")


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def allow_reading_only(folders: Iterable[Path]) -> str:
    """Close all files to this thread but those below `folders` and installed software, irrevocably.

    Must be called while the process has one thread, after `install_filter`, which gives up new privileges. Returns why
    that is impossible, or "".
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, 0, _GET_VERSION)
    if version < 1:
        return f"the kernel has no Landlock ({os.strerror(ctypes.get_errno())})"
    rights = (1 << _NUM_ACCESS_RIGHTS.get(version, _NUM_ACCESS_RIGHTS_NOW)) - 1
    attributes = _RulesetAttributes(rights)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes)), 0)
    if ruleset < 0:
        return f"the kernel refuses Landlock rules ({os.strerror(ctypes.get_errno())})"
    try:
        for path in {*map(str, folders), *_software()}:
            _allow_reading(libc, ruleset, path)
        if libc.syscall(_RESTRICT_SELF, ruleset, 0) != 0:
            return f"the kernel refuses Landlock rules ({os.strerror(ctypes.get_errno())})"
    finally:
        os.close(ruleset)
    return ""


def _software() -> list[str]:
    """Where Python and its libraries are installed."""
    return [*_SOFTWARE, sys.prefix, sys.base_prefix, *map(os.path.abspath, (*sys.path, *_package_path))]


def _allow_reading(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    """Adds a rule for a file or for all below a folder; a path that cannot be opened needs none.

    Keeps it open, so that its file system stays mounted: the rule would not hold for one that is mounted again.
    """
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    rule = _PathBeneath(_READ_FILE | (_READ_DIR if Path(path).is_dir() else 0), descriptor)
    libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
