"""Rounds bounds to the digits that are shown, so that no text claims more than they show."""

from __future__ import annotations

import math

_LAST_DIGITS = 1e-9  # of a number times a power of ten: its own rounding


def rounded_up(bound: float, decimals: int) -> float:
    """An upper bound with so many decimals, at least as large.

    >>> rounded_up(0.00831, 4), rounded_up(0.3, 1)
    (0.0084, 0.3)
    """
    return math.ceil(bound * 10**decimals - _LAST_DIGITS) / 10.0**decimals


def rounded_down(bound: float, decimals: int) -> float:
    """A lower bound with so many decimals, at most as large.

    >>> rounded_down(3.396, 2), rounded_down(0.3, 1)
    (3.39, 0.3)
    """
    return math.floor(bound * 10**decimals + _LAST_DIGITS) / 10.0**decimals
