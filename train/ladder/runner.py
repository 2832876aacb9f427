"""Runs a whole ladder, each request in a process of its own."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from .messages import Grid, Reference, RungRequest, Subject
from .progress import Progress
from .report import Report
from .results import Measurement, PeakMemory
from .rung_process import OnStep, run_process
from .rungs import BEST, Rung, plan_rungs
from .scheduler import Combination, Ladder, RungError, run_ladder


@dataclass(frozen=True, kw_only=True)
class SubprocessRunner:
    """A `RungRunner`. steps: to measure, None for an epoch. patience_seconds, tell: see `run_process`."""

    subject: Subject
    steps: int | None
    patience_seconds: float
    on_step: OnStep = lambda _done, _wanted: None

    def probe(self, levers: Sequence[str]) -> dict[str, Any]:
        """Probes the module and levers, see `rung.probe`. Raises `UsageError`, and `RungError` if the process fails."""
        return self._request(RungRequest(subject=self.subject, task="probe", levers=tuple(levers)))

    def measure(self, rung: Rung, repeat: int, reference: Reference | None, grid: Grid) -> Measurement:
        """Measures one repeat of a rung."""
        values = self._request(
            RungRequest(
                subject=self.subject, task="measure", levers=(rung.levers,) if rung.levers else (), data=rung.data,
                steps=self.steps, repeat=repeat, reference=reference, grid=grid,
            )
        )  # fmt: skip
        return Measurement(**{**values, "memory": PeakMemory(**values["memory"])})

    def combine(self, levers: Sequence[str]) -> Combination:
        """Returns which of the levers work together."""
        values = self._request(RungRequest(subject=self.subject, task="combine", levers=tuple(levers)))
        return Combination(tuple(values["levers"]), values["left_out"])

    def _request(self, request: RungRequest) -> dict[str, Any]:
        return run_process(json.dumps(asdict(request)), patience_seconds=self.patience_seconds, on_step=self.on_step)


@dataclass(frozen=True)
class _WithProgress:
    """A `RungRunner` that reports progress."""

    runner: SubprocessRunner
    progress: Progress
    grid: Grid

    def measure(self, rung: Rung, repeat: int, reference: Reference | None) -> Measurement:
        self.progress.repeat_started(rung, repeat)
        try:
            measurement = self.runner.measure(rung, repeat, reference, self.grid)
        except RungError as error:
            self.progress.repeat_ended(rung, repeat, failed=str(error))
            raise
        self.progress.repeat_ended(rung, repeat, samples_per_second=round(measurement.samples_per_second, 3))
        return measurement

    def combine(self, levers: Sequence[str]) -> Combination:
        return self.runner.combine(levers)


def measure_ladder(
    runner: SubprocessRunner, levers: Sequence[str], *, named: Sequence[str], repeats: int, progress: Progress
) -> Report:  # fmt: skip
    """Runs a whole ladder. levers: each a rung; named: those of them that the user requested.

    Ctrl-C ends it with the results so far, and the report is then not `complete`. Raises `UsageError` if the module,
    data or a lever cannot be used.
    """
    started_at = time.monotonic()
    probed = runner.probe(levers)
    has_own_data, subject = probed["own_data"], replace(runner.subject, recipe=probed["recipe"])
    recipe_levers = [probed["recipe_levers"]] if probed["recipe_levers"] and not has_own_data else []
    texts = list(dict.fromkeys([*levers, *recipe_levers])) if levers else []
    rungs = plan_rungs(texts, probed["refusals"], own_data=has_own_data, videos=subject.videos is not None)
    runnable = [rung for rung in rungs if rung.refusal is None]
    progress.set_total(repeats * len(runnable))
    latest, complete = Ladder([]), True

    def keep_latest(ladder: Ladder) -> None:
        nonlocal latest
        latest = ladder
        if ladder.rows[-1].rung.name == BEST and ladder.rows[-1].outcome == "ran":
            progress.set_total(repeats * (len(runnable) + 2))  # with it the base runs again

    try:
        latest = run_ladder(
            rungs,
            _WithProgress(runner, progress, _common_grid(runnable, probed["batches"])),
            repeats=repeats,
            named=[*named, *recipe_levers],
            on_update=keep_latest,
        )
    except KeyboardInterrupt:
        complete = False
    return Report(
        ladder=latest, subject=subject, steps=runner.steps, repeats=repeats, seconds=time.monotonic() - started_at,
        machine=probed["machine"], parameters=probed["parameters"], complete=complete,
    )  # fmt: skip


def _common_grid(rungs: Sequence[Rung], batches: Mapping[str, tuple[int, int]]) -> Grid:
    """Returns the grid of rungs, and of any combination of their levers in a best set.

    batches: by levers the number of ranks, and of batches that each of them accumulates.
    """
    ranks, accumulated = zip(*(batches[rung.levers] for rung in rungs), strict=True) if rungs else ((), ())
    return Grid(ranks=math.lcm(*ranks), group=math.lcm(*ranks) * math.lcm(*accumulated))
