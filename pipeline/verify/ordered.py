"""`OrderedMap`: how work on a dataset is done piece by piece, on this thread or by other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from ..dataset.out import OutPaths

_Result = TypeVar("_Result")


class Located(Protocol):
    """A piece of work on a file of OUT."""

    @property
    def location(self) -> str:
        """The name of the file, relative to OUT."""


class OrderedMap(Protocol):
    """Yields the results of a function, which is called with some pieces of work at a time, in their order.

    The function takes OUT as the process sees that calls it, and returns one result a piece. It must be picklable, as
    pieces and results, and may be called again for pieces whose result was lost.
    """

    def __call__(
        self, function: Callable[[OutPaths, Sequence[Any]], Sequence[_Result]], chunks: Iterator[Sequence[Any]]
    ) -> Iterator[Sequence[_Result]]:
        """Takes chunks as they are needed."""


def map_here(paths: OutPaths) -> OrderedMap:
    """An `OrderedMap` on this thread: one chunk after the other."""

    def run(
        function: Callable[[OutPaths, Sequence[Any]], Sequence[_Result]], chunks: Iterator[Sequence[Any]]
    ) -> Iterator[Sequence[_Result]]:
        return (function(paths, chunk) for chunk in chunks)

    return run
