"""Headroom is a model's: where steps were measured that it says would not wait, and they do, the clock counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from assets_profiles import fed, recording_of, uneven
from facefeed.loaders.profiler.measure.measured_loop import MeasuredLoop
from facefeed.loaders.profiler.measure.ranks import RankGroup
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.measure.steps import EmulatedDevice
from facefeed.loaders.profiler.report.page.sentences import sustained
from facefeed.loaders.profiler.report.page.step import curve as curve_section
from facefeed.loaders.profiler.trials.explanations import Trials
from facefeed.loaders.profiler.verdict.gate import Gate
from facefeed.loaders.profiler.verdict.headroom import without_contradicted_headroom
from facefeed.loaders.profiler.verdict.loader_verdict import LoaderMeasurement
from facefeed.loaders.profiler.verdict.result import CurvePoint, Profile

FASTEST = fed().verdict.fastest_step_seconds or 0.0


def dot(step_seconds: float, waits: float, at_least: float) -> CurvePoint:
    return CurvePoint(
        step_seconds=step_seconds, predicted_wait_share=0.001, measured_wait_share=waits,
        measured_wait_share_lower=at_least,
    )  # fmt: skip


def test_no_headroom_is_claimed_where_a_step_that_it_allows_was_measured_to_wait() -> None:
    profile = fed()
    dots = (dot(FASTEST / 2, 0.6, 0.5), dot(FASTEST, 0.03, 0.02), dot(1.1 * FASTEST, 0.15, 0.12))
    verdict = without_contradicted_headroom(profile.verdict, dots)
    assert (verdict.headroom, verdict.headroom_lower) == (None, None)
    assert verdict.kind is profile.verdict.kind
    assert str(verdict).endswith(
        f"headroom is not known: with steps of {1.1e3 * FASTEST:.1f} ms, measured, the device waited 15.0% of the "
        "time, where the model says 0.1%"
    )
    assert Gate(min_headroom=1.1).failures(verdict) == ["headroom not known, wanted 1.1x"]
    contradicted = replace(profile, verdict=verdict, curve=dots)
    assert sustained(contradicted) == ""
    assert curve_section(contradicted).plots


@pytest.mark.parametrize(
    "measured",
    [
        pytest.param(dot(0.99 * FASTEST, 0.15, 0.12), id="a step faster than headroom allows"),
        pytest.param(dot(1.1 * FASTEST, 0.03, 0.005), id="waiting within its bounds"),
    ],
)
def test_headroom_stays_where_the_clock_does_not_contradict_it(measured: CurvePoint) -> None:
    verdict = fed().verdict
    assert without_contradicted_headroom(verdict, (measured,)) is verdict


def test_a_loader_whose_curve_waits_where_its_model_does_not_ends_without_headroom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step_seconds = 1.5 * FASTEST
    explained = explained_by(recording_of(uneven(1000, 2.6 * step_seconds), step_seconds), monkeypatch)
    assert explained.curve[0].measured_wait_share > explained.curve[0].measured_wait_share_lower > 0.2
    assert explained.verdict.headroom is None


def test_a_step_that_was_disturbed_while_the_curve_was_measured_takes_no_headroom_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step_seconds = 1.5 * FASTEST
    loads = np.concatenate([uneven(500, 2.4 * step_seconds), uneven(500, 3 * step_seconds)])
    explained = explained_by(recording_of(loads, step_seconds), monkeypatch)
    assert explained.curve[0].measured_wait_share > 0.2
    assert explained.curve[0].measured_wait_share_lower == 0
    assert explained.verdict.headroom == fed().verdict.headroom


def explained_by(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """A fed profile with a curve each of whose points is such a recording."""
    loader: Any = [None] * 4000
    trials = Trials(LoaderMeasurement(
        loader, EmulatedDevice(0.01), num_steps=4000, confidence=0.95, device=None, num_epoch_batches=None,
        progress=lambda *_: None, ranks=RankGroup(),
    ))  # fmt: skip
    monkeypatch.setattr(MeasuredLoop, "record", lambda *_args, **_options: recording)
    monkeypatch.setattr(MeasuredLoop, "drain", lambda _loop: None)
    return trials.explain(fed())
