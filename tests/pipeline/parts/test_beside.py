"""What users notice who do something else with OUT while a part is at work on it, or stop a part at any moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from assets_columns import FILE
from assets_in_process import in_process, one_by_one
from assets_killed import Killed, killed_at
from assets_parts import VIDEOS, MakeSource, Run, is_finished, leases, rows
from facefeed.loaders import FaceDataLoader
from facefeed.pipeline.added_columns.run import add_columns, remove_columns
from facefeed.pipeline.errors import RefusedError
from facefeed.pipeline.lock import hold_lock
from facefeed.pipeline.planning.options import JobSpec
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.verify.check import verify

Meanwhile = Callable[[Callable[[], object]], None]


@pytest.fixture
def later_part(run: Run, folder: Path, make_source: MakeSource) -> Iterator[Meanwhile]:
    """Runs a part of a job that adds two videos to a finished OUT; calls an action once one of them is published."""

    def run_part(action: Callable[[], object]) -> None:
        make_source("real/g.mp4", "real/h.mp4", root=folder / "src")

        def process(job: JobSpec, units: list[Unit]) -> None:
            one_by_one(job, units)
            action()

        with in_process(process):
            assert run("1/2").units_left == 1

    with in_process():
        run()
        yield run_part


def loader_of(out: Path) -> FaceDataLoader:
    return FaceDataLoader(out, 4, split=None, fields=("image", "video_id"), image_size=32, num_workers=0)


def videos_of(loader: FaceDataLoader) -> set[str]:
    return {video for batch in loader for video in batch["video_id"]}


def test_a_loader_reads_the_finished_dataset_while_a_part_adds_videos(
    later_part: Meanwhile, run: Run, folder: Path
) -> None:
    out, read = folder / "out", list[set[str]]()
    early = loader_of(out)

    def load() -> None:
        read.extend(videos_of(loader) for loader in (early, loader_of(out)))

    later_part(load)
    assert read == [set(VIDEOS)] * 2
    run("2/2")
    read = [videos_of(loader) for loader in (early, loader_of(out))]
    assert read == [set(VIDEOS), {*VIDEOS, "real/g.mp4", "real/h.mp4"}]


def test_columns_are_refused_while_a_part_adds_videos_and_complete_after_it(
    later_part: Meanwhile, run: Run, folder: Path
) -> None:
    out, refusals = folder / "out", list[str]()
    add_columns(out, f"{FILE}:Colour", workers=1)

    def change() -> None:
        for action in (lambda: add_columns(out, f"{FILE}:Colour"), lambda: remove_columns(out, "colour")):
            with pytest.raises(RefusedError) as refused:
                action()
            refusals.append(str(refused.value))

    later_part(change)
    for refusal in refusals:
        assert "unfinished: a later run is at work; 7 of 8 units are done" in refusal
        assert "nothing was written" in refusal
        assert "--part 1/2 (process" in refusal
    assert len(refusals) == 2
    assert [str(each) for each in run("2/2").incomplete_columns] != [], "the new videos have none"
    assert add_columns(out, f"{FILE}:Colour", workers=1).units == 2
    assert verify(out).findings == []


def test_verify_says_whether_a_later_part_is_at_work_or_was_stopped(later_part: Meanwhile, folder: Path) -> None:
    states = list[str]()

    def look() -> None:
        unfinished = verify(folder / "out").unfinished
        assert unfinished is not None
        states.append(unfinished.state)

    later_part(look)
    look()
    assert "a later run is at work" in states[0]
    assert "a later run did not come to its end" in states[1]


def test_a_part_that_is_killed_while_it_plans_blocks_no_other(run: Run, folder: Path) -> None:
    """At every third change of OUT until the plan is there: another part plans in its place."""
    with in_process():
        run(out="whole")
        expected: pa.Table = rows(folder / "whole")
        for number in count(1, 3):
            out = folder / f"out{number}"
            try:
                with killed_at(out, number):
                    run("1/2", out=out.name)
            except Killed:
                pass
            was_planned = (out / "plan/0.json").exists()
            run("2/2", out=out.name)
            run("1/2", out=out.name)
            assert rows(out).equals(expected)
            assert is_finished(out)
            if was_planned:
                break
    assert number > 5


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("it failed")], ids=["interrupted", "failed"])
def test_a_part_that_is_stopped_leaves_no_lease(run: Run, folder: Path, error: BaseException) -> None:
    def stop(job: JobSpec, units: list[Unit]) -> None:
        assert leases(folder / "out") == ["part-1-of-2.lease"]
        raise error

    with in_process(stop), pytest.raises(type(error)):
        run("1/2")
    assert leases(folder / "out") == []


def test_a_part_that_is_stopped_waits_for_nobody(run: Run, folder: Path) -> None:
    """Where another process plans or finishes, the lease stays, as a file that holds nothing up."""
    out = folder / "out"

    def stop(job: JobSpec, units: list[Unit]) -> None:
        with hold_lock(out / "driver.lease", work="facefeed precompute --part 2/2"):
            raise KeyboardInterrupt

    with in_process(stop), pytest.raises(KeyboardInterrupt):
        run("1/2")
    with in_process():
        run()
    assert is_finished(out)
    assert leases(out) == []
