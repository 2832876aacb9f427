"""`precompute` in this process: its units are processed here, by the worker's own code, in place of a cluster.

`Job` is one source and one OUT that lie anywhere. `in_process` is for many small runs: a decoder process takes 0.3 s
to start, longer than such a run takes, so readers pass theirs on to the next reader (`shared_decoders`). As a decoder
is confined to one folder for good, theirs is the one of all temporary files.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from facefeed.pipeline import precompute as precompute_module
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dryrun import run as dry_run_module
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import JobSpec, Options
from facefeed.pipeline.planning.plan import Plan, Unit
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.precompute import Summary, precompute
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
        if pending := list(run_state.pending_units(run.job_share)):
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
    """Within the block runs pass their decoder processes on, where sources are temporary files."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (precompute_module, input_pipeline, dry_run_module):
            patch.setattr(module, "MediaReader", _SharingReader)
        yield


def share_decoders() -> None:
    """As `shared_decoders`, until this process ends: for a worker of a cluster."""
    input_pipeline.MediaReader = _SharingReader  # type: ignore[misc]


@functools.cache
def _workplace() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="facefeed-")).resolve()
    atexit.register(shutil.rmtree, folder)
    return folder


def new_folder() -> Path:
    """A folder for one source and its OUT; removed with this process, if not before."""
    return Path(tempfile.mkdtemp(dir=_workplace()))


_Kind = tuple[object, ...]
_idle: dict[_Kind, list[DecoderProcess]] = defaultdict(list)
_starter = ThreadPoolExecutor(1, "decoder-starter")
"""Starts the decoder processes: each ends with the thread that started it."""
_TEMPORARY = Path(tempfile.gettempdir()).resolve()
_MAX_IDLE = 4


def end_idle_decoders() -> None:
    """Ends the decoder processes that wait for the next run."""
    for decoders in _idle.values():
        while decoders:
            decoders.pop().kill()


class _SharingReader(MediaReader):
    """Takes an idle decoder process where there is one of its kind, and leaves its own to others, unless it is in use.

    A kind has the same limits, program and environment. Readers of files that are not temporary share nothing.
    """

    def __init__(self, limits: DecoderLimits | None = None, roots: Sequence[Path] = ()) -> None:
        self._shares = bool(roots) and all(_TEMPORARY in root.parents for root in roots)
        super().__init__(limits, [_TEMPORARY] if self._shares else roots)

    def _kind(self) -> _Kind:
        paths = tuple(value for name, value in sorted(os.environ.items()) if name.startswith("PYTHON"))
        return os.getpid(), self.limits, self.limits.child_command(), paths

    def _ensure_child(self) -> DecoderProcess:
        if not self._shares:
            return super()._ensure_child()
        if self._child is not None and not self._child.is_alive():
            self._kill_child()
        if self._child is None:
            self._child = self._idle_child() or _starter.submit(DecoderProcess, self.limits).result()
            self._finalizer = weakref.finalize(self, self._child.kill)
        return self._child

    def _idle_child(self) -> DecoderProcess | None:
        idle = _idle[self._kind()]
        while idle:
            if (child := idle.pop()).is_alive():
                return child
            child.kill()
        return None

    def close(self) -> None:
        is_idle = self._shares and not self._is_reading and self._child is not None and self._child.is_alive()
        if is_idle and len(idle := _idle[self._kind()]) < _MAX_IDLE:
            assert self._child is not None
            assert self._finalizer is not None
            self._finalizer.detach()
            idle.append(self._child)
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

    def run(self, **arguments: Any) -> Summary:
        """Runs it once; `arguments`: further ones of `precompute`."""
        with _without_cluster(self._process):
            return precompute(self.source, self.out, options=self.options, detector=FixedBoxDetector(), **arguments)

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
