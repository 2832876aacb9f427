"""Tasks on a virtual clock, in place of `TaskPool`: each runs in this process, and the last completes first."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from assets_clock import Clock
from distributed import KilledWorker
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.execution.workers import Worker
from facefeed.pipeline.verify import workers
from facefeed.pipeline.verify.workers import MapOnWorkers

Dies = Callable[[Any], bool]
"""Whether the worker dies that gets a task of these arguments."""


@dataclass(eq=False)
class Completed:
    """A future that is done. `fetch_error`: raised in place of its result; `is_lost`: as is known by now."""

    value: object = None
    error: Exception | None = None
    fetch_error: Exception | None = None
    is_lost: bool = False

    @property
    def status(self) -> str:
        if self.error is not None:
            return "error"
        return "lost" if self.is_lost else "finished"

    def result(self, timeout: float) -> object:
        if self.fetch_error is not None:
            self.is_lost = isinstance(self.fetch_error, TimeoutError)
            raise self.fetch_error
        return self.value

    def exception(self) -> Exception | None:
        return self.error

    def release(self) -> None:
        pass


@dataclass
class TasksInProcess:
    """`size` workers; arguments and results are pickled, as on their way to other processes and back.

    `damages`: what happens to each future once it is done.
    """

    size: int = 2
    dies: Dies = lambda *_: False
    damages: Callable[[Completed], object] = lambda _: None
    clock: Clock = field(default_factory=Clock)
    waiting: list[Completed] = field(default_factory=list)
    most_waiting: int = 0

    def workers(self) -> dict[str, Worker]:
        return {str(number): Worker(str(number), str(number), None, str(number)) for number in range(self.size)}

    def submit_task(self, function: Callable[..., object], *arguments: object, name: str) -> Completed:
        self.waiting.append(self._run(function, pickle.loads(pickle.dumps(arguments))))
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        return self.waiting[-1]

    def _run(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> Completed:
        if not self.size:
            return Completed()
        if self.dies(arguments[-1]):
            return Completed(error=KilledWorker("task", None, 0))
        try:
            return Completed(pickle.loads(pickle.dumps(function(*arguments))))
        except Exception as error:
            return Completed(error=error)

    def next_completed(self, timeout_seconds: float) -> Completed | None:
        self.clock.now += timeout_seconds
        if not (self.waiting and self.size):
            return None
        future = self.waiting.pop()
        self.damages(future)
        return future

    def cancel(self, futures: Iterable[object]) -> None:
        self.waiting = []


@contextmanager
def checked_by(pool: TasksInProcess) -> Iterator[None]:
    """Within the block the workers of `verify` are those of `pool`."""

    @contextmanager
    def start_workers(paths: OutPaths, *_: object, num_chunks: int, **__: object) -> Iterator[MapOnWorkers]:
        yield MapOnWorkers(pool, paths, num_chunks, clock=pool.clock)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "start_workers", start_workers)
        yield
