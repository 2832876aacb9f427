"""Formats numbers, times and names for display."""

from __future__ import annotations

from collections.abc import Sequence

_MAX_NAMES = 3


def percent(fraction: float) -> str:
    """A fraction from 0 to 1 as a percentage.

    >>> [percent(fraction) for fraction in (0.314, 0.0234, 0.05, 0.0001, 0.9996, 0.0)]
    ['31 %', '2.3 %', '5 %', 'under 0.1 %', 'over 99.9 %', '0 %']
    """
    if 0 < fraction < 0.0005:
        return "under 0.1 %"
    if 0.9995 <= fraction < 1:
        return "over 99.9 %"
    return f"{fraction * 100:.{int(fraction < 0.1 or fraction > 0.99)}f}".removesuffix(".0") + " %"


def compact_number(value: float) -> str:
    """A number without insignificant digits.

    >>> [compact_number(value) for value in (0.98765, 1.0, 2.345, 23.456, 256.0, 1234.5, 1234567.0, 0.0)]
    ['.988', '1', '2.3', '23', '256', '1,234', '1,234,567', '0']
    """
    digits = 0 if abs(value) >= 10 else 1 if abs(value) >= 1 else 3
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".").removeprefix("0") or "0" if digits else text


def timestamp(seconds: float) -> str:
    """A time in a video as minutes and seconds.

    >>> [timestamp(seconds) for seconds in (1.2, 61.25, 3600.0)]
    ['1.20 s', '1:01.25', '60:00.00']
    """
    return f"{seconds:.2f} s" if seconds < 60 else f"{int(seconds // 60)}:{seconds % 60:05.2f}"


def first_names(names: Sequence[str]) -> str:
    """The first three names, and how many more there are.

    >>> first_names(["a", "b"]), first_names(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    num_more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {num_more:,} more" if num_more > 0 else "")
