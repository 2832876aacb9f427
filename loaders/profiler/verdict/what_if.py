"""What the same loader would do under another step, with other workers, or on other cores: the queue, and the crowd.

The queue (`queue.py`) says when a batch is made. But a batch that is made may still come late, where the loop, its
workers and the threads between them want more cores than there are. How much of that there is was measured; how it
changes follows from how likely it is that workers keep all cores busy at the moment that a batch is asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..estimate.queue_model import Queue, Seconds
from ..measure.recording import Recording

_HALVINGS = 14
_ROUNDS = 4
_LOOKED_AT = 1000
_TURN_SECONDS = 0.002
"""What a loop waits for its turn when others compute on all cores: half of Linux's time slice of 3 to 4 ms, and about
what was measured where one worker was added to a loop on two cores."""
_LONGEST = 1e6  # times the time between two batches: nothing helps


@dataclass(frozen=True, kw_only=True)
class Situation:
    """The steady state of a recording with stamps, and the machine it was made on.

    load: of each batch, once its maker has a core of its own, seconds (steps,). busy: part of that in which a maker
    computes. cores: in all; free: that makers can have, since the loop takes the rest. crowding: how many times longer
    batches took than makers on so many cores should need; above 1 where others are at work too.
    """

    recording: Recording
    load: Seconds
    busy: float
    cores: int
    free: float
    crowding: float

    @classmethod
    def of(cls, recording: Recording, cores: int) -> Situation:
        """As it was measured, over the last thousand steps at most: more would take long and say little more."""
        kept = np.flatnonzero(recording.steady)[-_LOOKED_AT:]
        recording = recording.part(kept) if len(kept) else recording
        made = recording.made
        cpu, queued = (np.array([getattr(stamp, name) for stamp in made]) for name in ("cpu", "queued"))
        measured = recording.load[recording.steady]
        load = np.maximum(measured - queued, 1e-9)
        wall = float(recording.period.sum())
        loop = recording.computed - (0.0 if recording.workers else sum(stamp.cpu for stamp in recording.stamps))
        busy = min(float(cpu.sum() / load.sum()), 1.0)
        free = max(cores - max(loop, 0.0) / wall, 0.1)
        expected = float(load.sum()) * max(max(recording.workers, 1) * busy / free, 1.0)
        return cls(
            recording=recording, load=load, busy=busy, cores=cores, free=free,
            crowding=float(measured.sum()) / expected,
        )  # fmt: skip

    def wait_share(
        self, *, step: float | None = None, queue: Queue | None = None, load: Seconds | None = None,
        more_cores: int = 0, sampling: bool = True,
    ) -> float:  # fmt: skip
        """The share of the time that the device would wait, 0 to 1, with another step, queue, loads or more cores.

        sampling: without it the sampler takes no time.
        """
        queue, load = queue or self._queue, self.load if load is None else load
        wanted = max(queue.workers, 1) * self.busy / (self.free + more_cores)
        loads = load * self.crowding * max(wanted, 1.0)
        handing, late, sampled, steps = self._parts
        sampled = sampled * sampling
        steps = steps if step is None else steps * (step / steps.mean())
        count = len(load)
        for _ in range(_ROUNDS):  # how late depends on the pace, and the pace on how late
            # Twice over, and without the first time: the queue fills in it.
            timeline = queue.replay(*(np.tile(each, 2) for each in (loads, steps, handing + late + sampled)))
            share = timeline.wait_share(after=count)
            working = float(loads.sum()) / (timeline.total_seconds - float(timeline.free[count]))
            later = self._late(timeline.unmade[count:] > 0, queue.workers, working, self.cores + more_cores)
            if np.array_equal(later, late):
                break
            late = later
        return share

    @cached_property
    def _queue(self) -> Queue:
        return self.recording.queue

    @cached_property
    def _parts(self) -> tuple[Seconds, Seconds, Seconds, Seconds]:
        """Of each steady step: handing over, how late for want of a core, the sampler, and the step itself."""
        recording, steady = self.recording, self.recording.steady
        sampled = (recording.late_by_sampler if recording.workers else recording.sampled)[steady]
        late = recording.late[steady] - (sampled if recording.workers else 0.0)
        return recording.handover[steady] - late - sampled, late, sampled, recording.step[steady]

    @cached_property
    def _lateness(self) -> tuple[float, float, float]:
        """How late batches came that the loop was there before, and others; how likely all cores were taken then."""
        recording, steady = self.recording, self.recording.steady
        seen, found = (recording.late - recording.late_by_sampler)[steady], recording.unmade[steady] > 0
        before, after = (float(seen[kind].mean()) if kind.any() else float(seen.mean()) for kind in (found, ~found))
        working = float(recording.load[steady].sum()) / recording.seconds
        return before, after, _all_taken(recording.workers, working * self.busy, self.cores)

    def fastest_step(self, wait_share: float) -> float | None:
        """The shortest mean step, in seconds, that waits for no more than that share; None where nothing is enough."""
        between = float(self.load.mean()) * self.crowding / max(self.recording.workers, 1)
        slow = between
        while self.wait_share(step=slow) > wait_share:
            slow *= 2
            if slow > _LONGEST * between:
                return None
        fast = slow / 2
        while self.wait_share(step=fast) <= wait_share:
            slow, fast = fast, fast / 2
            if fast < between / _LONGEST:
                return slow
        for _ in range(_HALVINGS):
            middle = math.sqrt(fast * slow)
            fast, slow = (middle, slow) if self.wait_share(step=middle) > wait_share else (fast, middle)
        return slow

    def _late(self, waited: NDArray[np.bool_], workers: int, working: float, cores: int) -> Seconds:
        """Seconds that each batch comes late once it is made. working: workers that are at work, on average.

        waited: for which batches the loop was there before they were made; these still have to come all the way.
        """
        before, after, now = self._lateness
        measured = np.where(waited, before, after)
        there = _all_taken(workers, working * self.busy, cores)
        if there <= now:
            return measured * (there / now if now else 1.0)
        return measured + (there - now) * _TURN_SECONDS


def _all_taken(workers: int, working: float, cores: int) -> float:
    """How likely it is that at least `cores` of the workers are at work, where `working` of them are on average."""
    share = min(working / workers, 1.0) if workers else 0.0
    return sum(
        math.comb(workers, many) * share**many * (1 - share) ** (workers - many) for many in range(cores, workers + 1)
    )
