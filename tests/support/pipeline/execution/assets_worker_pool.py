"""A cluster on a virtual clock, in place of `WorkerPool`: units take their seconds, and fail where they must."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from assets_clock import Clock
from distributed import KilledWorker
from facefeed.pipeline.dataset.manifest import InputOutcome, Receipt
from facefeed.pipeline.execution.unit_task import RefusedWorkerError, UnitError, UnitResult
from facefeed.pipeline.execution.workers import Worker
from facefeed.pipeline.planning.options import JobSpec
from facefeed.pipeline.planning.plan import Unit

RESTART_SECONDS = 5.0
Fault = Callable[[Unit, Worker], str | None]
"""What goes wrong with a unit on a worker: an exception's type, "lost", "job lost" (with its nanny), "result lost" (it
is finished), "refused" (by the store of OUT), or None."""


@dataclass(eq=False)
class Ended:
    """A future that has ended, or will have when it is handed out."""

    unit: Unit
    worker: Worker
    status: str = "finished"
    unit_result: UnitResult | None = None
    error: Exception | None = None
    lost_with_job: bool = False

    def result(self, timeout: float) -> UnitResult:
        assert self.unit_result is not None
        return self.unit_result

    def exception(self) -> Exception | None:
        return self.error

    def release(self) -> None:
        pass


@dataclass
class SimulatedWorkerPool:
    """`size` workers named 0, 1, ...; a unit takes 30 s, a failure one.

    `fixed_ports`: whether a restarted process listens at the address of the one before.
    """

    job: JobSpec
    size: int
    fault: Fault
    nannies: bool = True
    fixed_ports: bool = False
    has_other_jobs: bool = False
    clock: Clock = field(default_factory=Clock)
    ran: list[tuple[str, str]] = field(default_factory=list)
    """(unit, worker's address), in the order they were submitted."""
    restarts: list[str] = field(default_factory=list)
    results: dict[str, UnitResult] = field(default_factory=dict)
    """What units end with, by id; those that are not named are done by their worker."""

    def __post_init__(self) -> None:
        self._number = count()
        self._present: dict[str, Worker] = {}
        self._nannies: set[str | None] = set()
        self._events: list[tuple[float, int, Ended | Worker]] = []
        for number in range(self.size):
            self._join(str(number))

    def _join(self, name: str) -> None:
        number = next(self._number)
        worker = Worker(
            address=f"tcp://worker:{name if self.fixed_ports else number}",
            name=name,
            nanny=f"tcp://nanny:{name}" if self.nannies else None,
            server_id=f"Worker-{number}",
        )
        self._present[worker.address] = worker
        self._nannies.add(worker.nanny)

    def workers(self) -> dict[str, Worker]:
        return dict(self._present)

    def submit(self, unit: Unit, worker: Worker) -> Any:
        self.ran.append((unit.unit_id, worker.address))
        kind = self.fault(unit, worker)
        future = Ended(unit, worker, lost_with_job=kind == "job lost")
        if kind in {"lost", "job lost"}:
            future.status, future.error = "error", KilledWorker("unit", worker, 0)
        elif kind == "result lost":
            future.status = "lost"
        elif kind is not None:
            error_type = RefusedWorkerError if kind == "refused" else UnitError
            future.status, future.error = "error", error_type(worker.address, kind, f"{kind}: as it must")
        self.after(1.0 if kind else 30.0, future)
        return future

    def end_job(self, worker: Worker) -> None:
        """Ends a worker with its nanny; another job with a worker of another name comes in its place."""
        self._present.pop(worker.address)
        self._nannies.discard(worker.nanny)
        self.after(RESTART_SECONDS, Worker("", f"{worker.name}+", None, ""))

    def nanny_answers(self, address: str) -> bool:
        return address in self._nannies

    def is_shared(self) -> bool:
        return self.has_other_jobs

    def next_completed(self, timeout_seconds: float) -> Any:
        until = self.clock() + timeout_seconds
        while self._events and self._events[0][0] <= until:
            now, _, event = heapq.heappop(self._events)
            self.clock.now = now
            if isinstance(event, Worker):
                self._join(event.name)
                continue
            if event.status == "finished":
                event.unit_result = self.results.get(event.unit.unit_id) or UnitResult(done(event.unit, self.job))
            elif isinstance(event.error, KilledWorker):
                (self.end_job if event.lost_with_job else self.restart)(event.worker)
            return event
        self.clock.now = until
        return None

    def restart(self, worker: Worker) -> None:
        assert self.nannies, "nothing restarts it"
        self.restarts.append(worker.name)
        self._present.pop(worker.address)
        self.after(RESTART_SECONDS, worker)

    def cancel(self, futures: Iterable[Any]) -> None:
        self._events = []

    def after(self, seconds: float, event: Ended | Worker) -> None:
        """A unit ends, or a worker of that name joins, in so many seconds."""
        heapq.heappush(self._events, (self.clock() + seconds, next(self._number), event))


def done(unit: Unit, job: JobSpec) -> Receipt:
    outcomes = [InputOutcome(video_id=entry.video_id, size_bytes=1, mtime_ns=1, outcome="ok") for entry in unit.inputs]
    return Receipt(unit=unit.unit_id, config_hash=job.config_hash, outcome="done", inputs=outcomes)
