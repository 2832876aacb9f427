"""The whole export: plan, parts, receipt, check. What is finished already is not done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..dataset.added_columns import IncompleteSet
from ..dataset.byte_ranges import MissingFileError
from ..dataset.stores.address import as_out, without_credentials
from ..dataset.stores.opening import StoreOptions, read_manifest
from ..errors import StoppedError, UsageError
from ..files import stop_on_any_disk_error
from .check import CheckResult, check_export
from .destination import Destination
from .forms.by_name import make_form
from .forms.form import CLOSING, Form, PartRows
from .receipt import ExportReceipt, PartReceipt
from .request import ExportRequest
from .rows import StoredRows

Progress = Callable[[str, int, int], object]
"""Called with what is done ("export" or "check"), how many rows or files of it, and of how many."""


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """`parts_before`: parts that an earlier run had finished. `was_finished`: the export was there, and was read back.

    `incomplete_columns`: sets of added columns that lack rows, and so are not in the export. `seconds`: duration of
    this call.
    """

    root: Path
    receipt: ExportReceipt
    check: CheckResult
    parts_before: int
    was_finished: bool
    incomplete_columns: list[IncompleteSet]
    seconds: float

    @property
    def exit_code(self) -> int:
        """1 where rows are damaged or the check found something, else 0."""
        return int(bool(self.receipt.damaged or self.check.findings))


def export(
    out: str | Path,
    dest: Path,
    request: ExportRequest,
    *,
    on_progress: Progress = lambda *_: None,
    on_wait: Callable[[str], object] = lambda _: None,
    storage_options: Mapping[str, Any] | None = None,
) -> ExportResult:
    """Writes the rows of the dataset `out` to the folder `dest`, in the form of `request`, or finishes that.

    A finished export is not written again, but read back and compared with its SHA-256 sums. `on_wait`: called with a
    sentence before a wait for another process. `out` may be an address in a store, which is read through the cache of
    loaders; `storage_options`: of its fsspec file system, never printed.

    Raises `UsageError` where `out` holds no finished dataset, the store refuses to be read, or `dest` cannot be used,
    `RefusedError` where it holds anything else or another process is at work on it, `CorruptDataError` where a file of
    `out` is missing or damaged, and `StoppedError` where the disk fails or the store does not return a file; the same
    call resumes then.
    """
    started = time.monotonic()
    options = StoreOptions(storage_options=storage_options or {})
    out = as_out(out)
    with stop_on_any_disk_error(dest):
        stored = StoredRows(out, options)
        added_columns = stored.index.added_sets if request.has_columns else {}
        incomplete_columns = stored.incomplete_sets() if request.has_columns else []
        wanted = ExportReceipt(
            fingerprint=stored.manifest.fingerprint, request=request.to_json(), added_columns=added_columns
        )
        selected_rows = len(stored.select(request.split))
        if not selected_rows:
            raise UsageError(
                f"split={request.split}: {without_credentials(out)} has no rows of it; nothing was written; name "
                "another split"
            )
        destination = Destination.open(dest, out, wanted)
        was_finished, parts_before = destination.receipt.finished, 0
        if was_finished:
            destination.remove_work_folder()  # left where a run was killed at its very end
        else:
            form = make_form(stored, request)
            with destination.claim(on_wait):
                with _unchanged(out, options, wanted.fingerprint, dest):
                    parts_before = _write_parts(destination, form, _Counter("export", selected_rows, on_progress))
                destination.finish([*_published(destination, form), _receipt(destination, CLOSING)])
        checked = _Counter("check", destination.receipt.files, on_progress)
        check = check_export(destination, selected_rows, read_files=was_finished, on_files=checked.add)
        return ExportResult(
            root=dest, receipt=destination.receipt, check=check, parts_before=parts_before, was_finished=was_finished,
            incomplete_columns=incomplete_columns,
            seconds=time.monotonic() - started,
        )  # fmt: skip


@contextmanager
def _unchanged(out: str | Path, options: StoreOptions, fingerprint: str, dest: Path) -> Iterator[None]:
    """Raises `StoppedError` where the dataset has another state after the block, or as the block misses a file."""
    missing = None
    try:
        yield
    except MissingFileError as error:  # perhaps one that a compaction has merged and removed
        missing = error
    if _fingerprint_now(out, options) != fingerprint:
        raise StoppedError(
            f"{without_credentials(out)}: has changed during the export; delete {dest} and export again"
        ) from missing
    if missing is not None:
        raise missing


def _fingerprint_now(out: str | Path, options: StoreOptions) -> str:
    """The fingerprint of a dataset that was finished before; raises `StoppedError` where its manifest is not there."""
    try:
        return read_manifest(out, options).fingerprint
    except UsageError as error:
        raise StoppedError(f"{error}; it was finished as the export began: run the same command again") from error


def _write_parts(destination: Destination, form: Form, written: _Counter) -> int:
    """Writes and publishes what is missing; returns the number of parts that were there before."""
    parts_before = rows = 0
    for part in form.parts:
        if destination.published(part.name):
            parts_before += 1
        else:
            staged = destination.stage(part.name)
            destination.publish(part.name, staged, form.write(part, staged, written.add))
        rows += len(part.rows)
        written.set(rows)  # also those that the form skips
    if not destination.published(CLOSING):
        staged = destination.stage(CLOSING)
        form.write_closing(_published(destination, form), staged)
        destination.publish(CLOSING, staged, PartRows())
    return parts_before


def _published(destination: Destination, form: Form) -> list[PartReceipt]:
    return [_receipt(destination, part.name) for part in form.parts]


def _receipt(destination: Destination, name: str) -> PartReceipt:
    """Receipt of a part that was published; raises `StoppedError` where it is not there any more."""
    receipt = destination.published(name)
    if receipt is None:
        raise StoppedError(
            f"{destination.root}: the receipt of its part {name!r} is missing or damaged since it was written; run the "
            "same command again, which writes that part again"
        )
    return receipt


class _Counter:
    """Counts what is done and reports it. `total`: how many there are."""

    def __init__(self, what: str, total: int, on_progress: Progress) -> None:
        self._what, self._total, self._on_progress, self._done = what, total, on_progress, 0

    def add(self, count: int) -> None:
        """Adds what has been done."""
        self.set(self._done + count)

    def set(self, done: int) -> None:
        """Sets how many are done."""
        self._done = done
        self._on_progress(self._what, done, self._total)
