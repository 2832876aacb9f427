"""What a user notices of `--part I/N`: runs that share a job without a scheduler, and end in the dataset of one run."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from assets_in_process import in_process
from assets_killed import Killed, joined_at, killed_at
from assets_parts import VIDEOS, MakeSource, Run, is_finished, leases, receipts, rows
from click.testing import CliRunner
from facefeed.pipeline import precompute as precompute_module
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.errors import RefusedError, StoppedError, UsageError
from facefeed.pipeline.execution.progress import Progress
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.lock import hold_lock
from facefeed.pipeline.planning.job_share import JobShare
from facefeed.pipeline.planning.options import Options


@pytest.fixture(autouse=True)
def _here() -> Iterator[None]:
    with in_process():
        yield


@pytest.mark.parametrize("number", [1, 2, 4, 9])
def test_parts_one_after_the_other_make_the_dataset_of_one_run(
    run: Run, folder: Path, whole: pa.Table, number: int
) -> None:
    out, left, done = folder / "out", [], dict[str, int]()
    for part in range(1, number + 1):
        summary = run(f"{part}/{number}")
        left.append(summary.units_left)
        assert done.items() <= receipts(out).items(), "nothing is done twice"
        assert is_finished(out) == (summary.units_left == 0)
        assert summary.manifest.units == len(VIDEOS) - summary.units_left
        done = receipts(out)
    shares = [len(range(part, len(VIDEOS), number)) for part in range(number)]
    assert left == [len(VIDEOS) - sum(shares[: part + 1]) for part in range(number)]
    assert rows(out).equals(whole)
    assert leases(out) == []


def test_parts_end_in_any_order(run: Run, folder: Path, whole: pa.Table) -> None:
    assert [run(f"{part}/3").units_left for part in (3, 1, 2)] == [4, 2, 0]
    assert rows(folder / "out").equals(whole)


def test_shares_of_other_counts_overlap_and_every_unit_is_done_once(run: Run, folder: Path, whole: pa.Table) -> None:
    run("1/2")
    done = receipts(folder / "out")
    assert run("2/3").units_left == 2
    assert run("2/2").units_left == 0
    assert done.items() <= receipts(folder / "out").items()
    assert rows(folder / "out").equals(whole)


def test_a_run_of_the_whole_job_does_what_parts_have_left(run: Run, folder: Path, whole: pa.Table) -> None:
    run("1/3")
    done = receipts(folder / "out")
    run()
    assert done.items() <= receipts(folder / "out").items()
    assert is_finished(folder / "out")
    assert rows(folder / "out").equals(whole)


def test_a_part_that_is_run_again_has_nothing_to_do(run: Run, folder: Path) -> None:
    run("1/2")
    before = receipts(folder / "out")
    assert run("1/2").totals.inputs == 0
    assert receipts(folder / "out") == before


def test_other_parts_run_from_first_to_last_while_one_is_at_work(run: Run, folder: Path, whole: pa.Table) -> None:
    """They start when it is about to publish its first unit, and clean up nothing that it needs."""
    out, others = folder / "out", list[int]()

    def at_first_change() -> None:
        others.extend(run(part).units_left for part in ("2/3", "3/3"))

    def is_attempt() -> int:
        """Number of the change at which the first unit is linked to its name, in an undisturbed run."""
        return next(number for number in count(1) if _files_at_change(run, folder, number))

    number = is_attempt()
    with joined_at(out, number, at_first_change):
        summary = run("1/3")
    assert others == [4, 2]
    assert summary.units_left == 0
    assert rows(out).equals(whole)
    assert is_finished(out)
    assert leases(out) == []


def _files_at_change(run: Run, folder: Path, number: int) -> bool:
    """Whether an attempt at a unit waits to be published at change `number` of the first part."""
    found = list[bool]()
    scratch = folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    with joined_at(scratch, number, lambda: found.append(any(scratch.glob("_tmp/*.inprogress")))):
        run("1/3", out="scratch")
    return found == [True]


def test_the_same_part_is_refused_while_it_is_at_work(run: Run, folder: Path) -> None:
    run("1/2")
    with (
        hold_lock(folder / "out/part-2-of-2.lease", work="facefeed precompute --part 2/2"),
        pytest.raises(RefusedError, match=f"--part 2/2 is working on it .*{socket.gethostname()}"),
    ):
        run("2/2")
    assert run("2/2").units_left == 0


def test_the_whole_job_is_refused_while_a_part_is_at_work(run: Run, folder: Path) -> None:
    run("1/2")
    before = receipts(folder / "out")
    with (
        hold_lock(folder / "out/part-2-of-2.lease", work="facefeed precompute --part 2/2"),
        pytest.raises(RefusedError, match="--part 2/2 is working on it"),
    ):
        run()
    assert receipts(folder / "out") == before


def test_a_part_waits_for_the_driver_that_plans_or_finishes(run: Run, folder: Path, whole: pa.Table) -> None:
    """And says for whom: the driver here ends as soon as it is waited for."""
    run("1/2")
    waited = list[str]()
    ended = threading.Event()
    held = threading.Event()

    def driver() -> None:
        with hold_lock(folder / "out/driver.lease", work="facefeed precompute --part 7/9"):
            held.set()
            ended.wait(60)

    class Waiting(Progress):
        def on_wait(self, reason: str) -> None:
            waited.append(reason)
            ended.set()

    thread = threading.Thread(target=driver)
    thread.start()
    held.wait(60)
    assert run("2/2", progress=Waiting.silent()).units_left == 0
    thread.join()
    (reason,) = waited
    assert "waiting" in reason
    assert "--part 7/9" in reason
    assert rows(folder / "out").equals(whole)


def test_rows_of_two_settings_are_not_mixed_where_another_run_plans_right_before(
    run: Run, folder: Path, small_options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_job = precompute_module.prepare_job

    def let_another_run(*given: Any, **more: Any) -> Any:
        prepared = prepare_job(*given, **more)
        monkeypatch.setattr(precompute_module, "prepare_job", prepare_job)
        run("1/2")
        return prepared

    monkeypatch.setattr(precompute_module, "prepare_job", let_another_run)
    with pytest.raises(RefusedError, match=r"was made with other settings \(margin"):
        run("2/2", options=replace(small_options, margin=0.7))
    assert len([*(folder / "out/plan").iterdir()]) == 1


def test_new_videos_wait_until_the_parts_at_work_have_ended(run: Run, folder: Path, make_source: MakeSource) -> None:
    run("1/2")
    make_source("real/new.mp4", root=folder / "src")
    plan = sorted(path.name for path in (folder / "out/plan").iterdir())
    with (
        hold_lock(folder / "out/part-1-of-2.lease", work="facefeed precompute --part 1/2"),
        pytest.raises(RefusedError, match=r"inputs are new or have changed.*part-1-of-2\.lease"),
    ):
        run("2/2")
    assert sorted(path.name for path in (folder / "out/plan").iterdir()) == plan
    assert run("2/2").units_left == 1, "the new one is in the first share"
    assert run("1/2").units_left == 0
    assert "real/new.mp4" in rows(folder / "out")["video_id"].to_pylist()


def test_a_part_that_is_killed_anywhere_is_run_again(run: Run, folder: Path, whole: pa.Table) -> None:
    """At every seventh change of OUT in turn: the rest of the parts go on, and this one, run again, ends the job."""
    out, finished = folder / "out", False
    numbers = count(1, 7)
    while not finished:
        shutil.rmtree(out, ignore_errors=True)
        finished = True
        try:
            with killed_at(out, next(numbers)):
                run("1/2")
        except Killed:
            finished = False
        with suppress(StoppedError):
            run("2/2")
        run("1/2")
        assert is_finished(out)
        assert rows(out).equals(whole)
        assert leases(out) == []
    assert next(numbers) > 30, "it was killed often"


def test_what_a_killed_part_left_goes_once_no_part_is_at_work(run: Run, folder: Path) -> None:
    run("1/3")
    left = folder / "out/_tmp/unit.0123.inprogress"
    left.write_bytes(b"cut short")
    with hold_lock(folder / "out/part-1-of-3.lease", work="facefeed precompute --part 1/3"):
        run("2/3")
        assert left.exists(), "it may be the other part's"
    run("3/3")
    assert not left.exists()


def test_a_dead_part_of_another_host_holds_a_whole_run_up_for_a_minute_at_most(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("facefeed.pipeline.lock.STALE_SECONDS", 0.2)
    run("1/2")
    record = {"host": "node7", "pid": 4711, "since": "2026-01-01T00:00:00+00:00", "work": "facefeed precompute"}
    (folder / "out/part-2-of-2.lease").write_text(json.dumps(record))
    run()
    assert is_finished(folder / "out")
    assert leases(folder / "out") == []


@pytest.mark.parametrize("text", ["0/8", "9/8", "1/0", "3", "3/8/1", "a/b", "-1/8", "1.0/8", "", "1/1000000"])
def test_what_is_no_part_is_refused(run: Run, folder: Path, text: str) -> None:
    with pytest.raises(UsageError, match="the I-th of N parts"):
        run(text)
    assert not (folder / "out").exists()


@pytest.mark.parametrize("given", [(1, 2), 1, 0.5], ids=str)
def test_a_part_of_another_type_is_refused(run: Run, given: Any) -> None:
    with pytest.raises(UsageError, match="the I-th of N parts"):
        run(given)


def test_failures_are_not_retried_by_parts(run: Run) -> None:
    with pytest.raises(UsageError, match="retry_failed"):
        run("1/2", retry_failed="")


def test_the_parts_take_every_unit_once() -> None:
    for number in (1, 2, 3, 7):
        parts = [JobShare(part, number) for part in range(1, number + 1)]
        assert [[part.takes(position) for part in parts].count(True) for position in range(20)] == [1] * 20


def test_the_command_says_what_is_left_and_to_whom(src: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("facefeed.pipeline.planning.validation.make_detector", lambda _name, _keep: FixedBoxDetector())
    command = ["precompute", str(src), str(folder / "out"), "--every", "5", "--min-face", "16", "--json"]
    first = CliRunner().invoke(main, [*command, "--part", "1/2"])
    assert first.exit_code == 0, first.stderr
    assert json.loads(first.stdout)["units_left"] == 3
    assert "3 units left to other parts" in first.stderr
    assert "next:" not in first.stderr, "there is no dataset yet"
    second = CliRunner().invoke(main, [*command, "--part", "2/2"])
    assert json.loads(second.stdout)["units_left"] == 0
    assert "next: facefeed verify" in second.stderr
    dry = CliRunner().invoke(main, [*command, "--part", "1/2", "--dry-run"])
    assert dry.exit_code == 2
    assert "leave --part out" in dry.stderr


@pytest.mark.chaos
def test_parts_that_start_at_the_same_moment_make_one_plan(folder: Path, make_source: MakeSource) -> None:
    """Four processes, as an array of jobs starts them, on clusters of their own."""
    src = make_source(*VIDEOS, *(f"fake/{name}.mp4" for name in "abcdef"), root=folder / "src")
    script = (
        "import sys\n"
        "from facefeed.pipeline.cli import main\n"
        "from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector\n"
        "from facefeed.pipeline.planning import plan, validation\n"
        "plan._TARGET_UNIT_SECONDS = 0.0\n"
        "validation.make_detector = lambda name, keep: FixedBoxDetector()\n"
        "if __name__ == '__main__':\n"
        "    main(sys.argv[1:])\n"
    )
    (folder / "part.py").write_text(script)
    command = [sys.executable, str(folder / "part.py"), "precompute", str(src), str(folder / "out"), "--every", "5"]
    options = ["--min-face", "16", "--size", "64", "--workers", "1"]
    parts = [
        subprocess.Popen([*command, *options, "--part", f"{part}/4"], stderr=subprocess.PIPE, text=True)
        for part in range(1, 5)
    ]
    errors = [part.communicate(timeout=300)[1] for part in parts]
    assert [part.returncode for part in parts] == [0] * 4, errors
    assert [path.name for path in (folder / "out/plan").iterdir()] == ["0.json"]
    assert len(receipts(folder / "out")) == 12
    assert is_finished(folder / "out")
    assert Manifest.read(folder / "out").rows == 12 * 5
    assert leases(folder / "out") == []
