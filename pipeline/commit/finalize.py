"""The end of a run: index, manifest, and the removal of what newer units replace. In this order, and only once
every unit is done, so that a reader of the old manifest is never left without its files.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..dataset.index import IndexBuilder, index_schema
from ..dataset.manifest import InputOutcome, Manifest, OutPaths, Receipt, count_inputs
from ..errors import CorruptDataError, UsageError
from ..files import stop_on_disk_error, sync_folder, write_durably
from ..planning.plan import Unit
from ..planning.run_state import RunState
from ..sources import Entry
from .publish import check_file, sha256_of


def set_orphans_aside(run_state: RunState) -> list[str]:
    """Moves files that no unit of the plan accounts for out of the readers' way; returns their names.

    A unit that was split accounts for none: its worker may have published its file and died before it could take it
    back, and all of its rows are those of its halves.
    """
    known = {unit.unit_id for unit, receipt in _ever(run_state) if receipt is None or receipt.outcome != "split"}
    moved = []
    with stop_on_disk_error(run_state.paths.faces):
        for path in sorted(run_state.paths.faces.rglob("*")):
            if path.is_file() and path.stem not in known:
                path.replace(run_state.paths.temporary / f"{path.name}.{uuid.uuid4().hex}.quarantined")
                moved.append(path.relative_to(run_state.paths.root).as_posix())
    return moved


def set_damaged_aside(run_state: RunState) -> list[str]:
    """Moves every file that is not what its receipt says, so that its unit is done again; returns their names."""
    moved = []
    for _, unit, receipt in list(run_state.done()):
        if not receipt.file:
            continue
        path = run_state.paths.root / receipt.file
        with stop_on_disk_error(path):
            try:
                check_file(path, unit.unit_id, run_state.config_hash, receipt.rows)
                if sha256_of(path) == receipt.sha256:
                    continue
            except CorruptDataError:
                pass
            path.replace(run_state.paths.temporary / f"{path.name}.{uuid.uuid4().hex}.quarantined")
            run_state.paths.receipt(unit.unit_id).unlink()
            moved.append(receipt.file)
    return moved


def remove_replaced(run_state: RunState) -> None:
    """Removes the files and receipts of units that others have replaced."""
    current = {part.unit_id for unit in run_state.plan.units() for part, _ in _with_parts(run_state, unit)}
    # All of them first, and parts before wholes: the walk finds parts by the receipts that go away here.
    for unit, _ in reversed(list(_ever(run_state))):
        if unit.unit_id not in current:
            with stop_on_disk_error(run_state.paths.faces):
                run_state.paths.unit_file(unit.split, unit.unit_id).unlink(missing_ok=True)
                run_state.paths.receipt(unit.unit_id).unlink(missing_ok=True)


def clear_attempts(paths: OutPaths) -> None:
    """Removes what a run that was killed has left half-written; what was set aside stays."""
    with stop_on_disk_error(paths.temporary):
        for attempt in paths.temporary.iterdir():
            if attempt.is_file() and not attempt.name.endswith(".quarantined"):
                attempt.unlink(missing_ok=True)


def _with_parts(run_state: RunState, unit: Unit) -> Iterator[tuple[Unit, Receipt | None]]:
    receipt = run_state.trusted_receipt(unit)
    yield unit, receipt
    if receipt is not None and receipt.outcome == "split":
        for half in unit.halves(run_state.config_hash):
            yield from _with_parts(run_state, half)


def _ever(run_state: RunState) -> Iterator[tuple[Unit, Receipt | None]]:
    for unit in run_state.plan.all_units():
        yield from _with_parts(run_state, unit)


def write_index(paths: OutPaths, tables: Sequence[tuple[Path, str]], labels: Sequence[str], fingerprint: str) -> int:
    """Builds the index anew, for `put_index` to put in its place; returns its number of rows."""
    attempt = paths.temporary / f"index.{uuid.uuid4().hex}"
    with stop_on_disk_error(paths.next_index):
        paths.temporary.mkdir(exist_ok=True)  # a copy of a dataset need not have it
        try:
            rows = IndexBuilder(index_schema(labels, fingerprint), tables).write(attempt)
            with attempt.open("rb+") as file:
                os.fsync(file.fileno())
            attempt.replace(paths.next_index)
        finally:
            attempt.unlink(missing_ok=True)
        sync_folder(paths.root)
    return rows


def account(run_state: RunState, config: dict[str, Any], refused: Sequence[Entry], missing: int) -> Manifest:
    """The manifest of what the receipts say; `refused` are inputs that never reached a unit."""
    splits: dict[str, Counter[str]] = {}
    totals: Counter[str] = Counter()

    def outcomes() -> Iterator[InputOutcome]:
        for planned, unit, receipt in run_state.done():
            totals.update(units=1, rows=receipt.rows, bytes=receipt.bytes)
            for one in receipt.inputs:
                if run_state.owner[one.video_id] == planned.unit_id:
                    counts = splits.setdefault(unit.split, Counter())
                    totals.update(without_mask=one.faces_without_mask)
                    counts.update(rows=one.faces, videos=int(one.faces > 0))
                    yield one

    inputs = count_inputs(outcomes(), Counter(str(entry.problem) for entry in refused), missing)
    return Manifest(
        fingerprint=run_state.fingerprint(),
        config=config,
        labels=list(config["labels"]),
        splits={name: dict(counts) for name, counts in sorted(splits.items())},
        units=totals["units"],
        rows=totals["rows"],
        bytes=totals["bytes"],
        inputs=inputs,
        faces_without_mask=totals["without_mask"],
        refused=[{"video_id": entry.video_id, "reason": entry.problem, "detail": entry.detail} for entry in refused],
        plan_parts=len(run_state.plan.parts),
    )


def publish_manifest(paths: OutPaths, manifest: Manifest) -> None:
    """The last thing a run writes: from here on the dataset is finished, with the index that was written last."""
    write_durably(paths.manifest, manifest.to_json(), paths.temporary)
    put_index(paths)


def count_plan_parts(run_state: RunState) -> None:
    """Completes a manifest that does not say of how many parts of the plan it is the account, before the plan grows.

    Else a run that ends early would leave it as the account of the grown plan. A damaged one stays: this run's takes
    its place.
    """
    try:
        manifest = Manifest.read(run_state.paths.root)
    except (CorruptDataError, UsageError):
        return
    if manifest.plan_parts is None:
        counted = replace(manifest, plan_parts=len(run_state.plan.parts))
        write_durably(run_state.paths.manifest, counted.to_json(), run_state.paths.temporary)


def put_index(paths: OutPaths) -> None:
    """Puts the index that `write_index` wrote in the place of the one before, if any was written."""
    with stop_on_disk_error(paths.index), suppress(FileNotFoundError):
        paths.next_index.replace(paths.index)
        sync_folder(paths.root)
