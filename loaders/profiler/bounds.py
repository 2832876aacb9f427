"""How sure we are: intervals for shares of a series whose values follow each other, not of independent draws.

One slow file, a cache that fills, another job on the machine: waits come in runs, and a loader with W workers that is
too slow shows one long wait and W - 1 short ones. So the series is resampled in blocks that are longer than its memory
(moving-block bootstrap: Kuensch, Annals of Statistics 1989), and "none seen" is a bound, never a zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

_RESAMPLES = 2000
_ROUNDING = 1e-18  # a variance this far below the values' size is that of their last digits
_MEMORIES = 4  # a block of one memory would see half of a run's variance; of four, eleven twelfths
_NORMAL = NormalDist()
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
    """sum(part) / sum(whole) of two series (steps,), with bounds by resampling blocks of `block` steps.

    Bias-corrected and accelerated (BCa: Efron, JASA 1987): waits are rare and long, and plain quantiles of so skew a
    thing hold less often than they say.
    """
    count = len(part)
    total = float(whole.sum())
    value = float(part.sum()) / total if total else 0.0
    block = min(block, max(count, 1))
    blocks = -(-count // block)
    if not total or count - block < 1:
        return Bounded(value=value, lower=0.0, upper=1.0, confidence=confidence)
    parts, wholes = (_block_sums(series, block) for series in (part, whole))
    drawn = np.random.default_rng(seed).integers(0, len(parts), (_RESAMPLES, blocks))
    shares = parts[drawn].sum(axis=1) / wholes[drawn].sum(axis=1)
    accelerated = _acceleration(parts[::block] - value * wholes[::block])
    lower, upper = (_quantile(shares, value, level, accelerated) for level in (1 - confidence, confidence))
    return Bounded(value=value, lower=min(lower, value), upper=max(upper, value), confidence=confidence)


def rate(happened: NDArray[np.bool_], *, block: int, confidence: float = 0.95, seed: int = 0) -> Bounded:
    """How often something happens in a series (steps,). Never seen in n steps is at most 3 / (n / block), not never."""
    ones = np.ones(len(happened))
    found = share(happened.astype(np.float64), ones, block=block, confidence=confidence, seed=seed)
    unseen = min(1.0, -math.log(1 - confidence) * block / max(len(happened), 1))
    upper = max(found.upper, found.value + unseen if not happened.any() else unseen)
    return Bounded(value=found.value, lower=found.lower, upper=min(upper, 1.0), confidence=confidence)


def _acceleration(influence: Values) -> float:
    """BCa's a: a sixth of the skewness of what each block contributes."""
    power = float((influence**2).sum()) ** 1.5
    return float((influence**3).sum()) / (6 * power) if power else 0.0


def _quantile(shares: Values, value: float, level: float, acceleration: float) -> float:
    """BCa's bound at a level: the quantile of the resampled shares that it says to read."""
    below = float(((shares < value) + 0.5 * (shares == value)).mean())
    if not 0.0 < below < 1.0:
        return float(np.quantile(shares, level))
    bias = _NORMAL.inv_cdf(below)
    moved = bias + _NORMAL.inv_cdf(level)
    return float(np.quantile(shares, _NORMAL.cdf(bias + moved / (1 - acceleration * moved))))


def _block_sums(series: Values, block: int) -> Values:
    """The sum of every stretch of `block` values."""
    sums = np.concatenate([[0.0], np.cumsum(series)])
    of_blocks: Values = sums[block:] - sums[:-block]
    return of_blocks
