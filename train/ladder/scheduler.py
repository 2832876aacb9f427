"""Going up the ladder: which rung runs when, what makes the best set, and what is left of it when something breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...pipeline.errors import FacefeedError
from ..levers.registry import RESULT_CHANGING
from .results import Measured, Row, Spread
from .rungs import BEST, Rung


class RungError(FacefeedError):
    """A rung that did not run to its end, with the reason; the ladder goes on without it."""


@dataclass(frozen=True)
class Together:
    """Which of some levers go together, taken one by one in the given order; why each of the others was left out."""

    levers: tuple[str, ...]
    left_out: dict[str, str] = field(default_factory=dict)


class Climber(Protocol):
    """Runs things in processes of their own. `measure` raises `RungError` where a rung does not come to its end."""

    def measure(self, rung: Rung, repeat: int) -> Measured:
        """One repeat of a rung; `repeat` counts from 0 and seeds what is random, so that rungs see the same."""
        ...

    def together(self, levers: Sequence[str]) -> Together:
        """Which of the levers can be combined, the first before the others. Raises `RungError` as well."""
        ...


@dataclass
class Ladder:
    """All rows in the order of the table.

    named: texts of levers that the user asked for, which may then change what is learned. together: what the best set
    is made of, and why other levers that pay are not in it.
    """

    rows: list[Row]
    named: tuple[str, ...] = ()
    together: Together = field(default_factory=lambda: Together(()))

    @property
    def base(self) -> Row | None:
        """What levers are held against: the same training without any; None where it did not run."""
        plain = (row for row in self.rows if not row.rung.levers and row.rung.data != "naive")
        return next((row for row in plain if row.repeats), None)

    @property
    def naive(self) -> Row | None:
        """Where batches are made from the videos in every step; None where it did not run."""
        return next((row for row in self.rows if row.rung.data == "naive" and row.repeats), None)

    @property
    def fastest(self) -> Row | None:
        """The row to train with: of those that pay and may be taken, the one with the most speed-up; None: no lever."""
        taken = [row for row in self.paying if row.rung.name == BEST or self.may_take(row.rung.levers)]
        return max(taken, key=self.speed, default=None)

    @property
    def paying(self) -> list[Row]:
        """Rows that are faster than the base beyond the spread of the repeats, the fastest first."""
        found = [row for row in self.rows if row.rung.levers and row.pays(self.base)]
        return sorted(found, key=self.speed, reverse=True)

    def speed(self, row: Row) -> float:
        """The median speed-up over the base; 0 where it is not known."""
        found = row.speed_up(self.base)
        return 0.0 if found is None else found.median

    def over_naive(self, row: Row) -> Spread | None:
        """How many times as fast as on the fly; of rounds that the naive rung was no part of, by way of the base."""
        direct = row.speed_up(self.naive)
        if direct is not None or self.base is None:
            return direct
        over_base, base = row.speed_up(self.base), self.base.speed_up(self.naive)
        return over_base.through(base) if over_base is not None and base is not None else None

    def may_take(self, levers: str) -> bool:
        """Whether levers leave what is learned as it is, or were asked for."""
        changing = any(one.split(":")[0] in RESULT_CHANGING for one in levers.split(","))
        return levers in self.named or not changing


def climb(
    rungs: Sequence[Rung], climber: Climber, *, repeats: int, named: Sequence[str] = (),
    tell: Callable[[Ladder], None] = lambda _: None,
) -> Ladder:  # fmt: skip
    """Measures all rungs `repeats` times, in turn, and then the best set against the base once more as often.

    A round goes through the rungs upwards, the next downwards, so that a machine that gets slower does so under all. A
    rung that fails is not tried again. named: levers that the user asked for, which may all be part of the best set.
    tell: is called with what there is so far after every repeat.
    """
    rows = [Row(one, outcome="refused" if one.refusal else "ran", reason=one.refusal) for one in rungs]
    ladder = Ladder(rows, named=tuple(named))
    _rounds(ladder, rows, climber, range(repeats), tell)
    if not any(row.rung.levers for row in rows):
        return ladder
    best = _best_set(ladder, climber)
    ladder.rows.append(best)
    if best.outcome == "ran":
        both = [row for row in ladder.rows if row is ladder.base or row is best]
        _rounds(ladder, both, climber, range(repeats, 2 * repeats), tell)
    return ladder


def _rounds(
    ladder: Ladder, rows: Sequence[Row], climber: Climber, rounds: range, tell: Callable[[Ladder], None]
) -> None:
    for number in rounds:
        for row in rows if number % 2 == 0 else reversed(rows):
            if row.outcome != "ran":
                continue
            try:
                row.repeats[number] = climber.measure(row.rung, number)
            except RungError as error:
                row.outcome, row.reason = "failed", str(error)
            tell(ladder)


def _best_set(ladder: Ladder, climber: Climber) -> Row:
    """The row that stands for the levers that pay, together; refused where there is nothing to combine."""
    texts = [row.rung.levers for row in ladder.paying]
    kept = [text for text in texts if ladder.may_take(text)]
    data = "precomputed" if ladder.base is None else ladder.base.rung.data
    try:
        found = climber.together(kept) if len(kept) > 1 else Together(tuple(kept))
    except RungError as error:
        return Row(Rung(name=BEST, data=data), outcome="failed", reason=str(error))
    changing = {text: "changes what is learned; name it by --levers to have it in the set" for text in texts
                if text not in kept}  # fmt: skip
    ladder.together = Together(found.levers, {**found.left_out, **changing})
    rung = Rung(name=BEST, data=data, levers=",".join(found.levers), refusal=_why_not(ladder))
    return Row(rung, outcome="refused" if rung.refusal else "ran", reason=rung.refusal)


def _why_not(ladder: Ladder) -> str | None:
    levers = ladder.together.levers
    if ladder.base is None:
        return "nothing to hold levers against: training without any did not run"
    if len(ladder.base.repeats) < 2:
        return "a gain cannot be told from noise by one repeat; give --repeats 3"
    if not levers:
        return "no lever is faster than none beyond the spread of the repeats"
    if len(levers) == 1:
        return f"it is {levers[0]} alone: see there"
    return None
