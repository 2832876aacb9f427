"""Bringing batches to a device one ahead of the step that eats them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ..pipeline.errors import UsageError

if TYPE_CHECKING:
    from .dataloader import FaceDataLoader

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


class DevicePrefetcher:
    """A loader whose batches come on a device: `for images, labels in DevicePrefetcher(loader, "cuda")`.

    On CUDA the next batch is copied from page-locked memory as uint8, a quarter of the bytes, and normalised there on a
    side stream while the step works on this one. On the CPU it is the loader itself. Length, statistics, state and
    epochs are the loader's, whose state counts what the prefetcher has handed out.
    """

    def __init__(self, loader: FaceDataLoader, device: str | torch.device) -> None:
        if not hasattr(loader, "describe"):
            raise UsageError(f"DevicePrefetcher({type(loader).__name__}): takes a FaceDataLoader alone")
        loader.to(device)
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # while it is being unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)
