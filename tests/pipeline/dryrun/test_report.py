"""The dry run's table of inputs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from facefeed.pipeline.dryrun.report import print_dry_run
from facefeed.pipeline.dryrun.run import DryRunResult
from facefeed.pipeline.dryrun.survey import Survey

SURVEY = Survey(
    layout="folder", recognised_by="", inputs=6, clips=0, images=0, new=6, size_bytes=0, hours=0, headers_read=0,
    classes=["real", "fake", "unknown"], by_split={}, split_given=0, groups=6, largest_group=1, dropped_identities=[],
    leak=None, refused=Counter(), missing=0, missing_files=[], ignored=Counter(), fakes=0, without_original=0,
    own_masks=0, whole_frames=0, caveats=[],
)  # fmt: skip


def report_of(survey: Survey, capsys: pytest.CaptureFixture[str], pending: int = 0) -> str:
    result = DryRunResult(
        survey=survey, inputs_in_out=6, pending=pending, copied=0, forecast=None, known_failures=0, tried=0,
        failures=[], partial=0, any_face=True, seconds=0.0,
    )  # fmt: skip
    print_dry_run(result, Path("src"), allowed=0)
    return capsys.readouterr().err


def table_of(survey: Survey, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The table's header and rows, as the words between its lines."""
    lines = report_of(survey, capsys).splitlines()
    return [line.replace("┃", "│").strip("│ ").split() for line in lines if line[:1] in {"┃", "│"}]


def test_classes_stand_in_the_labels_order_whichever_is_the_larger(capsys: pytest.CaptureFixture[str]) -> None:
    by_split = {"train": Counter(unknown=3, fake=2, real=1)}
    header, train, *_ = table_of(replace(SURVEY, by_split=by_split), capsys)
    assert " ".join(header) == "split │ real │ fake │ unknown │ all"
    assert " ".join(train) == "train │ 1 │ 2 │ 3 │ 6"


def test_what_a_stopped_run_has_left_is_to_do_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert "6 inputs, 0 bytes; 2 of them to do" in report_of(replace(SURVEY, new=0), capsys, pending=2)


def test_of_many_classes_the_largest_have_a_column_and_the_rest_are_added_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    classes = [f"c{number}" for number in range(9)]
    by_split = {"test": Counter({name: number + 1 for number, name in enumerate(classes)})}
    header, *_, test = table_of(replace(SURVEY, classes=classes, by_split=by_split), capsys)
    assert " ".join(header) == "split │ c3 │ c4 │ c5 │ c6 │ c7 │ c8 │ others │ all"
    assert " ".join(test) == "test │ 4 │ 5 │ 6 │ 7 │ 8 │ 9 │ 6 │ 45"


@pytest.mark.parametrize(
    ("given", "line"),
    [(0, "no split is given: all are drawn"), (6, "the splits of all inputs are given"),
     (2, "the splits of 2 of 6 inputs are given, the others are drawn")],
)  # fmt: skip
def test_it_is_said_whether_splits_are_given_or_drawn(
    capsys: pytest.CaptureFixture[str], given: int, line: str
) -> None:
    assert line in report_of(replace(SURVEY, split_given=given), capsys).splitlines()
