"""Drives the units of a job over a Dask cluster: a bounded window of futures, and every failure sorted here.

Dask runs each unit at least once; publishing is idempotent; together each unit's rows appear once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from distributed import Client, Future, KilledWorker, as_completed

from .cluster import run_unit
from .commit import write_receipt
from .errors import StoppedError
from .job import Job
from .manifest import InputOutcome, Receipt
from .plan import Unit

_TRIES = 3
_WATCH_SECONDS = 5.0
_STRANDED_SECONDS = 120.0


class Observer(Protocol):
    """Told what happens, for progress; called from the driver's thread."""

    def on_receipt(self, receipt: Receipt) -> None:
        """A unit is done, or was split."""

    def on_lost(self, unit: Unit, why: str, then: str) -> None:
        """A unit's worker was lost or the unit failed, and what is done about it."""


@dataclass(frozen=True)
class _Attempt:
    unit: Unit
    tries: int = 1


class Stage:
    """Runs units on the workers of `client` until none is left; keeps nothing of a unit once it is done."""

    def __init__(self, client: Client, job: Job, plugin: str, observer: Observer) -> None:
        self._client, self._job, self._plugin, self._observer = client, job, plugin, observer
        self._waiting: deque[_Attempt] = deque()
        self._suspects: deque[_Attempt] = deque()
        self._running: dict[Future, _Attempt] = {}
        self._slots = self._count_slots()
        self._stranded = False

    def run(self, units: Iterable[Unit]) -> None:
        """Raises `StoppedError` where the disk or the cluster fails; all receipts so far stand."""
        self._waiting.extend(_Attempt(unit) for unit in units)
        done = as_completed([], with_results=False)
        with self._watching():
            self._fill(done)
            for future in done:
                self._settle(future, self._running.pop(future))
                future.release()
                self._fill(done)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Counts slots while work goes on, and gives up on a cluster that has none for too long."""
        stop = threading.Event()

        def watch() -> None:
            seen = time.monotonic()
            while not stop.wait(_WATCH_SECONDS):
                self._slots = self._count_slots()
                seen = time.monotonic() if self._slots else seen
                if time.monotonic() - seen > _STRANDED_SECONDS:
                    self._stranded = True
                    self._client.cancel(list(self._running), force=True)  # wakes the driver's thread

        thread = threading.Thread(target=watch, name="facefeed-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            with suppress(Exception):  # the cluster may be what has failed
                self._client.cancel(list(self._running))

    def _count_slots(self) -> int:
        try:
            return len(self._client.nthreads())
        except (OSError, TimeoutError, ValueError):  # the scheduler is gone: its futures end by themselves
            return 0

    def _fill(self, done: Any) -> None:
        """One unit a slot; suspects wait for the end, and run one at a time with nothing beside them."""
        while self._waiting and len(self._running) < max(1, self._slots):
            self._submit(self._waiting.popleft(), done)
        if self._suspects and not self._running:
            self._submit(self._suspects.popleft(), done)

    def _submit(self, attempt: _Attempt, done: Any) -> None:
        # A tuple: Dask keeps a record per first element for ever, so keys of one kind must share theirs.
        key = ("facefeed-unit", f"{attempt.unit.unit}-{attempt.tries}-{time.monotonic_ns()}")
        future = self._client.submit(run_unit, attempt.unit, self._plugin, key=key, pure=False, retries=0)
        self._running[future] = attempt
        done.add(future)

    def _settle(self, future: Future, attempt: _Attempt) -> None:
        if future.status == "finished":
            self._observer.on_receipt(future.result())
            return
        if future.status in {"cancelled", "lost"}:
            why = f"has had no worker for {_STRANDED_SECONDS:.0f} s" if self._stranded else "is gone"
            raise StoppedError(f"the cluster {why}; all finished units are kept; run the same command again")
        error = future.exception()
        if isinstance(error, StoppedError):
            raise error
        lost = isinstance(error, KilledWorker)
        why = "its worker was lost" if lost else f"{type(error).__name__}: {error}"
        published = self._job.paths.unit_file(attempt.unit.split, attempt.unit.unit).exists()
        if len(attempt.unit.inputs) > 1 and (lost or attempt.tries == _TRIES) and not published:
            self._split(attempt.unit, why)
        elif attempt.tries < _TRIES:
            # A lost worker may have held a second unit, that had not even begun: only alone is a unit to blame.
            again, where = (self._suspects, ", alone, at the end") if lost else (self._waiting, "")
            self._observer.on_lost(attempt.unit, why, f"trying again{where} ({attempt.tries + 1} of {_TRIES})")
            again.append(replace(attempt, tries=attempt.tries + 1))
        else:
            self._quarantine(attempt.unit, why)

    def _split(self, unit: Unit, why: str) -> None:
        """Halves a unit, so that in the end its culprit stands alone; the receipt comes before the children run."""
        children = unit.halves(self._job.config)
        receipt = Receipt(
            unit=unit.unit, config=self._job.config, outcome="split", supersedes=list(unit.supersedes),
            children=[child.unit for child in children],
        )  # fmt: skip
        standing = write_receipt(self._job.paths, receipt)
        if standing.outcome == "done":  # its worker was only believed lost
            self._observer.on_receipt(standing)
            return
        self._observer.on_lost(unit, why, "splitting it in two")
        self._waiting.extendleft(_Attempt(child) for child in reversed(children))

    def _quarantine(self, unit: Unit, why: str) -> None:
        outcomes = [
            InputOutcome(
                video_id=entry.video_id, size_bytes=entry.size_bytes, mtime_ns=entry.mtime_ns,
                outcome="failed", reason="crashed", detail=why,
            )
            for entry in unit.inputs
        ]  # fmt: skip
        receipt = Receipt(
            unit=unit.unit,
            config=self._job.config,
            outcome="done",
            supersedes=list(unit.supersedes),
            inputs=outcomes,
        )
        self._observer.on_receipt(write_receipt(self._job.paths, receipt))
