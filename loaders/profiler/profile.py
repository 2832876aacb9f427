"""`profile(loader, step)`: the three estimators on one loader, in turns, then what explains them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ...pipeline.errors import UsageError
from ...pipeline.machine import usable_cores
from ..dataloader import FaceDataLoader
from ..prefetch import tensors_in
from . import storage
from .advice import Advice, advise
from .live import Pass, Step, replay
from .recording import Recording
from .situation import Situation
from .steps import SleepingStep
from .ticks import ticks_of
from .variants import by_transforms, source_of, with_settings
from .verdict import WARM_BYTES, Verdict, judge

Progress = Callable[[str, int, int], None]

_TURNS = 5
_REPLAYED_PART = 4  # a replay takes a fourth of the steps that it is compared with
_TRIAL_PART = 5  # and a trial a fifth
_LONGEST_TRIAL_SECONDS = 45.0
_MOST_EVICTIONS = 10
_CURVE = (0.5, 0.8, 1.0, 1.3, 2.0)
"""Where the starvation curve is measured: in the time that all workers need for a batch when none ever waits."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A loader measured beside the one in question: what it was, and what was seen."""

    name: str
    recording: Recording
    verdict: Verdict


PART_NAMES = {
    "step alone": "step alone",
    "copy": "copy",
    "slower step": "slowed step",
    "transport": "transport",
    "sampling": "sampler",
    "contention": "no core free",
    "preparation": "not ready",
}
"""The parts of `Profile.bars` as the terminal, the page and the timeline call them."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Of the starvation curve: the mean step in seconds, and the stall by the model and by the clock, 0 to 1.

    pace: how many times as long as at the step in question batches took to make meanwhile.
    """

    step: float
    predicted: float
    measured: float
    pace: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a profile found. Times in seconds, shares 0 to 1.

    live: all steps under load. alone: the same step on batches that were there already; resident: that were on the
    device, where that is another place. opening_seconds: of the first `iter()`; first_batch_seconds: from there to the
    first batch. cold: after the page cache was emptied, where that worked. trials: the loader with other transforms,
    and others beside it.
    """

    verdict: Verdict
    live: Recording
    alone: Recording
    resident: Recording | None
    opening_seconds: float
    first_batch_seconds: float
    step: str
    cold: Trial | None = None
    curve: tuple[Point, ...] = ()
    trials: tuple[Trial, ...] = ()
    advice: tuple[Advice, ...] = ()
    cores: int = field(default_factory=usable_cores)

    @property
    def differential(self) -> float:
        """Estimator B: slowdown compared with preloaded batches, as a share of the time, 0 to 1."""
        return 1 - float(self.alone.step.mean()) / float(self.live.period[self.live.steady].mean())

    @property
    def this(self) -> Trial:
        """The loader in question, as the others are."""
        return Trial(name="this loader", recording=self.live, verdict=self.verdict)

    @property
    def others(self) -> tuple[Trial, ...]:
        """All that was measured beside it, the cold cache last."""
        return self.trials if self.cold is None else (*self.trials, self.cold)

    @property
    def bars(self) -> dict[str, float]:
        """Where a step's time goes, by name, in seconds a step; together they are its period.

        step alone; copy: to the device; slower step: what loading beside it costs it; transport; sampling: the
        sampler kept the loop; contention: of the queue, where there are too few cores; preparation: the batch was still
        being made.
        """
        steady, live = self.live.steady, self.live
        alone = float(self.alone.step.mean())
        resident = alone if self.resident is None else float(self.resident.step.mean())
        bars = {
            "step alone": resident,
            "copy": alone - resident,
            "slower step": float(live.step[steady].mean()) - alone,
            "transport": float(live.transport[steady].mean()),
            "sampling": float(live.sampling[steady].mean()),
            "contention": float(live.contention[steady].mean()),
            "preparation": float(live.unmade[steady].mean()),
        }
        if self.resident is None:
            del bars["copy"]
        if not bars["sampling"]:
            del bars["sampling"]
        return bars

    @property
    def fetch(self) -> float:
        """What a step takes longer when nothing is in the page cache, in seconds; 0 where that was not tried."""
        if self.cold is None:
            return 0.0
        cold, live = self.cold.recording, self.live
        return max(float(cold.period[cold.steady].mean() - live.period[live.steady].mean()), 0.0)


def profile(
    loader: Any, step: Step, *, steps: int = 1000, confidence: float = 0.95, device: str | torch.device | None = None,
    against: Mapping[str, Any] | None = None, verify: bool = False, quick: bool = False,
    progress: Progress | None = None,
) -> Profile:  # fmt: skip
    """Goes through a loader's batches with a step as training would, and says how long it waited, and how sure that is.

    loader: a `FaceDataLoader`, any torch DataLoader, or any iterable of batches that can be iterated again. step: what
    is done with a batch; a `SleepingStep` stands for one where there is no GPU. device: that the step runs on; None:
    the host. steps: of the steady state; the interval narrows with their root. against: other loaders, by name, that
    the same step is tried on. verify: tries the advice as well. quick: the verdict alone, without what explains it.
    progress: called with what is being done, steps done and steps in all.

    Real steps and replayed ones take turns, so that a machine that drifts drifts under both.
    """
    if steps < 50:
        raise UsageError(f"steps={steps}: must be at least 50; try 1000")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence={confidence}: must be between 0 and 1; try 0.95")
    if isinstance(loader, Iterator):
        raise UsageError(f"{type(loader).__name__}: can be iterated only once; give a loader, or a list of batches")
    if isinstance(loader, Mapping) or not hasattr(loader, "__iter__"):
        raise UsageError(
            f"{type(loader).__name__}: has no batches to iterate over; give a loader, or a list of batches"
        )
    with _undisturbed(loader):
        return _profiled(
            loader, step, steps=steps, confidence=confidence, device=device, against=against or {}, verify=verify,
            quick=quick, progress=progress or _silent,
        )  # fmt: skip


def _profiled(
    loader: Any, step: Step, *, against: Mapping[str, Any], verify: bool, quick: bool, **settings: Any
) -> Profile:  # fmt: skip
    run = _Run(loader, step, **settings)
    found = run.estimated()
    if not quick:
        found = run.explained(found)
        found = replace(found, advice=tuple(run.tried(one) for one in found.advice) if verify else found.advice)
    run.passing.close()
    for name, other in against.items():
        found = replace(found, trials=(*found.trials, run.trial(name, other)))
    return found


@contextmanager
def _undisturbed(loader: Any) -> Iterator[None]:
    """Leaves torch's random numbers, and those of a loader's samplers, where they were: its order is the user's."""
    source = source_of(loader)
    drawing = [
        source,
        getattr(source, "sampler", None),
        getattr(getattr(source, "batch_sampler", None), "sampler", None),
    ]
    generators = [one for owner in drawing if (one := getattr(owner, "generator", None)) is not None]
    states = [one.get_state() for one in generators]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for one, state in zip(generators, states, strict=True):
            one.set_state(state)


def _silent(_what: str, _done: int, _wanted: int) -> None:
    return None


class _Run:
    """One profile under way."""

    def __init__(
        self, loader: Any, step: Step, *, steps: int, confidence: float, device: Any, progress: Progress
    ) -> None:  # fmt: skip
        self.loader, self.step, self.steps, self.confidence = loader, step, steps, confidence
        self.ticks, self.device, self.progress = ticks_of(device), device, progress
        self.passing = Pass(loader, self.ticks)
        self.emulated = isinstance(step, SleepingStep)
        self.trial_steps = max(steps // _TRIAL_PART, 30)

    def estimated(self) -> Profile:
        """The verdict."""
        passing, kept = self.passing, list[Any]()
        passing.record(1, self.step, keep=kept)
        on_device = _moved(kept, self.device)
        lives, alones, residents = [], [], []
        each = -(-self.steps // _TURNS)
        replayed = max(each // _REPLAYED_PART, 10)
        for turn in range(_TURNS):
            self.progress("the loader", turn * each, self.steps)
            lives.append(passing.record(each + max(passing.ahead, 1), self.step))
            alones.append(replay(kept, replayed, self.step, self.ticks))
            if on_device is not None:
                residents.append(replay(on_device, replayed, self.step, self.ticks))
        live, alone = Recording.joined(lives), Recording.joined(alones)
        if not live.steady.any():
            raise UsageError(
                f"an epoch has {int(live.place.max()) + 1} batches, of which {passing.ahead} are made ahead: it ends "
                "before its steady state; give more data, a smaller batch_size or fewer workers"
            )
        return Profile(
            verdict=self._judged(live), live=live, alone=alone,
            resident=Recording.joined(residents) if residents else None,
            opening_seconds=passing.opening_seconds, first_batch_seconds=passing.first_batch_seconds,
            step=str(self.step) if self.emulated else getattr(self.step, "__qualname__", type(self.step).__name__),
        )  # fmt: skip

    def explained(self, found: Profile) -> Profile:
        """With the curve, the cold cache, the transforms and advice."""
        curve = self._curve(found)
        cold = self._cold()
        self.passing.close()
        ours = source_of(self.loader)
        less = by_transforms(ours) if isinstance(ours, FaceDataLoader) else {}
        trials = tuple(self.trial(name, other) for name, other in less.items())
        return replace(found, curve=curve, cold=cold, trials=trials, advice=tuple(advise(found.live, found.cores)))

    def tried(self, advice: Advice) -> Advice:
        """Advice once it was followed, where that is a setting of a loader of torch's."""
        if not advice.settings:
            return advice
        other = with_settings(self.loader, **advice.settings)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="This DataLoader will create")  # so many on purpose
            return replace(advice, measured=self.trial(advice.what, other).verdict.live.value)

    def trial(self, name: str, loader: Any) -> Trial:
        """Another loader under the same step, in few steps."""
        self.progress(name, 0, self.trial_steps)
        passing = Pass(loader, self.ticks)
        passing.record(1, self.step)
        recording = self._stretch(passing, self.step)
        passing.close()
        return Trial(name=name, recording=recording, verdict=self._judged(recording))

    def _stretch(self, passing: Pass, step: Step) -> Recording:
        return passing.record(self.trial_steps + passing.ahead, step, most_seconds=_LONGEST_TRIAL_SECONDS)

    def _curve(self, found: Profile) -> tuple[Point, ...]:
        """Only where the step is emulated: how long a real one takes is not ours to say."""
        if not isinstance(self.step, SleepingStep) or found.verdict.model is None:
            return ()
        situation = Situation.of(found.live, found.cores)
        load = float(found.live.load[found.live.steady].mean())
        between = load / max(found.live.workers, 1)
        points = list[Point]()
        for times in _CURVE:
            self.progress(f"a step of {between * times * 1e3:.1f} ms", len(points), len(_CURVE))
            seen = self._stretch(self.passing, replace(self.step, seconds=between * times))
            mean = float(seen.step[seen.steady].mean())
            measured = self._judged(seen).live.value
            pace = float(seen.load[seen.steady].mean()) / load
            points.append(Point(step=mean, predicted=situation.stall(step=mean), measured=measured, pace=pace))
        return tuple(points)

    def _cold(self) -> Trial | None:
        """From storage: None where the files are not known, or came from memory all the same."""
        loader: Any = source_of(self.loader)
        files = storage.files_of(loader)
        if not files:
            return None
        whole = max(len(loader.dataset) // loader.batch_size, 1)  # batches until every file was read
        parts, each = list[Recording](), min(whole, self.trial_steps)
        for _ in range(min(-(-self.trial_steps // whole), _MOST_EVICTIONS)):
            self.progress("a cold cache", len(parts) * each, self.trial_steps)
            storage.evict(files)
            parts.append(self.passing.record(each + self.passing.ahead, self.step, most_seconds=_LONGEST_TRIAL_SECONDS))
        recording = Recording.joined(parts)
        cold = recording.stored_per_image is not None and recording.stored_per_image >= WARM_BYTES
        return Trial(name="cold cache", recording=recording, verdict=self._judged(recording)) if cold else None

    def _judged(self, recording: Recording) -> Verdict:
        return judge(recording, emulated=self.emulated, confidence=self.confidence)


def _moved(batches: list[Any], device: str | torch.device | None) -> list[Any] | None:
    """The batches on the device of the step; None where they are there anyway."""
    where = torch.device(device or "cpu")
    if where.type == "cpu" or all(tensor.device.type != "cpu" for batch in batches for tensor in tensors_in(batch)):
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
