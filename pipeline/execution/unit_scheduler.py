"""Drives the units of a job over the workers of a cluster: one unit a worker, and every failure sorted here.

Dask runs each unit at least once; publishing is idempotent; together each unit's rows appear once. The process of a
worker that has failed is replaced, and no unit is given up before it has failed on two of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from distributed import Future, KilledWorker

from ..commit.publish import write_receipt
from ..dataset.manifest import InputOutcome, Receipt
from ..errors import StoppedError
from ..planning.options import JobSpec
from ..planning.plan import Unit
from .cluster import UnitError
from .failure_attribution import Blame
from .workers import Fleet, Slot

_MOST_LOST = 3
_WATCH_SECONDS = 1.0
_STRANDED_SECONDS = 120.0


class Observer(Protocol):
    """Told what happens, for progress; called from the driver's thread."""

    def on_receipt(self, receipt: Receipt) -> None:
        """A unit is done, or was split."""

    def on_lost(self, unit: Unit, why: str, then: str) -> None:
        """A unit's worker was lost or the unit failed, and what is done about it."""

    def on_retired(self, worker: str, why: str) -> None:
        """A worker gets no more units."""


@dataclass(frozen=True)
class _Attempt:
    """A unit to be run. `lineage`: the units it is a part of; `failed_on`: the workers that it failed on."""

    unit: Unit
    lineage: tuple[str, ...] = ()
    failed_on: tuple[Slot, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the planned unit, its parts, and this one."""
        return (*self.lineage, self.unit.unit_id)


class Stage:
    """Runs units on the workers of `fleet` until none is left; keeps nothing of a unit once it is done."""

    def __init__(
        self,
        fleet: Fleet,
        job: JobSpec,
        observer: Observer,
        *,
        finished: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`finished`: how many units earlier runs have finished."""
        self._fleet, self._job, self._observer, self._clock = fleet, job, observer, clock
        self._waiting: deque[_Attempt] = deque()
        self._retries: deque[_Attempt] = deque()  # failed on one worker
        self._suspects: deque[_Attempt] = deque()  # alone when their worker was lost
        self._given_up: list[tuple[Unit, str]] = []
        self._running: dict[Future, tuple[_Attempt, Slot]] = {}
        self._blame = Blame(finished)
        self._slots: dict[str, Slot] = {}
        self._spent: set[str] = set()  # addresses of processes that are being replaced
        self._restarting: dict[str, float] = {}  # homes, and since when
        self._looked_at = self._seen_at = self._clock()
        self._last_failure = ""

    def run(self, units: Iterable[Unit]) -> None:
        """Raises `StoppedError` where the disk, the cluster or nearly every unit fails; all receipts so far stand.

        Inputs are given up at the end alone: a run that stops has them tried again by the next one.
        """
        self._waiting.extend(_Attempt(unit) for unit in units)
        self._look()
        try:
            while self._waiting or self._retries or self._suspects or self._running:
                self._fill()
                self._await_one()
        finally:
            with suppress(Exception):  # the cluster may be what has failed
                self._fleet.cancel(self._running)
        for unit, why in self._given_up:
            self._quarantine(unit, why)

    def _await_one(self) -> None:
        future = self._fleet.await_one(_WATCH_SECONDS)
        if future is None or self._clock() - self._looked_at > _WATCH_SECONDS:
            self._look()
        if future is None:
            return
        attempt, slot = self._running.pop(future)
        try:
            self._settle(future, attempt, slot)
        finally:
            future.release()

    # --- workers

    def _look(self) -> None:
        """Sees which workers are there; gives up on a cluster that has had none for too long."""
        now = self._looked_at = self._clock()
        self._slots = self._fleet.slots()
        self._spent &= self._slots.keys()
        back = {slot.home for slot in self._usable()}
        self._restarting = {
            home: since for home, since in self._restarting.items()
            if home not in back and now - since < _STRANDED_SECONDS
        }  # fmt: skip
        if back or self._restarting:
            self._seen_at = now
        elif self._slots and self._blame.retired:
            raise StoppedError(
                f"no worker is left: each failed several units in a row, the last with {self._last_failure}; "
                "all finished units are kept: fix that and run the same command again"
            )
        elif now - self._seen_at > _STRANDED_SECONDS:
            last = f" (the last failure: {self._last_failure})" if self._last_failure else ""
            raise StoppedError(
                f"the cluster has had no worker for {_STRANDED_SECONDS:.0f} s{last}; all finished units are kept; "
                "run the same command again"
            )

    def _usable(self) -> list[Slot]:
        return [
            slot for slot in self._slots.values()
            if slot.address not in self._spent and slot.home not in self._blame.retired
        ]  # fmt: skip

    def _blame_worker(self, slot: Slot, attempt: _Attempt, why: str) -> None:
        """The failed process is not used again, where it can be replaced."""
        self._last_failure = why
        self._blame.failed(slot.home, attempt.names, why)
        if slot.nanny and slot.home not in self._blame.retired:
            self._spent.add(slot.address)
            self._restarting[slot.home] = self._clock()

    # --- units

    def _fill(self) -> None:
        """One unit a worker; suspects wait for the end, and run one at a time with nothing beside them.

        A worker with several unexplained failures gets no new unit before these are explained, which others' work does;
        where no other is left, they are explained first, one at a time.
        """
        busy = {slot.address for _, slot in self._running.values()}
        free = [slot for slot in self._usable() if slot.address not in busy]
        for slot in free:
            if attempt := self._next_for(slot):
                self._submit(attempt, slot)
        if self._running or not free:
            return
        if self._waiting and self._blame.is_hopeless:
            raise StoppedError(
                f"no unit could be finished: each worker failed at several, the last with {self._last_failure}; "
                "fix the cause and run the same command again"
            )
        if self._waiting and self._blame.nothing_finished:
            self._submit(self._waiting.popleft(), free[0])
        elif self._suspects and not self._retries:
            attempt = self._suspects.popleft()
            homes = {slot.home for slot in attempt.failed_on}
            self._submit(attempt, min(free, key=lambda slot: (slot.home in homes, slot.name)))
        elif self._waiting and not self._retries:
            self._submit(self._waiting.popleft(), free[0])
        elif self._retries and not self._restarting:
            raise StoppedError(
                f"a unit failed with {self._last_failure}, and there is no other worker to try it on; all finished "
                "units are kept: start a second worker, or one with a nanny, and run the same command again"
            )

    def _next_for(self, slot: Slot) -> _Attempt | None:
        for attempt in self._retries:
            if self._may_retry(attempt, slot):
                self._retries.remove(attempt)
                return attempt
        return self._waiting.popleft() if self._waiting and not self._blame.is_suspended(slot.home) else None

    def _may_retry(self, attempt: _Attempt, slot: Slot) -> bool:
        """Whether what happens there says whose fault it was: never the same process, nor one that always fails."""
        failed = {one.home for one in attempt.failed_on}
        others = ({one.home for one in self._usable()} | self._restarting.keys()) - failed
        if slot in attempt.failed_on or (slot.home in failed and others):
            return False
        if self._running or self._blame.nothing_finished:
            return self._blame.is_proven(slot.home) or not (self._waiting or self._running)
        nobody = all(self._blame.is_suspended(one.home) for one in self._usable())
        return self._blame.is_proven(slot.home) or nobody or not self._waiting

    def _submit(self, attempt: _Attempt, slot: Slot) -> None:
        future = self._fleet.submit(attempt.unit, slot)
        self._running[future] = (attempt, slot)

    def _settle(self, future: Future, attempt: _Attempt, slot: Slot) -> None:
        if future.status == "finished":
            for home in self._blame.succeeded(slot.home, attempt.names):
                retired = next((one for one in self._slots.values() if one.home == home), None)
                self._observer.on_retired(str(retired or home), self._blame.retired[home])
            self._observer.on_receipt(future.result())
            return
        if future.status in {"cancelled", "lost"}:
            raise StoppedError("the cluster is gone; all finished units are kept; run the same command again")
        error = future.exception()
        if isinstance(error, UnitError):
            self._failed(attempt, self._slots.get(error.worker, slot), error)
        elif isinstance(error, KilledWorker):
            self._lost(attempt, self._slots.get(error.last_worker.address, slot))
        else:
            raise error

    def _failed(self, attempt: _Attempt, slot: Slot, error: UnitError) -> None:
        why = f"{error}, on {slot}"
        self._blame_worker(slot, attempt, str(error))
        if slot.address in self._spent:
            self._fleet.restart(slot)
        attempt = replace(attempt, failed_on=(*attempt.failed_on, slot))
        if len(attempt.failed_on) == 1:
            self._observer.on_lost(
                attempt.unit,
                why,
                "restarting that worker, and trying the unit on another"
                if slot.address in self._spent
                else "trying it on another",
            )
            self._retries.append(attempt)
            return
        self._blame.confirmed(attempt.names, error.kind, str(error))
        if self._may_split(attempt.unit):
            self._split(attempt, why)
        else:
            self._give_up(attempt.unit, why)

    def _lost(self, attempt: _Attempt, slot: Slot) -> None:
        why = f"its worker was lost ({slot})"
        self._blame_worker(slot, attempt, "its process being lost")
        attempt = replace(attempt, failed_on=(*attempt.failed_on, slot))
        if self._may_split(attempt.unit):
            self._split(attempt, why)
        elif len(attempt.failed_on) < _MOST_LOST:
            # It may have been another unit's doing, on the same machine: only alone is a unit to blame.
            self._observer.on_lost(attempt.unit, why, "trying it again, alone, at the end")
            self._suspects.append(attempt)
        else:
            self._blame.confirmed(attempt.names, "lost", "its process being lost")
            self._give_up(attempt.unit, why)

    def _may_split(self, unit: Unit) -> bool:
        return len(unit.inputs) > 1 and not self._job.paths.unit_file(unit.split, unit.unit_id).exists()

    def _split(self, attempt: _Attempt, why: str) -> None:
        """Halves a unit, so that in the end its culprit stands alone; the receipt comes before the children run."""
        unit = attempt.unit
        children = unit.halves(self._job.config_hash)
        receipt = Receipt(
            unit=unit.unit_id, config_hash=self._job.config_hash, outcome="split", supersedes=list(unit.supersedes),
            children=[child.unit_id for child in children],
        )  # fmt: skip
        standing = write_receipt(self._job.paths, receipt)
        if standing.outcome == "done":  # its worker was only believed lost
            self._observer.on_receipt(standing)
            return
        self._observer.on_lost(unit, why, "splitting it in two")
        self._blame.split(unit.unit_id, len(children))
        self._waiting.extendleft(_Attempt(child, attempt.names) for child in reversed(children))

    def _give_up(self, unit: Unit, why: str) -> None:
        self._observer.on_lost(unit, why, "giving it up")
        self._given_up.append((unit, why))

    def _quarantine(self, unit: Unit, why: str) -> None:
        outcomes = [
            InputOutcome(
                video_id=entry.video_id, size_bytes=entry.size_bytes, mtime_ns=entry.mtime_ns,
                outcome="failed", reason="crashed", detail=why,
            )
            for entry in unit.inputs
        ]  # fmt: skip
        receipt = Receipt(
            unit=unit.unit_id,
            config_hash=self._job.config_hash,
            outcome="done",
            supersedes=list(unit.supersedes),
            inputs=outcomes,
        )
        self._observer.on_receipt(write_receipt(self._job.paths, receipt))
