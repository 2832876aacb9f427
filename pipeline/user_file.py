"""A user's own Python file: runs it as a module, and says where in it an error arose."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from .errors import UsageError


def run_user_file(file: Path, option: str) -> ModuleType:
    """Runs a Python file that exists and returns its module.

    `option`: what named it, for messages: "--layout own.py". Raises `UsageError` where it cannot be run.
    """
    name = f"facefeed_user_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{option}: cannot be run ({describe_error(error, file)}); fix the file") from error
    return module


def describe_error(error: BaseException, *files: str | Path) -> str:
    """Type and text of an exception, and the line where it arose; `files`: only lines of these count."""
    frames = traceback.extract_tb(error.__traceback__)
    names = {str(file) for file in files}
    own_frames = [frame for frame in frames if not names or frame.filename in names]
    where = f" in line {own_frames[-1].lineno} of {Path(own_frames[-1].filename).name}" if own_frames else ""
    return f"{type(error).__name__}: {error}{where}"
