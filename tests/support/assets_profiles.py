"""Profiles whose truth is known: what a loop would have recorded of a queue with given load and step times."""

from __future__ import annotations

from typing import Any

import numpy as np
from facefeed.loaders.profiler.estimate.queue_model import Queue, Timeline
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.measure.stamps import Stamp
from facefeed.loaders.profiler.verdict.advice import advise
from facefeed.loaders.profiler.verdict.judgement import judge
from facefeed.loaders.profiler.verdict.result import Point, Profile, Trial
from facefeed.loaders.profiler.verdict.what_if import Situation

STEP = 0.010
BATCH = 64
PARTS = {"read": 0.05, "decode": 0.4, "resize": 0.1, "augment": 0.25, "collate": 0.05}
"""Of a batch's making; what is left is nobody's."""


def uneven(count: int, mean: float, *, spread: float = 0.4, seed: int = 0) -> Any:
    """Times of batches or steps that differ, in seconds (count,)."""
    drawn = np.random.default_rng(seed).gamma(1 / spread**2, spread**2, count)
    return mean * drawn / drawn.mean()


def recorded(timeline: Timeline, *, queue: Queue, stamps: Any = None, began: float = 0.0, **more: Any) -> Recording:
    """What a loop would have recorded of that; stamps: of its batches' making, None: with their times alone."""
    count = len(timeline.free)
    plain = [Stamp(began + start, began + finish)
             for start, finish in zip(timeline.start, timeline.finish, strict=True)]  # fmt: skip
    given: dict[str, Any] = {"images": np.ones(count, np.int64), "stored_bytes": 0, **more}
    return Recording(
        asked=began + timeline.free, handed=began + timeline.begin, done=began + timeline.begin + timeline.step,
        called=began + timeline.asked, returned=began + timeline.handed, began=began + timeline.begin,
        place=np.arange(count), workers=queue.workers, prefetch=queue.prefetch if queue.workers else 0,
        stamps=plain if stamps is None else stamps, **given,
    )  # fmt: skip


def recording_of(
    load: Any, step: Any = STEP, *, workers: int = 2, prefetch: int = 2, began: float = 100.0, lead: int = 1
) -> Recording:
    """What a loop would have recorded of a queue with these load and step times, its stamps with all they can hold."""
    queue = Queue(workers=workers, prefetch=prefetch, transport=0.0004, lead=lead)
    timeline = queue.replay(load, step)
    stamps = [
        _stamp(began + start, began + finish, number, workers)
        for number, (start, finish) in enumerate(zip(timeline.start, timeline.finish, strict=True))
    ]
    return recorded(
        timeline, queue=queue, stamps=stamps, began=began, images=np.full(len(stamps), BATCH),
        computed=0.2 * float(timeline.step.sum()),
    )  # fmt: skip


def _stamp(start: float, finish: float, number: int, workers: int) -> Stamp:
    whole = finish - start
    return Stamp(
        start, finish, cpu=0.35 * whole, queued=0.05 * whole, bytes_read=2000, pid=700 + number % max(workers, 1),
        spans={name: part * whole for name, part in PARTS.items()},
    )  # fmt: skip


def unseen(recording: Recording) -> Recording:
    """The same, of a loader that is none of torch's: nobody saw how its batches were made."""
    return Recording(**{**recording.__dict__, "stamps": (), "workers": 0, "prefetch": 0})


def profile_of(live: Recording, *, emulated: bool = True, **more: Any) -> Profile:
    """A profile around a recording, with advice, and the curve where the step is emulated and batches were seen."""
    verdict = judge(live, emulated=emulated, cores=4)
    alone = recording_of(np.full(100, 1e-6), float(live.step.mean()), workers=0)
    curve: tuple[Point, ...] = ()
    if emulated and verdict.fastest_step is not None:
        steps = [verdict.fastest_step * times for times in (0.4, 0.7, 1.0, 1.4, 2.0)]
        stalls = [Situation.of(live, 4).wait_share(step=step) for step in steps]
        curve = tuple(Point(step=step, predicted=stall, measured=min(stall + 0.01, 1.0))
                      for step, stall in zip(steps, stalls, strict=True))  # fmt: skip
    given: dict[str, Any] = {"advice": tuple(advise(live, 4)), "curve": curve, "cores": 4, **more}
    return Profile(
        verdict=verdict, live=live, alone=alone, resident=None, opening_seconds=0.02, first_batch_seconds=0.4,
        step="SleepingStep(seconds=0.01, host_share=0.2)" if emulated else "train_step", **given,
    )  # fmt: skip


def trial_of(name: str, recording: Recording) -> Trial:
    """A loader measured beside another."""
    return Trial(name=name, recording=recording, verdict=judge(recording, emulated=True, cores=4))


def starved(steps: int = 1000) -> Profile:
    """Two workers that need 28 ms for a batch of a step of 10 ms."""
    plain, none = (recording_of(uneven(200, mean, seed=1)) for mean in (0.018, 0.002))
    cold = trial_of("cold cache", recording_of(uneven(200, 0.036, seed=2)))
    return profile_of(recording_of(uneven(steps, 0.028)), cold=cold,
                      trials=(trial_of("evaluation transform", plain), trial_of("none", none)))  # fmt: skip


def fed(steps: int = 4000) -> Profile:
    """Two workers that need 5 ms for a batch of a step of 10 ms."""
    return profile_of(recording_of(uneven(steps, 0.005)), emulated=False)


def beside_naive(steps: int = 1000) -> Profile:
    """Fed; and the same faces made from videos, 900 ms a batch."""
    naive = recording_of(uneven(40, 0.9, seed=3), prefetch=1)
    return profile_of(recording_of(uneven(steps, 0.006)), trials=(trial_of("naive", naive),))
