"""What the same loader would do under other steps and on other machines, for loaders whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from facefeed.loaders.profiler.queue import Queue
from facefeed.loaders.profiler.recording import Recording
from facefeed.loaders.profiler.situation import Situation, _all_taken
from facefeed.loaders.profiler.stamps import Stamp

STEP, HANDING = 0.010, 0.0002


def recording_of(load: Any, step: Any = STEP, *, busy: float = 0.0, late: float = 0.0) -> Recording:
    """Two workers; `late`: seconds that every second batch which is made comes late, for want of a core."""
    handing = HANDING + late * (np.arange(len(load)) % 2)
    timeline = Queue(workers=2, prefetch=2).replay(load, step, handing)
    stamps = [
        Stamp(start, finish, cpu=busy * (finish - start))
        for start, finish in zip(timeline.start, timeline.finish, strict=True)
    ]
    return Recording(
        asked=timeline.free, handed=timeline.handed, done=timeline.handed + timeline.step,
        images=np.ones(len(load), np.int64),
        place=np.arange(len(load)), workers=2, prefetch=2, stamps=stamps, stored_bytes=0, computed=0.0,
    )  # fmt: skip


def measured(recording: Recording) -> float:
    return float(recording.stall[recording.steady].sum()) / recording.seconds


@pytest.mark.parametrize("times", [0.5, 0.95, 1.05, 1.5])
@pytest.mark.parametrize("busy", [0.0, 0.9])
def test_where_nothing_changes_it_says_what_was_measured(times: float, busy: float) -> None:
    load = np.random.default_rng(0).gamma(4.0, 2 * times * STEP / 4, 2000)
    recording = recording_of(load, busy=busy)
    assert Situation.of(recording, cores=2).stall() == pytest.approx(measured(recording), abs=0.005)


@pytest.mark.parametrize("step", [0.5 * STEP, STEP, 2 * STEP])
def test_another_step_waits_as_long_as_it_would_have(step: float) -> None:
    load = np.random.default_rng(0).gamma(4.0, 2 * STEP / 4, 2000)
    situation = Situation.of(recording_of(load), cores=2)
    assert situation.stall(step=step) == pytest.approx(measured(recording_of(load, step)), abs=0.005)


def test_the_fastest_step_is_where_waiting_begins() -> None:
    situation = Situation.of(recording_of(np.full(2000, 0.02), 0.05), cores=2)
    fastest = situation.fastest_step(0.01)
    assert fastest == pytest.approx(0.01 - HANDING, rel=0.03)
    assert situation.stall(step=fastest) <= 0.01 < situation.stall(step=0.98 * fastest)


def test_a_step_that_is_far_too_slow_is_told_how_fast_it_could_be() -> None:
    situation = Situation.of(recording_of(np.full(600, 0.002), 0.5), cores=2)
    assert situation.fastest_step(0.01) == pytest.approx(0.001 - HANDING, rel=0.05)


def test_batches_come_late_less_often_where_the_workers_rest() -> None:
    """Both of two cores are taken with the square of a worker's share of work."""
    situation = Situation.of(recording_of(np.full(2000, 2 * STEP), busy=1.0, late=0.004), cores=2)
    now = situation.stall()
    assert now == pytest.approx(0.002 / 0.0122, abs=0.01)
    assert situation.stall(step=4 * STEP) == pytest.approx(0.002 * (0.25 / 0.82) ** 2 / 0.040, rel=0.25)
    assert situation.stall(more_cores=2) == pytest.approx(0.0, abs=1e-6)
    fastest = situation.fastest_step(0.01)
    assert fastest is not None
    assert fastest > 1.5 * STEP


def test_a_worker_that_takes_the_last_core_makes_batches_come_late() -> None:
    """One worker leaves the loop a core of two; two workers that compute all the time let it wait for its turn."""
    one = Queue(workers=1, prefetch=2).replay(np.full(2000, 1.5 * STEP), STEP, HANDING)
    stamps = [Stamp(*times, cpu=times[1] - times[0]) for times in zip(one.start, one.finish, strict=True)]
    seen = Recording(
        asked=one.free, handed=one.handed, done=one.handed + one.step, place=np.arange(2000),
        images=np.ones(2000, np.int64), workers=1,
        prefetch=2, stamps=stamps, stored_bytes=0, computed=0.0,
    )  # fmt: skip
    two = replace(seen.queue, workers=2)
    share = 1.5 * STEP / (2 * 0.0113)  # of a worker's time at work, where a batch comes every 11.3 ms
    assert Situation.of(seen, cores=2).stall(queue=two) == pytest.approx(0.002 * share**2 / 0.0113, abs=0.02)
    assert Situation.of(seen, cores=3).stall(queue=two) < 0.001


def test_what_comes_late_for_other_reasons_stays() -> None:
    situation = Situation.of(recording_of(np.full(2000, STEP / 2), late=0.004), cores=64)
    assert situation.stall() == pytest.approx(0.002 / 0.0122, abs=0.01)
    assert situation.stall(queue=replace(situation.recording.queue, workers=4)) == pytest.approx(situation.stall())


def test_all_cores_are_taken_as_often_as_chance_has_it() -> None:
    assert _all_taken(2, 1.0, 2) == 0.25
    assert _all_taken(4, 2.0, 2) == pytest.approx(1 - 5 / 16)
    assert _all_taken(0, 1.0, 1) == _all_taken(1, 0.5, 2) == 0.0
