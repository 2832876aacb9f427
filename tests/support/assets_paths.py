"""Where things are that tests read: the checkout, what tests share, and real media beside the checkout."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

SUPPORT = Path(__file__).resolve().parent
ROOT = SUPPORT.parents[1]
MEDIA = ROOT.parent / "shared" / "media"


def support_folders() -> list[str]:
    """The folders of modules that tests share, for the `sys.path` of who imports them outside pytest."""
    return sorted({str(module.parent) for module in SUPPORT.rglob("assets_*.py")})


def python_path(*folders: Path) -> str:
    """The `PYTHONPATH` of a process that imports what tests share, and modules in further folders."""
    return os.pathsep.join([*map(str, folders), *support_folders()])


def needs_program(name: str) -> str:
    """Path of a program that a test drives; skips where it is not there, fails where it was promised."""
    program = shutil.which(name)
    if program is None:
        reason = f"{name} is not installed"
        if os.environ.get("FACEFEED_REQUIRE"):
            pytest.fail(reason)
        pytest.skip(reason)
    return program
