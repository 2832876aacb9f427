"""Orders of any length in bounded memory: each is computed in parts, where positions in it are asked for.

An `Order` is indexed like an array, by a slice or an array of positions from 0 on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.index import RowRange, Selection
from ...pipeline.dataset.index.arrays import by_value
from .hashing import derive_key, hash_numbers

BLOCK_ROWS = 128
"""Consecutive rows that windowed shuffling keeps in one block: about 2 MB of images in one read."""

PART_ITEMS = 1 << 24
"""About as many items as a `Permutation` sorts at a time; each part of an order takes a pass over all numbers."""

_CHUNK_ITEMS = 1 << 16  # that are hashed at a time: they stay in the CPU's cache
_SLICE_ITEMS = 1 << 20


class LazyOrder(ABC):
    """An order whose items are computed where they are asked for: by positions int64 (N,) from 0 on, or by a slice;
    uint32 (N,).
    """

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _at(self, positions: NDArray[np.int64]) -> NDArray[np.uint32]:
        """The items at these positions."""

    def __getitem__(self, positions: slice | NDArray[np.int64]) -> NDArray[np.uint32]:
        if not isinstance(positions, slice):
            return self._at(positions)
        taken = range(len(self))[positions]
        items = np.empty(len(taken), np.uint32)
        for first in range(0, len(taken), _SLICE_ITEMS):  # positions take more memory than items
            some = taken[first : first + _SLICE_ITEMS]
            items[first : first + len(some)] = self._at(np.arange(some.start, some.stop, some.step))
        return items

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:] if dtype is None else self[:].astype(dtype)


Order: TypeAlias = NDArray[Any] | RowRange | LazyOrder


class _OrderInParts(LazyOrder):
    """An order in parts, each of a segment of its positions, of which it keeps those that it was last asked for."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._parts: dict[int, NDArray[np.uint32]] = {}

    def __len__(self) -> int:
        return self._count

    @property
    @abstractmethod
    def _bounds(self) -> NDArray[np.int64]:
        """The first position of each part, and the end: int64 (parts + 1,)."""

    @abstractmethod
    def part(self, number: int) -> NDArray[np.uint32]:
        """The items of a part."""

    def _at(self, positions: NDArray[np.int64]) -> NDArray[np.uint32]:
        items = np.empty(len(positions), np.uint32)
        kept, self._parts = self._parts, {}
        for number, own in by_value(np.searchsorted(self._bounds, positions, side="right") - 1):
            self._parts[number] = kept[number] if number in kept else self.part(number)
            items[own] = self._parts[number][positions[own] - self._bounds[number]]
        return items


class Permutation(_OrderInParts):
    """The numbers 0 .. `count` - 1 in the order given by the key: by their keyed hashes.

    A part holds the numbers whose hashes are in one segment of all hashes.
    """

    def __init__(self, count: int, key: int) -> None:
        super().__init__(count)
        self._key = key
        self._num_parts = max(-(-count // PART_ITEMS), 1)

    @cached_property
    def _bounds(self) -> NDArray[np.int64]:
        sizes = np.zeros(self._num_parts, np.int64)
        if self._num_parts == 1:
            sizes[0] = self._count
        else:
            for keys in self._sort_keys():
                part = (keys >> np.uint64(32)) * np.uint64(self._num_parts) >> np.uint64(32)
                sizes += np.bincount(part.astype(np.int64), minlength=self._num_parts)
        return np.append(0, np.cumsum(sizes))

    def part(self, number: int) -> NDArray[np.uint32]:
        """The items of a part."""
        first, end = (-(-(each << 32) // self._num_parts) << 32 for each in (number, number + 1))
        items, filled = np.empty(int(self._bounds[number + 1] - self._bounds[number]), np.uint64), 0
        for keys in self._sort_keys():
            if self._num_parts > 1:
                keys = keys[keys - np.uint64(first) < np.uint64(end - first)]  # noqa: PLW2901
            items[filled : filled + len(keys)] = keys
            filled += len(keys)
        items.sort()
        return items.astype(np.uint32)  # the lower half

    def _sort_keys(self) -> Iterator[NDArray[np.uint64]]:
        """For each number, some at a time, its hash with the number itself as the lower half: no two are equal, so that
        every sorting algorithm gives the same.
        """
        for start in range(0, self._count, _CHUNK_ITEMS):
            numbers = np.arange(start, min(start + _CHUNK_ITEMS, self._count), dtype=np.uint64)
            keys = hash_numbers(numbers, self._key)
            keys &= np.uint64(0xFFFFFFFF00000000)
            keys |= numbers
            yield keys


def permutation(count: int, key: int) -> NDArray[np.uint32]:
    """The numbers 0 .. `count` - 1 in the order of a `Permutation`: uint32 (count,)."""
    order = Permutation(count, key)
    return order.part(0) if count <= PART_ITEMS else order[:]


class WindowedOrder(_OrderInParts):
    """Positions in blocks of `BLOCK_ROWS`, the blocks in the order given by the key; then shuffled within each window.

    bounds: int64 (windows + 1,), the first position of each window, and the end.
    """

    def __init__(self, bounds: NDArray[np.int64], key: int) -> None:
        super().__init__(int(bounds[-1]))
        self._window_bounds, self._key = bounds, key

    @property
    def _bounds(self) -> NDArray[np.int64]:
        return self._window_bounds

    @cached_property
    def _blocks(self) -> NDArray[np.uint32]:
        return permutation(-(-self._count // BLOCK_ROWS), self._key)

    @cached_property
    def _missing(self) -> tuple[int, int]:
        """Where the last block, which may be shorter, ends in this order, and how many items it lacks."""
        lacking = -self._count % BLOCK_ROWS
        return (int(self._blocks.argmax()) + 1) * BLOCK_ROWS - lacking, lacking

    def part(self, number: int) -> NDArray[np.uint32]:
        """The items of a window."""
        at = np.arange(*self._window_bounds[number : number + 2])
        end, lacking = self._missing
        at[at >= end] += lacking
        items = self._blocks[at // BLOCK_ROWS] * np.uint32(BLOCK_ROWS) + (at % BLOCK_ROWS).astype(np.uint32)
        return items[permutation(len(items), derive_key(self._key, number))]


class RowsInOrder(LazyOrder):
    """The rows of units in their order: of each unit, one row of every column.

    columns: rows (units,) each. order: of the units.
    """

    def __init__(self, columns: Sequence[Selection], order: Order) -> None:
        self._columns, self._order = columns, order

    def __len__(self) -> int:
        return len(self._order) * len(self._columns)

    def _at(self, positions: NDArray[np.int64]) -> NDArray[np.uint32]:
        if len(self._columns) == 1:
            return self._columns[0][self._order[positions]]
        units, columns = np.divmod(positions, len(self._columns))
        rows = np.empty(len(positions), np.uint32)
        for column, own in by_value(columns):
            rows[own] = self._columns[column][self._order[units[own]]]
        return rows
