"""A power failure at any moment of `facefeed compact`: the same command ends as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest
from assets_columns import Colour
from assets_dataset import Clip, copy_dataset, make_dataset, open_run_state
from assets_failing_commands import problem_of_reader, rows_of, set_aside
from assets_power_loss import Crash, Recording, crashes, lay, problems, recorded, some
from facefeed.pipeline.added_columns.run import add_columns
from facefeed.pipeline.compaction.run import compact
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.errors import FacefeedError
from facefeed.pipeline.verify.check import verify

UNITS = (
    ("train", (Clip("real/anna.mp4", 3), Clip("fake/anna-swap.mp4", 2))),
    ("train", (Clip("real/emil.mp4", 2),)),
    ("val", (Clip("real/dora.mp4", 2),)),
    ("val", (Clip("real/cleo.mp4", 1),)),
)
MERGED = 2
"""Units that a run merges others into."""


class Compaction:
    """`facefeed compact` of a dataset with added columns, which runs again and again, in a folder that is recorded."""

    def __init__(self, folder: Path) -> None:
        self.before, self.out = folder / "before", folder / "disk/out"
        self.recording: Recording | None = None
        make_dataset(self.before, UNITS)
        add_columns(self.before, Colour(), workers=1)
        self.rows = rows_of(self.before)

    def run(self) -> None:
        compact(self.out, workers=1, on_progress=self._on_progress)

    def _on_progress(self, rows_done: int, _rows: int) -> None:
        if rows_done and self.recording is not None:
            self.recording.step_finished()

    def record(self, monkeypatch: pytest.MonkeyPatch) -> Recording:
        """What a run does to files."""
        copy_dataset(self.before, self.out)
        with recorded(self.out.parent, monkeypatch) as recording:
            self.recording = recording
            self.run()
            recording.step_finished()  # one more: the command has ended
        self.recording = None
        assert len(recording.finished) == MERGED + 1
        assert self.problem_of_end() == ""
        return recording

    def problem(self, crash: Crash) -> str:
        """Why this state is not what was promised; empty where it is."""
        lay(crash.state, self.out.parent)
        try:
            if problem := self.problem_of_readers():
                return problem
            if crash.finished > MERGED and (problem := self.problem_of_end()):
                return f"after the command has ended: {problem}"
            if self.merged_units() < min(crash.finished, MERGED):
                return "a merged unit is lost"
            self.run()
        except FacefeedError as error:
            return f"stops: {error}"
        return self.problem_of_end()

    def merged_units(self) -> int:
        return sum(len(unit.supersedes) > 1 for unit, _, _ in open_run_state(self.out).finished_units())

    def problem_of_readers(self) -> str:
        """What is wrong with the dataset now, however far the command has come."""
        verdict = verify(self.out)
        if damage := [str(each) for each in verdict.findings if each.kind not in {"unknown-file", "columns"}]:
            return "; ".join(damage)
        if verdict.unfinished is None and not verdict.findings and rows_of(self.out) != self.rows:
            return "verify has no finding in other rows"
        return problem_of_reader(self.out)

    def problem_of_end(self) -> str:
        """Why the command is not at its end."""
        verdict = verify(self.out)
        if verdict.findings or verdict.unfinished:
            return "; ".join([*map(str, verdict.findings), *([verdict.unfinished.state] if verdict.unfinished else [])])
        if names := set_aside(self.out):
            return f"{names} set aside"
        for pattern in ("faces/*/*", "columns/colour/*.parquet"):  # a receipt may come back: it is of no unit any more
            if len(files := sorted(path.name for path in self.out.glob(pattern))) != MERGED:
                return f"{pattern}: {files}"
        if rows_of(self.out) != self.rows:
            return "other rows"
        return "" if "colour" in Index(self.out).added else "the index lacks the added columns"


@pytest.fixture
def command(tmp_path: Path) -> Compaction:
    return Compaction(tmp_path)


def test_the_same_command_recovers_from_a_power_failure(command: Compaction, monkeypatch: pytest.MonkeyPatch) -> None:
    states = some(crashes(command.record(monkeypatch)), one_in=60)
    assert problems(command.problem, states) == []


@pytest.mark.chaos
def test_the_same_command_recovers_from_every_power_failure(
    command: Compaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = command.record(monkeypatch)
    states = list(crashes(recording))
    assert problems(command.problem, states) == []
    print(f"{len(states)} states after {len(recording.events)} changes and syncs: all recovered")
