"""Bringing batches to a device one ahead of the step that eats them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

import torch

_Batch = TypeVar("_Batch")
_Started = TypeVar("_Started")


def one_ahead(
    batches: Iterator[_Batch], start: Callable[[_Batch], _Started], device: torch.device
) -> Generator[_Started, None, None]:
    """Yields what `start` makes of each batch, in order, always with the next one under way on a stream of its own.

    `start` enqueues copies and kernels on the current stream, which is not the caller's; the caller's stream waits for
    them before it touches the batch, and the host never does. For CUDA devices.
    """
    beside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    due: tuple[_Started, torch.cuda.Event] | None = None
    for batch in batches:
        with torch.cuda.stream(beside):
            started = start(batch)
            done = beside.record_event()
        if due is not None:
            yield _arrived(*due, device)
        due = started, done
    if due is not None:
        yield _arrived(*due, device)


def _arrived(batch: _Started, done: torch.cuda.Event, device: torch.device) -> _Started:
    """Makes the caller's stream wait for the batch, and tells the allocator that it is used there."""
    here = torch.cuda.current_stream(device)
    here.wait_event(done)
    for tensor in tensors_in(batch):
        tensor.record_stream(here)
    return batch


def tensors_in(batch: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a nest of dicts, lists and tuples."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, (dict, list, tuple)):
        for value in batch.values() if isinstance(batch, dict) else batch:
            yield from tensors_in(value)
