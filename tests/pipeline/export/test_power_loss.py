"""A power failure at any moment of an export: the same command ends with the files of an undisturbed one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from assets_dataset import Clip, make_dataset
from assets_failing_commands import files_of
from assets_power_loss import Crash, Recording, crashes, lay, needless_syncs, problems, recorded, some
from facefeed.pipeline.errors import FacefeedError
from facefeed.pipeline.export.destination import Destination
from facefeed.pipeline.export.receipt import PartReceipt
from facefeed.pipeline.export.request import FORM_NAMES, ExportRequest, FormName
from facefeed.pipeline.export.run import ExportResult, export

UNITS = (
    ("train", (Clip("real/anna.mp4", 1), Clip("fake/anna-swap.mp4", 1))),
    ("val", (Clip("real/dora.mp4", 1),)),
)
NUM_PARTS = len(UNITS) + 1
"""In every form: one for each unit or split, and the closing one."""


class Export:
    """An export in one form, which runs again and again. `files`: those of an undisturbed one."""

    def __init__(self, folder: Path, form: FormName) -> None:
        self.out, self.disk = folder / "out", folder / "disk"
        self.dest = self.disk / "exports/dest"
        self._request = ExportRequest(form=form)
        make_dataset(self.out, UNITS)
        self.run()
        assert self.run().check.findings == []  # every file was read
        self.files = files_of(self.dest)

    def run(self) -> ExportResult:
        return export(self.out, self.dest, self._request)

    def record(self, monkeypatch: pytest.MonkeyPatch) -> Recording:
        """What a run does to files."""
        publish = Destination.publish
        shutil.rmtree(self.disk)
        self.disk.mkdir()

        def publish_and_note(*arguments: Any) -> PartReceipt:
            receipt = publish(*arguments)
            recording.step_finished()
            return receipt

        with recorded(self.disk, monkeypatch) as recording, monkeypatch.context() as patch:
            patch.setattr(Destination, "publish", publish_and_note)
            self.run()
            recording.step_finished()  # one more: the command has ended
        assert len(recording.finished) == NUM_PARTS + 1
        return recording

    def problem(self, crash: Crash) -> str:
        """Why this state is not what was promised; empty where it is."""
        lay(crash.state, self.disk)
        try:
            result = self.run()
        except FacefeedError as error:
            return f"the same command stops: {error}"
        if result.check.findings:  # of one that was finished, every file was read
            return "; ".join(result.check.findings)
        if crash.finished > NUM_PARTS and not result.was_finished:
            return "the export is not finished after the command has ended"
        if not result.was_finished and result.parts_before < min(crash.finished, len(UNITS)):
            return "a published part is lost"
        return "" if files_of(self.dest) == self.files else "other files"


@pytest.fixture(params=FORM_NAMES)
def command(request: pytest.FixtureRequest, tmp_path: Path) -> Export:
    return Export(tmp_path, request.param)


@pytest.mark.parametrize("command", ["folders", "webdataset"], indirect=True)  # of the others: make chaos
def test_the_same_command_recovers_from_a_power_failure(command: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    states = list(crashes(command.record(monkeypatch)))
    assert problems(command.problem, some(states, one_in=len(states) // 5)) == []


@pytest.mark.chaos
def test_the_same_command_recovers_from_every_power_failure(command: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = command.record(monkeypatch)
    states = list(crashes(recording))
    assert problems(command.problem, states) == []
    print(f"{len(states)} states after {len(recording.events)} changes and syncs: all recovered")


@pytest.mark.chaos
def test_without_any_one_sync_a_power_failure_breaks_a_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = Export(tmp_path, "webdataset")  # the syncs are those of all forms, and states are fewest
    needless = needless_syncs(command.record(monkeypatch), lambda crash: bool(command.problem(crash)))
    # The lock's is for other hosts, which read its holder through a network file system.
    assert needless == {"lock._write_holder"}
