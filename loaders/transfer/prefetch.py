"""Transfers batches to a device, one ahead of the training step."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

import torch

_Batch = TypeVar("_Batch")
_Transferred = TypeVar("_Transferred")


def prefetch_to_device(
    batches: Iterator[_Batch], start_transfer: Callable[[_Batch], _Transferred], device: torch.device
) -> Generator[_Transferred, None, None]:
    """Yields `start_transfer(batch)` in order while the transfer of the next batch runs on a side stream.

    `start_transfer` enqueues copies and kernels on the current stream, which is the side stream; the caller's stream
    waits for them before it uses the batch, and the host never waits. For CUDA devices.
    """
    side_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    pending: tuple[_Transferred, torch.cuda.Event] | None = None
    for batch in batches:
        with torch.cuda.stream(side_stream):
            transferred = start_transfer(batch)
            copied = side_stream.record_event()
        if pending is not None:
            yield _wait_for_transfer(*pending, device)
        pending = transferred, copied
    if pending is not None:
        yield _wait_for_transfer(*pending, device)


def _wait_for_transfer(batch: _Transferred, copied: torch.cuda.Event, device: torch.device) -> _Transferred:
    """Makes the caller's stream wait for the batch, and records in the allocator that this stream uses it."""
    stream = torch.cuda.current_stream(device)
    stream.wait_event(copied)
    for tensor in iter_tensors(batch):
        tensor.record_stream(stream)
    return batch


def iter_tensors(batch: Any) -> Iterator[torch.Tensor]:
    """Yields every tensor in nested dicts, lists and tuples."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, (dict, list, tuple)):
        for value in batch.values() if isinstance(batch, dict) else batch:
            yield from iter_tensors(value)
