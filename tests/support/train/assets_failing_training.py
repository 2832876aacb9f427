"""A training that runs again and again in one folder, in one process: what it promises when a call fails."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from assets_failing_commands import Command, files_of
from assets_fit import MinutePerStep, config
from assets_train import small_dataset
from facefeed.pipeline.errors import FacefeedError
from facefeed.train.checkpoints.plain import read_checkpoint
from facefeed.train.run.checkpoint_io import BEST, LAST
from facefeed.train.run.runner import train


class Training(Command):
    """`facefeed train` for two epochs of a few steps."""

    def __init__(self, folder: Path) -> None:
        self._out, self._run = small_dataset(folder / "out"), folder / "runs/run"
        self._run.parent.mkdir()
        self.folders, self.inputs = (self._run.parent, self._out), (self._out,)

    def lay(self) -> None:
        shutil.rmtree(self._run, ignore_errors=True)

    def run(self) -> None:
        train(self._out, config(steps=10), self._run, callbacks=[MinutePerStep()])

    def written(self) -> dict[str, bytes]:
        return files_of(self._run)

    def outcome(self) -> Any:
        result = train(self._out, config(steps=10), self._run)  # reads that of the finished run
        assert result is not None
        weights = [read_checkpoint(self._run / "checkpoints" / name)["state_dict"] for name in (LAST, BEST)]
        sums = [{name: float(values.double().sum()) for name, values in each.items()} for each in weights]
        return result.steps, result.best_step, result.val, result.test, sums

    def findings(self) -> list[str]:
        return []

    def problem_of_remains(self) -> str:
        for name in (LAST, BEST):
            path = self._run / "checkpoints" / name
            if path.exists():
                try:
                    read_checkpoint(path)
                except FacefeedError as error:
                    return f"a damaged checkpoint: {error}"
        return ""
