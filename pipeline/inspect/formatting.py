"""Formats numbers and times for display."""

from __future__ import annotations

import math


def compact_number(value: float) -> str:
    """A number without insignificant digits.

    >>> [compact_number(value) for value in (0.98765, 1.0, 2.345, 23.456, 256.0, 1234.5, 1234567.0, 0.0)]
    ['.988', '1', '2.3', '23', '256', '1,234', '1,234,567', '0']
    >>> [compact_number(value) for value in (0.0123, 0.00456, -0.000789, 2e-7, 1.5e300)]
    ['.012', '.0046', '-0.00079', '2e-07', '1.5e+300']
    """
    if 0 < abs(value) < 0.01 or abs(value) > 2.0**64:
        return f"{value:.2g}".removeprefix("0")
    digits = 0 if abs(value) >= 10 else 1 if abs(value) >= 1 else 3
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".").removeprefix("0") or "0" if digits else text


def timestamp(seconds: float) -> str:
    """A time in a video as minutes and seconds; one that is no number, as a damaged index may hold, as it is.

    >>> [timestamp(seconds) for seconds in (1.2, 61.25, 3600.0, float("nan"))]
    ['1.20 s', '1:01.25', '60:00.00', 'nan s']
    """
    if not math.isfinite(seconds):
        return f"{seconds} s"
    return f"{seconds:.2f} s" if seconds < 60 else f"{int(seconds // 60)}:{seconds % 60:05.2f}"
