"""Schedules the units of a job on the workers of a cluster, one unit per worker, and handles all failures.

Dask runs each unit at least once and publishing is idempotent, so each unit's rows appear exactly once. The process of
a worker that failed is replaced, and no unit is given up before it has failed on two workers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from distributed import Future, KilledWorker

from ..commit.publish import write_receipt
from ..console import plural
from ..dataset.manifest import InputOutcome, Receipt
from ..errors import StoppedError
from ..planning.options import JobSpec
from ..planning.plan import Unit
from .failure_attribution import FailureAttribution
from .unit_queue import Attempt, LostWorkers, UnitQueue
from .unit_task import RefusedWorkerError, UnitError, UnitResult
from .worker_supply import WorkerSupply
from .workers import Worker, WorkerPool, fetch_result

_MAX_WORKERS_LOST = 3
_MAX_JOBS_LOST = 5
_REFRESH_SECONDS = 1.0
_NO_WORKER_SECONDS = 120.0


class Observer(Protocol):
    """Receives the scheduler's events, for progress; called from the driver's thread."""

    def on_receipt(self, receipt: Receipt) -> None:
        """A unit is done by this run."""

    def on_done_elsewhere(self, unit: Unit, *, is_duplicate: bool) -> None:
        """Another process has finished a unit; `is_duplicate`: this run has processed it too, for nothing."""

    def on_lost(self, unit: Unit, reason: str, action: str) -> None:
        """A unit failed or its worker was lost, for `reason`; `action` says what the scheduler does about it."""

    def on_retired(self, worker: str, reason: str) -> None:
        """A worker gets no more units."""


class UnitScheduler:
    """Runs units on the workers of `pool` until none is left; its memory does not grow with finished units."""

    def __init__(
        self,
        pool: WorkerPool,
        job: JobSpec,
        observer: Observer,
        *,
        finished: int = 0,
        supply: WorkerSupply | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`finished`: number of units that earlier runs have finished; `supply`: starts workers; None: all are there.

        With a `supply`, a worker whose whole job ends is no sign of a fault of its unit.
        """
        self._pool, self._job, self._observer, self._clock = pool, job, observer, clock
        self._queue = UnitQueue(
            job,
            on_done_elsewhere=partial(observer.on_done_elsewhere, is_duplicate=False),
            on_receipt=observer.on_receipt,
        )
        self._retries: deque[Attempt] = deque()  # failed on one worker
        self._suspects: deque[Attempt] = deque()  # single-input units whose worker was lost
        self._abandoned: list[tuple[Unit, str]] = []
        self._num_left = 0  # single-input units whose workers were lost while others used the cluster
        self._supply = supply
        self._lost = LostWorkers(pool, self._clock)
        self._num_jobs_lost = 0  # single-input units that were left since their jobs ended again and again
        self._running: dict[Future, tuple[Attempt, Worker]] = {}
        self._attribution = FailureAttribution(finished)
        self._workers: dict[str, Worker] = {}
        self._replaced: set[Worker] = set()  # processes that are being replaced
        self._restarting: dict[str, float] = {}  # worker ids, and since when
        self._refreshed_at = self._worker_seen_at = self._clock()
        self._last_failure = ""

    def run(self, units: Iterable[Unit]) -> None:
        """Runs all `units`; raises `StoppedError` where the disk, the cluster or nearly every unit fails.

        And, at its end, where several inputs would be given up and no unit was ever finished, or where a unit's workers
        were lost while another job used the cluster.

        Receipts written so far stay valid. Inputs are given up only at the end: if the run stops earlier, the next one
        tries them again.
        """
        self._queue.extend(units)
        self._refresh_workers()
        try:
            while self._queue or self._retries or self._suspects or self._running or self._lost:
                self._assign_units()
                self._handle_next_completed()
        finally:
            with suppress(Exception):  # the cluster may be what has failed
                self._pool.cancel(self._running)
        self._record_abandoned()
        if self._num_left:
            raise StoppedError(
                f"{plural(self._num_left, 'input')} lost {_MAX_WORKERS_LOST} workers each, while other jobs were at "
                "work on this cluster, which may have lost them; all finished units are kept: run the same command "
                "again once it is the only job there"
            )
        if self._num_jobs_lost:
            raise StoppedError(
                f"{plural(self._num_jobs_lost, 'input')} lost {_MAX_JOBS_LOST} jobs each in the middle; all finished "
                "units are kept: run the same command again, with more walltime or memory for a job if theirs ended"
            )

    def _handle_next_completed(self) -> None:
        future = self._pool.next_completed(_REFRESH_SECONDS)
        if future is None or self._clock() - self._refreshed_at > _REFRESH_SECONDS:
            self._refresh_workers()
        if future is None:
            return
        attempt, worker = self._running.pop(future)
        try:
            self._handle_result(future, attempt, worker)
        finally:
            future.release()

    # --- workers

    def _refresh_workers(self) -> None:
        """Lists the workers anew; raises `StoppedError` if there has been none for `_NO_WORKER_SECONDS`."""
        now = self._refreshed_at = self._clock()
        self._workers = self._pool.workers()
        self._replaced.intersection_update(self._workers.values())
        for attempt, worker, has_crashed in self._lost.pop_decided(self._workers.values()):
            (self._on_worker_crashed if has_crashed else self._on_job_lost)(attempt, worker)
        if self._supply is not None:
            waiting = len(self._queue) + len(self._retries) + len(self._suspects) + len(self._lost)
            self._supply.adjust(waiting + len(self._running), self._workers.values(), self._busy_workers())
        back = {worker.worker_id for worker in self._usable_workers()}
        self._restarting = {
            worker_id: since for worker_id, since in self._restarting.items()
            if worker_id not in back and now - since < _NO_WORKER_SECONDS
        }  # fmt: skip
        if back or self._restarting or (not self._workers and self._supply and self._supply.expects_workers):
            self._worker_seen_at = now
        elif self._workers and self._attribution.retired:
            raise StoppedError(
                f"no worker is left: each failed several units in a row, the last with {self._last_failure}; "
                "all finished units are kept: fix that and run the same command again"
            )
        elif now - self._worker_seen_at > _NO_WORKER_SECONDS:
            last = f" (the last failure: {self._last_failure})" if self._last_failure else ""
            raise StoppedError(
                f"the cluster has had no worker for {_NO_WORKER_SECONDS:.0f} s{last}; all finished units are kept; "
                "run the same command again"
            )

    def _busy_workers(self) -> list[Worker]:
        return [worker for _, worker in self._running.values()]

    def _usable_workers(self) -> list[Worker]:
        return [
            worker for worker in self._workers.values()
            if worker not in self._replaced and worker.worker_id not in self._attribution.retired
        ]  # fmt: skip

    def _record_failure(self, worker: Worker, attempt: Attempt, reason: str) -> None:
        """Records a failure; a process that can be replaced gets no more units."""
        self._last_failure = reason
        self._attribution.record_failure(worker.worker_id, attempt.lineage, reason)
        if worker.nanny and worker.worker_id not in self._attribution.retired:
            self._replaced.add(worker)
            self._restarting[worker.worker_id] = self._clock()

    # --- units

    def _assign_units(self) -> None:
        """Assigns one unit to each idle worker; suspects wait for the end and run one at a time, with no other unit.

        A worker with several unexplained failures gets no new unit until the other workers have explained them. If
        all are in that state, retries run first, one at a time.
        """
        busy = {worker.address for worker in self._busy_workers()}
        free = [worker for worker in self._usable_workers() if worker.address not in busy]
        for worker in free:
            if attempt := self._next_attempt_for(worker):
                self._submit(attempt, worker)
        if self._running or not free:
            return
        if self._queue and self._attribution.is_hopeless:
            raise StoppedError(
                f"no unit could be finished: each worker failed at several, the last with {self._last_failure}; "
                "fix the cause and run the same command again"
            )
        if self._queue and self._attribution.nothing_finished:
            self._submit_next(free[0])
        elif self._suspects and not self._retries:
            attempt = self._suspects.popleft()
            worker_ids = {worker.worker_id for worker in attempt.failed_on}
            self._submit(attempt, min(free, key=lambda worker: (worker.worker_id in worker_ids, worker.name)))
        elif self._queue and not self._retries:
            self._submit_next(free[0])
        elif self._retries and not self._restarting:
            raise StoppedError(
                f"a unit failed with {self._last_failure}, and there is no other worker to try it on; all finished "
                "units are kept: start a second worker, or one with a nanny, and run the same command again"
            )

    def _next_attempt_for(self, worker: Worker) -> Attempt | None:
        for attempt in self._retries:
            if self._may_retry(attempt, worker):
                self._retries.remove(attempt)
                return attempt
        return None if self._attribution.is_suspended(worker.worker_id) else self._queue.take()

    def _may_retry(self, attempt: Attempt, worker: Worker) -> bool:
        """Whether the outcome on `worker` shows who is at fault: not on the same process, nor one that always fails."""
        failed = {other.worker_id for other in attempt.failed_on}
        others = ({other.worker_id for other in self._usable_workers()} | self._restarting.keys()) - failed
        if worker in attempt.failed_on or (worker.worker_id in failed and others):
            return False
        if self._running or self._attribution.nothing_finished:
            return self._attribution.is_proven(worker.worker_id) or not (self._queue or self._running)
        all_suspended = all(self._attribution.is_suspended(other.worker_id) for other in self._usable_workers())
        return self._attribution.is_proven(worker.worker_id) or all_suspended or not self._queue

    def _submit_next(self, worker: Worker) -> None:
        if attempt := self._queue.take():
            self._submit(attempt, worker)

    def _submit(self, attempt: Attempt, worker: Worker) -> None:
        future = self._pool.submit(attempt.unit, worker)
        self._running[future] = (attempt, worker)

    def _handle_result(self, future: Future, attempt: Attempt, worker: Worker) -> None:
        if future.status in {"finished", "lost"}:
            self._on_finished(future, attempt, worker)
            return
        if future.status == "cancelled":
            raise StoppedError("the cluster is gone; all finished units are kept; run the same command again")
        error = future.exception()
        if isinstance(error, UnitError):
            self._on_unit_failed(attempt, self._process_at(error.worker, worker), error)
        elif isinstance(error, KilledWorker):
            self._on_worker_lost(attempt, self._process_at(error.last_worker.address, worker))
        else:
            raise error

    def _on_finished(self, future: Future, attempt: Attempt, worker: Worker) -> None:
        result = fetch_result(future)
        if result is None:
            reason = f"its result was lost with its worker ({worker})"
            self._observer.on_lost(attempt.unit, reason, "looking for its receipt")
            self._queue.add_first(replace(attempt, was_lost=True))
            return
        for worker_id in self._attribution.record_success(worker.worker_id, attempt.lineage):
            retired = next((known for known in self._workers.values() if known.worker_id == worker_id), None)
            self._observer.on_retired(str(retired or worker_id), self._attribution.retired[worker_id])
        self._on_unit_processed(attempt, result)

    def _process_at(self, address: str, assigned: Worker) -> Worker:
        """The process that ran a unit: `assigned` or, where that had left before, another."""
        return assigned if assigned.address == address else self._workers.get(address, assigned)

    def _on_unit_processed(self, attempt: Attempt, result: UnitResult) -> None:
        if result.receipt.outcome == "split":
            self._observer.on_lost(attempt.unit, "another process has split it", "processing its halves")
            self._queue.add_halves(attempt)
        elif result.work != "done" and not attempt.was_tried:  # else the other attempt may be one of this run
            self._observer.on_done_elsewhere(attempt.unit, is_duplicate=result.work == "in_vain")
        else:
            self._observer.on_receipt(result.receipt)

    def _on_unit_failed(self, attempt: Attempt, worker: Worker, error: UnitError) -> None:
        reason = f"{error}, on {worker}"
        self._record_failure(worker, attempt, str(error))
        if worker in self._replaced:
            self._pool.restart(worker)
        is_refused = isinstance(error, RefusedWorkerError)
        if is_refused and attempt.failed_on:
            raise StoppedError(
                f"the store of OUT refuses workers, the last one on {error}; all finished units are kept"
            )
        attempt = replace(
            attempt, failed_on=(*attempt.failed_on, worker), was_refused=attempt.was_refused or is_refused
        )
        if attempt.num_faults < 2:
            action = "trying it on another"
            if worker in self._replaced:
                action = "restarting that worker, and trying the unit on another"
            self._observer.on_lost(attempt.unit, reason, action)
            self._retries.append(attempt)
            return
        self._attribution.record_confirmed_failure(attempt.lineage, error.kind, str(error))
        if self._can_split(attempt.unit):
            self._split(attempt, reason)
        else:
            self._abandon(attempt.unit, reason)

    def _on_worker_lost(self, attempt: Attempt, worker: Worker) -> None:
        if self._supply is not None and worker.nanny is not None:
            self._lost.add(attempt, worker)
            self._workers.pop(worker.address, None)  # else it gets the next unit until they are listed anew
        else:
            self._on_worker_crashed(attempt, worker)

    def _on_job_lost(self, attempt: Attempt, worker: Worker) -> None:
        reason = f"its job has ended ({worker})"
        attempt = replace(attempt, jobs_lost=attempt.jobs_lost + 1)
        if attempt.jobs_lost < _MAX_JOBS_LOST:
            self._observer.on_lost(attempt.unit, reason, "processing it again")
            self._queue.add_first(attempt)
        elif self._can_split(attempt.unit):  # it may take longer than a job lasts
            self._split(attempt, reason)
        else:
            self._observer.on_lost(attempt.unit, reason, "leaving it to another run")
            self._num_jobs_lost += 1

    def _on_worker_crashed(self, attempt: Attempt, worker: Worker) -> None:
        reason = f"its worker was lost ({worker})"
        self._record_failure(worker, attempt, "its process being lost")
        attempt = replace(attempt, failed_on=(*attempt.failed_on, worker))
        if self._can_split(attempt.unit):
            self._split(attempt, reason)
        elif len(attempt.failed_on) < _MAX_WORKERS_LOST:
            # Another unit on the same machine may be at fault (memory): a unit is to blame only if it fails alone.
            self._observer.on_lost(attempt.unit, reason, "trying it again, alone, at the end")
            self._suspects.append(attempt)
        elif self._pool.is_shared():  # never alone: a worker that another job restarts is lost to all
            self._observer.on_lost(attempt.unit, reason, "leaving it to a run that has the cluster to itself")
            self._num_left += 1
        else:
            self._attribution.record_confirmed_failure(attempt.lineage, "lost", "its process being lost")
            self._abandon(attempt.unit, reason)

    def _can_split(self, unit: Unit) -> bool:
        """Whether it has several inputs, and no attempt has published its file."""
        paths = self._job.paths
        file = paths.unit_file(unit.split, unit.unit_id)
        return len(unit.inputs) > 1 and paths.files.size_bytes(file) is None

    def _split(self, attempt: Attempt, reason: str) -> None:
        """Halves a unit, to isolate the input at fault in the end; writes the receipt before the halves run."""
        unit = attempt.unit
        halves = [half.unit_id for half in unit.halves(self._job.config_hash)]
        valid_receipt = self._write_receipt(unit, outcome="split", children=halves)
        if valid_receipt.outcome == "done":  # its worker was not lost after all
            self._observer.on_receipt(valid_receipt)
            return
        self._observer.on_lost(unit, reason, "splitting it in two")
        self._attribution.record_split(unit.unit_id, len(halves))
        self._queue.add_halves(attempt)

    def _abandon(self, unit: Unit, reason: str) -> None:
        self._observer.on_lost(unit, reason, "giving it up")
        self._abandoned.append((unit, reason))

    def _record_abandoned(self) -> None:
        """Gives up the units that failed, unless their number shows that the cause is outside the data."""
        if len(self._abandoned) > 1 and self._attribution.nothing_finished:
            raise StoppedError(
                f"none of {len(self._abandoned)} units could be finished, the last failed with {self._last_failure}: "
                "that is no fault of single inputs. They will be tried again: fix the cause and run the same command "
                "again"
            )
        for unit, reason in self._abandoned:
            crashed = [
                InputOutcome(
                    video_id=entry.video_id, size_bytes=entry.size_bytes, mtime_ns=entry.mtime_ns,
                    outcome="failed", reason="crashed", detail=reason,
                )
                for entry in unit.inputs
            ]  # fmt: skip
            self._observer.on_receipt(self._write_receipt(unit, outcome="done", inputs=crashed))

    def _write_receipt(self, unit: Unit, **fields: Any) -> Receipt:
        """Writes the receipt of a unit that no worker finished; returns the one that is valid."""
        config_hash, supersedes = self._job.config_hash, list(unit.supersedes)
        receipt = Receipt(unit=unit.unit_id, config_hash=config_hash, supersedes=supersedes, **fields)
        return write_receipt(self._job.paths, unit, receipt)
