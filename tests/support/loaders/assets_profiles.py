"""Profiles whose truth is known: what a loop would have recorded of a queue with given load and step times."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from assets_clock import Clock
from facefeed.loaders.profiler.estimate.queue_model import QueueModel, QueueTimeline
from facefeed.loaders.profiler.measure.batch_timing import BatchTiming
from facefeed.loaders.profiler.measure.ranks import RankGroup
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.verdict.advice import advise
from facefeed.loaders.profiler.verdict.judge import judge
from facefeed.loaders.profiler.verdict.result import CurvePoint, Profile, Trial
from facefeed.loaders.profiler.verdict.what_if import WhatIfModel
from torch.utils.data import Dataset

STEP = 0.010
BATCH = 64
PARTS = {"read": 0.05, "decode": 0.4, "resize": 0.1, "augment": 0.25, "collate": 0.05}
"""Of a batch's load time; what is left is nobody's."""


def uneven(count: int, mean: float, *, spread: float = 0.4, seed: int = 0) -> Any:
    """Times of batches or steps that differ, in seconds (count,)."""
    samples = np.random.default_rng(seed).gamma(1 / spread**2, spread**2, count)
    return mean * samples / samples.mean()


def recorded(
    timeline: QueueTimeline, *, queue: QueueModel, stamps: Any = None, began: float = 0.0, **more: Any
) -> Recording:
    """What a loop would have recorded of that; stamps: of its batches' making, None: with their times alone."""
    count = len(timeline.device_free_at)
    plain = [BatchTiming(began + start, began + finish)
             for start, finish in zip(timeline.load_start_at, timeline.load_end_at, strict=True)]  # fmt: skip
    values: dict[str, Any] = {"num_images": np.ones(count, np.int64), "storage_bytes": 0, **more}
    return Recording(
        requested_at=began + timeline.device_free_at,
        received_at=began + timeline.step_begin_at,
        step_end_at=began + timeline.step_begin_at + timeline.step_seconds,
        host_requested_at=began + timeline.requested_at,
        host_received_at=began + timeline.received_at,
        step_begin_raw_at=began + timeline.step_begin_at,
        segment_step=np.arange(count),
        num_workers=queue.num_workers,
        prefetch_factor=queue.prefetch_factor if queue.num_workers else 0,
        batch_timings=plain if stamps is None else stamps,
        **values,
    )


def recording_of(
    load: Any, step: Any = STEP, *, workers: int = 2, prefetch: int = 2, began: float = 100.0, lead: int = 1
) -> Recording:
    """What a loop would have recorded of a queue with these load and step times, its stamps with all they can hold."""
    queue = QueueModel(num_workers=workers, prefetch_factor=prefetch, transport_seconds=0.0004, lead_steps=lead)
    timeline = queue.replay(load, step)
    stamps = [
        _stamp(began + start, began + finish, number, workers)
        for number, (start, finish) in enumerate(zip(timeline.load_start_at, timeline.load_end_at, strict=True))
    ]
    return recorded(
        timeline, queue=queue, stamps=stamps, began=began, num_images=np.full(len(stamps), BATCH),
        loop_cpu_seconds=0.2 * float(timeline.step_seconds.sum()),
    )  # fmt: skip


def _stamp(start: float, finish: float, number: int, workers: int) -> BatchTiming:
    whole = finish - start
    return BatchTiming(
        start,
        finish,
        cpu_seconds=0.35 * whole,
        core_wait_seconds=0.05 * whole,
        storage_bytes=2000,
        pid=700 + number % max(workers, 1),
        stage_seconds={name: part * whole for name, part in PARTS.items()},
    )


def unseen(recording: Recording) -> Recording:
    """The same, of a loader that is none of torch's: nobody saw how its batches were made."""
    return Recording(**{**recording.__dict__, "batch_timings": (), "num_workers": 0, "prefetch_factor": 0})


def profile_of(live: Recording, *, emulated: bool = True, **more: Any) -> Profile:
    """A profile around a recording, with advice, and the curve where the step is emulated and batches were seen."""
    verdict = judge(live, emulated=emulated, num_cores=4)
    alone = recording_of(np.full(100, 1e-6), float(live.step_seconds.mean()), workers=0)
    curve: tuple[CurvePoint, ...] = ()
    if emulated and verdict.fastest_step_seconds is not None:
        steps = [verdict.fastest_step_seconds * factor for factor in (0.4, 0.7, 1.0, 1.4, 2.0)]
        shares = [WhatIfModel.fit(live, 4).wait_share(step_seconds=step) for step in steps]
        curve = tuple(
            CurvePoint(
                step_seconds=step,
                predicted_wait_share=share,
                measured_wait_share=min(share + 0.01, 1.0),
                measured_wait_share_lower=share,
            )
            for step, share in zip(steps, shares, strict=True)
        )
    values: dict[str, Any] = {"advice": tuple(advise(live, 4)), "curve": curve, "num_cores": 4, **more}
    return Profile(
        verdict=verdict,
        live=live,
        preloaded=alone,
        preloaded_on_device=None,
        opening_seconds=0.02,
        first_batch_seconds=0.4,
        step_name="SleepingStep(seconds=0.01, host_share=0.2)" if emulated else "train_step",
        **values,
    )


def trial_of(name: str, recording: Recording) -> Trial:
    """A loader measured beside another."""
    return Trial(name=name, recording=recording, verdict=judge(recording, emulated=True, num_cores=4))


def starved(steps: int = 1000) -> Profile:
    """Two workers that need 28 ms for a batch of a step of 10 ms."""
    plain, none = (recording_of(uneven(200, mean, seed=1)) for mean in (0.018, 0.002))
    cold = trial_of("cold cache", recording_of(uneven(200, 0.036, seed=2)))
    return profile_of(recording_of(uneven(steps, 0.028)), cold_cache=cold,
                      trials=(trial_of("evaluation transform", plain), trial_of("none", none)))  # fmt: skip


def fed(steps: int = 4000) -> Profile:
    """Two workers that need 5 ms for a batch of a step of 10 ms."""
    return profile_of(recording_of(uneven(steps, 0.005)), emulated=False)


def beside_naive(steps: int = 1000) -> Profile:
    """Fed; and the same faces made from videos, 900 ms a batch."""
    naive = recording_of(uneven(40, 0.9, seed=3), prefetch=1)
    return profile_of(recording_of(uneven(steps, 0.006)), trials=(trial_of("naive", naive),))


class SlowItems(Dataset[torch.Tensor]):
    """600 items, each loaded in `seconds` of a clock by the loop itself."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds

    def __len__(self) -> int:
        return 600

    def __getitem__(self, index: int) -> torch.Tensor:
        self.clock.pass_by(self.seconds)
        return torch.tensor([index])


class TwoAlike(RankGroup):
    """Two ranks of which each does what this one does."""

    def __init__(self) -> None:
        super().__init__()
        self.world_size = 2

    def all_gather(self, value: Any) -> list[Any]:
        return [value, value]
