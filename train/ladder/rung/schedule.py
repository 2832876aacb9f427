"""How many steps of a fit are a rung's warm-up, and how many are measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....pipeline.errors import UsageError
from ..messages import Grid, Reference

_SETTLING_STEPS = 5
"""Warm-up steps in which kernels are selected, memory is allocated and optimizer state is created."""
_SLOW_ROUNDS, _SLOW_STEPS = 2, 4


@dataclass(frozen=True, kw_only=True)
class MeasuredLength:
    """How many steps of a fit are measured.

    steps: at least, None for an epoch. grid: where the warm-up and the measured steps end. reference: whose samples
    are those of both, in place of `steps`. slow: instead of all these, a few rounds of one batch per loader worker; for
    batches that take very long.
    """

    steps: int | None = None
    grid: Grid = Grid()  # noqa: RUF009 (frozen)
    reference: Reference | None = None
    slow: bool = False


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """An epoch of one of `ranks`. steps: None where it is endless. workers, prefetched: of its loader; in batches."""

    steps: int | None
    workers: int
    prefetched: int
    ranks: int = 1


def window(length: MeasuredLength, epoch: Epoch) -> tuple[int, int]:
    """Returns the steps of the warm-up and the measured ones.

    The warm-up is a few steps, plus the batches that may be prefetched at a fit's start, so that afterwards the loader
    has to keep up. If the measured steps contain an epoch's end, so does the warm-up. Where other rungs have more
    ranks, both are longer: they make as few steps of the same samples. Raises `UsageError` where an epoch is to be
    measured, but is endless.
    """
    if length.slow:
        return max(epoch.prefetched, 1), max(_SLOW_ROUNDS * epoch.workers, _SLOW_STEPS)
    if length.reference is not None:
        return _same_samples(length.reference, epoch)
    share = max(length.grid.ranks // epoch.ranks, 1)
    measured_steps = epoch.steps if length.steps is None else length.steps * share
    if measured_steps is None:
        raise UsageError("--steps epoch: the module's loader has no length; take --steps 20")
    schedule = CommonSteps(max(length.grid.group // epoch.ranks, 1), epoch.steps)
    return schedule.window((epoch.prefetched + _SETTLING_STEPS) * share, measured_steps)


@dataclass(frozen=True)
class CommonSteps:
    """Steps after which all rungs have stepped their optimizer: every `group` of an epoch, and at its end.

    steps_per_epoch: None where it is endless.
    """

    group: int
    steps_per_epoch: int | None

    def window(self, warm_up_steps: int, measured_steps: int) -> tuple[int, int]:
        """Returns the steps of the warm-up and the measured ones, raised so that both end with a common step.

        >>> CommonSteps(32, 1000).window(5, 20), CommonSteps(4, 10).window(5, 10)
        ((32, 32), (10, 10))
        """
        epoch = self.steps_per_epoch or math.inf
        group = int(min(self.group, epoch))
        warm_up_steps = _rounded_up(warm_up_steps, group)
        if measured_steps != epoch:
            measured_steps = _rounded_up(measured_steps, group)
        if warm_up_steps + measured_steps > epoch:
            warm_up_steps = self._next_end(max(warm_up_steps, int(epoch)))
        return warm_up_steps, self._next_end(warm_up_steps + measured_steps) - warm_up_steps

    def _next_end(self, step: int) -> int:
        """Returns the first common step from `step` on."""
        if self.steps_per_epoch is None:
            return _rounded_up(step, self.group)
        epochs, in_epoch = divmod(step, self.steps_per_epoch)
        return epochs * self.steps_per_epoch + min(_rounded_up(in_epoch, self.group), self.steps_per_epoch)


def _same_samples(reference: Reference, epoch: Epoch) -> tuple[int, int]:
    """Returns the steps that have the samples of a reference's."""
    warm_up_end, end = (
        _same_step(step, reference, epoch)
        for step in (reference.warm_up_steps, reference.warm_up_steps + reference.steps)
    )
    return warm_up_end, end - warm_up_end


def _same_step(step: int, reference: Reference, epoch: Epoch) -> int:
    """Returns the step after which a fit has seen the samples of a reference after `step`, or the next step but that.

    Epochs are of the same samples for any number of ranks, and so of different numbers of steps.
    """
    epochs, in_epoch = divmod(step, reference.steps_per_epoch) if reference.steps_per_epoch else (0, step)
    return epochs * (epoch.steps or 0) + math.ceil(in_epoch * reference.devices / epoch.ranks)


def _rounded_up(steps: int, group: int) -> int:
    return math.ceil(steps / group) * group
