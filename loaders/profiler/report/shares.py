"""Formats bounds as text that never claims more than they show."""

from __future__ import annotations

import math
from collections.abc import Callable

from ....pipeline.page.formats import percent
from ..estimate.bounds import BoundedEstimate

NO_BOUNDS = "not known"
"""Instead of bounds, where neither could be shown."""

_ROUNDING = 1e-9
_LEAST_SHOWN = 0.001  # below that it would be at least 0 %


def at_most(share: float) -> str:
    r"""An upper bound, rounded up.

    >>> at_most(0.0077), at_most(0.0234), at_most(0.302)
    ('at most 0.8\xa0%', 'at most 2.4\xa0%', 'at most 31\xa0%')
    """
    return f"at most {percent(_rounded(math.ceil, share, -_ROUNDING))}"


def at_least(share: float) -> str:
    r"""A lower bound, rounded down.

    >>> at_least(0.0477), at_least(0.309)
    ('at least 4.7\xa0%', 'at least 30\xa0%')
    """
    return f"at least {percent(_rounded(math.floor, share, _ROUNDING))}"


def at_most_or_none(bound: BoundedEstimate) -> str:
    """The upper bound of an estimate, if there is one."""
    return at_most(bound.upper) if bound.has_upper else "no upper bound could be shown"


def bounds_text(bound: BoundedEstimate) -> str:
    """Both bounds of an estimate; of a lower one alone, that it is one; that neither is known."""
    if not bound.has_upper:
        return at_least(bound.lower) if bound.lower >= _LEAST_SHOWN else NO_BOUNDS
    lower, upper = at_least(bound.lower), at_most(bound.upper)
    return f"{lower.removeprefix('at least ')} to {upper.removeprefix('at most ')}"


def _rounded(direction: Callable[[float], int], share: float, nudge: float) -> float:
    """The share with as many digits as `percent` shows."""
    digits = 3 if share < 0.1 else 2
    return direction(share * 10**digits + nudge) / 10.0**digits
