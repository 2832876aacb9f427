"""Commands on a dataset whose file operations are recorded: what each promises after a power failure."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from assets_dataset import copy_dataset
from assets_power_loss import Crash, Recording, lay, recorded
from facefeed.pipeline.errors import FacefeedError


class RecordedCommand:
    """A command on a dataset, which runs again and again.

    `before`: the dataset that it begins with. `out`: where it runs, in a folder that is recorded.
    """

    num_steps = 0
    """Steps that a run finishes, none of which may be lost."""

    def __init__(self, folder: Path) -> None:
        self.before, self.out = folder / "before", folder / "disk/out"
        self._recording: Recording | None = None

    def run(self) -> None:
        """Runs it; with `note_progress` as its `on_progress`, where it has one."""
        raise NotImplementedError

    def resume(self) -> None:
        self.run()

    def note_progress(self, done: int, _all: int) -> None:
        if done and self._recording is not None:
            self._recording.step_finished()

    def record(self, monkeypatch: pytest.MonkeyPatch) -> Recording:
        """What a run does to files."""
        shutil.rmtree(self.out, ignore_errors=True)
        copy_dataset(self.before, self.out)
        with recorded(self.out.parent, monkeypatch) as recording:
            self._recording = recording
            self.run()
            recording.step_finished()  # one more: the command has ended
        self._recording = None
        assert len(recording.finished) == self.num_steps + 1
        assert self.problem_of_end() == ""
        return recording

    def problem(self, crash: Crash) -> str:
        """Why this state is not what was promised; empty where it is."""
        lay(crash.state, self.out.parent)
        try:
            if problem := self.problem_of_readers():
                return problem
            if crash.finished > self.num_steps and (problem := self.problem_of_end()):
                return f"after the command has ended: {problem}"
            if self.finished_steps() < min(crash.finished, self.num_steps):
                return "what was finished is lost"
            self.resume()
        except FacefeedError as error:
            return f"stops: {error}"
        return self.problem_of_end()

    def problem_of_readers(self) -> str:
        """What is wrong with the dataset now, however far the command has come."""
        raise NotImplementedError

    def problem_of_end(self) -> str:
        """Why the command is not at its end."""
        raise NotImplementedError

    def finished_steps(self) -> int:
        """Steps whose results are there."""
        return 0
