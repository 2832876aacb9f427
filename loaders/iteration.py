"""One pass through an epoch, as the training loop holds it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from ..pipeline.errors import UsageError


class Iteration(Iterator[Any]):
    """Hands out an epoch's batches; ends with its loader's next `iter()`, and says so to whoever still asks it."""

    def __init__(self, batches: Generator[Any, None, None]) -> None:
        self._batches = batches
        self._gave_way = False

    def __next__(self) -> Any:
        """The next batch; raises `UsageError` where another iteration of the loader has begun."""
        if self._gave_way:
            raise UsageError(
                "this iteration ended as another iter() of its loader began; make a second loader for both"
            )
        return next(self._batches)

    def close(self) -> None:
        """Ends it."""
        self._batches.close()

    def give_way(self) -> None:
        """Ends it in favour of another."""
        self._gave_way = True
        self.close()
