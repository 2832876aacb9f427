"""What a user of `facefeed ladder` notices: it measures, says what and why not, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_ladder import FakeRungRunner
from assets_paths import SUPPORT
from click.testing import CliRunner
from facefeed.pipeline.console import stderr_console
from facefeed.pipeline.errors import UsageError
from facefeed.train.ladder.cli import ladder
from facefeed.train.ladder.formatting import place_of
from facefeed.train.ladder.messages import Grid, Reference, Subject
from facefeed.train.ladder.progress import Progress
from facefeed.train.ladder.results import Measurement
from facefeed.train.ladder.rungs import BEST, NAIVE, PRECOMPUTED, Rung
from facefeed.train.ladder.runner import measure_ladder

MODULE = SUPPORT / "train" / "assets_ladder_modules.py"
SUBJECT = Subject(out="out", videos="videos", module=None)


@pytest.mark.processes
def test_a_ladder_of_real_processes_is_measured_and_ends_with_one_json_object(tmp_path: Path) -> None:
    page = tmp_path / "ladder.html"
    args = ["--module", f"{MODULE}:OwnDataModule", "--levers", "fp16,bf16", "--repeats", "1", "--steps", "2"]
    code = "from facefeed.train.ladder.cli import ladder; ladder()"
    completed = subprocess.run(
        [sys.executable, "-c", code, *args, "--page", str(page), "--json"], capture_output=True, text=True, check=False
    )
    report = json.loads(completed.stdout)  # what the module prints does not come here
    rungs = {rung["name"]: rung for rung in report["rungs"]}
    refused = dict.fromkeys([NAIVE, PRECOMPUTED, "fp16,bf16", BEST], "refused")
    assert {name: rung["outcome"] for name, rung in rungs.items()} == {**refused, "as it is": "ran"}
    assert rungs["as it is"]["measured"][0]["steps"] == 2
    assert "of one kind (precision)" in rungs["fp16,bf16"]["reason"]
    assert (completed.returncode, report["exit"]) == (0, 0)
    assert "of one kind (precision)" in page.read_text()
    assert str(page) in completed.stderr
    (event,) = (json.loads(line) for line in completed.stderr.split("\n") if line.startswith("{"))
    assert (event["rung"], event["done"], event["of"]) == ("as it is", 1, 1)


@pytest.mark.processes
@pytest.mark.skipif(torch.cuda.is_available(), reason="two ranks without a GPU")
def test_two_processes_and_groups_of_batches_see_the_samples_of_one_process(tmp_path: Path) -> None:
    args = ["--module", f"{MODULE}:OwnDataModule", "--levers", "ddp:2", "--levers", "accumulate:3", "--repeats", "1"]
    code = "from facefeed.train.ladder.cli import ladder; ladder()"
    command = [sys.executable, "-c", code, *args, "--steps", "2", "--page", str(tmp_path / "page.html"), "--json"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    rungs = {rung["name"]: rung for rung in report["rungs"] if rung["measured"]}
    assert {rung["trained_samples"] for rung in rungs.values()} == {144}
    assert {rung["measured"][0]["samples"] for rung in rungs.values()} == {48}
    assert {name: rung["updates"] for name, rung in rungs.items()} == {"as it is": 18, "ddp:2": 9, "accumulate:3": 6}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give OUT, or --module PATH:CLASS"),
        (["out", "--steps", "0"], "must be a number of at least 1, or 'epoch'"),
        (["out", "--steps", "all"], "must be a number of at least 1, or 'epoch'"),
        (["out", "--repeats", "0"], "--repeats"),
        (["out", "--videos", "nowhere"], "nowhere"),
        (["out", "--page", "nowhere/page.html"], "--page nowhere/page.html: cannot be written there"),
        (["out", "--recipe", "slow"], "slow"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(ladder, arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_settings_that_no_rung_depends_on_are_said_to_be_those_of_the_next_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("facefeed.train.ladder.runner.run_process", _refuse)
    changes = ["steps=5", "seed=1", "save_every_minutes=2"]
    result = CliRunner().invoke(ladder, ["out", *(part for change in changes for part in ("--set", change))])
    assert isinstance(result.exception, UsageError)
    stated = " ".join(result.stderr.split())
    assert "steps=5, save_every_minutes=2: for the next command alone; rungs train as long as --steps says" in stated


def test_an_address_is_measured_as_it_is_and_shown_without_its_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from facefeed.train.ladder.runner import SubprocessRunner  # noqa: PLC0415

    seen: list[Subject] = []

    def refuse(runner: SubprocessRunner, *_: Any, **__: Any) -> None:
        seen.append(runner.subject)
        raise UsageError("no process is started")

    monkeypatch.setattr("facefeed.train.ladder.runner.measure_ladder", refuse)
    address = "s3://key:secret@bucket/faces"
    CliRunner().invoke(ladder, [address, "--page", str(tmp_path / "ladder.html")])
    assert [subject.out for subject in seen] == [address]
    assert "secret" not in str(place_of(seen[0]))


def _refuse(*_: Any, **__: Any) -> None:
    raise UsageError("no process is started")


# ---- between the command and its processes


@dataclass
class NoProcesses(FakeRungRunner):
    """Answers as `SubprocessRunner` does, without any; Ctrl-C comes when it is asked for the repeat `interrupted`."""

    subject: Subject = SUBJECT
    steps: int | None = 20
    found: dict[str, Any] = field(default_factory=dict)
    interrupted: int = 1000
    grids: list[Grid] = field(default_factory=list)

    def probe(self, levers: Any) -> dict[str, Any]:
        known = {
            "recipe": "quick", "recipe_levers": "", "own_data": False, "parameters": 7, "machine": {"cores": 2},
            "refusals": {text: [] for text in ("", *levers, "bf16,compile")},
            "batches": dict.fromkeys(("", *levers, "bf16,compile"), (1, 1)),
        }  # fmt: skip
        return {**known, **self.found}

    def measure(  # type: ignore[override]  # `SubprocessRunner` takes the grid beside it
        self, rung: Rung, repeat: int, reference: Reference | None, grid: Grid
    ) -> Measurement:
        if len(self.asked) == self.interrupted:
            raise KeyboardInterrupt
        self.grids.append(grid)
        return super().measure(rung, repeat, reference)


def report_of(processes: Any, levers: tuple[str, ...], *, as_json: bool = False, **extra: Any) -> Any:
    return measure_ladder(
        processes, levers, **{"named": (), "repeats": 2, **extra}, progress=Progress(stderr_console(), as_json=as_json)
    )


def test_the_recipes_own_levers_are_a_rung_beside_those_that_were_asked_for() -> None:
    apart = frozenset({frozenset(("bf16", "bf16,compile"))})
    report = report_of(NoProcesses(found={"recipe_levers": "bf16,compile"}, apart=apart), ("bf16",))
    names = [row.rung.name for row in report.ladder.rows]
    assert names == [NAIVE, PRECOMPUTED, "bf16", "bf16,compile", BEST]
    assert report.subject.recipe == "quick"


@pytest.mark.parametrize(
    ("batches", "grid"),
    [
        ({"bf16": (1, 1), "accumulate:4": (1, 4)}, Grid(ranks=1, group=4)),
        ({"accumulate:4": (1, 4), "accumulate:6": (1, 6), "ddp": (8, 1)}, Grid(ranks=8, group=96)),
        ({"ddp:2": (2, 1), "fsdp:3": (3, 1)}, Grid(ranks=6, group=6)),
    ],
)
def test_all_rungs_and_sets_of_their_levers_can_stop_after_the_same_samples(
    batches: dict[str, tuple[int, int]], grid: Grid
) -> None:
    processes = NoProcesses(found={"batches": {"": (1, 1), **batches}})
    processes.speeds = {**processes.speeds, **dict.fromkeys(batches, 99.0)}
    report_of(processes, tuple(batches))
    assert set(processes.grids) == {grid}


def test_no_levers_are_a_ladder_of_two_rungs() -> None:
    report = report_of(NoProcesses(found={"recipe_levers": "bf16,compile"}), ())
    assert [row.rung.name for row in report.ladder.rows] == [NAIVE, PRECOMPUTED]


def test_an_interrupted_ladder_keeps_what_it_has() -> None:
    report = report_of(NoProcesses(interrupted=3), ("bf16",))
    assert not report.complete
    assert [len(row.repeats) for row in report.ladder.rows] == [1, 1, 1]


def test_progress_in_a_log_is_a_line_a_repeat(capsys: pytest.CaptureFixture[str]) -> None:
    report_of(NoProcesses(broken={"bf16": 0}), ("bf16",), repeats=1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == f"2 of 3: {PRECOMPUTED}, round 1: samples per second 99.0"
    assert lines[2] == "3 of 3: bf16, round 1: failed bf16 broke"


@pytest.mark.parametrize(("levers", "total"), [(("bf16",), 6), (("bf16", "compile"), 12)])
def test_the_rounds_of_the_best_set_are_counted_once_there_is_one(
    levers: tuple[str, ...], total: int, capsys: pytest.CaptureFixture[str]
) -> None:
    report_of(NoProcesses(), levers)
    lines = [line for line in capsys.readouterr().err.splitlines() if " of " in line]
    assert lines[0].startswith(f"1 of {2 * (2 + len(levers))}: ")
    assert lines[-1].startswith(f"{total} of {total}: ")


def test_progress_for_a_program_is_an_object_a_repeat_also_for_one_that_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report_of(NoProcesses(broken={"bf16": 0}), ("bf16",), repeats=1, as_json=True)
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [event["rung"] for event in events] == [NAIVE, PRECOMPUTED, "bf16"]
    assert events[1] == {
        "event": "repeat",
        "rung": PRECOMPUTED,
        "round": 0,
        "done": 2,
        "of": 3,
        "samples_per_second": 99.0,
    }
    assert events[2]["failed"] == "bf16 broke"
