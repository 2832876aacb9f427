"""Working one item ahead of whoever takes the items: how the stages of a slot overlap."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, wait
from contextlib import contextmanager
from typing import Any, Final, TypeVar

T = TypeVar("T")

_END: Final[Any] = object()


@contextmanager
def ahead(items: Iterator[T], thread: Executor) -> Iterator[Iterator[T]]:
    """The same items, in their order, of which the next one is already being made on `thread`, and no further one.

    So at most one item lies made and waiting: whoever makes them stands still until it is taken, and whoever takes them
    until one is made. What `items` raises arrives where its item would have. On leaving, also half-way, it waits for
    the item that is under way and closes `items`: nothing is left running.

    `thread`: an executor of one thread that outlives this. Once it was shut down, the next item is a `RuntimeError`.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(1) as thread, ahead(iter("abc"), thread) as letters:
    ...     list(letters)
    ['a', 'b', 'c']
    """
    try:
        due = thread.submit(next, items, _END)

        def taken() -> Iterator[T]:
            nonlocal due
            while (item := due.result()) is not _END:
                due = thread.submit(next, items, _END)
                yield item
                del item  # or it would be held as long as the next one is waited for

        try:
            yield taken()
        finally:
            wait([due])
            del due  # an error would hold itself through its own trace, and with it the frames it was thrown through
    finally:
        if (close := getattr(items, "close", None)) is not None:
            close()
