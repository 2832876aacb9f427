"""Whether a failure is a worker's, a unit's, or that of everything: told apart by who else fails, and who does not.

A broken worker (a GPU after a sticky error) fails at once, is idle again, and would draw unit after unit. A broken
input fails wherever it is tried. A broken detector fails nearly everything.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import StoppedError

_MOST_UNEXPLAINED = 3
_FEWEST_ALIKE = 10
_FEWEST_IN_VAIN = 8
_SHARE_ALIKE = 0.75


class Blame:
    """The record of one run; workers go by their home, which is the same before and after a restart.

    A failure is unexplained until the unit, or all that it was split into, succeeds elsewhere (the worker's fault) or
    fails elsewhere too (the unit's). Units go by their lineage: the planned unit, what it was split into, and so on.

    `finished`: how many units earlier runs have finished.
    """

    def __init__(self, finished: int = 0) -> None:
        self._unexplained: dict[str, dict[str, str]] = {}  # by home: each failed unit with the planned one
        self._at_fault: dict[str, set[str]] = {}  # by home: planned units that others have finished
        self._last_why: dict[str, str] = {}  # by home
        self._proven: set[str] = set()
        self._unfinished_parts: dict[str, int] = {}
        self._failing: dict[str, str] = {}  # planned units with an input that fails anywhere, and how
        self._succeeded: set[str] = set()
        self._tried: set[str] = set()  # planned units that failed
        self._finished = finished
        self.retired: dict[str, str] = {}
        """Why each home gets no more work."""

    @property
    def nothing_finished(self) -> bool:
        """Whether no unit was ever finished: then no failure says anything of a unit."""
        return not (self._succeeded or self._finished)

    @property
    def is_hopeless(self) -> bool:
        """Whether nothing was ever finished, in spite of several attempts."""
        return self.nothing_finished and len(self._tried) >= _FEWEST_IN_VAIN

    def is_proven(self, home: str) -> bool:
        """Whether the process there has finished a unit, so that a failure on it says something of the unit."""
        return home in self._proven

    def is_suspended(self, home: str) -> bool:
        """Whether so many failures there wait for an explanation that it gets no new unit until then."""
        planned = {*self._unexplained.get(home, {}).values(), *self._at_fault.get(home, ())}
        return len(planned) >= _MOST_UNEXPLAINED

    def succeeded(self, home: str, lineage: Sequence[str]) -> list[str]:
        """The last unit of `lineage` was finished; returns the homes that this retires."""
        self._proven.add(home)
        self._unexplained.pop(home, None)
        self._at_fault.pop(home, None)
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
        """The unit was finished after all: whoever failed at it is at fault."""
        retired = []
        for home, units in self._unexplained.items():
            if unit in units:
                self._at_fault.setdefault(home, set()).add(units.pop(unit))
                if len(self._at_fault[home]) >= _MOST_UNEXPLAINED and home not in self.retired:
                    self.retired[home] = self._last_why[home]
                    retired.append(home)
        return retired

    def split(self, unit: str, parts: int) -> None:
        """A unit was split into so many others."""
        self._unfinished_parts[unit] = parts

    def failed(self, home: str, lineage: Sequence[str], why: str) -> None:
        """The last unit of `lineage` failed there; nobody knows yet by whose fault."""
        self._proven.discard(home)
        self._last_why[home] = why
        self._tried.add(lineage[0])
        self._unexplained.setdefault(home, {})[lineage[-1]] = lineage[0]

    def confirmed(self, lineage: Sequence[str], kind: str, why: str) -> None:
        """The last unit of `lineage` failed on several workers, by no fault of theirs.

        Raises `StoppedError` where nearly all units fail alike, so that no single inputs are to blame.
        """
        for units in self._unexplained.values():
            for unit in lineage:
                units.pop(unit, None)
        self._failing[lineage[0]] = kind
        alike = sum(other == kind for other in self._failing.values())
        tried = len(self._failing) + len(self._succeeded - self._failing.keys()) + self._finished
        if alike >= _FEWEST_ALIKE and alike > _SHARE_ALIKE * tried:
            raise StoppedError(
                f"{alike} of {tried} units failed alike, each on two workers, the last with {why}: that is no fault of "
                "single inputs. They will be tried again, all finished units are kept: fix the cause and run the same "
                "command again"
            )
