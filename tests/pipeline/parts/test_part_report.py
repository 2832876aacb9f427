"""What the report of a part says: which part it is, what is its own, and what is of OUT as a whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from assets_parts import VIDEOS, Run
from assets_worker_in_process import worker_in_process
from facefeed.pipeline import report
from facefeed.pipeline.errors import TooManyFailedError
from facefeed.pipeline.lock import hold_lock
from facefeed.pipeline.planning.failure_limit import FailureLimit


@pytest.fixture(autouse=True)
def _here() -> object:
    with worker_in_process():
        yield


def text_of(run: Run, folder: Path, capsys: pytest.CaptureFixture[str], part: str | None) -> list[str]:
    report.print_summary(run(part), folder / "src", folder / "out")
    return capsys.readouterr().err.splitlines()


def test_a_part_reports_its_own_figures_apart_from_those_of_the_dataset(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (text_of(run, folder, capsys, part) for part in ("1/3", "2/3"))
    for lines, part, units in ((first, "1/3", 2), (second, "2/3", 4)):
        assert lines[0].startswith(f"part {part}: 2 units of 2 inputs done, 10 faces; 10 frames at ")
        assert lines[0].endswith(" s in all")
        assert lines[1] == f"{folder / 'out'}, of all parts so far:"
        assert any(re.findall(r"\w+", line) == ["all", f"{units * 5}", f"{units}"] for line in lines[2:])
        assert any(line.endswith(f" in {units} units") for line in lines[2:])
        assert not any(" a second" in line or " in all" in line for line in lines[1:])
    last = text_of(run, folder, capsys, "3/3")
    assert last[1] == f"{folder / 'out'}, of all parts:"


def test_what_is_left_is_reported_with_whether_a_part_is_at_work_on_it(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "4 units left to other parts, of which none is at work" in " ".join(text_of(run, folder, capsys, "1/3"))
    with hold_lock(folder / "out/part-3-of-3.lease", work="facefeed precompute --part 3/3"):
        summary = run("2/3")
    assert report.summary_json(summary)["parts_at_work"] == 1
    report.print_summary(summary, folder / "src", folder / "out")
    assert "2 units left to other parts, of which 1 is at work" in capsys.readouterr().err.replace("\n", " ")


def test_a_run_of_the_whole_job_is_reported_as_one(run: Run, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(text_of(run, folder, capsys, None))
    assert "part" not in text.replace("partial", "")
    assert f" in {len(VIDEOS)} units; 30 frames at " in text
    assert report.summary_json(run())["part"] is None


def test_the_advice_after_too_many_failures_is_one_that_works(run: Run, src: Path, folder: Path) -> None:
    sound = (src / VIDEOS[0]).read_bytes()
    for name in VIDEOS[:2]:
        (src / name).write_bytes(b"no video" * 100)
    limit = FailureLimit(count=1)
    assert run("1/2", max_failed=limit).units_left == 3
    with pytest.raises(TooManyFailedError) as ended:
        run("2/2", max_failed=limit)
    assert "the same command with --retry-failed and without --part, once all parts have ended" in str(ended.value)
    for name in VIDEOS[:2]:
        (src / name).write_bytes(sound)
    assert run(max_failed=limit, retry_failed="").manifest.inputs["failed"] == {}


def test_a_part_that_is_refused_for_known_failures_gives_advice_that_works(run: Run, src: Path, folder: Path) -> None:
    for name in VIDEOS[:3]:
        (src / name).write_bytes(b"no video" * 100)
    run("1/2", max_failed=FailureLimit(count=3))
    with pytest.raises(TooManyFailedError) as refused:
        run("2/2", max_failed=FailureLimit(count=0))
    assert "done again with --retry-failed and without --part, once all parts have ended" in str(refused.value)
    assert run(retry_failed="", max_failed=FailureLimit(count=3)).units_left == 0
