"""A power failure at any moment of `facefeed compact`: the same command ends as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest
from assets_columns import Colour
from assets_dataset import Clip, make_dataset, open_run_state
from assets_failing_commands import problem_of_reader, rows_of, set_aside
from assets_power_loss import crashes, needless_syncs, problems, some
from assets_recorded_commands import RecordedCommand
from facefeed.pipeline.added_columns.run import add_columns
from facefeed.pipeline.compaction.run import compact
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.verify.check import verify

UNITS = (
    ("train", (Clip("real/anna.mp4", 3), Clip("fake/anna-swap.mp4", 2))),
    ("train", (Clip("real/emil.mp4", 2),)),
    ("val", (Clip("real/dora.mp4", 2),)),
    ("val", (Clip("real/cleo.mp4", 1),)),
)


class Compaction(RecordedCommand):
    """`facefeed compact` of a dataset with added columns."""

    num_steps = 2  # merged files

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        make_dataset(self.before, UNITS)
        add_columns(self.before, Colour(), workers=1)
        self.rows = rows_of(self.before)

    def run(self) -> None:
        compact(self.out, workers=1, on_progress=self.note_progress)

    def finished_steps(self) -> int:
        return sum(len(unit.supersedes) > 1 for unit, _, _ in open_run_state(self.out).finished_units())

    def problem_of_readers(self) -> str:
        verdict = verify(self.out)
        if damage := [str(each) for each in verdict.findings if each.kind not in {"unknown-file", "columns"}]:
            return "; ".join(damage)
        if verdict.unfinished is None and not verdict.findings and rows_of(self.out) != self.rows:
            return "verify has no finding in other rows"
        return problem_of_reader(self.out)

    def problem_of_end(self) -> str:
        verdict = verify(self.out)
        if verdict.findings or verdict.unfinished:
            return "; ".join([*map(str, verdict.findings), *([verdict.unfinished.state] if verdict.unfinished else [])])
        if names := set_aside(self.out):
            return f"{names} set aside"
        for pattern in ("faces/*/*", "columns/colour/*.parquet"):  # a receipt may come back: it is of no unit any more
            if len(files := sorted(path.name for path in self.out.glob(pattern))) != self.num_steps:
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


@pytest.mark.chaos
def test_without_any_one_sync_a_power_failure_breaks_a_promise(
    command: Compaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    needless = needless_syncs(command.record(monkeypatch), lambda crash: bool(command.problem(crash)))
    # The lock's is for other hosts; the folders that merged files come to are those of a finished dataset.
    assert needless == {"lock._write_holder", "files.sync_folder < files.make_folder < files.publish < publish.publish"}
