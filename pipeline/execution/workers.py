"""The cluster's workers as the driver uses them: list them, submit a unit to one, restart one."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client, Future, KilledWorker
from distributed.core import connect

from ..errors import StoppedError
from ..planning.plan import Unit
from .unit_task import run_unit

_RESTART_SECONDS = 30.0
_ANSWER_SECONDS = 5.0
_FETCH_SECONDS = 120.0
"""For a result to get here: without a limit, one whose worker is gone is waited for until there is another."""


@dataclass(frozen=True)
class Worker:
    """One worker process. `nanny`: the address of the process that restarts it, or None without one.

    `server_id`: Dask's id of the process. With a fixed `--worker-port`, a restarted process has the old one's address.
    """

    address: str
    name: str
    nanny: str | None
    server_id: str

    @property
    def worker_id(self) -> str:
        """An id that survives a restart of the process: the nanny's address or, without one, its own."""
        return self.nanny or self.address

    def __str__(self) -> str:
        return f"worker {self.name}"


def fetch_result(future: Future) -> Any:
    """The result of a task that has finished; None where it went with its worker before it was here.

    Raises `StoppedError` where the worker is there, but does not send it.
    """
    if future.status == "lost":
        return None
    try:
        return future.result(timeout=_FETCH_SECONDS)
    except KilledWorker:  # Dask has tried it again meanwhile
        return None
    except TimeoutError as error:
        if future.status != "finished":
            return None
        raise StoppedError(
            f"a worker has not sent its result in {_FETCH_SECONDS:.0f} s; run the same command again"
        ) from error


class TaskPool:
    """The workers of `client`, and the tasks that this process has submitted to them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._completed: SimpleQueue[Future] = SimpleQueue()

    def workers(self) -> dict[str, Worker]:
        """All workers that accept tasks, by address; none where the scheduler cannot be reached."""
        return {fields[0]: Worker(*fields) for fields in self._ask_scheduler(_running_workers) or ()}

    def submit_task(self, function: Callable[..., object], *arguments: object, name: str, **where: Any) -> Future:
        """Submits a call of a function to any worker, or as `where` says; no worker runs it again.

        `name`: of all such tasks.
        """
        # A tuple: Dask keeps a record for each first element for ever, so all tasks share theirs.
        key = (name, uuid.uuid4().hex)
        future = self._client.submit(function, *arguments, key=key, pure=False, retries=0, **where)
        future.add_done_callback(self._completed.put)
        return future

    def next_completed(self, timeout_seconds: float) -> Future | None:
        """The next submitted future that completes, successfully or not; None after `timeout_seconds`."""
        try:
            return self._completed.get(timeout=timeout_seconds)
        except Empty:
            return None

    def cancel(self, futures: Iterable[Future]) -> None:
        """Cancels tasks that have not started."""
        self._client.cancel(list(futures))

    def _ask_scheduler(self, function: Callable[..., Any], **arguments: object) -> Any:
        """What a function returns in the scheduler's process; None where it is gone, and its futures are cancelled."""
        try:
            return self._client.run_on_scheduler(function, **arguments)
        except (OSError, TimeoutError, ValueError):
            return None


class WorkerPool(TaskPool):
    """As `TaskPool`, for units; `plugin_name`: of the plugin that holds the `UnitWorker` of each worker."""

    def __init__(self, client: Client, plugin_name: str) -> None:
        super().__init__(client)
        self._plugin_name = plugin_name

    def submit(self, unit: Unit, worker: Worker) -> Future:
        """Submits a unit to one worker or, if that has left meanwhile, to any."""
        return self.submit_task(
            run_unit, unit, self._plugin_name, name="facefeed-unit", workers=[worker.address],
            allow_other_workers=True,
        )  # fmt: skip

    def restart(self, worker: Worker) -> None:
        """Requests a new process for the worker, without waiting the seconds that this takes."""

        async def request_restart() -> None:
            await self._client.scheduler.restart_workers(
                workers=[worker.address], timeout=_RESTART_SECONDS, wait_for_workers=False, on_error="return",
                stimulus_id=f"facefeed-restart-{time.monotonic_ns()}",
            )  # fmt: skip

        asyncio.run_coroutine_threadsafe(request_restart(), self._client.loop.asyncio_loop)

    def is_shared(self) -> bool:
        """Whether another client has tasks on this cluster; it may be what makes workers go away."""
        return bool(self._ask_scheduler(_has_other_clients, client_id=self._client.id))

    def nanny_answers(self, address: str) -> bool:
        """Whether a nanny listens at `address`, as its scheduler sees it; the driver may not reach nannies."""
        return bool(self._ask_scheduler(_answers, address=address))


def _running_workers(dask_scheduler: Any) -> list[tuple[str, str, str | None, str]]:
    return [
        (worker.address, str(worker.name), worker.nanny or None, worker.server_id) for worker in dask_scheduler.running
    ]


def _has_other_clients(dask_scheduler: Any, client_id: str) -> bool:
    return any(client.wants_what for name, client in dask_scheduler.clients.items() if name != client_id)


async def _answers(address: str, dask_scheduler: Any) -> bool:
    try:
        comm = await connect(address, timeout=_ANSWER_SECONDS, **dask_scheduler.connection_args)
    except (OSError, TimeoutError):
        return False
    await comm.close()
    return True
