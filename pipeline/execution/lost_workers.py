"""Lost workers of a batch system: tells the crash of a worker's process from the end of its whole job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from .unit_queue import Attempt
from .workers import Worker, WorkerPool

_DECISION_SECONDS = 120.0


class LostWorkers:
    """Attempts whose worker was lost, until it shows whether its process or its job was.

    A process that crashes is started again by its nanny, which an input may be to blame for. A job that ends, since it
    was preempted or its node or its time is gone, takes the nanny with it, which no input is to blame for.

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

    def decided(self, workers: Collection[Worker]) -> Iterator[tuple[Attempt, Worker, bool]]:
        """Yields and removes attempts that are decided, with whether the process crashed; `workers`: all there are."""
        restarted = {worker.worker_id for worker in workers}
        undecided, self._undecided = self._undecided, []
        for attempt, worker, since in undecided:
            assert worker.nanny is not None
            if worker.worker_id in restarted and worker not in workers:
                yield attempt, worker, True
            elif self._clock() - since > _DECISION_SECONDS or not self._pool.nanny_answers(worker.nanny):
                yield attempt, worker, False
            else:
                self._undecided.append((attempt, worker, since))
