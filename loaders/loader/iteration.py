"""One pass through an epoch, as the training loop holds it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ...pipeline.errors import UsageError
from ..batching.batch import RawBatch
from ..sampling.epoch_sampler import EpochSampler
from .stats import Meter, ready_batches


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


def no_iteration() -> None:
    """In place of a weak reference to one."""
    return


@contextmanager
def advancing(order: EpochSampler) -> Iterator[Callable[[], None]]:
    """Around one pass: yields what to call for each batch delivered, so that `order.position` is always the next one's.

    Whoever sets another epoch meanwhile goes first: from then on the position is theirs. At its end the next epoch is
    due. Where it is broken off, the rest of the epoch is; of an order that is not shuffled, which has no epochs to get
    through, all of it again.
    """
    (epoch, first_image), steps = order.position, order.steps_left
    mine, delivered = order.position, 0
    order.keeps_position = True

    def move(position: tuple[int, int]) -> None:
        nonlocal mine
        if order.position == mine:
            order.position = mine = position

    def advance() -> None:
        nonlocal delivered
        delivered += 1
        move((epoch, first_image + delivered * order.global_batch) if delivered < steps else (epoch + 1, 0))

    try:
        yield advance
    finally:
        if delivered >= steps or order.shuffling.mode == "none":
            move((epoch + 1, 0))
        order.keeps_position = False


def in_order(
    batches: Any, step: int, meter: Meter, naming_the_dead: Callable[[], AbstractContextManager[None]]
) -> Generator[RawBatch, None, None]:
    """The workers' batches, each one the step that is due, from `step` on; what went wrong there is raised here."""
    while True:
        meter.saw_ready(ready_batches(batches))
        with naming_the_dead():
            raw: RawBatch | None = next(batches, None)
        if raw is None:
            return
        if raw.error is not None:
            error, raw = raw.error, None
            try:
                raise error
            finally:
                del error  # its trace holds this frame: else both, and the workers, wait for the collector
        if raw.step != step:
            raise RuntimeError(f"step {raw.step} came in place of step {step}")
        step += 1
        meter.replaced += raw.replaced
        yield raw
