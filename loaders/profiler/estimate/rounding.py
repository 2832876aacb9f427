"""Rounds bounds to the digits that are shown, so that no text claims more than they show."""

from __future__ import annotations

import math

_LAST_DIGITS = 1e-9  # of a number times a power of ten: its own rounding


def rounded_up(bound: float, decimals: int) -> float:
    """An upper bound with so many decimals, at least as large.

    >>> rounded_up(0.00831, 4), rounded_up(0.3, 1)
    (0.0084, 0.3)
    """
    scale = 10.0**decimals
    return float(math.ceil(bound * scale - _LAST_DIGITS) / scale)


def rounded_down(bound: float, decimals: int) -> float:
    """A lower bound with so many decimals, at most as large.

    >>> rounded_down(3.396, 2), rounded_down(0.3, 1)
    (3.39, 0.3)
    """
    scale = 10.0**decimals
    return float(math.floor(bound * scale + _LAST_DIGITS) / scale)
