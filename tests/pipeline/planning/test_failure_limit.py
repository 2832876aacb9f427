"""Failed inputs are named with their reasons, weighed before the work begins, and never all of them accepted."""

from __future__ import annotations

from pathlib import Path

import pytest
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.errors import TooManyFailedError
from facefeed.pipeline.planning.failure_limit import Failure, FailureLimit, check_failures, refuse_known_failures

MANY = [Failure(f"{number:02}.mp4", "truncated" if number % 2 else "empty", "cut") for number in range(30)]


def manifest_of(total: int, failed: int, rows: int = 5) -> Manifest:
    inputs = {"total": total, "ok": total - failed, "partial": 0, "no_faces": 0, "failed": {}, "missing": 0}
    return Manifest(fingerprint="f", config={}, labels=["real"], splits={}, units=1, rows=rows, bytes=1, inputs=inputs)


def test_each_failure_is_named_with_its_reason_and_programs_get_all_of_them() -> None:
    with pytest.raises(TooManyFailedError) as raised:
        check_failures(manifest_of(40, 30), MANY, FailureLimit(count=1), Path("out"))
    lines = str(raised.value).splitlines()
    assert lines[0].startswith("30 of 40 inputs failed (15 empty, 15 truncated), at most 1 may fail (--max-failed)")
    assert lines[1] == "  00.mp4: empty: cut"
    assert len([line for line in lines if ".mp4" in line]) == 20
    assert "and 10 more" in lines[21]
    assert lines[-1].endswith("--max-failed 30")
    assert raised.value.details["failures"] == [failure._asdict() for failure in MANY]
    assert raised.value.exit_code == 3


@pytest.mark.parametrize("rows", [0, 5])
def test_it_is_never_advised_to_accept_what_leaves_an_empty_dataset(rows: int) -> None:
    with pytest.raises(TooManyFailedError) as raised:
        check_failures(manifest_of(30, 30, rows=rows), MANY, FailureLimit(count=1), Path("out"))
    assert ("with --max-failed" in str(raised.value)) == bool(rows)
    with pytest.raises(TooManyFailedError) as raised:
        refuse_known_failures(MANY, 30, FailureLimit(count=1))
    assert "with --max-failed" not in str(raised.value)


@pytest.mark.parametrize(
    ("reasons", "says", "says_not"),
    [
        (["outside_root"], "outside_root: --allow-root FOLDER", "--retry-failed"),
        (["bridges_splits"], "bridges_splits: a new OUT", "--retry-failed"),
        (["empty", "outside_root"], "; outside_root: --allow-root FOLDER", "bridges_splits"),
        (["empty"], "--retry-failed", "--allow-root"),
    ],
)
def test_inputs_that_would_fail_again_are_not_advised_to_be_retried(
    reasons: list[str], says: str, says_not: str
) -> None:
    failures = [Failure(f"{reason}.mp4", reason, "") for reason in reasons]
    for check in (
        lambda: refuse_known_failures(failures, 9, FailureLimit(count=0)),
        lambda: check_failures(manifest_of(9, len(failures)), failures, FailureLimit(count=0), Path("out")),
    ):
        with pytest.raises(TooManyFailedError) as raised:
            check()
        advice = str(raised.value).splitlines()[-1]
        assert says in advice
        assert says_not not in advice


def test_a_dataset_without_a_row_is_no_success_whatever_is_allowed() -> None:
    with pytest.raises(TooManyFailedError, match="no face in any of 30 inputs"):
        check_failures(manifest_of(30, 0, rows=0), [], FailureLimit(count=30), Path("out"))


def test_what_is_allowed_passes() -> None:
    check_failures(manifest_of(40, 30), MANY, FailureLimit(count=30), Path("out"))
    refuse_known_failures(MANY, 40, FailureLimit(count=30))


def test_a_name_cannot_command_the_terminal() -> None:
    hostile = MANY[0]._replace(video_id="a\x1b[2J\nb.mp4")
    with pytest.raises(TooManyFailedError) as raised:
        refuse_known_failures([hostile], 2, FailureLimit(count=0))
    assert r"  a\x1b[2J\nb.mp4: empty: cut" in str(raised.value).splitlines()
