"""Quantiles of the values of a measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Quantiles:
    """Quantiles of the known values, and `known`, their number. Field names are keys of `--json`."""

    known: int
    least: float
    p05: float
    median: float
    p95: float
    most: float

    @classmethod
    def of(cls, values: NDArray[Any]) -> Self | None:
        """Of values (n,), NaN where unknown; None where all are unknown.

        >>> Quantiles.of(np.array([3.0, 1.0, np.nan, 2.0]))
        Quantiles(known=3, least=1.0, p05=1.1, median=2.0, p95=2.9, most=3.0)
        >>> Quantiles.of(np.array([2e-7]))
        Quantiles(known=1, least=2e-07, p05=2e-07, median=2e-07, p95=2e-07, most=2e-07)
        """
        known = values[np.isfinite(values)]  # a copy
        if not len(known):
            return None
        quantiles = np.quantile(known, (0.0, 0.05, 0.5, 0.95, 1.0), overwrite_input=True)
        return cls(len(known), *(_rounded(float(quantile)) for quantile in quantiles))


def _rounded(value: float) -> float:
    """To 6 decimals, or below 1 to 6 digits."""
    return float(f"{value:.6g}") if abs(value) < 1 else round(value, 6)
