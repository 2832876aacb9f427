"""The workers of a cluster as the driver sees them: who is there, a unit for one of them, a new process for one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client, Future

from ..planning.plan import Unit
from .cluster import run_unit

_RESTART_SECONDS = 30.0


@dataclass(frozen=True)
class Slot:
    """One worker process. `nanny`: the address of the process that restarts it, or None where nothing does."""

    address: str
    name: str
    nanny: str | None

    @property
    def home(self) -> str:
        """What stays the same when the process is restarted."""
        return self.nanny or self.address

    def __str__(self) -> str:
        return f"worker {self.name}"


class Fleet:
    """The workers of `client`, each with the slot that `plugin` gave it."""

    def __init__(self, client: Client, plugin: str) -> None:
        self._client, self._plugin = client, plugin
        self._done: SimpleQueue[Future] = SimpleQueue()

    def slots(self) -> dict[str, Slot]:
        """Every worker that takes tasks, by its address; none where the scheduler cannot be reached."""
        try:
            return {one[0]: Slot(*one) for one in self._client.run_on_scheduler(_running_workers)}
        except (OSError, TimeoutError, ValueError):  # the scheduler is gone: its futures end by themselves
            return {}

    def submit(self, unit: Unit, slot: Slot) -> Future:
        """Runs a unit on one worker or, where that has left meanwhile, on any."""
        # A tuple: Dask keeps a record per first element for ever, so keys of one kind must share theirs.
        key = ("facefeed-unit", f"{unit.unit_id}-{time.monotonic_ns()}")
        future = self._client.submit(
            run_unit, unit, self._plugin, key=key, pure=False, retries=0, workers=[slot.address],
            allow_other_workers=True,
        )  # fmt: skip
        future.add_done_callback(self._done.put)
        return future

    def await_one(self, timeout_seconds: float) -> Future | None:
        """The next of the submitted that ends, in whatever way; None where none does in time."""
        try:
            return self._done.get(timeout=timeout_seconds)
        except Empty:
            return None

    def restart(self, slot: Slot) -> None:
        """Has the worker's process replaced, which takes seconds; nobody waits for it."""

        async def ask() -> None:
            await self._client.scheduler.restart_workers(
                workers=[slot.address], timeout=_RESTART_SECONDS, wait_for_workers=False, on_error="return",
                stimulus_id=f"facefeed-restart-{time.monotonic_ns()}",
            )  # fmt: skip

        asyncio.run_coroutine_threadsafe(ask(), self._client.loop.asyncio_loop)

    def cancel(self, futures: Iterable[Future]) -> None:
        """Units that have not begun never will."""
        self._client.cancel(list(futures))


def _running_workers(dask_scheduler: Any) -> list[tuple[str, str, str | None]]:
    return [(one.address, str(one.name), one.nanny or None) for one in dask_scheduler.running]
