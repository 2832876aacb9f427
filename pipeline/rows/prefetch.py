"""Prefetching one item of an iterator on another thread: how the stages of a worker overlap."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, wait
from contextlib import contextmanager
from typing import Any, Final, TypeVar

T = TypeVar("T")

_END: Final[Any] = object()


@contextmanager
def prefetch_one(items: Iterator[T], executor: Executor) -> Iterator[Iterator[T]]:
    """Yields an iterator over `items`, in order, while `executor` prefetches one item ahead.

    At most one prefetched item waits: the producer blocks until it is taken. An exception of `items` is raised in place
    of its item. On exit, also before the end, waits for the item in progress and closes `items`: nothing keeps running.

    `executor`: has one thread and outlives the context. After its shutdown, the next item raises `RuntimeError`.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(1) as executor, prefetch_one(iter("abc"), executor) as letters:
    ...     list(letters)
    ['a', 'b', 'c']
    """
    try:
        pending = executor.submit(next, items, _END)

        def prefetched() -> Iterator[T]:
            nonlocal pending
            while (item := pending.result()) is not _END:
                pending = executor.submit(next, items, _END)
                yield item
                del item  # else it stays alive while the next one is waited for

        try:
            yield prefetched()
        finally:
            wait([pending])
            del pending  # else an error keeps itself alive through its traceback, and with it the frames of the video
    finally:
        if (close := getattr(items, "close", None)) is not None:
            close()
