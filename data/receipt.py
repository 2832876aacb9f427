"""`sample.json`: sizes and hashes of the generated files, by which a later run recognises an unmodified sample."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, TypedDict

from ..pipeline.errors import RefusedError, UsageError

RECEIPT = "sample.json"
FORMAT = 2


class FileRecord(TypedDict):
    """Size in bytes and SHA-256 of one file."""

    bytes: int
    sha256: str


class Receipt(TypedDict):
    """The content of sample.json; `files` by path relative to it, in POSIX form, without itself."""

    format: int
    seed: int
    groups: int
    videos: int
    real: int
    fake: int
    files: dict[str, FileRecord]


def write_receipt(directory: Path, *, seed: int, groups: int, real: int, fake: int) -> Receipt:
    """Record all files below a newly generated directory in its sample.json."""
    files = {name: _file_record(path) for name, path in sorted(_files(directory))}
    receipt = Receipt(
        format=FORMAT, seed=seed, groups=groups, videos=real + fake, real=real, fake=fake, files=files
    )  # fmt: skip
    (directory / RECEIPT).write_text(json.dumps(receipt, indent=1) + "\n", encoding="utf-8")
    return receipt


def read_existing_sample(directory: Path, *, seed: int, groups: int) -> Receipt | None:
    """The receipt of an unmodified sample of the same seed and groups in `directory`; None if that is new or empty.

    Raises UsageError if the path is not a directory, RefusedError if it holds anything but that sample.
    """
    if not directory.exists():
        return None
    if not directory.is_dir():
        raise UsageError(f"{directory}: is a file, must be a new or empty folder; nothing was written")
    if not any(directory.iterdir()):
        return None
    receipt = _load_receipt(directory)
    if receipt is None:
        _refuse(directory, "holds other files", "choose a new or empty folder")
    if receipt["seed"] != seed:
        _refuse(directory, f"holds the sample of seed {receipt['seed']}, not {seed}", "choose another folder")
    if receipt["groups"] != groups:
        _refuse(directory, f"holds a sample of {receipt['groups']} groups, not {groups}", "choose another folder")
    change = _first_change(directory, receipt)
    if change is not None:
        _refuse(directory, f"holds a sample that was changed since ({change})", "delete it or choose another")
    return receipt


def _refuse(directory: Path, state: str, remedy: str) -> NoReturn:
    raise RefusedError(f"{directory}: {state}; nothing was written; {remedy}")


def _load_receipt(directory: Path) -> Receipt | None:
    try:
        receipt: Receipt = json.loads((directory / RECEIPT).read_text(encoding="utf-8"))
        is_valid = receipt["format"] == FORMAT and isinstance(receipt["seed"], int)
        return receipt if is_valid and isinstance(receipt["files"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _first_change(directory: Path, receipt: Receipt) -> str | None:
    files = dict(_files(directory))
    for name in sorted(files.keys() | receipt["files"].keys()):
        if name not in files:
            return f"{name} is missing"
        if name not in receipt["files"]:
            return f"{name} was added"
        if _file_record(files[name]) != receipt["files"][name]:
            return f"{name} differs"
    return None


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    for path in directory.rglob("*"):
        if path.is_file() and path != directory / RECEIPT:
            yield path.relative_to(directory).as_posix(), path


def _file_record(path: Path) -> FileRecord:
    data = path.read_bytes()
    return FileRecord(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
