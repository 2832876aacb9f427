"""Units that wait: for a worker, or until it is known why a worker was lost that had them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from ..dataset.manifest import Receipt
from ..planning.options import JobSpec
from ..planning.plan import Unit
from ..planning.receipts import ReceiptReader
from .workers import Worker, WorkerPool

_DECISION_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Attempt:
    """A unit to run. `ancestors`: ids of the units it is a part of; `failed_on`: the workers that it failed on.

    `was_refused`: whether the first of them was refused by the store, which tells nothing of the unit. `jobs_lost`: how
    often the batch job of its worker ended under it. `was_lost`: whether a worker has finished it, of which the result
    was lost with the worker.
    """

    unit: Unit
    ancestors: tuple[str, ...] = ()
    failed_on: tuple[Worker, ...] = ()
    was_refused: bool = False
    jobs_lost: int = 0
    was_lost: bool = False

    @property
    def was_tried(self) -> bool:
        """Whether this run has tried the unit before: a receipt or a file of it may then be this run's own."""
        return bool(self.failed_on or self.jobs_lost or self.was_lost)

    @property
    def num_faults(self) -> int:
        """How often it failed in a way that may be its own fault."""
        return len(self.failed_on) - self.was_refused

    @property
    def lineage(self) -> tuple[str, ...]:
        """Ids from the planned unit down to this one."""
        return (*self.ancestors, self.unit.unit_id)


class UnitQueue:
    """Units of `job` that are to be processed, those whose batch job ended in the middle among them.

    Shares of parts may overlap, so each unit's receipt is looked for right before the unit is to be processed. A unit
    that has one is skipped, and passed to `on_done_elsewhere`; if a lost worker of this run may have written the
    receipt, that is passed to `on_receipt`.
    """

    def __init__(
        self,
        job: JobSpec,
        *,
        on_done_elsewhere: Callable[[Unit], object],
        on_receipt: Callable[[Receipt], object],
    ) -> None:
        self._job, self._on_done_elsewhere, self._on_receipt = job, on_done_elsewhere, on_receipt
        self._attempts: deque[Attempt] = deque()

    def __len__(self) -> int:
        return len(self._attempts)

    def extend(self, units: Iterable[Unit]) -> None:
        """Adds planned units at the end, the largest first: one that is begun last would be waited for alone."""
        self._attempts.extend(Attempt(unit) for unit in sorted(units, key=_size_bytes, reverse=True))

    def add_first(self, attempt: Attempt) -> None:
        """Adds a unit to be taken next."""
        self._attempts.appendleft(attempt)

    def add_halves(self, attempt: Attempt) -> None:
        """Adds the halves of a unit that was split, to be taken next."""
        halves = attempt.unit.halves(self._job.config_hash)
        self._attempts.extendleft(Attempt(half, attempt.lineage) for half in reversed(halves))

    def take(self) -> Attempt | None:
        """The next unit without a receipt; None where none is left."""
        while self._attempts:
            attempt = self._attempts.popleft()
            receipt = ReceiptReader(self._job.paths, self._job.config_hash).trusted_of(attempt.unit)
            if receipt is None:
                return attempt
            if receipt.outcome == "split":
                self.add_halves(attempt)
            elif attempt.was_tried:
                self._on_receipt(receipt)
            else:
                self._on_done_elsewhere(attempt.unit)
        return None


def _size_bytes(unit: Unit) -> int:
    return sum(entry.size_bytes for entry in unit.inputs_to_decode)


class LostWorkers:
    """Attempts whose worker was lost, until it is known whether its process crashed or its batch job ended.

    A process that crashes is restarted by its nanny; its input may be at fault. A job that ends (preempted, out of
    walltime, its node lost) ends the nanny too; no input is at fault.

    `pool`: the pool that the workers are from.
    """

    def __init__(self, pool: WorkerPool, clock: Callable[[], float]) -> None:
        self._pool, self._clock = pool, clock
        self._undecided: list[tuple[Attempt, Worker, float]] = []

    def __len__(self) -> int:
        return len(self._undecided)

    def add(self, attempt: Attempt, worker: Worker) -> None:
        """Adds an attempt and its worker, which has a nanny."""
        self._undecided.append((attempt, worker, self._clock()))

    def pop_decided(self, workers: Collection[Worker]) -> Iterator[tuple[Attempt, Worker, bool]]:
        """Removes and yields decided attempts: (attempt, worker, whether it crashed); `workers`: all present."""
        restarted = {worker.worker_id for worker in workers}
        undecided, self._undecided = self._undecided, []
        for attempt, worker, since in undecided:
            assert worker.nanny is not None
            if worker.worker_id in restarted and worker not in workers:
                yield attempt, worker, True
            elif self._clock() - since > _DECISION_TIMEOUT_SECONDS or not self._pool.nanny_answers(worker.nanny):
                yield attempt, worker, False
            else:
                self._undecided.append((attempt, worker, since))
