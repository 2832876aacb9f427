"""Runs the rungs of a ladder in interleaved rounds, and selects and measures the best set of levers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...pipeline.errors import FacefeedError
from ..levers.registry import RESULT_CHANGING
from .messages import Reference
from .results import Measurement, RungResult, Spread
from .rungs import BEST, Rung

ONE_REPEAT = "a gain cannot be told from noise by one repeat; give --repeats 3"


class RungError(FacefeedError):
    """A rung failed, with the reason; the ladder continues without it."""


@dataclass(frozen=True)
class Combination:
    """Levers that work together, chosen greedily in the given order, and why each of the others was left out."""

    levers: tuple[str, ...]
    left_out: dict[str, str] = field(default_factory=dict)


class RungRunner(Protocol):
    """Protocol: runs rungs in separate processes. `measure` raises `RungError` if a rung fails."""

    def measure(self, rung: Rung, repeat: int, reference: Reference | None) -> Measurement:
        """Measures one repeat of a rung; `repeat`, from 0, seeds it, so that all rungs of a round see the same data.

        reference: whose samples it has to see; None for the first that is measured, which is the reference of others.
        """
        ...

    def combine(self, levers: Sequence[str]) -> Combination:
        """Returns which levers work together, earlier ones first. Raises `RungError` if the process fails."""
        ...


@dataclass
class Ladder:
    """All rows in the order of the table.

    named: texts of levers that the user requested, which may then change the training result. combination: the levers
    of the best set, and why other levers that pay are not in it.
    """

    rows: list[RungResult]
    named: tuple[str, ...] = ()
    combination: Combination = field(default_factory=lambda: Combination(()))

    @property
    def base(self) -> RungResult | None:
        """The baseline of levers: the same training without any; None if it did not run."""
        without_levers = (row for row in self.rows if not row.rung.levers and row.rung.data != "naive")
        return next((row for row in without_levers if row.repeats), None)

    @property
    def reference(self) -> Reference | None:
        """The rung whose samples all others see, except the naive one: the base, or the first that ran instead."""
        rows = [row for row in (self.base, *self.rows) if row is not None and row.rung.data != "naive"]
        first = next((repeat for row in rows for _, repeat in sorted(row.repeats.items())), None)
        if first is None:
            return None
        return Reference(
            warm_up_steps=first.warm_up_steps, steps=first.steps, steps_per_epoch=first.steps_per_epoch,
            devices=first.devices,
        )  # fmt: skip

    @property
    def naive(self) -> RungResult | None:
        """The rung that decodes videos in every step; None if it did not run."""
        return next((row for row in self.rows if row.rung.data == "naive" and row.repeats), None)

    @property
    def fastest(self) -> RungResult | None:
        """The row with the greatest speed-up of those that pay and may be used; None without any."""
        candidates = [row for row in self.paying if row.rung.name == BEST or self.may_take(row.rung.levers)]
        return max(candidates, key=self.speed, default=None)

    @property
    def paying(self) -> list[RungResult]:
        """Rows that are faster than the base beyond the spread of the repeats, fastest first."""
        paying = [row for row in self.rows if row.rung.levers and row.pays(self.base)]
        return sorted(paying, key=self.speed, reverse=True)

    @property
    def is_repeated(self) -> bool:
        """Whether any rung ran more than once; else there is no spread, and no gain can be told from noise."""
        return any(len(row.repeats) > 1 for row in self.rows)

    def speed(self, row: RungResult) -> float:
        """Returns the median speed-up over the base; 0 if unknown."""
        speed_up = row.speed_up(self.base)
        return 0.0 if speed_up is None else speed_up.median

    def over_naive(self, row: RungResult) -> Spread | None:
        """Returns the speed-up over the naive rung; without common rounds, computed through the base."""
        direct = row.speed_up(self.naive)
        if direct is not None or self.base is None:
            return direct
        over_base, base = row.speed_up(self.base), self.base.speed_up(self.naive)
        return over_base.multiplied_by(base) if over_base is not None and base is not None else None

    def may_take(self, levers: str) -> bool:
        """Whether levers do not change the training result, or were requested."""
        changing = any(text.split(":")[0] in RESULT_CHANGING for text in levers.split(","))
        return levers in self.named or not changing


def run_ladder(
    rungs: Sequence[Rung], runner: RungRunner, *, repeats: int, named: Sequence[str] = (),
    on_update: Callable[[Ladder], None] = lambda _: None,
) -> Ladder:  # fmt: skip
    """Measures all rungs `repeats` times in interleaved rounds, then the best set and the base in as many rounds.

    Every other round runs in reverse order, so that a machine that slows down affects all rungs alike. A rung that
    fails is not run again. named: levers that the user requested, which may all be part of the best set. on_update:
    called with the ladder so far after every repeat, and when the best set is known.
    """
    rows = [RungResult(rung, outcome="refused" if rung.refusal else "ran", reason=rung.refusal) for rung in rungs]
    ladder = Ladder(rows, named=tuple(named))
    _rounds(ladder, rows, runner, range(repeats), on_update)
    if not any(row.rung.levers for row in rows):
        return ladder
    best = _best_set(ladder, runner)
    ladder.rows.append(best)
    on_update(ladder)
    if best.outcome == "ran":
        compared = [row for row in ladder.rows if row is ladder.base or row is best]
        _rounds(ladder, compared, runner, range(repeats, 2 * repeats), on_update)
    return ladder


def _rounds(
    ladder: Ladder, rows: Sequence[RungResult], runner: RungRunner, rounds: range, on_update: Callable[[Ladder], None]
) -> None:
    for number in rounds:
        for row in rows if number % 2 == 0 else reversed(rows):
            if row.outcome != "ran":
                continue
            try:
                row.repeats[number] = runner.measure(row.rung, number, ladder.reference)
            except RungError as error:
                row.outcome, row.reason = "failed", str(error)
            on_update(ladder)


def _best_set(ladder: Ladder, runner: RungRunner) -> RungResult:
    """Returns the row of the levers that pay, combined; refused if there is nothing to combine."""
    texts = [row.rung.levers for row in ladder.paying]
    allowed = [text for text in texts if ladder.may_take(text)]
    data = "precomputed" if ladder.base is None else ladder.base.rung.data
    try:
        combination = runner.combine(allowed) if len(allowed) > 1 else Combination(tuple(allowed))
    except RungError as error:
        return RungResult(Rung(name=BEST, data=data), outcome="failed", reason=str(error))
    changing = {text: "changes what is learned; name it by --levers to have it in the set" for text in texts
                if text not in allowed}  # fmt: skip
    ladder.combination = Combination(combination.levers, {**combination.left_out, **changing})
    rung = Rung(name=BEST, data=data, levers=",".join(combination.levers), refusal=_best_set_refusal(ladder))
    return RungResult(rung, outcome="refused" if rung.refusal else "ran", reason=rung.refusal)


def _best_set_refusal(ladder: Ladder) -> str | None:
    levers = ladder.combination.levers
    if ladder.base is None:
        return "nothing to hold levers against: training without any did not run"
    if len(ladder.base.repeats) < 2:
        return ONE_REPEAT
    if not levers:
        return "no lever is faster than none beyond the spread of the repeats"
    if len(levers) == 1:
        return f"it is {levers[0]} alone: see there"
    return None
