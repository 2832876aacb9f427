"""`profile(loader, step)`: measures a loader, then explains the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from ...pipeline.errors import UsageError
from ..whole_numbers import optional_int, require_int
from .arguments import check_arguments
from .measure.measured_loop import Step
from .measure.ranks import default_rank_group
from .measure.variants import torch_loader_of
from .trials.explanations import Trials
from .verdict.loader_verdict import DEFAULT_STEPS, LoaderMeasurement, Progress
from .verdict.result import Profile


def profile(
    loader: Any, step: Step, *, steps: int = DEFAULT_STEPS, confidence: float = 0.95,
    device: str | torch.device | None = None, epoch_batches: int | None = None,
    against: Mapping[str, Any] | None = None, verify: bool = False, quick: bool = False,
    progress: Progress | None = None,
) -> Profile:  # fmt: skip
    """Runs a step on a loader's batches as training would, and measures how long it waits for data, with bounds.

    The steps run in one piece, after the queue was drained: a pause would let it fill, and a full queue hides for
    hundreds of steps that a loader is too slow. What it fills by while the number of steps is decided is discarded.

    The steps are real, and thousands: a step that trains changes weights and optimizer, so give it a copy, or reload
    them afterwards.

    Inside a torch.distributed job all ranks have to call it; each runs the same number of steps, which are expected to
    keep the ranks together, as summing gradients does. The verdict is that on the job, and `ranks` in the result holds
    each rank's own; of the explanations only advice is available.

    Args:
        loader: a `FaceDataLoader`, any torch DataLoader, or any re-iterable of batches.
        step: called with each batch; an `EmulatedDevice` replaces a GPU where there is none.
        steps: number of steps in the steady state; fewer where the loader is surely too slow.
        confidence: of all bounds; at most 0.999.
        device: that the step runs on; None: the host.
        epoch_batches: length of the epoch that is judged as a whole; None: the loader's own length or, where that is
            less or it has none, that between the epoch boundaries of the run.
        against: other loaders, by name, to try under the same step; one without a steady state within 45 s is left out,
            and one that fails, with a note.
        verify: also try the advised settings.
        quick: the verdict alone, without explanations.
        progress: called with the current activity, steps done and steps in all.

    Raises:
        UsageError: an argument is out of range or of a wrong type, or the loader cannot be iterated again.

    """
    check_arguments(loader, step, confidence=confidence, device=device, against=against, verify=verify, quick=quick)
    steps = require_int("steps", steps, minimum=50, example=DEFAULT_STEPS)
    epoch_batches = optional_int("epoch_batches", epoch_batches, minimum=1, example=1000)
    with _random_state_preserved(loader), default_rank_group() as ranks:
        if ranks.world_size > 1 and (verify or against):
            raise UsageError(
                f"profile() inside a job of {ranks.world_size} ranks: neither verify nor against; try settings one by "
                "one"
            )
        ranks.require_same(steps=steps, confidence=confidence, quick=quick, epoch_batches=epoch_batches)
        measurement = LoaderMeasurement(
            loader, step, num_steps=steps, confidence=confidence, device=device, num_epoch_batches=epoch_batches,
            progress=progress or _no_progress, ranks=ranks,
        )  # fmt: skip
        return _measure_and_explain(measurement, against or {}, verify=verify, quick=quick)


def _measure_and_explain(
    measurement: LoaderMeasurement, against: Mapping[str, Any], *, verify: bool, quick: bool
) -> Profile:  # fmt: skip
    result, trials = measurement.measure(), Trials(measurement)
    if not quick and measurement.ranks.world_size > 1:  # each trial would take as long as one rank likes
        result = replace(result, advice=trials.advise(result))
    elif not quick:
        result = trials.explain(result)
        result = trials.verify_advice(result) if verify else result
    measurement.loop.close()
    return replace(trials.with_trials_of(result, against), is_explained=not quick)


@contextmanager
def _random_state_preserved(loader: Any) -> Iterator[None]:
    """Restores torch's random state, and that of a loader's samplers, so that profiling does not change its order.

    Where samplers draw by a generator that is none of torch's, an epoch after the profile has another order.
    """
    torch_loader = torch_loader_of(loader)
    source = loader if torch_loader is None else torch_loader
    generator_owners = [
        source,
        getattr(source, "sampler", None),
        getattr(getattr(source, "batch_sampler", None), "sampler", None),
    ]
    generators = [
        generator
        for owner in generator_owners
        if isinstance(generator := getattr(owner, "generator", None), torch.Generator)
    ]
    states = [generator.get_state() for generator in generators]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def _no_progress(_what: str, _done: int, _wanted: int) -> None:
    return None
