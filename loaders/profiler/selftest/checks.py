"""Checks 1 to 4 and 8 of the self-test: delays injected into loaders and steps.

A check takes what plays its scenario as an argument: real loaders in `facefeed profile --self-test`, a virtual clock in
the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..estimate.estimator import Estimator
from ..estimate.queue_model import Seconds
from ..measure.recording import Recording
from ..verdict.judge import judge
from ..verdict.verdict import VerdictKind
from .scenarios import Plan, PlayedSegment, Segment

Unit = Literal["seconds", "share", "count", "bytes"]
Player = Callable[[Plan], list[PlayedSegment]]

STEP_SECONDS = 0.02
LEAST_ALLOWED_SECONDS = 0.02 * STEP_SECONDS
"""2 % of the step, 0.4 ms: well above the noise of a clock, and well below the shortest delay."""

_DELAYS = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
"""Falling, so that the queue is empty while they are long: a full one would hide the first 40 batches of 50 ms."""

_REPEATS = 10  # of each delay
_LOADERS = tuple((workers, prefetch) for workers in (1, 2) for prefetch in (1, 2, 4))

_OUTLIERS = {0.9: 0, 1.1: 1}  # by what the queue lasts: how many steps starve
_OUTLIER_REPEATS = 3

_QUEUE = (2, 2)  # workers and batches ahead of the loaders of the checks below
_QUICK_SECONDS = 0.001

_NULL_RUNS, _MAX_ALARMS = 100, 9  # a bound of 95 % is wrong in 5 of 100 runs, in more than 9 of them by 3 % chance
_NULL_STEPS, _NULL_STEP_SECONDS = 84, 0.002  # as few steps as a verdict is given on, and short ones
_NULL_DELAY_SECONDS = 0.002  # of two workers: always ready, but enough for the profiler to be under 1 % of it


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One injected delay, and what the profiler recovered.

    injected, recovered, allowed: in `unit`: seconds a step, a share from 0 to 1, a count, or bytes an item. estimator:
    that recovered it; empty where none is tested.
    """

    label: str
    injected: float
    recovered: float
    allowed: float
    unit: Unit = "seconds"
    estimator: Estimator | Literal[""] = ""

    @property
    def holds(self) -> bool:
        """Whether the difference is within the tolerance."""
        return abs(self.recovered - self.injected) <= self.allowed

    def __str__(self) -> str:
        numbers = (_format_value(each, self.unit) for each in (self.injected, self.recovered, self.allowed))
        estimator = f", {self.estimator}" if self.estimator else ""
        return "{}{}: injected {}, recovered {}, allowed +- {}".format(self.label, estimator, *numbers)


def _format_value(value: float, unit: Unit) -> str:
    if unit == "seconds":
        return f"{value * 1e3:.2f} ms"
    return f"{value:.2%}" if unit == "share" else f"{value:,.0f}{' B' if unit == 'bytes' else ''}"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check and its comparisons. not_run: why it could not run here; it does not fail then."""

    number: int
    name: str
    points: tuple[Comparison, ...] = ()
    detail: str = ""
    not_run: str = ""

    @property
    def passed(self) -> bool:
        """Whether all comparisons hold; a check without comparisons has not passed."""
        return bool(self.not_run) or (bool(self.points) and all(point.holds for point in self.points))

    @property
    def outcome(self) -> str:
        """The outcome as text."""
        return "not run" if self.not_run else "passed" if self.passed else "FAILED"


def headline(checks: Sequence[Check]) -> str:
    """The outcomes of all checks in one sentence."""
    outcomes = [check.outcome for check in checks]
    counted = [(outcomes.count(word), word) for word in ("passed", "FAILED", "not run")]
    return f"{len(checks)} checks: " + ", ".join(f"{number} {word}" for number, word in counted if number)


def tolerance(seen: PlayedSegment) -> float:
    """Allowed error of a recovered wait, in seconds a step: 2 % of the step, or three times the transport floor."""
    return max(LEAST_ALLOWED_SECONDS, 3 * seen.transport_floor_seconds)


def constant_delay(play: Player) -> Check:
    """1: without workers, every step waits for exactly its batch."""
    [seen] = play(Plan(segments=[_falling_delays(1)]))
    points = tuple(_compare_means(f"{delay * 1e3:.0f} ms", seen, kept) for delay, kept in _judged_steps(1))
    return Check(number=1, name="without workers, a delay is the wait", points=points, detail=_nearest_to_limit(points))


def with_workers(play: Player, progress: Callable[[str], None]) -> tuple[Check, Check]:
    """2: with workers, the wait is what the loop's own clock says. 3: an outlier starves a step or none.

    Both of the same loaders, so that workers are started once.
    """
    delays, outliers = list[Comparison](), list[Comparison]()
    for workers, prefetch in _LOADERS:
        name = f"{workers} worker{'s' if workers > 1 else ''} x {prefetch}"
        progress(name)
        ahead = workers * prefetch
        slow = [_outlier(ahead, times) for times in _OUTLIERS for _ in range(_OUTLIER_REPEATS)]
        first, *others = play(
            Plan(num_workers=workers, prefetch_factor=prefetch, segments=[_falling_delays(ahead), *slow])
        )
        delays += _delay_comparisons(name, ahead, first)
        outliers += _outlier_comparisons(name, others)
    return (
        Check(number=2, name="a delay in workers is waited for as the loop's clock says", points=tuple(delays),
              detail=_nearest_to_limit(delays)),
        Check(number=3, name="one slow batch starves one step, if it outlasts the queue", points=tuple(outliers),
              detail=f"{len(_LOADERS)} loaders, by the clock and by the model, the median of {_OUTLIER_REPEATS} each"),
    )  # fmt: skip


def delayed_step(play: Player) -> Check:
    """4: a step that takes longer waits for nothing."""
    workers, prefetch = _QUEUE
    ahead = workers * prefetch
    longer = np.repeat([0.0, *_DELAYS], [ahead, *[_REPEATS] * len(_DELAYS)])
    segment = Segment(delay_seconds=np.full(len(longer), _QUICK_SECONDS), step_seconds=STEP_SECONDS + longer)
    [seen] = play(Plan(num_workers=workers, prefetch_factor=prefetch, segments=[segment]))
    points = tuple(_compare_means(f"{delay * 1e3:.0f} ms in the step", seen, longer == delay) for delay in _DELAYS)
    return Check(number=4, name="a delay in the step is no wait", points=points, detail=_nearest_to_limit(points))


def null_runs(play: Player) -> Check:
    """8: where nothing is injected, next to nothing is found."""
    workers, prefetch = _QUEUE
    count = workers * prefetch + _NULL_STEPS
    null = Segment(delay_seconds=np.full(count, _NULL_DELAY_SECONDS), step_seconds=np.full(count, _NULL_STEP_SECONDS))
    seen = play(Plan(num_workers=workers, prefetch_factor=prefetch, segments=[null] * _NULL_RUNS))
    alarms, lower = zip(*map(_alarm, seen), strict=True)
    # An alarm allows for the time of a transfer. So that it is not simply added, the usual step must not wait at all.
    usual = np.median(np.concatenate([_wait_beyond_transport(segment.recording) for segment in seen]))
    points = (
        Comparison(label="false alarms", injected=0, recovered=sum(alarms), allowed=_MAX_ALARMS, unit="count"),
        Comparison(label="the usual wait beyond transfer", injected=0, recovered=float(usual), estimator=Estimator.LIVE,
              allowed=0.02 * _NULL_STEP_SECONDS),
    )  # fmt: skip
    detail = (
        f"false alarms: {sum(alarms)} in {len(seen)} runs of {_NULL_STEPS} steps; the highest lower bound of a wait "
        f"was {max(lower) * 1e3:.2f} ms a step"
    )
    return Check(number=8, name="a loader that is always ready raises no alarm", points=points, detail=detail)


def _alarm(seen: PlayedSegment) -> tuple[bool, float]:
    """Whether a run without a delay is judged to have one, and the lower bound of its wait in seconds a step.

    A wait that items and steps saw themselves is no false alarm: other processes may use the machine.
    """
    recording = seen.recording
    verdict = judge(recording, emulated=True)
    lower = verdict.wait_share.lower * float(recording.period_seconds[recording.is_steady].mean())
    truth = float(seen.wait_seconds[recording.is_steady].mean())
    allowed = max(0.02 * _NULL_STEP_SECONDS, 3 * seen.transport_floor_seconds)
    return (verdict.kind is VerdictKind.STARVED and lower > truth) or lower > truth + allowed, lower


def _wait_beyond_transport(recording: Recording) -> Seconds:
    """Part of the steady waits that is not the transport of a ready batch."""
    return (recording.wait_seconds - recording.transport_seconds)[recording.is_steady]


def _falling_delays(ahead: int) -> Segment:
    """A full queue, then each delay repeated; see `_judged_steps`."""
    delays = np.concatenate([np.zeros(ahead), np.repeat(_DELAYS, ahead + _REPEATS)])
    return Segment(delay_seconds=delays, step_seconds=np.full(len(delays), STEP_SECONDS))


def _judged_steps(ahead: int) -> list[tuple[float, slice]]:
    """The steps of each delay, without those before which the queue still holds batches of the previous delay."""
    ends = [ahead + (number + 1) * (ahead + _REPEATS) for number in range(len(_DELAYS))]
    return [(delay, slice(end - _REPEATS, end)) for delay, end in zip(_DELAYS, ends, strict=True)]


def _delay_comparisons(name: str, ahead: int, seen: PlayedSegment) -> list[Comparison]:
    """Live waits against the loop's clock; the model, which uses no waits, against its waits for unready batches."""
    return [
        _compare_means(f"{name}, {delay * 1e3:.0f} ms", seen, kept, estimator)
        for delay, kept in _judged_steps(ahead)
        for estimator in (Estimator.LIVE, Estimator.MODEL)
    ]


def _compare_means(label: str, seen: PlayedSegment, steps: Any, estimator: Estimator = Estimator.LIVE) -> Comparison:
    """The mean wait of some steps, selected by their indices, by an estimator and by the loop's own clock."""
    if estimator is Estimator.LIVE:
        truth, recovered = seen.wait_seconds, seen.recording.wait_seconds
    else:
        truth, recovered = seen.not_ready_seconds, seen.recording.modelled_not_ready_seconds()
    return Comparison(
        label=label,
        injected=float(truth[steps].mean()),
        recovered=float(recovered[steps].mean()),
        allowed=tolerance(seen),
        estimator=estimator,
    )


def _outlier(ahead: int, times: float) -> Segment:
    """A full queue in front of one batch that takes `times` as long as the queue lasts.

    The steps are so long that the difference to detect, a tenth of that, is 12 ms or more: a threshold of three times
    the floor is up to 5 ms on a busy machine.
    """
    step = max(0.04, 0.12 / ahead)
    delays = np.zeros(ahead + 5)
    delays[ahead + 2] = times * ahead * step
    return Segment(delay_seconds=delays, step_seconds=np.full(len(delays), step))


def _outlier_comparisons(name: str, seen: Sequence[PlayedSegment]) -> list[Comparison]:
    points = []
    for number, (times, starved) in enumerate(_OUTLIERS.items()):
        counts = [_count_starved_steps(segment) for segment in seen[number * _OUTLIER_REPEATS :][:_OUTLIER_REPEATS]]
        medians = np.median(counts, axis=0).tolist()
        points += [
            Comparison(label=f"{name}, {times} x", injected=starved, recovered=recovered, allowed=0, unit="count",
                  estimator=estimator)
            for estimator, recovered in zip((Estimator.LIVE, Estimator.MODEL), medians, strict=True)
        ]  # fmt: skip
    return points


def _count_starved_steps(seen: PlayedSegment) -> tuple[int, int]:
    """Starved steps by the clock, without those that waited for the transport of a ready batch, and by the model.

    After a slow batch the loop takes several batches from the queue at once, which may last over three times the floor.
    """
    recording = seen.recording
    verdict = judge(recording, emulated=True)
    is_starved = (recording.wait_seconds > verdict.starved_threshold_seconds) & recording.is_steady
    waits_for_transport = (seen.not_ready_seconds == 0) & (seen.wait_seconds > verdict.starved_threshold_seconds)
    modelled = (recording.modelled_not_ready_seconds() > verdict.starved_threshold_seconds) & recording.is_steady
    return verdict.num_starved_steps - int((is_starved & waits_for_transport).sum()), int(modelled.sum())


def _nearest_to_limit(points: Sequence[Comparison]) -> str:
    """The comparison in seconds that is nearest to its tolerance, as text."""
    off = [abs(point.recovered - point.injected) for point in points]
    worst = max(range(len(points)), key=lambda number: off[number] / points[number].allowed)
    return (
        f"{len(points)} comparisons, at most {max(off) * 1e3:.2f} ms a step off; nearest to its limit is "
        f"{points[worst].label}, with {off[worst] * 1e3:.2f} of {points[worst].allowed * 1e3:.2f} ms"
    )
