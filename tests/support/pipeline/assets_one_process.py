"""`precompute` in one process, without Dask: what it does to files is the same."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.dataset as pads
from facefeed.pipeline import precompute as precompute_module
from facefeed.pipeline.dataset.manifest import OutPaths
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.planning.plan import Plan
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.precompute import precompute


class Job:
    """`precompute` of one source into one OUT, its units processed here. Within `stack`, it may run again and again.

    `finished_here`: units that its runs have finished.
    """

    def __init__(self, source: Path, out: Path, options: Options) -> None:
        self.source, self.out, self.options = source, out, options
        self.config_hash = ""
        self.finished_here = 0
        self.stack = ExitStack()
        self._workers: dict[str, UnitWorker] = {}

    def run(self, **arguments: Any) -> None:
        """Runs it once; `arguments`: further ones of `precompute`."""
        with mock.patch.object(
            precompute_module._Run, "process_pending_units", lambda run, run_state, *_: self._process(run, run_state)
        ):
            precompute(self.source, self.out, options=self.options, detector=FixedBoxDetector(), **arguments)

    def on_unit_finished(self) -> None:
        """Called after each unit."""
        self.finished_here += 1

    def _process(self, run: Any, run_state: RunState) -> Any:
        self.config_hash = run.job.config_hash
        if run.job.config_hash not in self._workers:
            self._workers[run.job.config_hash] = self.stack.enter_context(closing(UnitWorker(run.job)))
        for unit in list(run_state.pending_units()):
            self._workers[run.job.config_hash].run(unit)
            self.on_unit_finished()
        return run.progress.totals

    def rows(self) -> pa.Table:
        """All rows of OUT."""
        table: pa.Table = pads.dataset(self.out / "faces").to_table()
        return table.sort_by("face_id")

    def finished_units(self) -> int:
        """Units whose rows are certain; 0 where the plan is gone."""
        paths = OutPaths(self.out)
        return sum(1 for _ in RunState(paths, Plan.load(paths), self.config_hash).finished_units())
