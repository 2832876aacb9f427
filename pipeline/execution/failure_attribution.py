"""Attributes failures to a worker, a unit or the whole job, by which other workers and units fail.

A broken worker (a GPU after a sticky error) fails at once, is idle again, and would take unit after unit. A broken
input fails on every worker. A broken detector fails nearly every unit.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import StoppedError

_MAX_UNEXPLAINED = 3
_MIN_ALIKE = 10
_MIN_FAILED_UNITS = 8
_ALIKE_FRACTION = 0.75


class FailureAttribution:
    """Successes and failures of one run, by `worker_id`, which is the same before and after a restart.

    A failure is unexplained until the unit, or all of its parts, succeeds on another worker (the worker is at fault) or
    fails there too (the unit is). A unit is given by its lineage: the planned unit, the part of it, ..., the unit.

    `finished`: number of units that earlier runs have finished.
    """

    def __init__(self, finished: int) -> None:
        self._unexplained: dict[str, dict[str, str]] = {}  # by worker: each failed unit with the planned one
        self._at_fault: dict[str, set[str]] = {}  # by worker: planned units that others have finished
        self._last_failure: dict[str, str] = {}  # by worker
        self._proven: set[str] = set()
        self._unfinished_parts: dict[str, int] = {}
        self._failing: dict[str, str] = {}  # planned units that fail on every worker, with the kind of failure
        self._succeeded: set[str] = set()
        self._failed_planned: set[str] = set()  # planned units that failed
        self._finished = finished
        self.retired: dict[str, str] = {}
        """Workers that get no more units, each with the failure that retired it."""

    @property
    def nothing_finished(self) -> bool:
        """Whether no unit was ever finished: a failure then says nothing about its unit."""
        return not (self._succeeded or self._finished)

    @property
    def is_hopeless(self) -> bool:
        """Whether several units were tried and none was ever finished."""
        return self.nothing_finished and len(self._failed_planned) >= _MIN_FAILED_UNITS

    def is_proven(self, worker_id: str) -> bool:
        """Whether the worker's process has finished a unit: a failure on it then says something about the unit."""
        return worker_id in self._proven

    def is_suspended(self, worker_id: str) -> bool:
        """Whether the worker has so many unexplained failures that it gets no new unit until they are explained."""
        planned = {*self._unexplained.get(worker_id, {}).values(), *self._at_fault.get(worker_id, ())}
        return len(planned) >= _MAX_UNEXPLAINED

    def record_success(self, worker_id: str, lineage: Sequence[str]) -> list[str]:
        """Records that `worker_id` finished the last unit of `lineage`; returns the workers that this retires."""
        self._proven.add(worker_id)
        self._unexplained.pop(worker_id, None)
        self._at_fault.pop(worker_id, None)
        self._succeeded.add(lineage[0])
        retired = []
        for unit in reversed(lineage):
            left = self._unfinished_parts.get(unit, 1) - 1
            self._unfinished_parts[unit] = left
            if left > 0:
                break
            retired += self._exonerate(unit)
        return retired

    def _exonerate(self, unit: str) -> list[str]:
        """Puts earlier failures of a finished unit down to their workers; returns those that this retires."""
        retired = []
        for worker_id, units in self._unexplained.items():
            if unit in units:
                self._at_fault.setdefault(worker_id, set()).add(units.pop(unit))
                if len(self._at_fault[worker_id]) >= _MAX_UNEXPLAINED and worker_id not in self.retired:
                    self.retired[worker_id] = self._last_failure[worker_id]
                    retired.append(worker_id)
        return retired

    def record_split(self, unit: str, parts: int) -> None:
        """Records that a unit was split into `parts` units."""
        self._unfinished_parts[unit] = parts

    def record_failure(self, worker_id: str, lineage: Sequence[str], reason: str) -> None:
        """Records that the last unit of `lineage` failed on `worker_id`, a failure that is unexplained so far."""
        self._proven.discard(worker_id)
        self._last_failure[worker_id] = reason
        self._failed_planned.add(lineage[0])
        self._unexplained.setdefault(worker_id, {})[lineage[-1]] = lineage[0]

    def record_confirmed_failure(self, lineage: Sequence[str], kind: str, reason: str) -> None:
        """Records that the last unit of `lineage` failed on several workers, so that it is at fault itself.

        Raises `StoppedError` where nearly all units fail with the same `kind`: then no single inputs are at fault.
        """
        for units in self._unexplained.values():
            for unit in lineage:
                units.pop(unit, None)
        self._failing[lineage[0]] = kind
        alike = sum(other == kind for other in self._failing.values())
        tried = len(self._failing) + len(self._succeeded - self._failing.keys()) + self._finished
        if alike >= _MIN_ALIKE and alike > _ALIKE_FRACTION * tried:
            raise StoppedError(
                f"{alike} of {tried} units failed alike, each on two workers, the last with {reason}: that is no fault "
                "of single inputs. They will be tried again, all finished units are kept: fix the cause and run the "
                "same command again"
            )
