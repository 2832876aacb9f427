"""What a user notices of a running job: true figures, one JSON object a line in a pipe, names shown as they are."""

from __future__ import annotations

import io
import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from facefeed.pipeline.dataset.manifest import InputOutcome, Receipt
from facefeed.pipeline.execution import progress as progress_module
from facefeed.pipeline.execution.progress import Progress
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.sources import Entry
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

KEYS = {
    "event", "inputs", "inputs_total", "inputs_done_before", "faces", "frames", "frames_per_second", "partial",
    "failed", "eta_seconds", "seconds", "dashboard",
}  # fmt: skip


class Clock:
    """A clock that is advanced by hand."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress_module, "time", clock)
    monkeypatch.setattr(progress_module, "_CHECK_SECONDS", None)  # no line but by what the test does
    return clock


def event(unit: str, frames: int = 10, faces: int = 5) -> tuple[float, dict[str, Any]]:
    return (0.0, {"plugin": "p", "unit": unit, "frames": frames, "faces": faces})


def receipt(unit: str, *inputs: tuple[int, int], failed: str | None = None) -> Receipt:
    outcomes = [
        InputOutcome(
            video_id=f"{unit}/{number}.mp4", size_bytes=1, mtime_ns=1, frames_decoded=frames, faces=faces,
            outcome="failed" if failed else "ok", reason=failed,
        )
        for number, (frames, faces) in enumerate(inputs)
    ]  # fmt: skip
    return Receipt(unit=unit, config_hash="c", outcome="done", rows=sum(faces for _, faces in inputs), inputs=outcomes)


def piped() -> tuple[Progress, io.StringIO]:
    file = io.StringIO()
    return Progress(Console(file=file, highlight=False, soft_wrap=True)), file


def terminal(width: int = 200) -> tuple[Progress, io.StringIO]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, highlight=False, soft_wrap=True, color_system=None)
    return Progress(console), file


def lines(file: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.getvalue().splitlines()]


# --- in a pipe


def test_in_a_pipe_each_line_is_one_json_object(clock: Clock) -> None:
    progress, file = piped()
    progress.expect(inputs=4, done_before=7)
    with progress:
        progress.dashboard = "http://127.0.0.1:8787/status"
        progress.on_event(event("u"))
        assert not file.getvalue(), "lines come every few seconds, not with every input"
        clock.now += 10
        progress.on_event(event("u"))
        clock.now += 10
        progress.on_receipt(receipt("u", (10, 5), (10, 6)))
    first, second, last = lines(file)
    assert {*first} == {*second} == {*last} == KEYS
    assert (first["inputs"], first["faces"], first["frames"], first["eta_seconds"]) == (2, 10, 20, 10)
    assert (second["inputs"], second["faces"], second["seconds"]) == (2, 11, 20)
    assert last == {
        "event": "progress", "inputs": 2, "inputs_total": 4, "inputs_done_before": 7, "faces": 11, "frames": 20,
        "frames_per_second": 1.0, "partial": 0, "failed": {}, "eta_seconds": 20, "seconds": 20.0,
        "dashboard": "http://127.0.0.1:8787/status",
    }  # fmt: skip


class _Lines(io.StringIO):
    """Standard error in a pipe; `written` is set by the first line."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


def test_lines_come_also_while_no_input_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A video may take many minutes."""
    monkeypatch.setattr(progress_module, "_LINE_SECONDS", 0.0)
    monkeypatch.setattr(progress_module, "_CHECK_SECONDS", 0.001)
    file = _Lines()
    with Progress(Console(file=file, highlight=False, soft_wrap=True)) as progress:
        progress.expect(inputs=1, done_before=0)
        assert file.written.wait(60)
    assert lines(file)[-1]["eta_seconds"] is None
    file.written.clear()
    with progress:  # for another run
        assert file.written.wait(60)


def test_reused_rows_count_as_no_work(clock: Clock) -> None:
    progress, file = piped()
    progress.expect(inputs=1, done_before=0)
    done = receipt("u", (10, 5), (10, 6))
    done = replace(done, inputs=[replace(done.inputs[0], reused=True), done.inputs[1]])
    with progress:
        clock.now += 10
        progress.on_receipt(done)
    last = lines(file)[-1]
    assert (last["inputs"], last["inputs_total"], last["frames"], last["faces"]) == (1, 1, 10, 6)


def test_a_long_comparison_of_contents_shows_how_far_it_is(clock: Clock) -> None:
    progress, file = piped()
    with progress.comparing(3, 300) as on_compared:
        on_compared(100)
        assert not file.getvalue()
        clock.now += 10
        on_compared(150)
    assert lines(file) == [
        {"event": "comparing", "inputs": 2, "inputs_total": 3, "bytes": 250, "bytes_total": 300}
    ]  # fmt: skip
    progress, file = terminal()
    with progress.comparing(3, 300) as on_compared:
        on_compared(150)
    assert "comparing contents" in file.getvalue()
    assert "150/300 bytes" in file.getvalue()


def test_a_line_that_is_long_stays_one_line(clock: Clock) -> None:
    progress, file = piped()
    progress.expect(inputs=1, done_before=0)
    with progress:
        progress.dashboard = "http://" + "x" * 500
    assert len(lines(file)) == 1


def test_on_standard_error_and_never_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress.on_stderr()
    progress.expect(inputs=1, done_before=0)
    with progress:
        progress.on_receipt(receipt("u", (3, 2)))
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err)["faces"] == 2


def test_silent_counts_and_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    progress = Progress.silent()
    progress.expect(inputs=1, done_before=0)
    with progress:
        progress.announce("hello")
        progress.on_lost(Unit(unit_id="u", split="train", inputs=()), "", "trying again")
        progress.on_receipt(receipt("v", (3, 2)))
    assert capfd.readouterr() == ("", "")
    assert (progress.totals.inputs, progress.totals.faces, progress.totals.lost_units) == (1, 2, 1)


# --- at a terminal


def test_a_person_at_a_terminal_sees_a_bar_and_no_json(clock: Clock) -> None:
    progress, file = terminal()
    progress.expect(inputs=2, done_before=0)
    with progress:
        progress.announce("8 slots")
        clock.now += 10
        progress.on_receipt(receipt("u", (10, 5)))
        progress.on_lost(
            Unit(unit_id="v" * 32, split="train", inputs=(Entry(video_id="a"),)), "its worker was lost", "again"
        )
        progress.on_receipt(receipt("w", (0, 0), failed="truncated"))
    output = file.getvalue()
    assert "{" not in output
    assert "8 slots" in output
    assert "unit vvvvvvvv with 1 input: its worker was lost; again" in output
    assert "2/2" in output
    assert "5 faces  1.0 frames/s" in output
    assert "failed: 1 truncated" in output


def test_the_bar_begins_where_an_interrupted_run_has_stopped(clock: Clock) -> None:
    progress, file = terminal()
    progress.expect(inputs=2, done_before=40)
    with progress:
        assert "40/42" in file.getvalue()
        progress.on_receipt(receipt("u", (5, 5)))
    assert "41/42" in file.getvalue()


NAMES = ["[red]a[/red].mp4", "[/]", "[bold", ":boom:.mp4", r"\[x]", "<script>", "é"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_shown_as_they_are(name: str) -> None:
    unit = Unit(unit_id="u" * 32, split="train", inputs=(Entry(video_id=name),))
    progress, file = terminal()
    with progress:
        progress.announce(f"look at {name}!")
        progress.on_lost(unit, f"ValueError: {name} is odd", "trying again")
    assert f"look at {name}!" in file.getvalue()
    assert f"ValueError: {name} is odd; trying again" in file.getvalue()
    progress, file = piped()
    with progress:
        progress.on_lost(unit, f"ValueError: {name} is odd", "trying again")
    assert lines(file)[0]["why"] == f"ValueError: {name} is odd"


@pytest.mark.parametrize("reason", ["[/]", "[red]x"])
def test_a_reason_cannot_break_the_bar(reason: str) -> None:
    progress, file = terminal()
    progress.expect(inputs=1, done_before=0)
    with progress:
        progress.on_receipt(receipt("u", (0, 0), failed=reason))
    assert f"failed: 1 {reason}" in file.getvalue()


# --- what is lost


def test_a_lost_unit_is_reported_at_once(clock: Clock) -> None:
    progress, file = piped()
    progress.expect(inputs=2, done_before=0)
    with progress:
        progress.on_event(event("u" * 32))
        unit = Unit(unit_id="u" * 32, split="train", inputs=(Entry(video_id="a"), Entry(video_id="b")))
        progress.on_lost(unit, "its worker was lost\nand a long trace", "splitting it in two")
        (line,) = lines(file)
        assert line == {
            "event": "lost", "unit": "u" * 32, "inputs": 2, "why": "its worker was lost", "then": "splitting it in two",
        }  # fmt: skip
    assert progress.totals.lost_units == 1
    assert lines(file)[-1]["inputs"] == 0, "what it had done is not done any more"


# --- what is counted


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["event", "receipt", "lost"])), max_size=30))
def test_nothing_is_counted_twice_in_whatever_order_events_come(events: list[tuple[str, str]]) -> None:
    file = io.StringIO()
    progress = Progress(Console(file=file, soft_wrap=True))
    progress.expect(inputs=6, done_before=0)
    in_progress, done = dict.fromkeys("abc", 0), set()
    with progress:
        for unit, what in events:
            if what == "event":
                progress.on_event(event(unit, frames=1, faces=1))
                in_progress[unit] += unit not in done
            elif what == "lost":
                progress.on_lost(Unit(unit_id=unit, split="train", inputs=()), "why", "then")
                in_progress[unit] = 0
            elif unit not in done:
                progress.on_receipt(receipt(unit, (7, 3), (0, 0)))
                done.add(unit)
                in_progress[unit] = 0
    last = lines(file)[-1]
    num_in_progress = sum(in_progress.values())
    assert (last["inputs"], last["frames"], last["faces"]) == (
        2 * len(done) + num_in_progress,
        7 * len(done) + num_in_progress,
        3 * len(done) + num_in_progress,
    )
    assert (progress.totals.inputs, progress.totals.faces) == (2 * len(done), 3 * len(done))


def test_failures_are_counted_by_reason() -> None:
    progress, file = piped()
    with progress:
        progress.on_receipt(receipt("u", (0, 0), (4, 0), failed="truncated"))
        progress.on_receipt(receipt("v", (0, 0), failed="empty"))
        progress.on_receipt(receipt("w", (5, 5)))
    assert lines(file)[-1]["failed"] == {"truncated": 2, "empty": 1}


def test_partial_inputs_are_no_failures() -> None:
    progress, file = piped()
    lacking = InputOutcome(
        video_id="a.mp4", size_bytes=1, mtime_ns=1, outcome="partial", reason="decode_error",
        frames_wanted=5, frames_decoded=4, faces=4,
    )  # fmt: skip
    with progress:
        progress.on_receipt(Receipt(unit="u", config_hash="c", outcome="done", rows=4, inputs=[lacking]))
    (last,) = lines(file)[-1:]
    assert (last["inputs"], last["frames"], last["faces"]) == (1, 4, 4)
    assert (last["partial"], last["failed"]) == (1, {})


def test_the_pace_is_that_of_the_whole_run(clock: Clock) -> None:
    progress, _ = piped()
    progress.expect(inputs=2, done_before=0)
    with progress:
        progress.on_receipt(receipt("u", (30, 5)))
        clock.now += 20
    assert progress.totals.seconds == 20
    assert progress.totals.frames_per_second == 1.5
    assert Progress.silent().totals.frames_per_second == 0
