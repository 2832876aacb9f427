"""Shares of datasets, and the sequence that interleaves them by these: pure functions of numbers."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SCALE = 10**9  # of shares that are not whole numbers; twice its square still fits an int64
_SMALLEST = sys.float_info.min  # in place of the 0 to which a power may underflow: each dataset has a share


def share_numbers(
    sizes: Sequence[int], *, weights: Sequence[float] | None = None, temperature: float | None = None
) -> list[int]:
    """A whole number for each dataset: its share is that number divided by their sum.

    The shares are proportional to `weights`, else to `size ** (1 / temperature)`, else to the sizes themselves. Exact
    for sizes and whole weights up to a sum of a thousand million; other shares are rounded to that many parts, at least
    one each.

    >>> share_numbers([400, 100])
    [400, 100]
    >>> share_numbers([400, 100], temperature=2)
    [666666667, 333333333]
    """
    values: list[float] = list(sizes) if weights is None else list(weights)
    if temperature is not None:
        values = [max((size / max(sizes)) ** (1 / temperature), _SMALLEST) for size in sizes]
    total = math.fsum(values)
    if total <= _SCALE and all(value == int(value) for value in values):
        return [int(value) for value in values]
    return [max(round(value / total * _SCALE), 1) for value in values]


def interleave(shares: Sequence[int], count: int) -> NDArray[np.int64]:
    """Which dataset each of `count` items is of: int64 (count,).

    Datasets are divided into two halves, and these again. Of the first n items of a group, the first half has n times
    its share, rounded. So of any consecutive items, one of two datasets has its share, rounded up or down. With more of
    them roundings add up: less than two items more or fewer than its share for one of three, three for one of many.

    >>> interleave([1, 3], 8).tolist()
    [1, 1, 0, 1, 1, 1, 0, 1]
    """
    source = np.empty(count, np.int64)
    groups = [(list(range(len(shares))), np.arange(count))]
    while groups:
        members, positions = groups.pop()
        if len(members) == 1:
            source[positions] = members[0]
            continue
        first, others = _halves(members, shares)
        numbers = (sum(shares[member] for member in part) for part in (first, members))
        is_first = np.diff(_rounded_share(np.arange(len(positions) + 1), *numbers)) > 0
        groups += [(first, positions[is_first]), (others, positions[~is_first])]
    return source


def count_each(shares: Sequence[int], count: int) -> list[int]:
    """How many of the first `count` items of `interleave` are of each dataset.

    >>> count_each([1, 3], 8)
    [2, 6]
    """
    return [number for _, number in sorted(_counts(list(range(len(shares))), shares, count))]


def _counts(members: list[int], shares: Sequence[int], count: int) -> Iterator[tuple[int, int]]:
    if len(members) == 1:
        yield members[0], count
        return
    first, others = _halves(members, shares)
    numbers = (sum(shares[member] for member in part) for part in (first, members))
    in_first = _rounded_share(count, *numbers)
    yield from _counts(first, shares, in_first)
    yield from _counts(others, shares, count - in_first)


def items_until(shares: Sequence[int], dataset: int, wanted: int) -> int:
    """The fewest items of `interleave` of which `wanted` are of a dataset.

    >>> items_until([1, 3], 0, 2)
    7
    """
    enough = (wanted + len(shares) + 1) * -(-sum(shares) // shares[dataset])
    return bisect_left(range(enough), wanted, key=lambda count: count_each(shares, count)[dataset])


def _halves(members: Sequence[int], shares: Sequence[int]) -> tuple[list[int], list[int]]:
    """The members in two groups: the largest first, each to the group that has less."""
    halves: tuple[list[int], list[int]] = ([], [])
    for member in sorted(members, key=lambda member: (-shares[member], member)):
        min(halves, key=lambda half: sum(shares[other] for other in half)).append(member)
    return halves


def _rounded_share(counts: Any, part: int, total: int) -> Any:
    """`counts * part / total`, rounded, for an int or an array; within int64 for totals up to 2 ** 30."""
    cycles, remainder = divmod(counts, total)
    return cycles * part + (2 * part * remainder + total) // (2 * total)
