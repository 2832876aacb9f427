"""Transfers batches to a device, one ahead of the training step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import cache
from typing import TypeVar

import torch

from .nested import iter_tensors

_Batch = TypeVar("_Batch")
_Transferred = TypeVar("_Transferred")
_Started = TypeVar("_Started")
_Finished = TypeVar("_Finished")


def prefetch_to_device(
    batches: Iterator[_Batch], start_transfer: Callable[[_Batch], _Transferred], device: torch.device
) -> Generator[_Transferred, None, None]:
    """Yields `start_transfer(batch)` in order while the transfer of the next batch runs on a side stream.

    `start_transfer` enqueues copies and kernels on the current stream, which is the side stream; the caller's stream
    waits for them before it uses the batch, and the host never waits. For CUDA devices.
    """
    side_stream = _side_stream(torch.cuda.current_device() if device.index is None else device.index)

    def start(batch: _Batch) -> tuple[_Transferred, torch.cuda.Event]:
        with torch.cuda.stream(side_stream):
            transferred = start_transfer(batch)
            return transferred, side_stream.record_event()

    return one_ahead(batches, start, lambda started: _wait_for_transfer(*started, device))


@cache
def _side_stream(device_index: int) -> torch.cuda.Stream:
    """One for all iterations: torch keeps freed memory by stream, so that each new one would take as much again."""
    return torch.cuda.Stream(device_index)  # type: ignore[no-untyped-call]


def one_ahead(
    batches: Iterator[_Batch], start: Callable[[_Batch], _Started], finish: Callable[[_Started], _Finished]
) -> Generator[_Finished, None, None]:
    """Yields `finish(start(batch))` in order; the next batch is received and started before one is finished.

    So each `next()` waits for the batch after the one that it returns: the first for two, and the last for none.
    """
    started = deque[_Started]()
    for batch in batches:
        started.append(start(batch))
        if len(started) > 1:
            yield finish(started.popleft())
    if started:
        yield finish(started.popleft())


def _wait_for_transfer(batch: _Transferred, copied: torch.cuda.Event, device: torch.device) -> _Transferred:
    """Makes the caller's stream wait for the batch, and records in the allocator that this stream uses it."""
    stream = torch.cuda.current_stream(device)
    stream.wait_event(copied)
    for tensor in iter_tensors(batch):
        tensor.record_stream(stream)
    return batch
