"""What the bounds promise: they hold as often as they say, also where the values of a series follow each other."""

from __future__ import annotations

import numpy as np
import pytest
from facefeed.loaders.profiler.estimate.bounds import (
    BoundedEstimate,
    autocorrelation,
    block_length,
    bootstrap_ratio,
    decorrelation_lag,
    event_rate_bound,
)


def runs(rng: np.random.Generator, count: int, length: int, part: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """A series in which `part` of the values are True, in runs of `length`."""
    return np.repeat(rng.random(-(-count // length)) < part, length)[:count]


def test_a_series_that_repeats_every_fourth_value_is_seen() -> None:
    values = np.tile([8.0, 0.0, 0.0, 0.0], 100)
    assert autocorrelation(values, 4) == pytest.approx(1.0, abs=0.02)
    assert autocorrelation(values, 1) < 0
    assert autocorrelation(np.ones(100), 4) == 0.0
    assert autocorrelation(np.ones(3), 4) == 0.0


def test_blocks_are_longer_than_the_series_remembers() -> None:
    rng = np.random.default_rng(0)
    assert decorrelation_lag(rng.normal(size=5000)) <= 2
    assert 8 <= decorrelation_lag(runs(rng, 5000, 12, 0.1).astype(float)) <= 30
    assert block_length(rng.normal(size=5000), min_length=16) == 16
    runs_of_cycles = np.tile([1.0, 0.0, 0.0, 0.0], 1000) * np.repeat(runs(rng, 1000, 50, 0.5), 4)
    assert decorrelation_lag(runs_of_cycles) == 1
    assert block_length(runs_of_cycles, min_length=4) > 4 * 50


@pytest.mark.parametrize("length", [1, 10])
def test_a_bound_of_95_percent_holds_in_19_of_20_runs(length: int) -> None:
    covered = []
    for run in range(200):
        rng = np.random.default_rng(run)
        starved = runs(rng, 3000, length, 0.04)
        wait = np.where(starved, 1.0, 0.0)
        estimate = bootstrap_ratio(wait, np.ones(3000), block=4 * length, seed=run)
        covered.append(estimate.upper >= 0.04)
    assert np.mean(covered) >= 0.90  # 0.95, less three standard errors of 200 runs


def test_a_run_of_bad_steps_is_less_certain_than_as_many_that_are_spread() -> None:
    rng = np.random.default_rng(2)
    spread, bunched = (runs(rng, 4000, length, 0.05).astype(float) for length in (1, 40))
    widths = [
        bootstrap_ratio(series, np.ones(4000), block=block_length(series, min_length=4)) for series in (spread, bunched)
    ]
    assert widths[1].upper - widths[1].lower > 2 * (widths[0].upper - widths[0].lower)


def test_none_seen_is_a_bound_and_not_never() -> None:
    no_events = np.zeros(2000, np.bool_)
    for block in (4, 16):
        assert event_rate_bound(no_events, block=block).upper == pytest.approx(30 / 2000, rel=0.1)
        assert bootstrap_ratio(no_events.astype(float), np.ones(2000), block=block).upper == pytest.approx(
            30 / 2000, rel=0.1
        )
    assert event_rate_bound(no_events, block=4, confidence=0.99).upper == pytest.approx(46 / 2000, rel=0.1)


def test_too_few_steps_say_nothing() -> None:
    assert (
        bootstrap_ratio(np.ones(3), np.ones(3), block=8).lower,
        bootstrap_ratio(np.zeros(3), np.ones(3), block=8).upper,
    ) == (0.0, 1.0)
    assert bootstrap_ratio(np.zeros(0), np.zeros(0), block=1).upper == 1.0


def test_waits_in_a_few_long_runs_have_a_lower_bound_alone() -> None:
    """Twelve regimes of 330 steps on average: the next may wait longer than all of these, but not less than never."""
    held = []
    for run in range(200):
        rng = np.random.default_rng(run)
        is_slow = np.repeat(rng.random(40) < 0.5, rng.geometric(1 / 330, 40))[:4000]
        wait = np.where(is_slow, rng.exponential(0.1, len(is_slow)), 0.0)
        block = block_length(wait, min_length=8)
        estimate = bootstrap_ratio(wait, wait + 1, block=block, seed=run).without_upper_if_few_blocks(len(wait), block)
        held.append(estimate.lower <= 0.05 / 1.05 <= estimate.upper)
        if len(wait) < 20 * block:
            assert not estimate.has_upper
    assert np.mean(held) >= 0.92  # 0.95, less two standard errors of 200 runs
    assert (
        str(bootstrap_ratio(np.ones(100), np.full(100, 2.0), block=10).without_upper_if_few_blocks(100, 10))
        == "50.00% (95% >= 42.85%)"
    )


def test_the_same_series_has_the_same_bounds() -> None:
    series = np.random.default_rng(3).random(500)
    assert bootstrap_ratio(series, np.ones(500), block=5) == bootstrap_ratio(series, np.ones(500), block=5)
    assert str(bootstrap_ratio(series * 0, np.ones(500), block=5)) == "0.00% (95% <= 5.58%)"


def test_a_bound_of_a_high_confidence_does_not_depend_on_chance() -> None:
    """None of 2,000: the exact bound of Clopper and Pearson is ln(1000) episodes of ten steps."""
    no_events = np.zeros(2000, np.bool_)
    uppers = [event_rate_bound(no_events, block=4, confidence=0.999, seed=seed).upper for seed in range(5)]
    assert uppers == pytest.approx([10 * np.log(1000) / 2000] * 5, rel=0.06)


def test_a_confidence_is_never_rounded_to_certainty() -> None:
    for confidence, text in ((0.95, "95%"), (0.99, "99%"), (0.999, "99.9%"), (1 - 0.5**10, "99.9%")):
        estimate = BoundedEstimate(value=0.001, lower=0.0, upper=0.01, confidence=confidence)
        assert str(estimate) == f"0.10% ({text} <= 1.00%)"


def test_a_bound_is_never_rounded_to_one_that_claims_more() -> None:
    assert str(BoundedEstimate(value=0.1, lower=0.0, upper=0.12341, confidence=0.95)) == "10.00% (95% <= 12.35%)"
    assert str(BoundedEstimate(value=0.5, lower=0.12349, upper=1.0, confidence=0.95)) == "50.00% (95% >= 12.34%)"
