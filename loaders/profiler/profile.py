"""`profile(loader, step)`: the three estimators on one loader, then what explains them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from ...pipeline.errors import UsageError
from .measure.live import Step
from .measure.ranks import Ranks, ranks_of_this_job
from .measure.variants import source_of
from .trials.explanations import Trials
from .verdict.advice import advise, enough_waiting
from .verdict.loader_verdict import DEFAULT_STEPS, Estimation, Progress
from .verdict.result import Profile


def profile(
    loader: Any, step: Step, *, steps: int = DEFAULT_STEPS, confidence: float = 0.95,
    device: str | torch.device | None = None, epoch_batches: int | None = None,
    against: Mapping[str, Any] | None = None, verify: bool = False, quick: bool = False,
    progress: Progress | None = None,
) -> Profile:  # fmt: skip
    """Goes through a loader's batches with a step as training would, and says how long it waited, and how sure that is.

    loader: a `FaceDataLoader`, any torch DataLoader, or any iterable of batches that can be iterated again. step: what
    is done with a batch; an `EmulatedDevice` stands for one where there is no GPU. device: that the step runs on; None:
    the host. steps: of the steady state, which begins where the queue has settled; fewer where the loader is surely too
    slow. epoch_batches: of the epoch that is judged as a whole; None: the loader's own length, if it has one. against:
    other loaders, by name, that the same step is tried on. verify: follows the advice as well. quick: the verdict
    alone, without what explains it. progress: called with what is being done, steps done and steps in all.

    The steps are done in one piece, after the queue was emptied: a pause would let it fill, and a full one hides for
    hundreds of steps that a loader is too slow.

    Inside a job of torch.distributed all ranks have to call it; each does the same number of steps, which are expected
    to keep the ranks together, as summing gradients does. The verdict is that on the job, and `ranks` in the result
    says what each of them saw; of what explains it there is the advice alone.
    """
    if steps < 50:
        raise UsageError(f"steps={steps}: must be at least 50; try 4000")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence={confidence}: must be between 0 and 1; try 0.95")
    if isinstance(loader, Iterator):
        raise UsageError(f"{type(loader).__name__}: can be iterated only once; give a loader, or a list of batches")
    if isinstance(loader, Mapping) or not hasattr(loader, "__iter__"):
        raise UsageError(
            f"{type(loader).__name__}: has no batches to iterate over; give a loader, or a list of batches"
        )
    with _undisturbed(loader), ranks_of_this_job() as ranks:
        if ranks.count > 1 and (verify or against):
            raise UsageError(
                f"profile() inside a job of {ranks.count} ranks: neither verify nor against; try settings one by one"
            )
        ranks.agree(steps=steps, confidence=confidence, quick=quick, epoch_batches=epoch_batches)
        return _profiled(
            loader, step, steps=steps, confidence=confidence, device=device, epoch_batches=epoch_batches, ranks=ranks,
            against=against or {}, verify=verify, quick=quick, progress=progress or _silent,
        )  # fmt: skip


def _profiled(
    loader: Any, step: Step, *, ranks: Ranks, against: Mapping[str, Any], verify: bool, quick: bool, **settings: Any
) -> Profile:  # fmt: skip
    run = Estimation(loader, step, ranks=ranks, **settings)
    found, trials = run.estimated(), Trials(run)
    if not quick and ranks.count > 1:  # each trial would take as long as one rank likes
        advice = advise(found.live, found.cores, enough=enough_waiting(found.verdict))
        found = replace(found, advice=tuple(advice))
    elif not quick:
        found = trials.explained(found)
        found = trials.followed(found) if verify else found
    run.passing.close()
    beside = [trials.one(name, other) for name, other in against.items()]
    return replace(found, explained=not quick, trials=(*found.trials, *beside))


@contextmanager
def _undisturbed(loader: Any) -> Iterator[None]:
    """Leaves torch's random numbers, and those of a loader's samplers, where they were: its order is the user's."""
    source = source_of(loader)
    drawing = [
        source,
        getattr(source, "sampler", None),
        getattr(getattr(source, "batch_sampler", None), "sampler", None),
    ]
    generators = [one for owner in drawing if (one := getattr(owner, "generator", None)) is not None]
    states = [one.get_state() for one in generators]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for one, state in zip(generators, states, strict=True):
            one.set_state(state)


def _silent(_what: str, _done: int, _wanted: int) -> None:
    return None
