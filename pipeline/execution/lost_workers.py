"""Lost workers of a batch system: distinguishes the crash of a worker's process from the end of its whole job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from .unit_queue import Attempt
from .workers import Worker, WorkerPool

_DECISION_TIMEOUT_SECONDS = 120.0


class LostWorkers:
    """Attempts whose worker was lost, until it is known whether its process crashed or its job ended.

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
