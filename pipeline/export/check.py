"""Whether DEST holds exactly the files of its receipt, and whether the receipt accounts for every row."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from ..console import first_names
from ..errors import CorruptDataError
from ..files import sha256_of, walk_strictly
from ..machine import usable_cores
from .destination import RECEIPT, SUMS, WORK, Destination

_FILES_AT_ONCE: Final = 256
_MAX_NAMED: Final = 10


@dataclass
class CheckResult:
    """`files`, `size_bytes`: what was checked. `findings`: a sentence for each kind of defect; empty: none."""

    files: int = 0
    size_bytes: int = 0
    findings: list[str] = field(default_factory=list)


def check_export(
    destination: Destination, selected_rows: int, *, read_files: bool, on_files: Callable[[int], object]
) -> CheckResult:
    """Checks a finished export: every file there, and no other; with `read_files` also the SHA-256 of each.

    `selected_rows`: rows of OUT that the export is of. `on_files`: called with a number of files that are done.
    """
    receipt, result = destination.receipt, CheckResult()
    accounted = receipt.rows + sum(receipt.skipped.values()) + len(receipt.damaged)
    if accounted != selected_rows:
        result.findings.append(f"accounts for {accounted:,} of {selected_rows:,} rows")
    missing, changed = [], []
    try:
        for relative, size_bytes, is_same in _stored(destination, read_files=read_files, on_files=on_files):
            if size_bytes is None:
                missing.append(relative)
                continue
            result.files, result.size_bytes = result.files + 1, result.size_bytes + size_bytes
            if not is_same:
                changed.append(relative)
    except CorruptDataError as error:
        result.findings.append(str(error))
        return result
    kinds = {"missing": missing, "changed": changed}
    result.findings += [f"{kind}: {first_names(paths, _MAX_NAMED)}" for kind, paths in kinds.items() if paths]
    if not missing and not changed and result.size_bytes != receipt.size_bytes:
        result.findings.append(f"its files have {result.size_bytes:,} bytes, the receipt says {receipt.size_bytes:,}")
    if sum(1 for _ in _files(destination.root)) > result.files:
        known = {relative for _, relative in destination.listed_files()}
        if unknown := sorted(path for path in _files(destination.root) if path not in known):
            result.findings.append(f"not of this export: {first_names(unknown, _MAX_NAMED)}")
    return result


def _stored(
    destination: Destination, *, read_files: bool, on_files: Callable[[int], object]
) -> Iterator[tuple[str, int | None, bool]]:
    """Path, size (None: missing) and whether the content is right, of every listed file; reads on all cores."""

    def check_file(listed: tuple[str, str]) -> tuple[str, int | None, bool]:
        digest, relative = listed
        path = destination.root / relative
        try:
            is_same = not read_files or sha256_of(path) == digest
            return relative, path.stat().st_size, is_same
        except (FileNotFoundError, NotADirectoryError):
            return relative, None, False

    listed = destination.listed_files()
    with ThreadPoolExecutor(usable_cores(), thread_name_prefix="facefeed-export") as pool:
        while chunk := [*islice(listed, _FILES_AT_ONCE)]:
            yield from pool.map(check_file, chunk)
            on_files(len(chunk))


def _files(root: Path) -> Iterator[str]:
    """Paths of all files below `root` but the receipt, `SHA256SUMS` and the work folder."""
    for folder, folders, files in walk_strictly(root):
        here = os.path.relpath(folder, root)
        if here == ".":
            folders[:] = [name for name in folders if name != WORK]
            yield from (name for name in files if name not in (RECEIPT, SUMS))
        else:
            yield from (f"{here}/{name}" for name in files)
