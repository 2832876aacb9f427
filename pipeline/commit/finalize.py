"""The end of a run: writes the index, then the manifest, then removes superseded units.

In this order, and only once every unit is finished, so that a reader of the old manifest always has its files.
"""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from ..console import plural
from ..dataset.added_columns import (
    ColumnSet,
    IncompleteSet,
    column_files,
    complete_sets,
    read_column_sets,
    remove_files_of,
)
from ..dataset.index import Index, index_schema
from ..dataset.index_builder import IndexBuilder
from ..dataset.manifest import InputOutcome, Manifest, Receipt, count_inputs
from ..dataset.out import OutPaths
from ..errors import CorruptDataError, Reason, StoppedError, UsageError
from ..files import sha256_of, stop_on_disk_error, sync_folder
from ..planning.plan import Unit
from ..planning.recorded import RecordedDataset
from ..planning.run_state import RunState, fingerprint_of
from ..sources import Entry
from ..stored_source.staging import STAGING_PREFIX
from .column_files import check_columns
from .index_parts import files_to_index
from .publish import QUARANTINED_SUFFIX, check_unit_file, move_to_quarantine


def quarantine_orphans(run_state: RunState) -> list[str]:
    """Moves files that belong to no unit of the plan to `_tmp`, out of readers' sight; returns their names.

    A unit that was split has no file: its worker may have published one and died before removing it, and all of its
    rows are in the files of its halves. Added columns of no unit are removed.
    """
    known, moved, paths = _units_with_files(run_state), [], run_state.paths
    with stop_on_disk_error(paths.faces):
        orphans = [path for path in paths.files.unit_files(paths.faces) if path.stem not in known]
        if orphans:  # the first look may have missed that a unit was split
            known |= _units_with_files(run_state)
        for path in orphans:
            if path.stem not in known:
                move_to_quarantine(path, paths)
                moved.append(paths.name_of(path))
        remove_files_of(paths, sorted({path.stem for path in column_files(paths)} - known))
    return moved


def _units_with_files(run_state: RunState) -> set[str]:
    """Ids of units that have a file, or may get one."""
    return {unit.unit_id for unit, receipt in _all_units(run_state) if receipt is None or receipt.outcome != "split"}


def quarantine_damaged(run_state: RunState) -> list[str]:
    """Moves every file that contradicts its receipt to `_tmp`, so that its unit is redone; returns their names."""
    moved = []
    for _, unit, receipt in list(run_state.finished_units()):
        if not receipt.file:
            continue
        path = run_state.paths.root / receipt.file
        with stop_on_disk_error(path):
            try:
                with run_state.paths.files.local(path) as local:
                    check_unit_file(local, unit.unit_id, run_state.config_hash, receipt.rows)
                    if sha256_of(local) == receipt.sha256:
                        continue
            except CorruptDataError:
                pass
            move_to_quarantine(path, run_state.paths)
            run_state.paths.files.remove(run_state.paths.receipt(unit.unit_id))
            moved.append(receipt.file)
    return moved


def quarantine_damaged_columns(run_state: RunState) -> list[str]:
    """Moves every file of added columns that contradicts its receipt to `_tmp`, so that it is computed again."""
    moved = []
    for column_set in read_column_sets(run_state.paths):
        for _, _, unit in run_state.finished_units():
            if not column_set.has_file_for(unit):
                continue
            path = column_set.unit_file(unit.unit)
            with stop_on_disk_error(path):
                try:
                    check_columns(column_set, unit)
                except CorruptDataError:
                    move_to_quarantine(path, run_state.paths)
                    run_state.paths.files.remove(column_set.receipt_file(unit.unit))
                    moved.append(run_state.paths.name_of(path))
    return moved


def superseded_units(run_state: RunState) -> list[Unit]:
    """Units that later ones replace, and the halves of those that were split: halves before their unit."""
    return [unit for family in _superseded_families(run_state) for unit in family]


def _superseded_families(run_state: RunState) -> list[list[Unit]]:
    """`superseded_units`, each with its halves in a list of its own."""
    current = {unit.unit_id for unit in run_state.plan.units()}  # their halves, too, whatever a look at these misses
    superseded = [unit for unit in run_state.plan.all_units() if unit.unit_id not in current]
    return [[part for part, _ in reversed([*_with_halves(run_state, unit)])] for unit in reversed(superseded)]


def remove_superseded(run_state: RunState) -> int:
    """Removes the files and receipts of superseded units, and the added columns of these and of units without rows.

    Durably: the rows of a file that came back after a power failure would be there twice. A file with rows that could
    not be copied, as it is damaged, and not be computed again, as their video is gone, is moved to `_tmp`. Returns the
    number of files with rows that are gone from the dataset by it.
    """
    families, num_removed, paths = _superseded_families(run_state), 0, run_state.paths
    superseded = [unit for family in families for unit in family]
    with stop_on_disk_error(paths.faces):
        # A unit whose file was damaged, and whose videos are gone, has lost its rows.
        without_rows = [unit for _, unit, receipt in run_state.finished_units() if receipt.file is None]
        remove_files_of(paths, [unit.unit_id for unit in (*superseded, *without_rows)])
        outcomes = run_state.outcomes() if superseded else ()
        unreadable = {outcome.video_id for _, outcome in outcomes if outcome.reason == "unreadable"}
        for unit in superseded:
            path = paths.unit_file(unit.split, unit.unit_id)
            is_there = paths.files.size_bytes(path) is not None
            num_removed += is_there
            if is_there and _had_faces_of(run_state, unit, unreadable):
                move_to_quarantine(path, paths)
        # Halves before their unit: they are found by its receipt.
        paths.files.remove_all([[path for unit in family for path in _files_of(paths, unit)] for family in families])
        for folder in {paths.unit_file(unit.split, unit.unit_id).parent for unit in superseded}:
            if folder.is_dir():  # a split may have had no face at all
                sync_folder(folder)
    return num_removed


def _files_of(paths: OutPaths, unit: Unit) -> tuple[Path, Path]:
    return paths.unit_file(unit.split, unit.unit_id), paths.receipt(unit.unit_id)


def _had_faces_of(run_state: RunState, unit: Unit, videos: set[str]) -> bool:
    """Whether the unit's file has, or had before it was damaged, a row of any of the videos."""
    try:
        receipt = run_state.receipt(unit)
    except CorruptDataError:
        return True
    return receipt is not None and any(outcome.faces and outcome.video_id in videos for outcome in receipt.inputs)


def remove_attempts(paths: OutPaths) -> None:
    """Removes unfinished attempts of a killed run; quarantined files stay."""
    with stop_on_disk_error(paths.temporary):
        for attempt in paths.temporary.iterdir():
            if attempt.is_file() and not attempt.name.endswith(QUARANTINED_SUFFIX):
                attempt.unlink(missing_ok=True)
            elif attempt.name.startswith(STAGING_PREFIX):
                shutil.rmtree(attempt, ignore_errors=True)


def _with_halves(run_state: RunState, unit: Unit) -> Iterator[tuple[Unit, Receipt | None]]:
    receipt = run_state.trusted_receipt(unit)
    yield unit, receipt
    if receipt is not None and receipt.outcome == "split":
        for half in unit.halves(run_state.config_hash):
            yield from _with_halves(run_state, half)


def _all_units(run_state: RunState) -> Iterator[tuple[Unit, Receipt | None]]:
    for unit in run_state.plan.all_units():
        yield from _with_halves(run_state, unit)


def write_index(
    paths: OutPaths,
    files: Sequence[tuple[Path, str]],
    faces: pa.Schema,
    fingerprint: str,
    *,
    added: Sequence[ColumnSet] = (),
    incomplete: Sequence[IncompleteSet] = (),
    expected_rows: int | None = None,
) -> int:
    """Builds the next index, for `install_index` to install; returns its number of rows.

    `faces`: the files' schema. `added`: sets of added columns that become part of it; `incomplete`: those that do not.
    Raises `CorruptDataError` where a file is damaged, or they do not have `expected_rows`.
    """
    attempt = paths.temporary / f"index.{uuid.uuid4().hex}"
    with stop_on_disk_error(paths.next_index):
        paths.temporary.mkdir(exist_ok=True)  # a copy of a dataset may lack it
        try:
            schema = index_schema(faces, fingerprint, added, incomplete)
            rows = IndexBuilder(schema, files, added).write(attempt)
            if expected_rows is not None and rows != expected_rows:  # a receipt is damaged, or this host cannot see it
                raise CorruptDataError(
                    f"{paths.root}: its receipts account for {rows:,} rows, its manifest for {expected_rows:,}"
                )
            paths.files.replace(attempt, paths.next_index)
        finally:
            attempt.unlink(missing_ok=True)
    return rows


def write_dataset_index(run_state: RunState, manifest: Manifest) -> list[IncompleteSet]:
    """Builds the next index of a dataset with its added columns; returns the sets that lack files and so stay out."""
    added, incomplete = complete_sets(run_state.paths, (receipt for _, _, receipt in run_state.finished_units()))
    files, faces = files_to_index(run_state), manifest.face_schema()
    write_index(
        run_state.paths, files, faces, manifest.fingerprint, added=added, incomplete=incomplete,
        expected_rows=manifest.rows,
    )  # fmt: skip
    return incomplete


def write_index_or_quarantine(run_state: RunState, manifest: Manifest, *, redoes_units: bool) -> list[IncompleteSet]:
    """`write_dataset_index`; where a file proves damaged, moves all damaged ones to `_tmp`, to be computed again.

    `redoes_units`: whether the same command, run again, computes units, as `precompute` does, or added columns alone:
    what it would not compute stays. Raises `StoppedError` where files were moved, `CorruptDataError` where none was.
    """
    read_column_sets(run_state.paths)  # a damaged one is named with its remedy
    try:
        return write_dataset_index(run_state, manifest)
    except CorruptDataError as error:
        damaged = quarantine_damaged(run_state) if redoes_units else []
        damaged += quarantine_damaged_columns(run_state)
        if not damaged:
            raise CorruptDataError(f"{error}; run `facefeed verify {run_state.paths.root}`") from error
        raise StoppedError(
            f"{error}; {plural(len(damaged), 'damaged file')} went to _tmp: run the same command again"
        ) from error


def is_published(run_state: RunState, manifest: Manifest) -> bool:
    """Whether OUT has this very manifest, and the index of its rows, all of which is read.

    In a store, where the index would have to be fetched, that is known from the order in which both are written. Not
    where there are added columns: `facefeed add`, which may have been killed, changes these without the manifest.
    """
    paths = run_state.paths
    try:
        is_same = paths.files.read(paths.manifest) == manifest.to_json().encode()
    except FileNotFoundError:
        return False
    if not is_same or paths.files.size_bytes(paths.next_index) is not None or read_column_sets(paths):
        return False
    if paths.files.is_remote:
        return paths.files.size_bytes(paths.index) is not None
    try:
        index = Index(paths.root)
        index.check_bytes()
    except (CorruptDataError, StoppedError, UsageError):  # another one takes its place, also where it cannot be read
        return False
    expected = index_schema(manifest.face_schema(), manifest.fingerprint)
    return index.num_rows == manifest.rows and index.schema.equals(expected, check_metadata=True)


def build_manifest(
    run_state: RunState,
    config: dict[str, Any],
    refused: Sequence[Entry],
    missing: int,
    removed: Container[str] = (),
    *,
    is_whole: bool = False,
) -> Manifest:
    """Builds the manifest from the receipts, each of which is read once.

    Args:
        run_state: plan and receipts.
        config: the config of the rows.
        refused: inputs that never reached a unit.
        missing: number of inputs that metadata lists but are not on disk.
        removed: ids of inputs that the source does not have any more: those of them that failed are not counted.
        is_whole: whether all planned units were found to be finished.

    Raises:
        StoppedError: with `is_whole`, a unit has no receipt, as on a network mount that has not seen it yet.

    """
    splits: dict[str, Counter[str]] = {}
    totals: Counter[str] = Counter()
    unused: Counter[str] = Counter()
    uncounted: list[str] = []
    files: dict[str, str | None] = {}

    def outcomes() -> Iterator[InputOutcome]:
        for planned, unit, receipt in run_state.finished_units(all_are=is_whole):
            totals.update(units=1, rows=receipt.rows, bytes=receipt.bytes)
            files.update({receipt.file: receipt.sha256} if receipt.file else {})
            for outcome in receipt.inputs:
                if run_state.unit_of_video[outcome.video_id] == planned.unit_id:
                    counts = splits.setdefault(unit.split, Counter())
                    totals.update(without_mask=outcome.faces_without_mask, own_mask=outcome.faces_with_own_mask)
                    unused.update([outcome.own_mask_problem.partition(":")[0]] if outcome.own_mask_problem else [])
                    counts.update(rows=outcome.faces, videos=int(outcome.faces > 0))
                    if outcome.outcome == "failed" and outcome.video_id in removed:
                        uncounted.append(outcome.video_id)
                    else:
                        yield outcome

    inputs = count_inputs(outcomes(), Counter(str(entry.problem) for entry in refused), missing)
    return Manifest(
        fingerprint=fingerprint_of(run_state.config_hash, files),
        config=config,
        labels=list(config["labels"]),
        splits={name: dict(counts) for name, counts in sorted(splits.items()) if counts["rows"]},
        units=totals["units"],
        rows=totals["rows"],
        bytes=totals["bytes"],
        inputs=inputs,
        faces_without_mask=totals["without_mask"],
        faces_with_own_mask=totals["own_mask"],
        own_masks_unused=dict(sorted(unused.items())),
        refused=[{"video_id": entry.video_id, "reason": entry.problem, "detail": entry.detail} for entry in refused],
        removed=sorted(uncounted),
        plan_parts=len(run_state.plan.parts),
        clip_settings=RecordedDataset(run_state.paths, run_state.plan).later_clip_settings,
        schema=int(config["schema"]),
    )


def renewed_manifest(run_state: RunState, manifest: Manifest, *, is_whole: bool = False) -> Manifest:
    """The manifest of the receipts as they are now; what only the source's listing has is taken from `manifest`.

    is_whole: see `build_manifest`.
    """
    refused = [
        Entry(video_id=str(each["video_id"]), problem=cast("Reason", each["reason"]), detail=each["detail"])
        for each in manifest.refused
    ]
    missing, removed = manifest.inputs["missing"], {*manifest.removed}
    return build_manifest(run_state, manifest.config, refused, missing, removed, is_whole=is_whole)


def publish_manifest(paths: OutPaths, manifest: Manifest) -> None:
    """Writes the manifest, which makes the dataset finished, and installs the index that was written before."""
    paths.files.write(paths.manifest, manifest.to_json(), paths.temporary)
    install_index(paths)


def record_plan_parts(run_state: RunState) -> None:
    """Adds `plan_parts` to a manifest that lacks it, before the plan grows.

    Otherwise, after a run that ends early, the old manifest would seem to cover the grown plan. A damaged manifest
    stays: that of this run replaces it.
    """
    try:
        manifest = Manifest.read(run_state.paths.root)
    except (CorruptDataError, UsageError):
        return
    if manifest.plan_parts is None:
        completed = replace(manifest, plan_parts=len(run_state.plan.parts))
        run_state.paths.files.write(run_state.paths.manifest, completed.to_json(), run_state.paths.temporary)


def install_index(paths: OutPaths) -> None:
    """Replaces the index by the one that `write_index` wrote, if there is one."""
    with suppress(FileNotFoundError):
        paths.files.rename(paths.next_index, paths.index)  # not synced: readers find either, see `current_index_path`
