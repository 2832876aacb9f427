"""A power failure at any moment of `facefeed add` and `remove`: the same command ends as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest
from assets_columns import Colour
from assets_dataset import Clip, copy_dataset, make_dataset, open_run_state
from assets_failing_commands import files_of, problem_of_reader, set_aside
from assets_power_loss import crashes, needless_syncs, problems, some
from assets_recorded_commands import RecordedCommand
from facefeed.pipeline.added_columns.run import add_columns, remove_columns
from facefeed.pipeline.dataset.added_columns import ColumnSet
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.verify.check import verify

UNITS = (
    ("train", (Clip("real/anna.mp4", 3), Clip("fake/anna-swap.mp4", 2))),
    ("val", (Clip("real/dora.mp4", 2),)),
)
MAKER = Colour()


class Columns(RecordedCommand):
    """A command on the added columns of a dataset. `after`: all files that an undisturbed run leaves."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        make_dataset(self.before, UNITS)
        self.prepare()
        copy_dataset(self.before, self.out)
        self.unchanged = {name: data for name, data in files_of(self.out).items() if _is_of_dataset(name)}
        self.run()
        self.after = files_of(self.out)
        with_columns = next(out for out in (self.before, self.out) if "colour" in Index(out).added)
        self.values = [Index(with_columns).column(name) for name in MAKER.columns.names]

    def prepare(self) -> None:
        """Changes the dataset that the command begins with."""

    def problem_of_readers(self) -> str:
        now = files_of(self.out)
        if changed := [name for name, data in self.unchanged.items() if now.get(name) != data]:
            return f"{changed} changed"
        findings = verify(self.out).findings
        if damage := [str(each) for each in findings if each.kind != "columns" or "facefeed" not in each.remedy]:
            return "; ".join(damage)
        return problem_of_reader(self.out) or self.problem_of_columns()

    def problem_of_columns(self) -> str:
        """Whether readers get columns that are in the index."""
        index = Index(self.out)
        if "colour" not in index.added or self.values == [index.column(name) for name in MAKER.columns.names]:
            return ""
        return "other values of the columns"

    def problem_of_end(self) -> str:
        if findings := verify(self.out).findings:
            return "; ".join(map(str, findings))
        if names := set_aside(self.out):
            return f"{names} set aside"
        # An index that is complete may still have its other name, which readers know too.
        now = {
            name.replace("index.next.arrow", "index.arrow"): data for name, data in sorted(files_of(self.out).items())
        }
        different = [name for name in now.keys() | self.after.keys() if now.get(name) != self.after.get(name)]
        return f"{sorted(different)} differ" if different else ""


class Adding(Columns):
    num_steps = len(UNITS)

    def run(self) -> None:
        add_columns(self.out, MAKER, workers=1, on_progress=self.note_progress)

    def finished_steps(self) -> int:
        column_set = ColumnSet.read(OutPaths(self.out), "colour")
        units = [receipt for _, _, receipt in open_run_state(self.out).finished_units()]
        return 0 if column_set is None else sum(map(column_set.has_file_for, units))


class Removing(Columns):
    def prepare(self) -> None:
        add_columns(self.before, MAKER, workers=1)

    def run(self) -> None:
        remove_columns(self.out, "colour")

    def resume(self) -> None:
        try:
            self.run()
        except UsageError:
            if (self.out / "columns/colour").exists():
                raise


def _is_of_dataset(name: str) -> bool:
    return name.partition("/")[0] in {"faces", "receipts", "plan", "manifest.json"}


COMMANDS = {"add": Adding, "remove": Removing}


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest, tmp_path: Path) -> Columns:
    return COMMANDS[request.param](tmp_path)


def test_the_same_command_recovers_from_a_power_failure(command: Columns, monkeypatch: pytest.MonkeyPatch) -> None:
    states = some(crashes(command.record(monkeypatch)), one_in=20)
    assert problems(command.problem, states) == []


@pytest.mark.chaos
def test_the_same_command_recovers_from_every_power_failure(command: Columns, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = command.record(monkeypatch)
    states = list(crashes(recording))
    assert problems(command.problem, states) == []
    print(f"{len(states)} states after {len(recording.events)} changes and syncs: all recovered")


NEEDLESS = {
    # The lock's is for other hosts; the name of the folder is synced with its first unit too.
    "add": {"lock._write_holder", "files.sync_folder < files.make_folder < files.publish < publish.publish"},
    # A record that does not say that the set is being removed, or is torn: the same command removes the set.
    "remove": {
        "lock._write_holder",
        "files.write_durably < run.remove_columns",
        "files.sync_folder < files.write_durably < run.remove_columns",
    },
}


@pytest.mark.chaos
def test_without_any_one_sync_a_power_failure_breaks_a_promise(
    command: Columns, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    needless = needless_syncs(command.record(monkeypatch), lambda crash: bool(command.problem(crash)))
    assert needless == NEEDLESS[request.node.callspec.params["command"]]
