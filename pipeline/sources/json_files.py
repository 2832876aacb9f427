"""Reads JSON that comes with a source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import UsageError


def read_json(path: Path, remedy: str) -> Any:
    """The contents of a JSON file; raises `UsageError`, which ends with `remedy`, where it cannot be read or parsed."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {remedy}") from error
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{path}: not JSON ({error}); {remedy}") from error


def begins_with(path: Path, sign: str) -> bool:
    """Whether a file is there and its first character that is no space is `sign`: of a list, "["; reads 64 bytes."""
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(sign.encode())
    except OSError:
        return False
