"""`on_threads`: several requests to a store at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

REQUESTS_AT_A_TIME: Final = 8

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def on_threads(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """The results of a function, in the order of the items, by at most `REQUESTS_AT_A_TIME` threads.

    Raises the first error. The threads do not keep a process that ends, unlike those of an executor, which would first
    complete what is queued.
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
        threading.Thread(target=run, name="facefeed-store", daemon=True)
        for _ in range(min(REQUESTS_AT_A_TIME, len(queue)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(queue))]
