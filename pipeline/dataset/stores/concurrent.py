"""`map_on_threads`: maps a function over items with several threads, for concurrent requests to a store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

MAX_REQUESTS: Final = 8

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_on_threads(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Returns the results of `function` in the order of `items`, computed by at most `MAX_REQUESTS` threads.

    Raises the first error. The threads are daemons: a process that exits does not wait for them, whereas an executor
    would first complete its queue.
    """
    queue, results = [*items], dict[int, _Result]()
    if len(queue) == 1:
        return [function(queue[0])]
    numbers, lock, errors = iter(range(len(queue))), threading.Lock(), list[Exception]()

    def run() -> None:
        while not errors:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                results[number] = function(queue[number])
            except Exception as error:
                errors.append(error)

    threads: list[Any] = [
        threading.Thread(target=run, name="facefeed-store", daemon=True) for _ in range(min(MAX_REQUESTS, len(queue)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(queue))]
