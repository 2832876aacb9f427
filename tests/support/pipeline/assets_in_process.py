"""`precompute` in this process: its units are processed here, by the worker's own code, in place of a cluster.

`Job` is one source and one OUT that lie anywhere. `in_process` is for many small runs: a decoder process takes 0.3 s
to start, longer than such a run takes, so readers pass theirs on to the next reader. As a decoder is confined to one
folder for good, their sources lie in a `new_folder`.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from facefeed.pipeline import precompute as precompute_module
from facefeed.pipeline.dataset.manifest import OutPaths
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import JobSpec, Options
from facefeed.pipeline.planning.plan import Plan, Unit
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.rows import input_pipeline
from facefeed.pipeline.video import DecoderLimits, MediaReader
from facefeed.pipeline.video.child_process import DecoderProcess

Process = Callable[[JobSpec, list[Unit]], None]
"""Processes the pending units of a job."""


def one_by_one(job: JobSpec, units: list[Unit]) -> None:
    """As one undisturbed worker does."""
    with closing(UnitWorker(job)) as worker:
        for unit in units:
            worker.run(unit)


@contextmanager
def _without_cluster(process: Process) -> Iterator[None]:
    """Within the block `precompute` starts no cluster: `process` is called where there are pending units."""

    def process_pending_units(run: Any, run_state: RunState, *_: object) -> Any:
        if pending := list(run_state.pending_units(run.part)):
            process(run.job, pending)
        return run.progress.totals

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precompute_module._Run, "process_pending_units", process_pending_units)
        yield


@contextmanager
def in_process(process: Process = one_by_one) -> Iterator[None]:
    """Within the block `precompute` starts no cluster, and hardly a decoder; `process`: what it does instead."""
    with _without_cluster(process), shared_decoders():
        yield


@contextmanager
def shared_decoders() -> Iterator[None]:
    """Within the block readers pass their decoder processes on; sources lie in a `new_folder`."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (precompute_module, input_pipeline):
            patch.setattr(module, "MediaReader", _SharingReader)
        yield


@functools.cache
def _workplace() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="facefeed-")).resolve()
    atexit.register(shutil.rmtree, folder)
    return folder


def new_folder() -> Path:
    """A folder for one source and its OUT; removed with this process, if not before."""
    return Path(tempfile.mkdtemp(dir=_workplace()))


_idle: list[DecoderProcess] = []
_starter = ThreadPoolExecutor(1, "decoder-starter")
"""Starts the decoder processes: each ends with the thread that started it."""


class _SharingReader(MediaReader):
    """Takes an idle decoder process where there is one, and leaves its own to others, unless it is in use."""

    def __init__(self, limits: DecoderLimits | None = None, roots: Sequence[Path] = ()) -> None:
        assert all(_workplace() in root.parents for root in roots)
        super().__init__(limits, [_workplace()])

    def _ensure_child(self) -> DecoderProcess:
        if self._child is None:
            self._child = _idle.pop() if _idle else _starter.submit(DecoderProcess, self.limits).result()
            self._finalizer = weakref.finalize(self, self._child.kill)
        return super()._ensure_child()

    def close(self) -> None:
        if self._child is not None and self._finalizer is not None and not self._is_reading:
            self._finalizer.detach()
            _idle.append(self._child)
            self._child = self._finalizer = None
        super().close()


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
        with _without_cluster(self._process):
            precompute(self.source, self.out, options=self.options, detector=FixedBoxDetector(), **arguments)

    def on_unit_finished(self) -> None:
        """Called after each unit."""
        self.finished_here += 1

    def _process(self, job: JobSpec, units: list[Unit]) -> None:
        self.config_hash = job.config_hash
        if job.config_hash not in self._workers:
            self._workers[job.config_hash] = self.stack.enter_context(closing(UnitWorker(job)))
        for unit in units:
            self._workers[job.config_hash].run(unit)
            self.on_unit_finished()

    def rows(self) -> pa.Table:
        """All rows of OUT."""
        table: pa.Table = pads.dataset(self.out / "faces").to_table()
        return table.sort_by("face_id")

    def finished_units(self) -> int:
        """Units whose rows are certain; 0 where the plan is gone."""
        paths = OutPaths(self.out)
        return sum(1 for _ in RunState(paths, Plan.load(paths), self.config_hash).finished_units())
