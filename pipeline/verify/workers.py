"""An `OrderedMap` on the workers of a Dask cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from distributed import Future, KilledWorker, get_worker

from ..console import plural
from ..dataset.out import OutPaths
from ..dataset.stores.writing import StoreFiles
from ..errors import StoppedError
from ..execution.batch_system import job_description, start_cluster
from ..execution.cluster import (
    encryption_warning,
    exit_if_imported_by_worker,
    local_client,
    remote_client,
    stop_on_cluster_error,
)
from ..execution.worker_supply import WorkerSupply
from ..execution.workers import TaskPool, fetch_result
from ..files import stop_on_any_disk_error
from .ordered import Located, OrderedMap

_TASKS_PER_WORKER: Final = 4
"""Running, waiting, or done while an earlier one is not: their number bounds the driver's memory."""
_MAX_WORKERS_LOST: Final = 3
_REFRESH_SECONDS: Final = 1.0
_NO_WORKER_SECONDS: Final = 120.0


@contextmanager
def start_workers(
    paths: OutPaths,
    workers: int | tuple[int, int] | None,
    scheduler: str | None,
    cluster: str | Callable[[], Any] | None,
    *,
    num_chunks: int,
    on_wait: Callable[[str], object],
) -> Iterator[OrderedMap]:
    """Starts workers on this machine or a cluster, or joins one; yields what works on them.

    `num_chunks`: about how many there are of most work. Raises `StoppedError` where the cluster fails, also within
    the block.
    """
    exit_if_imported_by_worker()
    supply = None
    with stop_on_cluster_error(is_kept=False), ExitStack() as stack:
        if cluster is not None:
            if isinstance(cluster, str):
                on_wait(f"starting workers as jobs of {cluster}: {job_description(cluster)}")
            # For the certificate and the jobs' logs: nothing is written to OUT.
            client, files = stack.enter_context(start_cluster(cluster, None))
            limits = (workers, workers) if isinstance(workers, int) else workers
            supply = WorkerSupply(client.cluster, limits, _Reporter(on_wait), files=files)
        elif scheduler is not None:
            client = stack.enter_context(remote_client(scheduler))
        else:
            assert isinstance(workers, int)
            client = stack.enter_context(local_client(workers))
        if (warning := encryption_warning(client, scheduler)) is not None:
            on_wait(warning)
        yield MapOnWorkers(TaskPool(client), paths, num_chunks, supply=supply)


class _Reporter:
    """Messages of a `WorkerSupply`."""

    def __init__(self, on_wait: Callable[[str], object]) -> None:
        self._on_wait = on_wait

    def on_wait(self, reason: str) -> None:
        """Reports that workers are waited for."""
        self._on_wait(reason)

    def warn(self, text: str) -> None:
        """Reports that some workers could not be started."""
        self._on_wait(text)


_Function = Callable[[OutPaths, Sequence[Any]], Sequence[Any]]


@dataclass(eq=False)
class _Task:
    chunk: Sequence[Located]
    future: Future
    results: Sequence[Any] | None = None
    workers_lost: int = 0


class MapOnWorkers:
    """An `OrderedMap` on the workers of `pool`; work whose worker dies is done again, each piece by itself.

    `num_chunks`: about how many will come, to start workers for.
    """

    def __init__(
        self,
        pool: TaskPool,
        paths: OutPaths,
        num_chunks: int,
        *,
        supply: WorkerSupply | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool, self._paths, self._num_left = pool, paths, num_chunks
        self._supply, self._clock = supply, clock
        self._tasks: list[_Task] = []  # in order
        self._num_workers = 0
        self._refreshed_at = self._worker_seen_at = -_REFRESH_SECONDS

    def __call__(self, function: _Function, chunks: Iterator[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """See `OrderedMap`. Raises `StoppedError` where a piece ends several workers, or there is none for long."""
        self._worker_seen_at = self._clock()  # nobody has looked since the last call
        try:
            while True:
                self._refresh_workers()
                while len(self._tasks) < _TASKS_PER_WORKER * max(1, self._num_workers):
                    if (chunk := next(chunks, None)) is None:
                        break
                    self._tasks.append(_Task(chunk, self._submit(function, chunk)))
                if not self._tasks:
                    return
                self._handle_next_completed(function)
                while self._tasks and (results := self._tasks[0].results) is not None:
                    del self._tasks[0]
                    yield results
        finally:
            with suppress(Exception):  # the cluster may be what has failed
                self._pool.cancel([task.future for task in self._tasks if task.results is None])

    def _submit(self, function: _Function, chunk: Sequence[Located]) -> Future:
        return self._pool.submit_task(call_on_worker, function, self._paths, chunk, name="facefeed-verify")

    def _refresh_workers(self) -> None:
        now = self._clock()
        if now - self._refreshed_at < _REFRESH_SECONDS:
            return
        self._refreshed_at = now
        workers = self._pool.workers().values()
        self._num_workers = len(workers)
        if self._supply is not None:
            self._supply.adjust(max(self._num_left, len(self._tasks)), workers, workers)
        if workers or (self._supply is not None and self._supply.expects_workers):
            self._worker_seen_at = now
        elif now - self._worker_seen_at > _NO_WORKER_SECONDS:
            raise StoppedError(
                f"the cluster has had no worker for {_NO_WORKER_SECONDS:.0f} s; run the same command again"
            )

    def _handle_next_completed(self, function: _Function) -> None:
        future = self._pool.next_completed(_REFRESH_SECONDS)
        task = next((task for task in self._tasks if task.future is future), None)
        if future is None or task is None:
            return
        if future.status == "cancelled":
            raise StoppedError("the cluster is gone; run the same command again")
        if future.status in {"finished", "lost"}:
            task.results = fetch_result(future)
            if task.results is None:
                task.future = self._submit(function, task.chunk)
            else:
                self._num_left -= 1
        elif isinstance(error := future.exception(), KilledWorker):
            self._do_again(function, task)
        else:
            raise error
        future.release()

    def _do_again(self, function: _Function, task: _Task) -> None:
        lost = task.workers_lost + 1
        if lost == _MAX_WORKERS_LOST:
            (piece,) = task.chunk
            raise StoppedError(
                f"{piece.location}: {plural(lost, 'worker')} ended while reading it; give them more memory, or delete "
                "the file if it is damaged, and run the same command again"
            )
        place = self._tasks.index(task)
        self._tasks[place : place + 1] = [
            _Task([piece], self._submit(function, [piece]), workers_lost=lost) for piece in task.chunk
        ]


def call_on_worker(function: _Function, paths: OutPaths, chunk: Sequence[Any]) -> Sequence[Any]:
    """The Dask task: calls a function, for an OUT in a store with a working copy of this worker's own."""
    with _paths_here(paths) as own, stop_on_any_disk_error(own.root):
        return function(own, chunk)


@contextmanager
def _paths_here(paths: OutPaths) -> Iterator[OutPaths]:
    if isinstance(paths.files, StoreFiles):
        with paths.files.copied_anew() as copied:
            yield copied
    elif not paths.plan.is_dir():
        raise StoppedError(f"{paths.root}: does not exist on {get_worker().address}; all workers must see OUT alike")
    else:
        yield paths
