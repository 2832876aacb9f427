"""`EpochIterator`: one iteration over an epoch; and how the sampler's position follows the delivered batches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ...pipeline.errors import FacefeedError, UsageError
from ..batching.worker_batch import WorkerBatch
from ..sampling.epoch_sampler import EpochSampler
from ..torch_internals import count_ready_batches, free_frame_of_worker_error
from .stats import EpochMeter


class BatchOrderError(FacefeedError, RuntimeError):
    """torch's iterator returned another batch than the next one of the epoch's order."""

    exit_code = 1


class EpochIterator(Iterator[Any]):
    """Yields the batches of an epoch; ends when its loader is iterated again, and raises if used after that."""

    def __init__(self, batches: Generator[Any, None, None]) -> None:
        self._batches = batches
        self._superseded = False
        self._failed_with = ""  # name of the error; itself, it would keep workers

    def __next__(self) -> Any:
        """The next batch; raises `UsageError` where another iteration of the loader has begun, or after an error."""
        if self._superseded:
            raise UsageError(
                "this iteration ended as another iter() of its loader began; make a second loader for both"
            )
        if self._failed_with:
            raise UsageError(
                f"this iteration ended with {self._failed_with}, before the end of its epoch; iterate the loader "
                "again: one that is shuffled continues at that batch, any other begins anew"
            )
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self._failed_with = type(error).__name__
            raise

    def close(self) -> None:
        """Ends the iteration."""
        self._batches.close()

    def supersede(self) -> None:
        """Ends the iteration because another one begins."""
        self._superseded = True
        self.close()


def no_iterator() -> None:
    """Takes the place of a weak reference to an iterator where there is none."""
    return


@contextmanager
def track_position(sampler: EpochSampler) -> Iterator[Callable[[], None]]:
    """Yields a function to call for each delivered batch, which moves `sampler.position` to the next one.

    Where somebody sets another position meanwhile, it is kept from then on. At the end, the position is the beginning
    of the next epoch. After an interruption, it is the rest of the epoch; without shuffling, all rows again; and where
    the epoch was set since the last delivered batch, its beginning: the iterator may only be one that somebody keeps.
    """
    (epoch, first_image), steps = sampler.position, sampler.steps_left
    last_set, delivered = sampler.position, 0
    sampler.set_epoch_keeps_position = True

    def move(position: tuple[int, int]) -> None:
        nonlocal last_set
        if sampler.position == last_set:
            sampler.position = last_set = position

    def advance() -> None:
        nonlocal delivered
        delivered += 1
        sampler.restarts_epoch = False
        move((epoch, first_image + delivered * sampler.global_batch) if delivered < steps else (epoch + 1, 0))

    try:
        yield advance
    finally:
        if sampler.restarts_epoch and delivered:  # before the first batch, trainers set the epoch that they resume
            sampler.position = sampler.epoch, 0
        elif delivered >= steps:
            move((epoch + 1, 0))
        elif sampler.shuffling.mode == "none":
            move((epoch, 0))
        sampler.set_epoch_keeps_position = sampler.restarts_epoch = False


def iterate_in_order(
    iterator: Any, steps: range, meter: EpochMeter, worker_errors: Callable[[], AbstractContextManager[None]],
    on_batch: Callable[[int], object],
) -> Generator[WorkerBatch, None, None]:  # fmt: skip
    """Yields the batches of an epoch from torch's iterator and checks their order; raises what workers returned.

    Args:
        iterator: over `WorkerBatch`es; those of the next epoch may follow.
        steps: of the epoch, those that the iterator has.
        meter: of the epoch; records ready batches and replacements.
        worker_errors: context that describes workers that died.
        on_batch: called with each step once the iterator has returned its batch.

    """
    for step in steps:
        meter.record_ready(count_ready_batches(iterator))
        with worker_errors():
            try:
                batch: WorkerBatch | None = next(iterator, None)
            except Exception as raised:
                free_frame_of_worker_error(raised)
                raise
        if batch is None:
            raise BatchOrderError(
                f"{step - steps.start} of {len(steps)} batches came of epoch {meter.epoch}: iterate the loader itself, "
                "with its own sampler and workers"
            )
        if batch.error is not None:
            error, batch = batch.error, None
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame: a cycle would keep workers until a collection
        if (batch.epoch, batch.step) != (meter.epoch, step):
            raise BatchOrderError(
                f"step {batch.step} of epoch {batch.epoch} came in place of step {step} of epoch {meter.epoch}: "
                "batches must come in the order of the epoch, by which a state counts; iterate the loader itself, with "
                "its own sampler and workers"
            )
        on_batch(step)
        meter.replaced += batch.replaced
        meter.made_fakes += batch.made_fakes
        meter.add_store(batch.store)
        yield batch


def deliver(batches: Iterator[tuple[Any, int]], sampler: EpochSampler, meter: EpochMeter) -> Generator[Any, None, None]:
    """Yields each batch of `(batch, number of images)`, records it and moves the sampler's position past it."""
    with track_position(sampler) as advance:
        while True:
            with meter.time_wait():
                batch, num_images = next(batches, (None, 0))
            if batch is None:
                return
            advance()
            meter.record_batch(num_images)
            yield batch
