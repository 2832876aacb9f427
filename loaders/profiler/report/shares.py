"""Formats bounds as text that never claims more than they show."""

from __future__ import annotations

from ....pipeline.page.formats import percent
from ..estimate.bounds import BoundedEstimate
from ..estimate.rounding import rounded_down, rounded_up

NO_BOUNDS = "not known"
"""Instead of bounds, where neither could be shown."""

_LEAST_SHOWN = 0.001  # below that it would be at least 0 %


def at_most(share: float) -> str:
    r"""An upper bound, rounded up.

    >>> at_most(0.0077), at_most(0.0234), at_most(0.302)
    ('at most 0.8\xa0%', 'at most 2.4\xa0%', 'at most 31\xa0%')
    """
    return f"at most {percent(rounded_up(share, _decimals(share)))}"


def at_least(share: float) -> str:
    r"""A lower bound, rounded down.

    >>> at_least(0.0477), at_least(0.309)
    ('at least 4.7\xa0%', 'at least 30\xa0%')
    """
    return f"at least {percent(rounded_down(share, _decimals(share)))}"


def at_most_or_none(bound: BoundedEstimate) -> str:
    """The upper bound of an estimate, if there is one."""
    return at_most(bound.upper) if bound.has_upper else "no upper bound could be shown"


def bounds_text(bound: BoundedEstimate) -> str:
    """Both bounds of an estimate; of a lower one alone, that it is one; that neither is known."""
    if not bound.has_upper:
        return at_least(bound.lower) if bound.lower >= _LEAST_SHOWN else NO_BOUNDS
    lower, upper = at_least(bound.lower), at_most(bound.upper)
    return f"{lower.removeprefix('at least ')} to {upper.removeprefix('at most ')}"


def as_given(share: float) -> str:
    r"""A share that a user gave, such as a confidence, which is not rounded as a measured one.

    >>> as_given(0.975), as_given(0.0005)
    ('97.5\xa0%', '0.05\xa0%')
    """
    return f"{100 * share:.4g}\u00a0%"


def _decimals(share: float) -> int:
    """The decimals of a share that `percent` shows."""
    return 3 if share < 0.1 else 2
