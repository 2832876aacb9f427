"""What explains a verdict, and what helps: the same step on the same loader with something changed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...loader.face_dataloader import FaceDataLoader
from ..measure import page_cache
from ..measure.live import Pass, Step
from ..measure.recording import Recording
from ..measure.steps import EmulatedDevice, SleepingStep
from ..measure.variants import by_transforms, source_of, with_settings
from ..verdict.advice import Advice, advise, enough_waiting
from ..verdict.judgement import FED_BELOW, WARM_BYTES, Word
from ..verdict.loader_verdict import Estimation
from ..verdict.result import Point, Profile, Trial
from ..verdict.what_if import Situation

_TRIAL_PART = 20  # a trial takes so small a part of the steps
_LONGEST_TRIAL_SECONDS = 45.0
_MOST_EVICTIONS = 10
_MOST_TRIED = 6
_CURVE = (0.5, 0.8, 1.0, 1.3, 2.0)
"""Where the starvation curve is measured: in the time that all workers need for a batch when none ever waits."""


class Trials:
    """What explains a verdict: the same step on the same loader with something changed, in few steps each."""

    def __init__(self, run: Estimation) -> None:
        self.run, self.loader, self.step, self.passing = run, run.loader, run.step, run.passing
        self.progress, self.steps = run.progress, max(run.steps // _TRIAL_PART, 30)

    def explained(self, found: Profile) -> Profile:
        """With the curve, the cold cache, the transforms and advice."""
        curve = self._curve(found)
        cold = self._cold()
        self.passing.close()
        ours = source_of(self.loader)
        less = by_transforms(ours) if isinstance(ours, FaceDataLoader) else {}
        trials = tuple(self.one(name, other) for name, other in less.items())
        advice = advise(found.live, found.cores, enough=enough_waiting(found.verdict))
        return replace(found, curve=curve, cold=cold, trials=trials, advice=tuple(advice))

    def followed(self, found: Profile) -> Profile:
        """With the settings that are advised tried, one after the other, until the device is fed or none is left.

        Each from where the last one that helped has led; what seems enough in few steps is measured in as many as the
        verdict.
        """
        advice, tried, seen = list(found.advice), list[Advice](), list[Mapping[str, int]]()
        best, waits = None, found.verdict.live.value
        while (one := next((one for one in advice if one.settings and one.settings not in seen), None)) is not None:
            seen.append(one.settings)
            trial = self._followed(one.settings)
            tried.append(replace(one, measured=trial.verdict.live.value))
            if trial.verdict.live.value < waits:
                best, waits = trial, trial.verdict.live.value
                advice = advise(trial.recording, found.cores, enough=enough_waiting(trial.verdict))
            if trial.verdict.word is Word.FED or len(tried) == _MOST_TRIED:
                break
        left = [one for one in found.advice if one.what not in {each.what for each in tried}]
        return replace(found, advice=(*tried, *left), followed=best)

    def _followed(self, settings: Mapping[str, int]) -> Trial:
        """In few steps; where these wait for next to nothing, in as many as the verdict if an epoch has them."""
        code, loader = ", ".join(f"{name}={value}" for name, value in settings.items()), self.loader
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="This DataLoader will create")  # so many on purpose
            trial = self.one(code, with_settings(loader, **settings))
            if trial.verdict.steps and trial.verdict.live.value <= FED_BELOW:
                trial = self._in_full(code, with_settings(loader, **settings))
        return trial

    def _in_full(self, name: str, loader: Any) -> Trial:
        run = Estimation(
            loader, self.step, steps=self.run.steps, confidence=self.run.confidence, device=self.run.device,
            epoch_batches=self.run.epoch_batches, progress=lambda _, *done: self.progress(name, *done),
            ranks=self.run.ranks,
        )  # fmt: skip
        found = run.estimated()
        run.passing.close()
        return Trial(name=name, recording=found.live, verdict=found.verdict)

    def one(self, name: str, loader: Any) -> Trial:
        """Another loader under the same step."""
        self.progress(name, 0, self.steps)
        passing = Pass(loader)
        passing.record(1, self.step, ticks=self.run.ticks(self.step))
        recording = self._stretch(passing, self.step)
        passing.close()
        return Trial(name=name, recording=recording, verdict=self.run.judged(recording))

    def _stretch(self, passing: Pass, step: Step) -> Recording:
        passing.drain()
        return passing.record(
            self.steps + passing.ahead, step, ticks=self.run.ticks(step), most_seconds=_LONGEST_TRIAL_SECONDS
        )

    def _curve(self, found: Profile) -> tuple[Point, ...]:
        """Only where the step is emulated: how long a real one takes is not ours to say."""
        if not isinstance(self.step, (SleepingStep, EmulatedDevice)) or found.verdict.model is None:
            return ()
        situation = Situation.of(found.live, found.cores)
        load = float(found.live.load[found.live.steady].mean())
        between = load / max(found.live.workers, 1)
        points = list[Point]()
        for times in _CURVE:
            self.progress(f"a step of {between * times * 1e3:.1f} ms", len(points), len(_CURVE))
            seen = self._stretch(self.passing, replace(self.step, seconds=between * times))
            mean = float(seen.step[seen.steady].mean())
            measured = self.run.judged(seen).live.value
            pace = float(seen.load[seen.steady].mean()) / load
            points.append(Point(step=mean, predicted=situation.wait_share(step=mean), measured=measured, pace=pace))
        return tuple(points)

    def _cold(self) -> Trial | None:
        """From storage: None where the files are not known, or came from memory all the same."""
        loader: Any = source_of(self.loader)
        files = page_cache.files_of(loader)
        if not files:
            return None
        whole = max(len(loader.dataset) // loader.batch_size, 1)  # batches until every file was read
        parts, each = list[Recording](), min(whole, self.steps)
        for _ in range(min(-(-self.steps // whole), _MOST_EVICTIONS)):
            self.progress("a cold cache", len(parts) * each, self.steps)
            page_cache.evict(files)
            parts.append(
                self.passing.record(
                    each + self.passing.ahead, self.step, ticks=self.run.ticks(self.step),
                    most_seconds=_LONGEST_TRIAL_SECONDS,
                )
            )  # fmt: skip
        recording = Recording.joined(parts)
        cold = recording.stored_per_image is not None and recording.stored_per_image >= WARM_BYTES
        return Trial(name="cold cache", recording=recording, verdict=self.run.judged(recording)) if cold else None
