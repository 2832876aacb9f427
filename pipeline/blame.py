"""Whether a failure is a worker's, a unit's, or that of everything: told apart by who else fails, and who does not.

A broken worker (a GPU after a sticky error) fails at once, is idle again, and would draw unit after unit. A broken
input fails wherever it is tried. A broken detector fails nearly everything.
"""

from __future__ import annotations

from collections.abc import Sequence

from .errors import StoppedError

_MOST_IN_A_ROW = 3
_MOST_UNITS = 5
_SHARE_OF_UNITS = 0.1


class Blame:
    """The record of one run; workers go by their home, which is the same before and after a restart."""

    def __init__(self) -> None:
        self._in_a_row: dict[str, set[str]] = {}
        self._proven: set[str] = set()
        self._failing: dict[str, str] = {}
        self._succeeded = 0
        self.retired: dict[str, str] = {}
        """Why each home gets no more work."""

    def is_proven(self, home: str) -> bool:
        """Whether the process there has finished a unit, so that a failure on it says something of the unit."""
        return home in self._proven

    def succeeded(self, home: str) -> None:
        """A unit was finished."""
        self._succeeded += 1
        self._in_a_row.pop(home, None)
        self._proven.add(home)

    def failed(self, home: str, planned: str, why: str) -> bool:
        """A unit failed, which is `planned` or a part of it; returns whether that retires the worker.

        Parts of one planned unit count once: it may be halved many times until its culprit stands alone.
        """
        self._proven.discard(home)
        units = self._in_a_row.setdefault(home, set())
        units.add(planned)
        if len(units) < _MOST_IN_A_ROW or home in self.retired:
            return False
        self.retired[home] = why
        return True

    def confirmed(self, unit: str, lineage: Sequence[str], kind: str, why: str) -> None:
        """A unit failed on two workers, by no fault of theirs. `lineage`: the units it is a part of, planned first.

        Raises `StoppedError` where so many units failed alike that no single inputs are to blame.
        """
        for units in self._in_a_row.values():
            units.discard([*lineage, unit][0])
        for larger in lineage:  # the same inputs are to blame
            self._failing.pop(larger, None)
        self._failing[unit] = kind
        alike = sum(other == kind for other in self._failing.values())
        if alike >= _MOST_UNITS and alike >= _SHARE_OF_UNITS * (alike + self._succeeded):
            raise StoppedError(
                f"{alike} of {len(self._failing) + self._succeeded} units failed alike, each on two workers, the last "
                f"with {why}: that is no fault of single inputs. They will be tried again, all finished units are "
                "kept: fix the cause and run the same command again"
            )
