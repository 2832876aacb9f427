"""`PackedRecords`: millions of records of one kind in a small part of the memory that they take as objects."""

from __future__ import annotations

import marshal
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cache
from itertools import chain, islice
from operator import attrgetter
from typing import Any, TypeVar, cast, overload

_BLOCK_RECORDS = 1024  # which compress as well as more do, and take half a megabyte while they are objects
_Record = TypeVar("_Record")


class PackedRecords(Sequence[_Record]):
    """Records in a tenth to a sixth of the memory: their columns, compressed, from which each iteration makes them.

    Args:
        kind: their class, a dataclass with slots and at least two fields. Values of fields are texts, numbers, None,
            and tuples of these: what `marshal` stores.
        records: consumed a block at a time, so that they never are in memory together.

    """

    __slots__ = ("_blocks", "_count", "_kind")

    def __init__(self, kind: type[_Record], records: Iterable[_Record]) -> None:
        self._kind: Any = cast("Any", kind)  # mypy takes no class of a type variable as hashable
        self._count = 0
        self._blocks: list[bytes] = []
        values, remaining = _form_of(self._kind)[0], iter(records)
        while block := [*map(values, islice(remaining, _BLOCK_RECORDS))]:
            self._count += len(block)
            self._blocks.append(zlib.compress(marshal.dumps(tuple(zip(*block, strict=True))), level=1))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[_Record]:
        return chain.from_iterable(map(self._unpacked, self._blocks))

    @overload
    def __getitem__(self, index: int) -> _Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[_Record]: ...
    def __getitem__(self, index: int | slice) -> _Record | list[_Record]:
        if isinstance(index, slice):
            return list(self)[index]
        number, position = divmod(range(self._count)[index], _BLOCK_RECORDS)
        return next(islice(self._unpacked(self._blocks[number]), position, None))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _unpacked(self, block: bytes) -> Iterator[_Record]:
        kind, setters = self._kind, _form_of(self._kind)[1]
        for values in zip(*marshal.loads(zlib.decompress(block)), strict=True):  # noqa: S302 (our own bytes)
            record = object.__new__(kind)
            for set_value, value in zip(setters, values, strict=True):
                set_value(record, value)
            yield record


@cache
def _form_of(kind: Any) -> tuple[Callable[[Any], tuple[Any, ...]], tuple[Callable[[Any, Any], None], ...]]:
    """What returns the values of a record, and what sets each: what its `__init__` calls, at half the time."""
    names = [each.name for each in fields(kind)]
    return attrgetter(*names), tuple(getattr(kind, name).__set__ for name in names)
