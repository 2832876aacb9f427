"""One worker in this process, in place of a cluster: `precompute` with its own scheduler and the task of a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from assets_in_process import shared_decoders
from facefeed.pipeline.execution import run_units, unit_task
from facefeed.pipeline.execution.unit_task import UnitResult, run_unit
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.execution.workers import Worker
from facefeed.pipeline.planning.options import JobSpec
from facefeed.pipeline.planning.plan import Unit

_WORKER = Worker("tcp://here", "0", None, "")


@dataclass(eq=False)
class _Done:
    """A future that is done."""

    value: UnitResult
    status: str = "finished"

    def result(self, timeout: float) -> UnitResult:
        return self.value

    def release(self) -> None:
        pass


@dataclass
class _Pool:
    """Processes each unit when it is submitted, after `on_submit` was called with it."""

    plugin_name: str
    on_submit: Callable[[Unit], object]
    completed: list[_Done] = field(default_factory=list)

    def workers(self) -> dict[str, Worker]:
        return {_WORKER.address: _WORKER}

    def submit(self, unit: Unit, _: Worker) -> _Done:
        self.on_submit(unit)
        self.completed.append(done := _Done(run_unit(unit, self.plugin_name)))
        return done

    def next_completed(self, _: float) -> _Done | None:
        return self.completed.pop(0) if self.completed else None

    def cancel(self, _: object) -> None:
        pass


@contextmanager
def worker_in_process(on_submit: Callable[[Unit], object] = lambda _: None) -> Iterator[None]:
    """Within the block `precompute` starts no cluster; calls of it may nest. `on_submit`: called before each unit."""
    plugins: dict[str, Any] = {}

    @contextmanager
    def start_unit_workers(job: JobSpec, *_: object) -> Iterator[tuple[Any, str]]:
        name = f"plugin {len(plugins)}"
        with closing(UnitWorker(job)) as worker:
            plugins[name] = SimpleNamespace(unit_worker=worker, lock=threading.Lock(), setup_error=None)
            scheduler = SimpleNamespace(address="tls://here")
            yield SimpleNamespace(subscribe_topic=lambda *_: None, scheduler=scheduler), name

    here = SimpleNamespace(address=_WORKER.address, plugins=plugins, log_event=lambda *_: None)
    with shared_decoders(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_units, "start_unit_workers", start_unit_workers)
        patch.setattr(run_units, "WorkerPool", lambda _client, name: _Pool(name, on_submit))
        patch.setattr(unit_task, "get_worker", lambda: here)
        yield
