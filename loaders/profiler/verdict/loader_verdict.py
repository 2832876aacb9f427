"""The verdict on one loader: steps in one piece until they are enough, and the same step on batches at hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from ....pipeline.errors import UsageError
from ....pipeline.machine import usable_cores
from ...transfer.prefetch import iter_tensors
from ...workers.local_ranks import count_local_ranks
from ..measure.live import Pass, Step, replay
from ..measure.ranks import Ranks
from ..measure.recording import Recording
from ..measure.step_clock import Ticks, ticks_of
from ..measure.steps import EmulatedDevice, SleepingStep
from .job import Steps, seen_by, together
from .judgement import FEWEST_BLOCKS, STARVED_ABOVE, Epoch, Verdict, judge
from .result import Profile
from .steady_state import emptying

Progress = Callable[[str, int, int], None]

DEFAULT_STEPS = 4000
"""None starved in so many is under 0.8 % of them, and of the time, with a confidence of 95 %."""

REPLAYED_STEPS = 125
_CHUNK_STEPS = 1000  # then it is asked whether these were enough
_MOST_STEPS = 4  # times those that are wanted, until a queue has settled
_EPOCH_STARTS = 5
_LONGEST_START_SECONDS = 20.0
_SAID_EVERY = 50


class Estimation:
    """One loader under one step: its steady state, the beginning of its epochs, and the step on batches at hand."""

    def __init__(
        self, loader: Any, step: Step, *, steps: int, confidence: float, device: Any, epoch_batches: int | None,
        progress: Progress, ranks: Ranks,
    ) -> None:  # fmt: skip
        self.loader, self.step, self.steps, self.confidence = loader, step, steps, confidence
        self.device, self.epoch_batches, self.progress, self.ranks = device, epoch_batches, progress, ranks
        self.passing = Pass(loader)
        self.cores = max(usable_cores() // count_local_ranks(), 1)
        self.emulated = isinstance(step, (SleepingStep, EmulatedDevice))

    def estimated(self) -> Profile:
        """The verdict."""
        passing, kept = self.passing, list[Any]()
        passing.record(1, self.step, ticks=self.ticks(self.step), keep=kept)
        on_device = _moved(kept, self.device)
        replayed = [self._replays(kept, on_device)]
        passing.drain()
        live = self._settled(
            passing.record(min(self.steps, _CHUNK_STEPS), self._counting("the loader"), ticks=self.ticks(self.step),
                           more=self._wanted)
        )  # fmt: skip
        if not self._steps(live).steady.any():
            raise UsageError(
                f"an epoch has {int(live.place.max()) + 1} batches, of which {passing.ahead} are made ahead: it ends "
                "before its steady state; give more data, a smaller batch_size or fewer workers"
            )
        replayed.append(self._replays(kept, on_device))
        alone, resident = (None if None in each else Recording.joined(each) for each in zip(*replayed, strict=True))
        assert alone is not None
        epoch = self._epoch(live)
        seen = seen_by(self.ranks.number, self.judged(live, epoch), live, alone, epoch)
        verdict, ranks = together(self.ranks.gathered(seen))
        return Profile(
            verdict=verdict, ranks=ranks, rank=self.ranks.number, live=live, alone=alone, resident=resident,
            opening_seconds=passing.opening_seconds, first_batch_seconds=passing.first_batch_seconds,
            step=str(self.step) if self.emulated else getattr(self.step, "__qualname__", type(self.step).__name__),
            cores=self.cores,
        )  # fmt: skip

    def _replays(self, kept: list[Any], on_device: list[Any] | None) -> tuple[Recording, Recording | None]:
        """The step on batches that are there, and on batches that are on its device, where that is another place."""
        alone, resident = (
            None if batches is None else replay(batches, REPLAYED_STEPS, self.step, self.ticks(self.step))
            for batches in (kept, on_device)
        )
        assert alone is not None
        return alone, resident

    def _steps(self, recording: Recording) -> Steps:
        """Of this rank's recording and the other ranks' together."""
        return Steps.joined(self.ranks.gathered(Steps.of(recording)))

    def _settled(self, recording: Recording) -> Recording:
        """With the steps that its queue took to settle; of several ranks, until the job's waits had settled."""
        return replace(recording, settled=self._steps(recording).settled_after())

    def _wanted(self, recording: Recording) -> int:
        """How many more steps: until there are as many as were asked for after the queue has settled, if it does.

        None more where the loader is surely too slow. Each look may be wrong, so each takes a part of the doubt. Of
        several ranks it is asked of the job, and so the same on all of them.
        """
        found = self._settled(recording)
        steps, empties = self._steps(found), self.ranks.gathered(emptying(found))
        count = int(steps.steady.sum())
        left = _MOST_STEPS * (self.steps + 2 * self.ranks.most(self.passing.ahead)) - len(found)
        missing = self.steps - count
        if steps.unsteady() or any(empties):
            missing = max(missing, _CHUNK_STEPS)
        elif count:
            looks = _MOST_STEPS * max(self.steps / _CHUNK_STEPS, 1)
            waits, block = steps.waiting(1 - (1 - self.confidence) / looks)
            if count >= FEWEST_BLOCKS * block and waits.lower > STARVED_ABOVE:
                return 0
        return min(missing, _CHUNK_STEPS, left)

    def _epoch(self, live: Recording) -> Epoch | None:
        """What a whole epoch waits more than the steady state does."""
        lengths = self.ranks.gathered(self.epoch_batches or _length(self.loader))
        if None in lengths:
            return None
        batches = max(filter(None, lengths))
        steps, starts = self._steps(live), list[float]()
        usual = float(steps.wait[steps.steady].mean())
        # A count, and no limit of time: of several ranks all have to do the same steps.
        affordable = round(_LONGEST_START_SECONDS / float(live.period[live.steady].mean()))
        first = self.ranks.most(max(min(2 * self.passing.ahead + 1, batches, affordable), 1))
        for number in range(_EPOCH_STARTS):
            self.progress("the beginning of an epoch", number, _EPOCH_STARTS)
            self.passing.reopen()
            seen = self.passing.record(first, self.step, ticks=self.ticks(self.step))
            starts.append(max(float(self._steps(seen).wait.sum()) - usual * len(seen), 0.0))
        return Epoch(batches=batches, starts=starts)

    def ticks(self, step: Step) -> Ticks:
        """What marks the moments of a step: its device's clock."""
        return step if isinstance(step, EmulatedDevice) else ticks_of(self.device)

    def _counting(self, what: str) -> Step:
        """The step, which says how many of it were done."""
        done = itertools.count()

        def step(batch: Any) -> None:
            if (number := next(done)) % _SAID_EVERY == 0:
                self.progress(what, number, max(self.steps, number))
            self.step(batch)

        return step

    def judged(self, recording: Recording, epoch: Epoch | None = None) -> Verdict:
        """The verdict on a recording of this step."""
        return judge(
            recording, emulated=self.emulated, confidence=self.confidence, epoch=epoch, ranks=self.ranks.count,
            cores=self.cores,
        )  # fmt: skip


def _length(loader: Any) -> int | None:
    """Batches of an epoch; None where the loader does not say."""
    try:
        return len(loader) or None
    except (TypeError, NotImplementedError):
        return None


def _moved(batches: list[Any], device: str | torch.device | None) -> list[Any] | None:
    """The batches on the device of the step; None where they are there anyway."""
    where = torch.device(device or "cpu")
    if where.type == "cpu" or all(tensor.device.type != "cpu" for batch in batches for tensor in iter_tensors(batch)):
        return None
    return [_on(batch, where) for batch in batches]


def _on(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, dict):
        return {name: _on(value, device) for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        moved = [_on(value, device) for value in batch]
        return (
            type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)
        )  # a named tuple, as torch collates
    return batch.to(device) if isinstance(batch, torch.Tensor) else batch
