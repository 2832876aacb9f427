"""Formats shares and durations as text that does not wrap."""

from __future__ import annotations

from .. import console


def percent(share: float) -> str:
    r"""`console.percent` with a no-break space.

    >>> percent(0.314), percent(0.0001)
    ('31\xa0%', 'under 0.1\xa0%')
    """
    return console.percent(share).replace(" %", "\u00a0%")


def milliseconds(seconds: float) -> str:
    r"""With as many digits as mean something, on one line.

    >>> [milliseconds(seconds) for seconds in (1.5, 0.0314, 0.01, 0.00234, 0.00007)]
    ['1,500\xa0ms', '31.4\xa0ms', '10\xa0ms', '2.3\xa0ms', '0.07\xa0ms']
    """
    value = seconds * 1e3
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 1 else 2
    return f"{value:,.{digits}f}".removesuffix(".00").removesuffix(".0") + "\u00a0ms"
