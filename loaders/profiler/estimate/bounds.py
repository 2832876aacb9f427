"""How sure we are: bounds for shares of a series whose values follow each other, not of independent draws.

One slow file, a cache that fills, another job on the machine: waits come in runs, and a loader with W workers that is
too slow shows one long wait and W - 1 short ones. So the series is cut into blocks that are longer than its memory, and
the blocks are weighted at random (Dirichlet weights, as in the Bayesian bootstrap: Rubin, Annals of Statistics 1981)
together with one more block that was not seen: as bad as the worst one, or holding an episode of `UNSEEN_STEPS`. For
values that are 0 or 1 this is Clopper and Pearson's exact bound; for others it is Gaffke's (2005; Phan, Thomas and
Learned-Miller, ICML 2021), which needs no assumption but the largest value. So what was never seen has a bound too.
`tests/benchmarks/bench_bounds.py` counts how often the bounds hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

UNSEEN_STEPS = 10.0
"""How long an episode of waiting that nobody saw is taken to last, in mean steps. None in n steps then is at most
30 / n of the time; without any limit nothing could be said of what was not seen."""

_WEIGHTINGS = 2000
_MOST_BLOCKS = 1000  # more would not narrow a bound noticeably, and cost memory
_ROUNDING = 1e-18  # a variance this far below the values' size is that of their last digits
_MEMORIES = 4  # a block of one memory would see half of a run's variance; of four, eleven twelfths
_NOISE = 2.0  # standard errors of an autocorrelation: what is below is taken for none


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """An estimate with its two one-sided bounds, each held with `confidence` (0.95: 19 of 20 runs)."""

    value: float
    lower: float
    upper: float
    confidence: float

    def __str__(self) -> str:
        return f"{self.value:.2%} ({self.confidence:.0%} <= {self.upper:.2%})"


def autocorrelation(values: Values, lag: int) -> float:
    """Of a series (count,) with itself `lag` values later: -1 to 1; 0 where it is constant or too short."""
    centred = values - values.mean() if len(values) else values
    power = float(centred @ centred)
    if lag >= len(values) or power <= _ROUNDING * float(values @ values):
        return 0.0
    return float(centred[lag:] @ centred[: len(values) - lag]) / power


def memory_length(values: Values) -> int:
    """How many values later the series has forgotten: the first lag with an autocorrelation within its noise."""
    noise = _NOISE / math.sqrt(max(len(values), 1))
    for lag in range(1, len(values) // 4):
        if autocorrelation(values, lag) < noise:
            return lag
    return max(len(values) // 4, 1)


def block_length(values: Values, *, least: int) -> int:
    """Length of a block: four times the series' memory, and at least `least` (the batches under way at a time)."""
    return max(_MEMORIES * memory_length(values), least, 1)


def share(part: Values, whole: Values, *, block: int, confidence: float = 0.95, seed: int = 0) -> Bounded:
    """sum(part) / sum(whole) of two series (steps,), with bounds by weighting blocks of `block` steps.

    What is not seen adds to both: a wait makes the time longer.
    """
    rest = whole - part
    return _weighted(part, rest, block=block, confidence=confidence, seed=seed)


def rate(happened: NDArray[np.bool_], *, block: int, confidence: float = 0.95, seed: int = 0) -> Bounded:
    """How often something happens in a series (steps,). Never seen in n steps is at most 30 / n, not never."""
    found = happened.astype(np.float64)
    return _weighted(found, 1 - found, block=block, confidence=confidence, seed=seed)


def _weighted(part: Values, rest: Values, *, block: int, confidence: float, seed: int) -> Bounded:
    """sum(part) / sum(part + rest) and its bounds."""
    count, block = len(part), max(block, -(-len(part) // _MOST_BLOCKS))
    total = float(part.sum() + rest.sum())
    value = float(part.sum()) / total if total else 0.0
    blocks = count // block
    if not total or blocks <= 1:
        return Bounded(value=value, lower=0.0, upper=1.0, confidence=confidence)
    parts, rests = (series[count - blocks * block :].reshape(blocks, block).sum(axis=1) for series in (part, rest))
    weights = np.random.default_rng(seed).standard_exponential((_WEIGHTINGS, blocks + 1))
    seen, unseen = weights[:, :-1], weights[:, -1]
    of_part, of_rest = seen @ parts, seen @ rests
    usual = float(rests.mean())
    worst = max(float(parts.max()), UNSEEN_STEPS * usual / block)
    highest = (of_part + unseen * worst) / (of_part + unseen * worst + of_rest + unseen * usual)
    lowest = of_part / (of_part + of_rest + unseen * usual)
    lower, upper = float(np.quantile(lowest, 1 - confidence)), float(np.quantile(highest, confidence))
    return Bounded(value=value, lower=min(lower, value), upper=max(upper, value), confidence=confidence)
