"""What the ranks of a job do that is profiled, each in a process of its own that imports this: for `in_ranks`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import torch
from assets_clock import Clock
from assets_profiles import STEP
from assets_ranks import all_reduce_step
from facefeed.loaders.profiler.measure import batch_timing, instrument, measured_loop, ranks, step_clock, steps
from facefeed.loaders.profiler.measure.steps import EmulatedRank
from facefeed.loaders.profiler.profile import profile
from facefeed.loaders.profiler.verdict.job import slowest_rank
from facefeed.pipeline.errors import UsageError
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Made:
    """Batches of two workers that each take `load` seconds and work two batches ahead, on a clock that is moved."""

    clock: Clock
    load: float
    finish: list[float] = field(default_factory=list)
    handed: list[float] = field(default_factory=list)

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            number = len(self.finish)
            idle = self.finish[number - 2] if number >= 2 else 0.0
            self.finish.append(max(idle, self.handed[number - 4] if number >= 4 else 0.0) + self.load)
            self.clock.now = max(self.clock.now, self.finish[-1])
            self.handed.append(self.clock.now)
            yield torch.zeros(1)


def profiled(rank: int, loads: list[float], steps_wanted: int) -> dict[str, Any]:
    """One rank's profile, on a clock of its own, under a step that sums something up over all ranks."""
    clock, steps_done = Clock(), list[int]()
    for module in (measured_loop, batch_timing, instrument, step_clock):
        module.clock = clock  # type: ignore[attr-defined]
    measured_loop.raw_clock = clock

    def step(_: Any) -> None:
        total, latest = torch.tensor([len(steps_done)]), torch.tensor([clock.now], dtype=torch.float64)
        torch.distributed.all_reduce(total)
        torch.distributed.all_reduce(latest, torch.distributed.ReduceOp.MAX)
        assert int(total) == len(steps_done) * len(loads)  # else a rank does another step than the others
        steps_done.append(1)
        clock.now = float(latest) + STEP

    rank_profile = profile(Made(clock, loads[rank]), step, steps=steps_wanted)
    return {
        "done": len(steps_done),
        "verdict": rank_profile.verdict,
        "ranks": len(rank_profile.ranks),
        "slowest": slowest_rank(rank_profile.ranks),
        "rank": rank_profile.rank,
        "advice": rank_profile.advice,
    }


def profiled_with_workers(rank: int, workers: list[int], epoch_batches: list[int]) -> int:
    """Steps of a rank's profile, with workers and an epoch of its own, under a step that meets the other ranks."""
    done = list[int]()

    def step(_: Any) -> None:
        all_reduce_step(len(done))
        done.append(1)

    loader = DataLoader(
        TensorDataset(torch.arange(epoch_batches[rank])), 1, num_workers=workers[rank],
        multiprocessing_context="forkserver" if workers[rank] else None, persistent_workers=workers[rank] > 0,
    )  # fmt: skip
    profile(loader, step, steps=60, quick=True)
    return len(done)


def alone_in_a_job(rank: int) -> str:
    """The error that the only rank of a job that asks for a profile gets."""
    ranks._JOIN_TIMEOUT = timedelta(seconds=1)
    if rank:
        return ""
    with pytest.raises(UsageError) as refused:
        profile([torch.zeros(1)], lambda _: None, steps=60)
    return str(refused.value)


def asked_differently(rank: int) -> str:
    with pytest.raises(UsageError) as refused:
        profile([torch.zeros(1)], lambda _: None, steps=60 + 10 * rank)
    return str(refused.value)


def verified(_rank: int) -> str:
    with pytest.raises(UsageError) as refused:
        profile([torch.zeros(1)], lambda _: None, steps=60, verify=True)
    return str(refused.value)


def coupled(rank: int, start_times: list[float]) -> list[float]:
    """When a rank's device is done with each of some steps, the first of which it was given at `start_times`."""
    clock = Clock()
    steps.clock = clock
    steps._sleep_until = steps._spin_until = lambda moment: clock.pass_by(max(moment - clock(), 0.0))
    device = EmulatedRank(STEP, 0.2)
    clock.pass_by(start_times[rank])
    marks = []
    for _ in range(3):
        device(None)
        marks.append(device.mark())
    return device.seconds_of(marks).tolist()
