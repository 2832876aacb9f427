"""What the same loader would do under other steps and on other machines, for loaders whose truth is known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from assets_profiles import recorded
from facefeed.loaders.profiler.estimate.queue_model import QueueModel
from facefeed.loaders.profiler.measure.batch_timing import BatchTiming
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.verdict.what_if import WhatIfModel, _all_cores_busy_probability

STEP, TRANSPORT = 0.010, 0.0002


def recording_of(
    load: Any, step: Any = STEP, *, busy: float = 0.0, late: float = 0.0, lead: int = 0
) -> Recording:  # fmt: skip
    """Two workers; `late`: seconds that every second batch which is made comes late, for want of a core."""
    transport = TRANSPORT + late * (np.arange(len(load)) % 2)
    queue = QueueModel(num_workers=2, prefetch_factor=2, lead_steps=lead)
    timeline = queue.replay(load, step, transport)
    stamps = [
        BatchTiming(start, finish, cpu_seconds=busy * (finish - start))
        for start, finish in zip(timeline.load_start_at, timeline.load_end_at, strict=True)
    ]
    return recorded(timeline, queue=queue, stamps=stamps)


def measured(recording: Recording) -> float:
    return float(recording.wait_seconds[recording.is_steady].sum()) / recording.steady_seconds


@pytest.mark.parametrize("times", [0.5, 0.95, 1.05, 1.5])
@pytest.mark.parametrize("busy", [0.0, 0.9])
def test_where_nothing_changes_it_says_what_was_measured(times: float, busy: float) -> None:
    load = np.random.default_rng(0).gamma(4.0, 2 * times * STEP / 4, 2000)
    recording = recording_of(load, busy=busy)
    assert WhatIfModel.fit(recording, num_cores=2).wait_share() == pytest.approx(measured(recording), abs=0.005)


@pytest.mark.parametrize("step", [0.5 * STEP, STEP, 2 * STEP])
def test_another_step_waits_as_long_as_it_would_have(step: float) -> None:
    load = np.random.default_rng(0).gamma(4.0, 2 * STEP / 4, 2000)
    model = WhatIfModel.fit(recording_of(load), num_cores=2)
    assert model.wait_share(step_seconds=step) == pytest.approx(measured(recording_of(load, step)), abs=0.005)


def test_the_fastest_step_is_where_waiting_begins() -> None:
    model = WhatIfModel.fit(recording_of(np.full(2000, 0.02), 0.05, lead=1), num_cores=2)
    fastest = model.fastest_step_seconds(0.01)
    assert fastest == pytest.approx(0.01, rel=0.03)
    assert model.wait_share(step_seconds=fastest) <= 0.01 < model.wait_share(step_seconds=0.98 * fastest)


def test_for_a_step_that_is_far_too_slow_the_fastest_is_stated() -> None:
    model = WhatIfModel.fit(recording_of(np.full(600, 0.002), 0.5, lead=1), num_cores=2)
    assert model.fastest_step_seconds(0.01) == pytest.approx(0.001, rel=0.05)


def test_batches_come_late_less_often_where_the_workers_rest() -> None:
    """Both of two cores are taken with the square of a worker's share of work."""
    model = WhatIfModel.fit(recording_of(np.full(2000, 2 * STEP), busy=1.0, late=0.004), num_cores=2)
    current = model.wait_share()
    assert current == pytest.approx(0.0022 / 0.0122, abs=0.01)
    assert model.wait_share(step_seconds=4 * STEP) == pytest.approx(
        (TRANSPORT + 0.002 * (0.25 / 0.82) ** 2) / 0.040, rel=0.1
    )
    assert model.wait_share(extra_cores=2) == pytest.approx(TRANSPORT / 0.0102, rel=0.01)
    fastest = model.fastest_step_seconds(0.01)
    assert fastest is not None
    assert fastest > 1.5 * STEP


def test_a_worker_that_takes_the_last_core_makes_batches_come_late() -> None:
    """One worker leaves the loop a core of two; two workers that compute all the time let it wait for its turn."""
    queue = QueueModel(num_workers=1, prefetch_factor=2)
    timeline = queue.replay(np.full(2000, 1.5 * STEP), STEP, TRANSPORT)
    stamps = [
        BatchTiming(*times, cpu_seconds=times[1] - times[0])
        for times in zip(timeline.load_start_at, timeline.load_end_at, strict=True)
    ]
    recording = recorded(timeline, queue=queue, stamps=stamps)
    two_workers = replace(recording.queue_model, num_workers=2)
    share = 1.5 * STEP / (2 * 0.0113)  # of a worker's time at work, where a batch comes every 11.3 ms
    crowded, uncrowded = (WhatIfModel.fit(recording, num_cores=cores).wait_share(queue=two_workers) for cores in (2, 3))
    assert crowded == pytest.approx((TRANSPORT + 0.002 * share**2) / 0.0113, abs=0.02)
    assert uncrowded == pytest.approx(TRANSPORT / 0.0102, rel=0.01)


def test_what_comes_late_for_other_reasons_stays() -> None:
    model = WhatIfModel.fit(recording_of(np.full(2000, STEP / 2), late=0.004), num_cores=64)
    current = model.wait_share()
    assert current == pytest.approx(0.0022 / 0.0122, abs=0.01)
    assert model.wait_share(queue=replace(model.recording.queue_model, num_workers=4)) == pytest.approx(current)


def test_all_cores_are_taken_as_often_as_chance_has_it() -> None:
    assert _all_cores_busy_probability(2, 1.0, 2) == 0.25
    assert _all_cores_busy_probability(4, 2.0, 2) == pytest.approx(1 - 5 / 16)
    assert _all_cores_busy_probability(0, 1.0, 1) == _all_cores_busy_probability(1, 0.5, 2) == 0.0
    assert _all_cores_busy_probability(3, 3.0, 3) == 1.0
    assert _all_cores_busy_probability(3, 0.0, 1) == 0.0


def test_a_machine_of_a_thousand_cores_gets_a_prediction_too() -> None:
    assert _all_cores_busy_probability(2048, 1024.0, 1024) == pytest.approx(0.5 + math.comb(2048, 1024) / 2**2049)
    model = WhatIfModel.fit(recording_of(np.full(100, STEP)), num_cores=1024)
    assert 0 <= model.wait_share(queue=replace(model.recording.queue_model, num_workers=2048)) < 0.1
