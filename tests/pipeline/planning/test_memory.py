"""A job of millions of inputs fits in memory: what a run holds of each of them, in bytes that Python allocates."""

from __future__ import annotations

import gc
import hashlib
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from assets_memory import peak_bytes
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.manifest import InputOutcome, Receipt
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dataset.schema import SPLITS
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.incremental import next_plan_part
from facefeed.pipeline.planning.incremental.changes import find_changes
from facefeed.pipeline.planning.incremental.outdated_rows import outdated_entries
from facefeed.pipeline.planning.options import JobSpec
from facefeed.pipeline.planning.plan import Plan, PlanPart, group_units
from facefeed.pipeline.planning.receipts import ReceiptReader
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.sources import Entry, FoundFile, Listing
from facefeed.pipeline.sources.packed_records import PackedRecords
from facefeed.pipeline.splits.assignment import SplitRatio, assign_splits

INPUTS = 1000
MANY = 10_000  # of whose peak the 0.2 MB that other threads of the tests' process may take is a small part
_FRAMES = 64  # more than there are between a test and any line that allocates
CONFIG = {"labels": ["real", "fake"], "schema": 3}


@pytest.fixture
def paths(tmp_path: Path) -> OutPaths:
    paths = OutPaths(tmp_path / "out")
    make_folders(paths)
    return paths


def entries(count: int = INPUTS) -> list[Entry]:
    return [
        Entry(
            video_id=f"train/id{number:05}/{number:011x}/fake_video_fake_audio.mp4", label=1, dataset="avdeepfake1m",
            size_bytes=70_000 + number, mtime_ns=1_733_000_000_000_000_000 + number, values=(number, None),
        )
        for number in range(count)
    ]  # fmt: skip


def plan_part(inputs: list[Entry]) -> PlanPart:
    split_of = {entry.video_id: "train" for entry in inputs}
    units = group_units(inputs, split_of, config_hash="c", salt="0", cost_seconds=lambda _: 4.0)
    return PlanPart(config=CONFIG, units=tuple(units))


def bytes_kept(call: Callable[[], object]) -> int:
    """The bytes that the call, not another thread, allocates and that remain as long as what it returns is there."""
    tracemalloc.start(_FRAMES)
    try:
        kept = call()
        gc.collect()
        snapshot = tracemalloc.take_snapshot()
        del kept
    finally:
        tracemalloc.stop()
    by_call = snapshot.filter_traces([tracemalloc.Filter(inclusive=True, filename_pattern=__file__, all_frames=True)])
    return sum(statistic.size for statistic in by_call.statistics("filename"))


def test_a_source_takes_no_more_memory_to_list_where_out_has_a_plan_of_it(tmp_path: Path) -> None:
    src = tmp_path / "src"
    for name in ("real", "fake"):
        (src / name).mkdir(parents=True)
        for number in range(MANY // 4):
            (src / name / f"a_video_with_quite_a_long_name_{number:06}.mp4").touch()

    def prepare(out: str) -> tuple[JobSpec, Listing]:
        job, listing, _ = prepare_job(src, tmp_path / out, detector=FixedBoxDetector())
        return job, listing

    job, listing = prepare("out")
    _, _, config = prepare_job(src, tmp_path / "out", detector=FixedBoxDetector())
    make_folders(job.paths)
    Plan().append(job.paths, replace(plan_part(listing.entries), config=config))
    for out in ("another", "out"):  # what the first one imports and caches
        prepare(out)
    fresh = peak_bytes(lambda: prepare("another"))
    assert peak_bytes(lambda: prepare("out")) < fresh + 100 * MANY / 2


def test_a_folder_is_listed_and_planned_in_six_hundred_bytes_an_input(tmp_path: Path) -> None:
    for name, count in (("small", 10), ("src", MANY)):
        folder = tmp_path / name / "real"
        folder.mkdir(parents=True)
        for number in range(count):
            (folder / f"a_video_with_quite_a_long_name_{number:06}.mp4").touch()

    def plan(name: str) -> PlanPart:
        job, listing, config = prepare_job(tmp_path / name, tmp_path / "out", detector=FixedBoxDetector())
        return next_plan_part(
            RunState(job.paths, Plan(), job.config_hash), listing, find_changes(listing, {}), job=job, config=config,
            allow_leaks=False, retry=None, cost_seconds=lambda _: 4.0,
        )  # fmt: skip

    plan("small")  # what the first one imports and caches
    assert peak_bytes(lambda: plan("src")) < 600 * MANY


def test_inputs_are_grouped_into_units_in_a_hundred_bytes_each() -> None:
    listed = [replace(entry, source_id=f"{number // 4}/real.mp4") for number, entry in enumerate(entries(MANY))]
    split_of = {entry.video_id: SPLITS[number % 3] for number, entry in enumerate(listed)}
    group = partial(group_units, listed, split_of, config_hash="c", salt="0", cost_seconds=lambda _: 4.0)
    assert peak_bytes(group) < 100 * MANY


def test_found_files_take_fifty_bytes_each_and_are_as_they_were_found() -> None:
    files = [
        FoundFile(entry.video_id, entry.size_bytes, entry.mtime_ns, file_ids=(number * 0x9E3779B97F4A7C15 % 2**64,))
        for number, entry in enumerate(entries(3 * INPUTS))  # of more than one block
    ]
    files[5] = FoundFile("a.mp4", problem="unreadable", detail="Permission denied")
    found = PackedRecords(FoundFile, files)
    assert list(found) == files
    assert [file.file_ids for file in found] == [file.file_ids for file in files]
    assert (len(found), found[5], found[-1], found[2000:2002]) == (len(files), files[5], files[-1], files[2000:2002])
    assert list(PackedRecords(FoundFile, ())) == []
    with pytest.raises(IndexError):
        found[len(files)]
    assert bytes_kept(lambda: PackedRecords(FoundFile, files[:INPUTS])) < 50 * INPUTS


def test_inputs_that_are_as_they_were_planned_are_in_memory_once(paths: OutPaths) -> None:
    listed = entries()
    Plan().append(paths, plan_part(listed))
    alone = bytes_kept(lambda: Plan.load(paths))
    beside = bytes_kept(lambda: Plan.load(paths, listed))
    assert alone > 400 * INPUTS
    assert beside < 60 * INPUTS


@pytest.mark.parametrize("split", [None, "train"])
def test_splits_are_assigned_in_the_memory_of_a_number_a_name(split: str | None) -> None:
    added = [
        replace(entry, split=split, source_id=f"{number // 4}/real.mp4", identity=f"id{number // 100}")
        for number, entry in enumerate(entries(MANY))
    ]
    assert peak_bytes(lambda: assign_splits(added, ratio=SplitRatio(), seed=0)) < 200 * MANY


def test_fakes_are_compared_with_their_originals_in_a_hundred_bytes_each(paths: OutPaths) -> None:
    listed = entries(MANY)
    originals = [listed[number - number % 8] for number in range(MANY)]
    inputs = [
        entry if entry is original else replace(entry, source_id=original.video_id)
        for entry, original in zip(listed, originals, strict=True)
    ]
    plan = Plan([plan_part(inputs)])
    for unit in plan.units():
        outcomes = [
            InputOutcome(
                video_id=entry.video_id, size_bytes=1, mtime_ns=entry.mtime_ns, outcome="ok",
                sha256=sha256(entry.video_id), source_sha256=entry.source_id and sha256(entry.source_id),
            )
            for entry in unit.inputs
        ]  # fmt: skip
        receipt = Receipt(unit=unit.unit_id, config_hash="c", outcome="done", inputs=outcomes)
        paths.receipt(unit.unit_id).write_text(receipt.to_json())
    state = RunState(paths, plan, "c")
    current = {entry.video_id: entry for entry in inputs}

    def compare() -> None:
        assert outdated_entries(state, current, lambda _: True) == []

    compare()  # which keeps the receipts
    assert peak_bytes(compare) < 100 * MANY


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_an_input_that_is_not_as_it_was_planned_stays_in_the_plan_as_it_was(paths: OutPaths) -> None:
    planned = entries(5)
    Plan().append(paths, plan_part(planned))
    listed = [
        replace(planned[0], size_bytes=1),
        replace(planned[1], values=(1.0, None)),  # equal, but another text, so that units would be others
        planned[2],
    ]
    by_id = {entry.video_id: entry for unit in Plan.load(paths, listed).units() for entry in unit.inputs}
    assert [by_id[entry.video_id] for entry in planned] == planned
    assert [type(value) for value in by_id[planned[1].video_id].values] == [int, type(None)]
    assert [by_id[entry.video_id] is entry for entry in listed] == [False, False, True]


def test_receipts_that_are_kept_take_a_hundred_bytes_an_input_and_are_read_as_they_were_written(
    paths: OutPaths,
) -> None:
    receipts = [
        Receipt(
            unit=f"u{start}", config_hash="c", outcome="done",
            inputs=[
                InputOutcome(
                    video_id=entry.video_id, size_bytes=entry.size_bytes, mtime_ns=entry.mtime_ns, frames_wanted=30,
                    frames_decoded=29, outcome="partial", reason="decode_error", seconds=start / 7,
                    sha256=sha256(entry.video_id),
                )
                for entry in entries()[start : start + 50]
            ],
        )
        for start in range(0, INPUTS, 50)
    ]  # fmt: skip
    for receipt in receipts:
        paths.receipt(receipt.unit).write_text(receipt.to_json())

    def read() -> ReceiptReader:
        reader = ReceiptReader(paths, "c")
        assert [reader.trusted(receipt.unit) for receipt in receipts] == receipts
        return reader

    read()
    assert bytes_kept(read) < 120 * INPUTS
    (kept,) = [receipt for receipt in [read().trusted("u50")] if receipt is not None]
    assert kept.to_json() == receipts[1].to_json()
    assert [*kept.inputs] == [kept.inputs[number] for number in range(len(kept.inputs))] == kept.inputs[:]
