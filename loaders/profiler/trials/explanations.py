"""Trials that explain a verdict, and trials of advised settings."""

from __future__ import annotations

import functools
import traceback
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ....pipeline.console import plural
from ....pipeline.errors import UsageError
from ...loader.face_dataloader import FaceDataLoader
from ..measure import page_cache
from ..measure.measured_loop import MeasuredLoop, Step
from ..measure.recording import Recording
from ..measure.steps import EmulatedDevice, SleepingStep
from ..measure.variants import torch_loader_of, with_less_work, with_settings
from ..verdict.advice import Advice, acceptable_wait_share, advise, unexplained_wait_share, wait_per_step
from ..verdict.epoch_length import most_in_flight, short_epoch_batches, short_epoch_error
from ..verdict.headroom import without_contradicted_headroom
from ..verdict.loader_verdict import LoaderMeasurement
from ..verdict.result import CurvePoint, Profile, Trial
from ..verdict.steady_state import NOT_STEADY
from ..verdict.step_series import StepSeries
from ..verdict.verdict import FED_BELOW, WARM_BYTES_PER_IMAGE, Verdict, VerdictKind
from ..verdict.what_if import WhatIfModel
from .sweep import failure_reason

_Measured = TypeVar("_Measured")

_TRIAL_STEPS_DIVISOR = 20  # a trial takes so small a part of the steps
_MAX_TRIAL_SECONDS = 45.0
_MAX_EVICTIONS = 10
_MAX_TRIED_SETTINGS = 6
_SURELY_BETTER_PART = 0.5  # of the waiting of a step so far
_CURVE_STEP_FACTORS = (0.5, 0.8, 1.0, 1.3, 2.0)
"""Where the wait curve is measured: in the time that all workers need for a batch when none ever waits."""


class Trials:
    """Short measurements of the same step on variants of the loader."""

    def __init__(self, measurement: LoaderMeasurement) -> None:
        self.measurement, self.loader = measurement, measurement.loader
        self.step, self.loop = measurement.step, measurement.loop
        self.progress, self.num_steps = measurement.progress, max(measurement.num_steps // _TRIAL_STEPS_DIVISOR, 30)
        self._notes = list[str]()

    def explain(self, profile: Profile) -> Profile:
        """The profile with wait curve, cold cache, transforms and advice; what fails is left out, with a note."""
        curve = self._or_note("the wait curve", lambda: self._wait_curve(profile)) or ()
        cold = self._or_note("the cold cache", self._cold_cache)
        self.loop.close()
        torch_loader = torch_loader_of(self.loader)
        variants = with_less_work(torch_loader) if isinstance(torch_loader, FaceDataLoader) else {}
        explained = replace(
            profile,
            verdict=without_contradicted_headroom(profile.verdict, curve),
            curve=curve,
            cold_cache=cold,
            advice=self.advise(profile),
        )
        return self.with_trials_of(explained, variants)

    def advise(self, profile: Profile) -> tuple[Advice, ...]:
        """What would help the loader, or the same with other settings, as the profile shows it.

        Empty, with a note, where that fails.
        """
        return tuple(self._or_note("what would help", lambda: advise(
            profile.live, profile.num_cores, acceptable_share=acceptable_wait_share(profile.verdict),
            unexplained_share=unexplained_wait_share(profile.verdict),
            max_in_flight=most_in_flight(self.loader, self.loop),
        )) or ())  # fmt: skip

    def with_trials_of(self, profile: Profile, loaders: Mapping[str, Any]) -> Profile:
        """The profile with short trials of further loaders, by name; what fails is left out, with a note."""
        trials = [
            self._or_note(name, functools.partial(self.measure, name, loader)) for name, loader in loaders.items()
        ]
        return replace(profile, trials=(*profile.trials, *filter(None, trials)), trial_notes=tuple(self._notes))

    def _or_note(self, name: str, measure: Callable[[], _Measured]) -> _Measured | None:
        """What `measure` returns; None, with a note, where it fails: the verdict is there, and is not to be lost."""
        try:
            return measure()
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # they hold the loader, with its workers and memory
            self._notes.append(f"{name} could not be measured: {failure_reason(error)}")
            return None

    def verify_advice(self, profile: Profile) -> Profile:
        """The profile with the advised settings tried in order, until the device is fed or none is left.

        Each trial starts from the best settings so far; those that seem sufficient in few steps are measured in as many
        as the verdict. A trial that fails costs only its own figures.
        """
        advice, tried, tried_settings = list(profile.advice), list[Advice](), list[Mapping[str, int]]()
        best, best_wait_share, notes = None, profile.verdict.wait_share.value, list[str]()
        while candidate := next(_untried(advice, tried_settings), None):
            if len(tried_settings) == _MAX_TRIED_SETTINGS:
                left = "; ".join(each.code for each in _untried(advice, tried_settings))
                notes.append(f"stopped after {plural(_MAX_TRIED_SETTINGS, 'setting')}; not tried: {left}")
                break
            tried_settings.append(candidate.settings)
            try:
                trial = self._try_settings(candidate)
            except Exception as error:
                traceback.clear_frames(error.__traceback__)  # they hold the loader, with its workers and memory
                notes.append(f"{candidate.code} could not be measured: {failure_reason(error)}")
                continue
            attempt = replace(candidate, measured_wait_share=trial.verdict.wait_share.value)
            tried.append(attempt)
            if _is_surely_better(trial.verdict, best_wait_share):
                best, best_wait_share = trial, trial.verdict.wait_share.value
                advice = list(self.advise(replace(profile, live=trial.recording, verdict=trial.verdict)))
            elif not attempt.failed:
                steps = plural(trial.verdict.num_steps, "step")
                notes.append(f"{candidate.code} waited less, but {steps} do not show that surely: not kept")
            if trial.verdict.kind is VerdictKind.FED:
                break
        if not tried_settings:
            notes.append("no setting was advised, so none was tried")
        untried = [
            candidate for candidate in profile.advice if candidate.change not in {attempt.change for attempt in tried}
        ]
        return replace(profile, advice=(*tried, *untried), verified=best, verify_notes=tuple(notes))

    def _try_settings(self, advice: Advice) -> Trial:
        """A short trial; where it waits for next to nothing, one in full length, if an epoch has enough batches.

        Raises `UsageError` where its time was up before a step was steady.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="This DataLoader will create")  # so many on purpose
            trial = self.measure(advice.code, with_settings(self.loader, **advice.settings))
            if trial is None:
                raise UsageError(f"no steady state within {_MAX_TRIAL_SECONDS:.0f} s")
            if trial.verdict.wait_share.value <= FED_BELOW:
                trial = self._measure_in_full(advice.code, with_settings(self.loader, **advice.settings))
        return trial

    def _measure_in_full(self, name: str, loader: Any) -> Trial:
        measurement = LoaderMeasurement(
            loader,
            self.step,
            num_steps=self.measurement.num_steps,
            confidence=self.measurement.confidence,
            device=self.measurement.device,
            num_epoch_batches=self.measurement.num_epoch_batches,
            progress=lambda _, *progress: self.progress(name, *progress),
            ranks=self.measurement.ranks,
        )
        result = measurement.measure()
        measurement.loop.close()
        return Trial(name=name, recording=result.live, verdict=result.verdict)

    def measure(self, name: str, loader: Any) -> Trial | None:
        """A short trial of another loader; None where the time was up before a step was steady.

        Raises `UsageError` where its epochs end before a step is.
        """
        self.progress(name, 0, self.num_steps)
        loop = MeasuredLoop(loader)
        if (num_batches := short_epoch_batches(loader, loop)) is not None:
            raise short_epoch_error(num_batches, loop.max_in_flight)
        loop.record(1, self.step, step_clock=self.measurement.step_clock(self.step))
        recording = self._record(loop, self.step)
        loop.close()
        trial = self._trial(name, recording)
        if trial is None and len(recording) > max(loop.max_in_flight, 1):  # one epoch of so many steps has a steady one
            raise short_epoch_error(int(recording.segment_step.max()) + 1, loop.max_in_flight)
        return trial

    def _trial(self, name: str, recording: Recording) -> Trial | None:
        """The trial of a recording; None where no step is steady: it would seem never to wait."""
        settled = replace(recording, num_transient_steps=StepSeries.of_recording(recording).transient_length())
        recording = settled if settled.is_steady.any() else recording
        if not recording.is_steady.any():
            return None
        return Trial(name=name, recording=recording, verdict=self.measurement.judge(recording))

    def _record(self, loop: MeasuredLoop, step: Step) -> Recording:
        loop.drain()
        return loop.record(
            self.num_steps + loop.max_in_flight,
            step,
            step_clock=self.measurement.step_clock(step),
            max_seconds=_MAX_TRIAL_SECONDS,
        )

    def _wait_curve(self, profile: Profile) -> tuple[CurvePoint, ...]:
        """Waiting at several step times; only for an emulated step, since a real one takes as long as it takes."""
        if not isinstance(self.step, (SleepingStep, EmulatedDevice)) or profile.verdict.model_wait_share is None:
            return ()
        model = WhatIfModel.fit(profile.live, profile.num_cores)
        load_seconds = float(profile.live.load_seconds[profile.live.is_steady].mean())
        batch_interval_seconds = load_seconds / max(profile.live.num_workers, 1)
        points = list[CurvePoint]()
        for number, factor in enumerate(_CURVE_STEP_FACTORS):
            self.progress(f"a step of {batch_interval_seconds * factor * 1e3:.1f} ms", number, len(_CURVE_STEP_FACTORS))
            recording = self._record(self.loop, replace(self.step, seconds=batch_interval_seconds * factor))
            if not recording.is_steady.any():
                continue
            mean_step_seconds = float(recording.step_seconds[recording.is_steady].mean())
            verdict = self.measurement.judge(recording)
            measured, is_steady = verdict.wait_share, not any(NOT_STEADY in reason for reason in verdict.reasons)
            load_ratio = float(recording.load_seconds[recording.is_steady].mean()) / load_seconds
            points.append(
                CurvePoint(
                    step_seconds=mean_step_seconds,
                    predicted_wait_share=model.wait_share(step_seconds=mean_step_seconds),
                    measured_wait_share=measured.value,
                    measured_wait_share_lower=measured.lower if is_steady else 0.0,
                    load_ratio=load_ratio,
                )
            )
        return tuple(points)

    def _cold_cache(self) -> Trial | None:
        """With files read from storage.

        None where they are not known, came from memory all the same, or time was up before a step was steady.
        """
        loader: Any = torch_loader_of(self.loader)
        files = page_cache.parquet_files(loader)
        if not files:
            return None
        # Batches until every file was read; a batch sampler does not say how large its batches are.
        epoch_batches = max(len(loader.dataset) // (loader.batch_size or 1), 1)
        parts, num_steps = list[Recording](), min(epoch_batches, self.num_steps)
        for _ in range(min(-(-self.num_steps // epoch_batches), _MAX_EVICTIONS)):
            self.progress("a cold cache", len(parts) * num_steps, self.num_steps)
            page_cache.evict(files)
            self.loop.drain()  # else what is queued would hide for hundreds of steps that a cold loader is too slow
            page_cache.evict(files)  # of an epoch shorter than the queue everything would be warm again
            parts.append(
                self.loop.record(
                    num_steps + self.loop.max_in_flight, self.step, step_clock=self.measurement.step_clock(self.step),
                    max_seconds=_MAX_TRIAL_SECONDS,
                )
            )  # fmt: skip
        recording = Recording.concatenate(parts)
        is_cold = (
            recording.storage_bytes_per_image is not None and recording.storage_bytes_per_image >= WARM_BYTES_PER_IMAGE
        )
        return self._trial("cold cache", recording) if is_cold else None


def _untried(advice: Iterable[Advice], tried_settings: Container[Mapping[str, int]]) -> Iterator[Advice]:
    """Advice that is a setting and was not tried."""
    return (each for each in advice if each.settings and each.settings not in tried_settings)


def _is_surely_better(verdict: Verdict, wait_share: float) -> bool:
    """Whether a trial waits less than `wait_share` by more than its uncertainty.

    By its upper bound; or, since that of a short trial is wide, by half of the waiting of a step at most. A trial that
    is fed has enough steps for a bound of its own.
    """
    waits = verdict.wait_share
    is_half = wait_per_step(waits.value) <= _SURELY_BETTER_PART * wait_per_step(wait_share)
    is_less = waits.upper < wait_share or is_half
    return is_less or (verdict.kind is VerdictKind.FED and waits.value < wait_share)
