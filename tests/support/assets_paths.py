"""Where things are that tests read: the checkout, what tests share, and real media beside the checkout."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

SUPPORT = Path(__file__).resolve().parent
ROOT = SUPPORT.parents[1]
MEDIA = ROOT.parent / "shared" / "media"


def python_path(test_file: str) -> str:
    """The `PYTHONPATH` of a process that imports a test module by its stem."""
    return os.pathsep.join([str(Path(test_file).parent), str(SUPPORT)])


def needs_program(name: str) -> str:
    """Path of a program that a test drives; skips where it is not there, fails where it was promised."""
    program = shutil.which(name)
    if program is None:
        reason = f"{name} is not installed"
        if os.environ.get("FACEFEED_REQUIRE"):
            pytest.fail(reason)
        pytest.skip(reason)
    return program
