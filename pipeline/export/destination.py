"""DEST: claimed for one export, filled part by part, finished by its receipt.

    DEST/export.json        the receipt; says "finished": false until the end
    DEST/SHA256SUMS         every file of the export, as `sha256sum --check` reads it; written at the end
    DEST/_facefeed_export/  only until the end: the lock, staged parts, receipts of published parts

A part is staged, hashed, moved into place file by file, made durable, and then gets its receipt. A part that was killed
before its receipt is written again: its files have the same names, and each appears complete or not at all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..console import printable
from ..dataset.stores.address import local_folder
from ..errors import CorruptDataError, RefusedError, UsageError
from ..files import DISK_IS_FULL, refuse_address, sha256_of, sync_folder, walk_strictly, write_durably
from ..lock import hold_lock
from .forms.form import PartRows
from .receipt import ExportReceipt, PartReceipt

RECEIPT: Final = "export.json"
SUMS: Final = "SHA256SUMS"
WORK: Final = "_facefeed_export"
_LOCK: Final = "lock"


class Destination:
    """One export in a folder. `receipt`: what the folder is; of a finished one, also what it holds."""

    def __init__(self, root: Path, receipt: ExportReceipt) -> None:
        self.root, self.receipt = root, receipt
        self._work = root / WORK

    @classmethod
    def open(cls, root: Path, out: Path | str, wanted: ExportReceipt) -> Destination:
        """Checks that `root` is free, or holds the export that is `wanted`; writes nothing.

        Raises `RefusedError` where it holds anything else, or one of `root` and `out` lies in the other, and
        `UsageError` where it is no folder of this machine.
        """
        refuse_address(root, "an export is written to a folder: name one, and copy it to the store")
        if (folder := local_folder(out)) is not None:
            here, source = root.resolve(), folder.resolve()
            if here.is_relative_to(source) or source.is_relative_to(here):
                raise RefusedError(f"DEST={root}: lies in OUT, or OUT in it; nothing was written; name another folder")
        if root.exists() and not root.is_dir():
            raise UsageError(f"DEST={root}: is no folder; name a new or empty one")
        path = root / RECEIPT
        if not path.is_file():
            if root.exists() and (names := {entry.name for entry in root.iterdir()} - {WORK}):
                raise RefusedError(
                    f"DEST={root}: holds other files, such as {printable(min(names))!r}; nothing was written; "
                    "name a new or empty folder"
                )
            return cls(root, wanted)
        receipt = ExportReceipt.from_json(path.read_bytes(), where=str(path))
        _refuse_other(root, receipt, wanted)
        return cls(root, receipt)

    @contextmanager
    def claim(self, on_wait: Callable[[str], object]) -> Iterator[None]:
        """Holds the folder for this process, for the length of the block; removes the work folder of a finished export.

        Raises `RefusedError` where another process exports to it, or has just finished.
        """
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno in DISK_IS_FULL:
                raise
            raise UsageError(f"DEST={self.root}: {error.strerror}; name a folder that can be written to") from error
        with hold_lock(self._work / _LOCK, work="facefeed export", on_wait=on_wait):
            path = self.root / RECEIPT
            if not path.exists():
                self._write(RECEIPT, self.receipt.to_json())
            elif ExportReceipt.from_json(path.read_bytes(), where=str(path)).finished:
                raise RefusedError(
                    f"DEST={self.root}: another process has just finished it; run this again to check it"
                )
            yield
        if self.receipt.finished:
            self.remove_work_folder()

    def remove_work_folder(self) -> None:
        """Removes what a finished export does not need."""
        shutil.rmtree(self._work, ignore_errors=True)

    @property
    def _parts(self) -> Path:
        return self._work / "parts"

    def published(self, name: str) -> PartReceipt | None:
        """Receipt of a published part, None where it has to be written."""
        try:
            receipt = PartReceipt.from_json((self._parts / f"{name}.json").read_bytes())
            lines = (self._parts / f"{name}.sums").read_bytes()
        except (FileNotFoundError, ValueError):
            return None
        return receipt if hashlib.sha256(lines).hexdigest() == receipt.sha256 else None

    def stage(self, name: str) -> Path:
        """An empty folder for the files of a part, below which their paths are those below DEST."""
        folder = self._work / "staged" / name
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return folder

    def publish(self, name: str, staged: Path, written: PartRows) -> PartReceipt:
        """Moves the files of a staged part into place, makes them durable and writes the part's receipt."""
        lines, size_bytes, files = [], 0, 0
        for path in sorted(Path(parent) / name for parent, _, names in walk_strictly(staged) for name in names):
            relative = path.relative_to(staged).as_posix()
            lines.append(f"{sha256_of(path)}  {relative}\n")
            size_bytes, files = size_bytes + path.stat().st_size, files + 1
            target = self.root / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
        shutil.rmtree(staged)
        os.sync()  # one call for all files: fsync of each would take longer than writing them
        sums = "".join(lines)
        receipt = PartReceipt(
            name=name, rows=written.rows, skipped=dict(written.skipped), damaged=written.damaged,
            notes=dict(written.notes), files=files, size_bytes=size_bytes,
            sha256=hashlib.sha256(sums.encode()).hexdigest(),
        )  # fmt: skip
        write_durably(self._parts / f"{name}.sums", sums, self._work)
        write_durably(self._parts / f"{name}.json", receipt.to_json(), self._work)
        return receipt

    def finish(self, parts: list[PartReceipt]) -> None:
        """Writes `SHA256SUMS` and the receipt: the export is complete."""
        joined = self._work / SUMS
        with joined.open("wb") as file:
            for part in parts:
                file.write((self._parts / f"{part.name}.sums").read_bytes())
            file.flush()
            os.fsync(file.fileno())
        sums_sha256 = sha256_of(joined)
        joined.replace(self.root / SUMS)
        sync_folder(self.root)
        self.receipt = replace(self.receipt, finished=True, parts=parts, sums_sha256=sums_sha256)
        self._write(RECEIPT, self.receipt.to_json())

    def listed_files(self) -> Iterator[tuple[str, str]]:
        """Every file of a finished export in the order of its parts: hex SHA-256, and path relative to DEST.

        Raises `CorruptDataError` where `SHA256SUMS` is not the one that was written.
        """
        path = self.root / SUMS
        with suppress(FileNotFoundError), path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == self.receipt.sums_sha256:
                file.seek(0)
                for line in file:
                    digest, _, relative = line.decode().rstrip("\n").partition("  ")
                    yield digest, relative
                return
        raise CorruptDataError(f"{path}: missing or damaged; delete {self.root} and export again")

    def _write(self, name: str, text: str) -> None:
        write_durably(self.root / name, text, self._work)


def _refuse_other(root: Path, stored: ExportReceipt, wanted: ExportReceipt) -> None:
    """Raises `RefusedError` where the folder holds an export of other rows, or in another form."""
    names = ("form",) if stored.request.get("form") != wanted.request["form"] else wanted.request
    differences = [
        f"{name} is {_shown(name, stored.request.get(name))}, not {_shown(name, wanted.request[name])}"
        for name in names
        if stored.request.get(name) != wanted.request[name]
    ]
    if stored.fingerprint != wanted.fingerprint:
        differences.append("it is of another OUT, or OUT has changed since")
    else:
        differences += _differences_of_columns(stored.added_columns, wanted.added_columns)
    if differences:
        raise RefusedError(
            f"DEST={root}: holds another export ({'; '.join(differences)}); nothing was written; "
            "name a new or empty folder, or delete this one"
        )


def _differences_of_columns(stored: Mapping[str, object], wanted: Mapping[str, object]) -> Iterator[str]:
    for name in sorted(stored.keys() | wanted.keys()):
        if name not in stored:
            yield f"it records no added columns {name!r}, which OUT has"
        elif name not in wanted:
            yield f"it has the added columns {name!r}, which OUT lacks"
        elif stored[name] != wanted[name]:
            yield f"its added columns {name!r} are others than those of OUT"


def _shown(name: str, value: object) -> str:
    return "all" if name == "split" and value is None else str(value)
