"""Reads real numbers that users give; without numpy and torch, for options that are light to import."""

from __future__ import annotations

import math
from numbers import Real


def as_float(value: object) -> float:
    """A number of Python or numpy as a float; of anything else NaN, which lies in no range.

    NaN also of a bool, and of a whole number that is too large for a float.

    >>> as_float(3), as_float("3"), as_float(True)
    (3.0, nan, nan)
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan
