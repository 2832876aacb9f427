"""What was made, written beside it, so that a second run can tell an untouched sample from anything else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, TypedDict

from ..pipeline.errors import RefusedError, UsageError

RECEIPT = "sample.json"
FORMAT = 1


class FileNote(TypedDict):
    """Size in bytes and SHA-256 of one file."""

    bytes: int
    sha256: str


class Receipt(TypedDict):
    """The content of sample.json; `files` by path relative to it, in POSIX form, without itself."""

    format: int
    seed: int
    videos: int
    real: int
    fake: int
    files: dict[str, FileNote]


def write_receipt(directory: Path, *, seed: int, real: int, fake: int) -> Receipt:
    """Note all files below a freshly made directory in its sample.json."""
    files = {name: _note(path) for name, path in sorted(_files(directory))}
    receipt = Receipt(format=FORMAT, seed=seed, videos=real + fake, real=real, fake=fake, files=files)
    (directory / RECEIPT).write_text(json.dumps(receipt, indent=1) + "\n", encoding="utf-8")
    return receipt


def read_earlier(directory: Path, *, seed: int) -> Receipt | None:
    """Read the receipt of an untouched sample of the same seed in `directory`, or None if it is free.

    Free is a directory that does not exist or is empty. Raises UsageError if the path is no directory,
    RefusedError if anything else than that very sample is in it.
    """
    if not directory.exists():
        return None
    if not directory.is_dir():
        raise UsageError(f"{directory}: is a file, must be a new or empty folder; nothing was written")
    if not any(directory.iterdir()):
        return None
    receipt = _parsed(directory)
    if receipt is None:
        _refuse(directory, "holds other files", "choose a new or empty folder")
    if receipt["seed"] != seed:
        _refuse(directory, f"holds the sample of seed {receipt['seed']}, not {seed}", "choose another folder")
    changed = _first_difference(directory, receipt)
    if changed is not None:
        _refuse(directory, f"holds a sample that was changed since ({changed})", "delete it or choose another")
    return receipt


def _refuse(directory: Path, found: str, remedy: str) -> NoReturn:
    raise RefusedError(f"{directory}: {found}; nothing was written; {remedy}")


def _parsed(directory: Path) -> Receipt | None:
    try:
        receipt: Receipt = json.loads((directory / RECEIPT).read_text(encoding="utf-8"))
        known = receipt["format"] == FORMAT and isinstance(receipt["seed"], int)
        return receipt if known and isinstance(receipt["files"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _first_difference(directory: Path, receipt: Receipt) -> str | None:
    found = dict(_files(directory))
    for name in sorted(found.keys() | receipt["files"].keys()):
        if name not in found:
            return f"{name} is missing"
        if name not in receipt["files"]:
            return f"{name} was added"
        if _note(found[name]) != receipt["files"][name]:
            return f"{name} differs"
    return None


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    for path in directory.rglob("*"):
        if path.is_file() and path != directory / RECEIPT:
            yield path.relative_to(directory).as_posix(), path


def _note(path: Path) -> FileNote:
    data = path.read_bytes()
    return FileNote(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
