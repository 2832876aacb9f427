"""A dry run ends as the run would: with its exit code, what failed, and the way out."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from facefeed.pipeline.cli import main
from facefeed.pipeline.dryrun.run import DryRunResult
from facefeed.pipeline.dryrun.survey import Survey
from facefeed.pipeline.dryrun.verdict import exit_code, expected_failure, failure_remedy
from facefeed.pipeline.planning.failure_limit import Failure

MakeSource = Callable[..., Path]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def dry(
    inputs: int, *, refused: int = 0, bridging: int = 0, done: int = 0, lost: int = 0, tried: int = 0, failed: int = 0,
    crashed: int = 0, leak: str | None = None, faceless: bool = False,
) -> DryRunResult:  # fmt: skip
    """Of `inputs`, `refused` and `bridging` fail before they are read and `done` are done, of which `lost` failed; of
    the others `tried` were tried, of which `failed` failed and `crashed` were lost with their workers. Each input that
    does not fail has a face, unless they are `faceless`.
    """
    survey = Survey(
        layout="folder", recognised_by="",
        inputs=inputs, clips=0, images=0, new=inputs - refused - bridging - done, size_bytes=0, hours=0, headers_read=0,
        classes=[], by_split={}, split_given=0, groups=inputs, largest_group=1, dropped_identities=[], leak=leak,
        refused=Counter(unreadable=refused, bridges_splits=bridging), missing=0, missing_files=[], ignored=Counter(),
        fakes=0, without_original=0, own_masks=0, whole_frames=0, caveats=[],
    )  # fmt: skip
    reasons = ["truncated"] * failed + ["crashed"] * crashed
    failures = [Failure(f"{number}.mp4", reason, "") for number, reason in enumerate(reasons)]
    return DryRunResult(
        survey=survey, inputs_in_out=inputs, pending=inputs - refused - bridging - done, copied=0,
        forecast=None, known_failures=refused + bridging + lost, tried=tried, failures=failures, partial=0,
        any_face=not faceless and (done > lost or tried > len(failures)), seconds=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(("unreadable", "code"), [(0, 0), (1, 0), (2, 3), (4, 3)])
def test_what_fails_before_it_is_read_is_weighed_against_what_may_fail(unreadable: int, code: int) -> None:
    result = dry(4, refused=unreadable, tried=4 - unreadable)
    assert exit_code(result, 1) == code
    assert exit_code(result, 4) == (3 if unreadable == 4 else 0), "an empty dataset is never what was asked for"


def test_a_small_delivery_that_fails_is_weighed_against_all_inputs_of_out() -> None:
    delivery = replace(dry(3, refused=3), inputs_in_out=1003, any_face=True)
    assert (exit_code(delivery, 11), expected_failure(delivery, 11)) == (0, "")
    assert expected_failure(delivery, 2).startswith("3 of 1,003 inputs have failed, or fail before they are read; at")
    assert "or accept about as many with --max-failed 3;" in failure_remedy(delivery, 2)


def test_inputs_outside_the_allowed_roots_are_not_advised_to_be_fixed() -> None:
    result = dry(4, refused=2, tried=2)
    assert failure_remedy(result, 1).startswith("fix them, or leave them out of SRC, or accept")
    outside = replace(result, survey=replace(result.survey, refused=Counter(outside_root=2)))
    assert failure_remedy(outside, 1).startswith("outside_root: --allow-root FOLDER, or leave them out of SRC, or ")


@pytest.mark.parametrize(
    ("result", "allowed", "reason"),
    [
        (dry(30, tried=30, failed=1), 1, ""),
        (dry(30, tried=30, failed=2), 1, "2 of the 30 inputs that were tried failed; at most 1 may fail"),
        (
            dry(30, refused=1, tried=29, failed=1),
            1,
            "1 of the 29 inputs that were tried failed, and 1 have failed, or",
        ),
        (dry(20_000, tried=40, failed=1), 200, ""),  # 1 % of 40, rounded up
        (dry(20_000, tried=40, failed=2), 200, "at this share about 1,000 of 20,000 would, and at most 200 may fail"),
        (dry(20_000, tried=40, failed=40), 10_000, "all of the 40 inputs that were tried failed"),
        (dry(20_000, tried=40, failed=1), 0, "none may fail"),
        (dry(2, tried=2, failed=2), 2, "all of the 2 inputs that were tried failed"),  # no dataset at all
        (dry(1000, done=999, tried=1, failed=1), 10, ""),  # one of a thousand
        (dry(30, done=30, lost=5), 0, "5 of 30 inputs have failed, or fail before they are read; none may fail"),
        (dry(30, done=30, lost=5), 5, ""),
        (dry(30, done=20, lost=1, tried=10, failed=1), 1, "1 of the 10 inputs that were tried failed, and 1 have"),
        (dry(30, tried=12, crashed=6), 0, ""),  # of which the run would lose one, or none
        (dry(30, tried=6, crashed=6), 2, "all of the 6 inputs that were tried failed"),
    ],
)
def test_what_failed_while_it_was_tried_is_weighed_against_what_may_fail(
    result: DryRunResult, allowed: int, reason: str
) -> None:
    failure = expected_failure(result, allowed)
    assert reason in failure
    assert bool(failure) == bool(reason)
    assert exit_code(result, allowed) == (3 if reason else 0)


def test_the_way_out_names_an_allowance_that_would_do_unless_all_fail() -> None:
    result = dry(20_000, tried=40, failed=2)
    assert "--max-failed 1000" in failure_remedy(result, 200)
    assert exit_code(result, 1000) == 0
    assert "--max-failed" not in failure_remedy(dry(4, tried=4, failed=4), 1)
    assert "--max-failed" not in failure_remedy(dry(4, tried=4, failed=2, faceless=True), 1), (
        "without them there is nothing"
    )


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (dry(30, tried=12, faceless=True), "no face in any of the 12 inputs that were tried"),
        (dry(30, tried=12, failed=1, faceless=True), "no face in any of the 12 inputs that were tried"),
        (dry(30, done=20, tried=10, faceless=True), "no face in any of the 10 inputs that were tried"),
        (dry(30, done=30, faceless=True), "no face in any of 30 inputs"),
        (dry(30, tried=12), ""),
        (dry(30, done=30), ""),
        (dry(30, done=20, tried=10, failed=5), ""),
    ],
)
def test_where_no_face_is_found_the_run_is_expected_to_fail(result: DryRunResult, reason: str) -> None:
    assert expected_failure(result, 10) == reason
    assert exit_code(result, 10) == (3 if reason else 0)
    assert not reason or "--min-face" in failure_remedy(result, 10)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (dry(4, refused=2, tried=2, leak="anna"), 3),
        (dry(4, refused=1, tried=3, leak="anna"), 1),
        (dry(4, refused=1, bridging=1, tried=2, leak="anna"), 1),  # that two splits are bridged is found after leaks
        (dry(4, tried=4, failed=4, leak="anna"), 1),  # nothing is tried
        (dry(4, tried=4, faceless=True, leak="anna"), 1),
    ],
)
def test_of_a_leak_and_too_many_failures_the_one_that_the_run_meets_first_decides(
    result: DryRunResult, code: int
) -> None:
    assert exit_code(result, 1) == code
    assert bool(expected_failure(result, 1)) == (code == 3)


@pytest.mark.parametrize("options", [[], ["--max-failed", "100%"]])
def test_where_every_input_fails_the_dry_run_ends_as_the_run_does(
    tmp_path: Path, cluster_address: str, options: list[str]
) -> None:
    src = tmp_path / "src" / "real"
    src.mkdir(parents=True)
    (src / "empty.mp4").write_bytes(b"")
    for name in ("a.mp4", "b.mp4"):
        (src / name).write_bytes(b"not a video" * 100)
    command = ["precompute", str(src.parent), str(tmp_path / "out"), "--scheduler", cluster_address, "--json", *options]
    dry_result, full_result = (CliRunner().invoke(main, [*command, *more]) for more in (["--dry-run"], []))
    assert (dry_result.exit_code, full_result.exit_code) == (3, 3)
    messages = re.sub(r"\s+", " ", dry_result.stderr)
    assert "failed 3 of the 3 that were tried: 2 not_video, 1 empty" in messages
    assert "real/a.mp4: not_video" in messages
    assert "would end with exit 3: all of the 3 inputs that were tried failed" in messages
    assert "leave them out of SRC" in messages
    assert "next:" not in messages
    figures = json.loads(dry_result.stdout.splitlines()[-1])
    assert (figures["exit"], figures["tried"], figures["failed_of_tried"]) == (3, 3, {"empty": 1, "not_video": 2})


def test_one_failure_too_many_ends_the_dry_run_as_it_ends_the_run(
    tmp_path: Path, make_source: MakeSource, cluster_address: str
) -> None:
    src = make_source("real/a.mp4", "real/b.mp4")
    for name in ("c.mp4", "d.mp4"):
        (src / "real" / name).write_bytes(b"not a video" * 100)
    command = ["precompute", str(src), str(tmp_path / "out"), "--scheduler", cluster_address]
    dry_result, full_result = (CliRunner().invoke(main, [*command, *more]) for more in (["--dry-run"], []))
    assert (dry_result.exit_code, full_result.exit_code) == (3, 3)
    messages = re.sub(r"\s+", " ", dry_result.stderr)
    assert "2 of the 4 inputs that were tried failed; at most 1 may fail (--max-failed)" in messages
    for result in (dry_result, full_result):
        assert "--max-failed 2" not in result.stderr, "the other two have no face"


def test_where_no_face_is_found_the_dry_run_ends_as_the_run_does(
    tmp_path: Path, make_source: MakeSource, cluster_address: str
) -> None:
    src = make_source("real/a.mp4", "real/b.mp4")
    command = ["precompute", str(src), str(tmp_path / "out"), "--scheduler", cluster_address, "--json"]
    # Again when all is done, since the run then ends so again.
    dry_result, full_result, second_dry_result = (
        CliRunner().invoke(main, [*command, *more]) for more in (["--dry-run"], [], ["--dry-run"])
    )
    assert (dry_result.exit_code, full_result.exit_code, second_dry_result.exit_code) == (3, 3, 3)
    assert json.loads(dry_result.stdout.splitlines()[-1])["exit"] == 3
    for result, which in (
        (dry_result, "the 2 inputs that were tried"),
        (full_result, "2 inputs"),
        (second_dry_result, "2 inputs"),
    ):
        messages = re.sub(r"\s+", " ", result.stderr)
        assert f"no face in any of {which}" in messages
        assert "need a lower --min-face or --min-score" in messages
        assert "next:" not in messages


def test_a_leak_beside_too_many_refused_inputs_ends_the_dry_run_as_it_ends_the_run(
    tmp_path: Path, make_source: MakeSource, cluster_address: str
) -> None:
    src = make_source("a.mp4", "b.mp4")
    outside = make_source("c.mp4", root=tmp_path / "elsewhere") / "c.mp4"
    (src / "c.mp4").symlink_to(outside)
    (src / "d.mp4").symlink_to(outside)
    table = src / "videos.csv"
    rows = ["a.mp4,real,train,anna", "b.mp4,real,test,anna", "c.mp4,real,train,", "d.mp4,real,test,"]
    table.write_text("\n".join(["path,label,split,identity", *rows]) + "\n")
    command = ["precompute", str(table), str(tmp_path / "out"), "--scheduler", cluster_address]
    dry_result, full_result = (CliRunner().invoke(main, [*command, *more]) for more in (["--dry-run"], []))
    assert (dry_result.exit_code, full_result.exit_code) == (3, 3)
    messages = re.sub(r"\s+", " ", dry_result.stderr)
    assert "would be refused: " in messages
    assert "would end with exit 3: 2 of 4 inputs have failed, or fail before they are read" in messages
