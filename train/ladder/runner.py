"""The climber that `facefeed ladder` sends up: every question goes to a process of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from .messages import Question, Subject
from .progress import Progress
from .report import Report
from .results import Measured, Memory
from .rung_process import Told, answer
from .rungs import Rung, planned
from .scheduler import Ladder, RungError, Together, climb


@dataclass(frozen=True, kw_only=True)
class Processes:
    """See `Climber`. steps: that are measured, None for an epoch; patience_seconds: see `process.answer`."""

    subject: Subject
    steps: int | None
    patience_seconds: float
    tell: Told = lambda _done, _wanted: None

    def look(self, levers: Sequence[str]) -> dict[str, Any]:
        """See `look.look`. Raises `UsageError`, and `RungError` where the process broke."""
        return self._ask(Question(subject=self.subject, task="look", levers=tuple(levers)))

    def measure(self, rung: Rung, repeat: int) -> Measured:
        """One repeat of a rung."""
        levers = (rung.levers,) if rung.levers else ()
        found = self._ask(
            Question(
                subject=self.subject, task="measure", levers=levers, data=rung.data, steps=self.steps, repeat=repeat
            )
        )
        return Measured(**{**found, "memory": Memory(**found["memory"])})

    def together(self, levers: Sequence[str]) -> Together:
        """Which of the levers can be combined."""
        found = self._ask(Question(subject=self.subject, task="combine", levers=tuple(levers)))
        return Together(tuple(found["levers"]), found["left_out"])

    def _ask(self, question: Question) -> dict[str, Any]:
        return answer(json.dumps(asdict(question)), patience_seconds=self.patience_seconds, tell=self.tell)


@dataclass(frozen=True)
class _Shown:
    """A climber that says how far it is."""

    processes: Processes
    progress: Progress

    def measure(self, rung: Rung, repeat: int) -> Measured:
        self.progress.begins(rung, repeat)
        try:
            found = self.processes.measure(rung, repeat)
        except RungError as error:
            self.progress.ended(rung, repeat, failed=str(error))
            raise
        self.progress.ended(rung, repeat, samples_per_second=round(found.samples_per_second, 3))
        return found

    def together(self, levers: Sequence[str]) -> Together:
        return self.processes.together(levers)


def measured(
    processes: Processes, levers: Sequence[str], *, named: Sequence[str], repeats: int, progress: Progress
) -> Report:  # fmt: skip
    """A whole ladder. levers: each a rung; named: those of them that the user asked for.

    Ctrl-C ends it with what there is so far, which is then not `complete`. Raises `UsageError` where nothing can be
    measured as asked.
    """
    began = time.monotonic()
    found = processes.look(levers)
    own, subject = found["own_data"], replace(processes.subject, recipe=found["recipe"])
    extra = [found["recipe_levers"]] if found["recipe_levers"] and not own else []
    texts = list(dict.fromkeys([*levers, *extra])) if levers else []
    rungs = planned(texts, found["refusals"], own_data=own, videos=subject.videos is not None)
    able = [rung for rung in rungs if rung.refusal is None]
    progress.expects(repeats * (len(able) + 2 * any(rung.levers for rung in able)))  # the best set, and the base again
    latest, complete = Ladder([]), True

    def keep(ladder: Ladder) -> None:
        nonlocal latest
        latest = ladder

    try:
        latest = climb(rungs, _Shown(processes, progress), repeats=repeats, named=[*named, *extra], tell=keep)
    except KeyboardInterrupt:
        complete = False
    return Report(
        ladder=latest, subject=subject, steps=processes.steps, repeats=repeats, seconds=time.monotonic() - began,
        machine=found["machine"], parameters=found["parameters"], complete=complete,
    )  # fmt: skip
