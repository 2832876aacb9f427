"""`precompute` in this process: its units are processed here, by the worker's own code, in place of a cluster.

A decoder process takes 0.3 s to start, longer than a small run takes. So readers pass theirs on to the next reader. As
a decoder is confined to one folder for good, sources lie in a `new_folder`.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from facefeed.pipeline import precompute as precompute_module
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.planning.options import JobSpec
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.planning.run_state import RunState
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
def in_process(process: Process = one_by_one) -> Iterator[None]:
    """Within the block `precompute` starts no cluster: `process` is called where there are pending units."""

    def process_pending_units(run: Any, run_state: RunState, *_: object) -> Any:
        if pending := list(run_state.pending_units()):
            process(run.job, pending)
        return run.progress.totals

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precompute_module._Run, "process_pending_units", process_pending_units)
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
