"""Numbers, times and names as people read them."""

from __future__ import annotations

from collections.abc import Sequence

_NAMED = 3


def percent(share: float) -> str:
    """A share from 0 to 1.

    >>> [percent(share) for share in (0.314, 0.0234, 0.05, 0.0001, 0.9996, 0.0)]
    ['31 %', '2.3 %', '5 %', 'under 0.1 %', 'over 99.9 %', '0 %']
    """
    if 0 < share < 0.0005:
        return "under 0.1 %"
    if 0.9995 <= share < 1:
        return "over 99.9 %"
    return f"{share * 100:.{int(share < 0.1 or share > 0.99)}f}".removesuffix(".0") + " %"


def short(value: float) -> str:
    """As many digits as mean something.

    >>> [short(value) for value in (0.98765, 1.0, 2.345, 23.456, 256.0, 1234.5, 1234567.0, 0.0)]
    ['.988', '1', '2.3', '23', '256', '1,234', '1,234,567', '0']
    """
    digits = 0 if abs(value) >= 10 else 1 if abs(value) >= 1 else 3
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".").removeprefix("0") or "0" if digits else text


def clock(seconds: float) -> str:
    """A time in a video.

    >>> [clock(seconds) for seconds in (1.2, 61.25, 3600.0)]
    ['1.20 s', '1:01.25', '60:00.00']
    """
    return f"{seconds:.2f} s" if seconds < 60 else f"{int(seconds // 60)}:{seconds % 60:05.2f}"


def named(names: Sequence[str]) -> str:
    """The first few.

    >>> named(["a", "b"]), named(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")
