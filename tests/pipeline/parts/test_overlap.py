"""What a user notices of parts with overlapping shares at work at once: little is done twice, and it is counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from assets_parts import VIDEOS, Run, is_finished, leases, receipts, rows
from assets_worker_in_process import worker_in_process
from facefeed.pipeline import report
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.precompute import Summary


class Once:
    """Runs part 1/1, which does all units, at the first call; `summary`: its result."""

    def __init__(self, run: Run) -> None:
        self._run, self._is_called = run, False
        self.summary: Summary | None = None

    def __call__(self, *_: object) -> None:
        if not self._is_called:
            self._is_called = True
            self.summary = self._run("1/1")


class WhileDetecting(FixedBoxDetector):
    """Calls `on_frames` before it searches for faces."""

    def __init__(self, on_frames: Callable[[], object]) -> None:
        super().__init__()
        self._on_frames = on_frames

    def detect(self, *args: Any, **given: Any) -> Any:
        self._on_frames()
        return super().detect(*args, **given)


@pytest.fixture
def overlapping(run: Run) -> tuple[Summary, Summary]:
    """Part 1/2, and the part that does all units while it processes its first."""
    other = Once(run)
    with worker_in_process():
        first = run("1/2", detector=WhileDetecting(other))
    assert other.summary is not None
    return first, other.summary


def test_units_that_another_process_publishes_meanwhile_are_skipped_and_counted(
    overlapping: tuple[Summary, Summary], folder: Path
) -> None:
    first, other = (summary.totals for summary in overlapping)
    assert (other.units, other.units_done_elsewhere, other.units_in_vain) == (len(VIDEOS), 0, 0)
    assert (first.units, first.units_done_elsewhere, first.units_in_vain) == (0, 2, 1)
    assert (first.inputs, first.frames, first.faces, first.size_bytes) == (0, 0, 0, 0)
    assert is_finished(folder / "out")
    assert leases(folder / "out") == []


def test_a_unit_that_another_process_publishes_right_before_its_turn_is_adopted_and_counted(run: Run) -> None:
    other = Once(run)
    with worker_in_process(other):
        totals = run("1/2").totals
    assert (totals.units, totals.units_done_elsewhere, totals.units_in_vain, totals.inputs) == (0, 3, 0, 0)


def test_the_rows_of_overlapping_parts_are_those_of_one_run(
    overlapping: tuple[Summary, Summary], folder: Path, run: Run
) -> None:
    done = receipts(folder / "out")
    with worker_in_process():
        assert run("2/2").totals.units == 0
        run(out="whole")
    assert receipts(folder / "out") == done
    assert rows(folder / "out").equals(rows(folder / "whole"))


def test_the_report_names_what_another_process_did_of_the_share(
    overlapping: tuple[Summary, Summary], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = overlapping
    figures = json.loads(json.dumps(report.summary_json(first)))
    assert figures["part"] == "1/2"
    units = {"units": 0, "units_done_elsewhere": 2, "units_in_vain": 1}
    assert figures["this_run"] == {**units, "inputs": 0, "frames": 0, "faces": 0, "lost_units": 0}
    report.print_summary(first, folder / "src", folder / "out")
    text = capsys.readouterr().err
    assert "2 units skipped, which another process had finished by then" in text
    assert "1 unit discarded, which another process published first" in text
    report.print_summary(other, folder / "src", folder / "out")
    text = capsys.readouterr().err
    assert "skipped" not in text
    assert "discarded" not in text
