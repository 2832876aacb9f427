"""How sure a forecast of time is, by what else runs on the machine and by how much was tried."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from facefeed.pipeline.dryrun.forecast import Forecast, Range
from facefeed.pipeline.dryrun.machine_load import BackgroundLoad, HostLoad, background_load, is_busy, sample_slowdowns
from facefeed.pipeline.dryrun.report import uncertainty_notes


def load(processes: float, *, earlier: float = 0.0, host: str = "a", cores: int = 4) -> HostLoad:
    return HostLoad(host, processes, earlier, cores)


def averaged(before: float, during: float, seconds: float) -> float:
    """What the kernel's average becomes."""
    kept = math.exp(-seconds / 60)
    return kept * before + (1 - kept) * during


@pytest.mark.parametrize("before", [0.0, 6.0])
@pytest.mark.parametrize("seconds", [15.0, 60.0, 600.0])
def test_what_ran_while_inputs_were_tried_counts_and_not_what_had_ended(before: float, seconds: float) -> None:
    workers = 2
    after = [load(averaged(before, workers + 4, seconds))] * workers
    assert background_load([load(before)], after, seconds).now == pytest.approx(1.0)
    idle = [load(averaged(before, workers, seconds))] * workers
    assert background_load([load(before)], idle, seconds).now == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("seconds", [0.5, 4.0, 9.0, 14.9])
@pytest.mark.parametrize(("workers", "cores"), [(1, 1), (2, 2), (16, 16), (1, 16)])
def test_short_trials_on_an_idle_machine_do_not_call_it_busy(seconds: float, workers: int, cores: int) -> None:
    own = cores + 2 * workers + 1  # all compute, decode and crop at the moments at which the kernel looks
    updates = int(seconds // 5) + 1
    after = [load(averaged(0.0, own, 5 * updates), cores=cores)] * workers
    assert not is_busy(background_load([load(0.0, cores=cores)], after, seconds).usual)


@pytest.mark.parametrize("seconds", [0.5, 4.0, 9.0, 14.9])
def test_short_trials_on_a_busy_machine_call_it_busy(seconds: float) -> None:
    workers, background = 2, 6.0
    updates = int(seconds // 5) + 1
    after = [load(averaged(background, background + workers, 5 * updates), cores=2)] * workers
    assert is_busy(background_load([load(background, cores=2)], after, seconds).usual)


def test_a_quiet_moment_of_a_busy_machine_is_no_idle_machine() -> None:
    quiet = background_load([load(1.0)], [load(1.0, earlier=9.0)], 30.0)
    assert quiet == BackgroundLoad(0.0, pytest.approx(2.0))
    assert 1 < quiet.slowdown < 3, "it is expected to become as busy as it was, but not for sure"
    assert background_load([load(9.0)], [load(9.0, earlier=1.0)], 30.0).slowdown == 1


def test_machines_of_a_cluster_count_by_their_workers() -> None:
    before = [load(3.0, host="a"), load(0.0, host="b")]
    after = [load(7.0, host="a"), load(7.0, host="a"), load(7.0, host="a"), load(1.0, host="b")]
    busy = background_load(before, after, 1e6).now
    assert busy == pytest.approx(3 / 4 * 1.0)  # 4 others on the 4 cores of a, none on b
    assert is_busy(busy)


def test_a_worker_that_joined_later_is_no_obstacle() -> None:
    assert background_load([load(0.0)], [load(5.0, host="new")], 1.0).now == pytest.approx(1.0)


def test_the_busier_the_machine_the_wider_the_range() -> None:
    drawn = [
        sample_slowdowns(BackgroundLoad(count, count), 4000, np.random.default_rng(0)) for count in (0.0, 0.5, 1.0, 5.0)
    ]
    spread = [np.log(paces).std() for paces in drawn]
    assert spread == sorted(spread)
    assert 1.645 * spread[0] == pytest.approx(math.log(1.2), rel=0.1)
    assert spread[-1] > 3 * spread[0]


def test_each_cause_of_a_wide_range_is_one_plain_line() -> None:
    figure = Range(likely=1.0, low=0.5, high=2.0)
    sure = Forecast(
        seconds=figure, size_bytes=figure, faces=figure, inputs=100, probed=20, workers=2, config="c", families=20,
        untried=0.8, others_per_core=0.1,
    )  # fmt: skip
    assert uncertainty_notes(sure) == []
    assert uncertainty_notes(replace(sure, others_per_core=2.25)) == [
        "the range of time is wide: the machine is busy, or was in the last 15 minutes (2.2 other processes a core)"
    ]
    assert uncertainty_notes(replace(sure, probed=3, families=3, untried=0.97)) == [
        "the ranges are wide: 3 inputs tried, about 3% of the work"
    ]
    assert uncertainty_notes(replace(sure, probed=3, families=3, untried=0.0)) == [], "all of it was tried"
