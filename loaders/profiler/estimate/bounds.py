"""Confidence bounds for ratios and event rates of autocorrelated series.

Waits come in runs (one slow file, a cache that fills, another job on the machine), and a loader with W workers that is
too slow shows one long wait and W - 1 short ones, so steps are not independent draws. The series is cut into blocks
longer than its decorrelation lag, and the blocks get random Dirichlet weights (the Bayesian bootstrap: Rubin, Annals of
Statistics 1981) together with one unobserved block: as bad as the worst one, or holding an episode of
`UNSEEN_EPISODE_STEPS`. For values that are 0 or 1 this is Clopper and Pearson's exact bound; for others it is Gaffke's
(2005; Phan, Thomas and Learned-Miller, ICML 2021), which assumes only the largest value. An event that was never
observed therefore has an upper bound too. Where waits come in runs so long that there are only a few blocks, the
lower bound still holds, since less than no waiting cannot be, but worse blocks than all of these may well follow: there
is no upper bound then. `tests/benchmarks/bench_bounds.py` measures the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .rounding import rounded_down, rounded_up

Values = NDArray[np.float64]

UNSEEN_EPISODE_STEPS = 10.0
"""How long an episode of waiting that nobody saw is taken to last, in mean steps. None in n steps then is at most
30 / n of the time; without any limit nothing could be said of what was not seen."""

MIN_BLOCKS = 20
"""Blocks of steps that an upper bound needs."""

MAX_CONFIDENCE = 0.999
"""The highest confidence that resamples resolve: 20 of 20,000 lie beyond its bound."""

_CHUNK_RESAMPLES = 2000  # drawn at a time
_MIN_RESAMPLES, _MAX_RESAMPLES = 2000, 20_000
_RESAMPLES_BEYOND = 20  # a bound: fewer would leave it to chance where it is
_MAX_MEANS = 200  # of values in their order, for the same reason
_MAX_BLOCKS = 1000  # more would not narrow a bound noticeably, and cost memory
_RELATIVE_ROUNDING = 1e-18  # a variance this far below the values' size is that of their last digits
_LAGS_PER_BLOCK = 4  # a block of one memory would see half of a run's variance; of four, eleven twelfths
_NOISE_STANDARD_ERRORS = 2.0  # standard errors of an autocorrelation: what is below is taken for none


@dataclass(frozen=True, kw_only=True)
class BoundedEstimate:
    """An estimate with two one-sided bounds, each with the given `confidence` (0.95: holds in 19 of 20 runs)."""

    value: float
    lower: float
    upper: float
    confidence: float

    def __str__(self) -> str:
        if not self.has_upper and not self.lower:
            return f"{self.value:.2%} (no bound)"
        bound = f"<= {rounded_up(self.upper, 4):.2%}" if self.has_upper else f">= {rounded_down(self.lower, 4):.2%}"
        return f"{self.value:.2%} ({100 * self.confidence:.4g}% {bound})"

    @property
    def has_upper(self) -> bool:
        """Whether the upper bound says anything: a share is at most 1."""
        return self.upper < 1.0

    def without_upper_if_few_blocks(self, num_steps: int, block: int) -> BoundedEstimate:
        """The estimate, its upper bound 1 where `num_steps` steps are fewer than `MIN_BLOCKS` blocks of `block` steps.

        Worse blocks than a few may well follow; the lower bound holds for any number of them.
        """
        return self if num_steps >= MIN_BLOCKS * block else replace(self, upper=1.0)


def autocorrelation(values: Values, lag: int) -> float:
    """Autocorrelation of a series (steps,) at `lag`: -1 to 1; 0 where it is constant or too short."""
    centred = values - values.mean() if len(values) else values
    power = float(centred @ centred)
    if lag >= len(values) or power <= _RELATIVE_ROUNDING * float(values @ values):
        return 0.0
    return float(centred[lag:] @ centred[: len(values) - lag]) / power


def decorrelation_lag(values: Values) -> int:
    """The first lag, in steps, at which the autocorrelation is within its noise."""
    noise = _NOISE_STANDARD_ERRORS / math.sqrt(max(len(values), 1))
    for lag in range(1, len(values) // 4):
        if autocorrelation(values, lag) < noise:
            return lag
    return max(len(values) // 4, 1)


def block_length(values: Values, *, min_length: int) -> int:
    """Block length in steps: four times the decorrelation lag, and at least `min_length`, the number of workers.

    W workers that are too slow show one long wait and W - 1 short ones: step by step such a series is never similar to
    itself, however long it goes on like that. So cycles of `min_length` steps are looked at as well.
    """
    length = max(_LAGS_PER_BLOCK * decorrelation_lag(values), min_length, 1)
    num_cycles = len(values) // max(min_length, 1)
    cycles = (
        values[len(values) - num_cycles * min_length :].reshape(num_cycles, -1).sum(axis=1) if num_cycles else values
    )
    cycle_lag = decorrelation_lag(cycles)
    return max(length, _LAGS_PER_BLOCK * cycle_lag * min_length) if cycle_lag > 1 else length


def bootstrap_ratio(
    numerator: Values, denominator: Values, *, block: int, confidence: float = 0.95, seed: int = 0
) -> BoundedEstimate:
    """sum(numerator) / sum(denominator) of two series (steps,), with bounds by weighting blocks of `block` steps.

    The unobserved block adds to both sums: a wait makes the total time longer.
    """
    remainder = denominator - numerator
    count, block = len(numerator), max(block, -(-len(numerator) // _MAX_BLOCKS))
    total = float(numerator.sum() + remainder.sum())
    value = float(numerator.sum()) / total if total else 0.0
    num_blocks = count // block
    if not total or num_blocks <= 1:
        return BoundedEstimate(value=value, lower=0.0, upper=1.0, confidence=confidence)
    block_numerators, block_remainders = (
        series[count - num_blocks * block :].reshape(num_blocks, block).sum(axis=1) for series in (numerator, remainder)
    )
    mean_remainder = float(block_remainders.mean())
    worst_numerator = max(float(block_numerators.max()), UNSEEN_EPISODE_STEPS * mean_remainder / block)
    rng, low_ratios, high_ratios = np.random.default_rng(seed), list[Values](), list[Values]()
    for _ in range(-(-_num_resamples(confidence) // _CHUNK_RESAMPLES)):
        weights = rng.standard_exponential((_CHUNK_RESAMPLES, num_blocks + 1))
        observed, unobserved = weights[:, :-1], weights[:, -1]
        numerators, remainders = observed @ block_numerators, observed @ block_remainders
        remainders += unobserved * mean_remainder
        worst_numerators = numerators + unobserved * worst_numerator
        low_ratios.append(numerators / (numerators + remainders))
        high_ratios.append(worst_numerators / (worst_numerators + remainders))
    lower = float(np.quantile(np.concatenate(low_ratios), 1 - confidence))
    upper = float(np.quantile(np.concatenate(high_ratios), confidence))
    return BoundedEstimate(value=value, lower=min(lower, value), upper=max(upper, value), confidence=confidence)


def event_rate_bound(
    occurred: NDArray[np.bool_], *, block: int, confidence: float = 0.95, seed: int = 0
) -> BoundedEstimate:
    """Rate of an event in a bool series (steps,), with bounds by weighting blocks of `block` steps.

    An event that never occurs in n steps has an upper bound of 30 / n at 95 %.
    """
    steps = np.ones(len(occurred))
    return bootstrap_ratio(occurred.astype(np.float64), steps, block=block, confidence=confidence, seed=seed)


def _num_resamples(confidence: float) -> int:
    """Resamples of which enough lie beyond a bound of this confidence."""
    return round(min(max(_RESAMPLES_BEYOND / (1 - confidence), _MIN_RESAMPLES), _MAX_RESAMPLES))


def num_values_for_median(confidence: float) -> int:
    """Number of independent values of which the largest is above the median in that share of all cases.

    Each is below it in half of all cases: 5 for a confidence of 0.95, 7 for 0.99, 10 for 0.999.
    """
    return math.ceil(-math.log2(1 - confidence))


def mean_bounds(values: Sequence[float], *, confidence: float, seed: int = 0) -> BoundedEstimate:
    """The mean of independent values (values,), with bounds.

    Of `MIN_BLOCKS` values or more by weighting them, together with one that was not seen: as large as the largest, or
    as small as the least. Fewer are too few for that: their least and largest are the bounds, which hold a median with
    the `confidence` in the result. That is at least the requested one, or less if there are too few values.
    """
    seen, count = np.asarray(values, np.float64), len(values)
    if count < MIN_BLOCKS:
        return BoundedEstimate(
            value=float(seen.mean()), lower=float(seen.min()), upper=float(seen.max()),
            confidence=confidence if count >= num_values_for_median(confidence) else 1 - 0.5**count,
        )  # fmt: skip
    value, blocks = float(seen.mean()), np.array([part.mean() for part in np.array_split(seen, min(count, _MAX_MEANS))])
    weights = np.random.default_rng(seed).standard_exponential((_num_resamples(confidence), len(blocks) + 1))
    weights /= weights.sum(axis=1, keepdims=True)
    means, unseen = weights[:, :-1] @ blocks, weights[:, -1]
    return BoundedEstimate(
        value=value,
        lower=min(float(np.quantile(means + unseen * blocks.min(), 1 - confidence)), value),
        upper=max(float(np.quantile(means + unseen * blocks.max(), confidence)), value),
        confidence=confidence,
    )
