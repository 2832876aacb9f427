"""How often the profiler's bounds hold: series whose truth is known, drawn many times, of several kinds and lengths.

    python tests/benchmarks/bench_bounds.py [--runs 2000] [--lengths 200 500 1000 2000 5000] [--confidence 0.95]

Prints one JSON object; a table goes to stderr. Waits are in mean steps, so that a wait of 1 is as long as a step. The
truth of each kind is worked out from how it is drawn, not measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from facefeed.loaders.profiler.estimate.bounds import (
    Values,
    block_length,
    bootstrap_ratio,
    event_rate_bound,
    mean_bounds,
)

LONG = 0.1  # steps: a wait that starves
WORKERS = 8  # of the loader whose waits come in a pattern
Drawn = tuple[Values, float, float]  # the waits, and how long and how often a step waits in truth


def independent(rng: np.random.Generator, count: int) -> Drawn:
    """One step in ten waits, for 0.3 steps on average."""
    waits = np.where(rng.random(count) < 0.1, rng.exponential(0.3, count), 0.0)
    return waits, 0.03, 0.1 * math.exp(-LONG / 0.3)


def autocorrelated(rng: np.random.Generator, count: int) -> Drawn:
    """A machine that is slow for a while: what an autoregressive series of 0.8 has above one standard deviation."""
    part, before = 0.8, 200
    noise = rng.standard_normal(count + before) * math.sqrt(1 - part**2)
    series = np.zeros(count + before)
    for place in range(1, count + before):
        series[place] = part * series[place - 1] + noise[place]
    normal = statistics.NormalDist()
    mean = normal.pdf(1) - (1 - normal.cdf(1))
    return 0.5 * np.maximum(series[before:] - 1, 0.0), 0.5 * mean, 1 - normal.cdf(1 + LONG / 0.5)


def bursts(rng: np.random.Generator, count: int) -> Drawn:
    """Ten steps in a row wait for half a step each, once in 300 steps."""
    begins = rng.random(count + 9) < 1 / 300
    waiting = np.convolve(begins, np.ones(10))[9 : count + 9] > 0
    often = 1 - (1 - 1 / 300) ** 10
    return np.where(waiting, 0.5, 0.0), 0.5 * often, often


def rare(rng: np.random.Generator, count: int) -> Drawn:
    """One step in 500 waits for as long as ten steps take."""
    return np.where(rng.random(count) < 1 / 500, 10.0, 0.0), 10 / 500, 1 / 500


def very_rare(rng: np.random.Generator, count: int) -> Drawn:
    """One step in 2,000 waits for as long as three."""
    return np.where(rng.random(count) < 1 / 2000, 3.0, 0.0), 3 / 2000, 1 / 2000


def long_runs(rng: np.random.Generator, count: int) -> Drawn:
    """Waits of a tenth of a step for a while, none for a while, each for 500 steps on average."""
    is_slow = np.repeat((np.arange(count + 1) + rng.integers(2)) % 2 == 1, rng.geometric(1 / 500, count + 1))[:count]
    return np.where(is_slow, rng.exponential(0.1, count), 0.0), 0.05, 0.5 * math.exp(-LONG / 0.1)


def pattern(rng: np.random.Generator, count: int) -> Drawn:
    """As a loader that is too slow: one long wait and seven short ones."""
    long = (np.arange(count) + rng.integers(WORKERS)) % WORKERS == 0
    return (
        np.where(long, rng.gamma(4, 0.25, count), 0.05),
        (1 + 0.05 * (WORKERS - 1)) / WORKERS,
        _erlang_above(LONG) / WORKERS,
    )


def _erlang_above(value: float) -> float:
    """How often a gamma variate of shape 4 and scale 0.25 is above."""
    scaled = value / 0.25
    return math.exp(-scaled) * sum(scaled**term / math.factorial(term) for term in range(4))


KINDS: dict[str, Callable[[np.random.Generator, int], Drawn]] = {
    process.__name__.replace("_", " "): process
    for process in (independent, autocorrelated, bursts, rare, very_rare, long_runs, pattern)
}


STARTS: dict[str, tuple[Callable[[np.random.Generator, int], Values], float]] = {
    "alike": (lambda rng, count: rng.normal(1.0, 0.05, count), 1.0),
    "exponential": (lambda rng, count: rng.exponential(1.0, count), 1.0),
    "one in four slow": (lambda rng, count: (rng.random(count) < 1 / 4).astype(float), 1 / 4),
    "nothing, among rare waits": (lambda rng, count: rng.binomial(26, 1 / 52, count) - 0.5, 0.0),
    "one in ten slow": (lambda rng, count: (rng.random(count) < 1 / 10).astype(float), 1 / 10),
}
"""Seconds that epochs begin with beyond the usual waits, and their true mean."""


def start_coverage(kind: str, count: int, runs: int, confidence: float) -> dict[str, Any]:
    """The same of the mean of `count` starts of an epoch."""
    draw, truth = STARTS[kind]
    bounds = [
        mean_bounds(list(draw(np.random.default_rng([run, count]), count)), confidence=confidence, seed=run)
        for run in range(runs)
    ]
    return {"kind": kind, "starts": count, "runs": runs, "truth": truth,
            "upper": float(np.mean([bound.upper >= truth for bound in bounds])),
            "lower": float(np.mean([bound.lower <= truth for bound in bounds]))}  # fmt: skip


def coverage(kind: str, count: int, runs: int, confidence: float, workers: int) -> dict[str, Any]:
    """How many runs in 1 have the truth on the right side of each bound, 0 to 1, and how wide they are."""
    counts = {"wait upper": 0, "wait lower": 0, "starved upper": 0, "starved lower": 0}
    uppers = []
    for run in range(runs):
        waits, wait, often = KINDS[kind](np.random.default_rng([run, count]), count)
        block = block_length(waits, min_length=workers)
        bound = bootstrap_ratio(
            waits, waits + 1.0, block=block, confidence=confidence, seed=run
        ).without_upper_if_few_blocks(count, block)
        truth = wait / (wait + 1)
        counts["wait upper"] += bound.upper >= truth
        counts["wait lower"] += bound.lower <= truth
        starved = event_rate_bound(
            waits > LONG, block=block, confidence=confidence, seed=run
        ).without_upper_if_few_blocks(count, block)
        counts["starved upper"] += starved.upper >= often
        counts["starved lower"] += starved.lower <= often
        uppers.append(bound.upper)
    return {"kind": kind, "workers": workers, "steps": count, "runs": runs, "truth": truth,
            "median upper": float(np.median(uppers)),
            **{name: number / runs for name, number in counts.items()}}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--lengths", type=int, nargs="+", default=[200, 500, 1000, 2000, 5000])
    parser.add_argument("--confidence", type=float, default=0.95)
    arguments = parser.parse_args()
    results = []
    for kind, workers, count in itertools.product(KINDS, (1, WORKERS), arguments.lengths):
        results.append(coverage(kind, count, arguments.runs, arguments.confidence, workers))
        _print(results[-1])
    starts = list[dict[str, Any]]()
    for kind, count in itertools.product(STARTS, (5, 10, 20, 50)):
        starts.append(start_coverage(kind, count, arguments.runs, arguments.confidence))
        _print(starts[-1])
    print(json.dumps({"confidence": arguments.confidence, "least": min(
        result[name] for result in results for name in ("wait upper", "wait lower", "starved upper", "starved lower")
    ), "coverage": results, "starts": starts}, indent=1))  # fmt: skip


def _print(result: dict[str, Any]) -> None:
    cells = (f"{name} {value:.4f}" if isinstance(value, float) else f"{value!s:>15}" for name, value in result.items())
    print("  ".join(cells), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
