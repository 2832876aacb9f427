"""Predicts the waiting of the same loader with another step, other workers or more cores: queue model plus CPU
contention.

The queue model says when a batch is ready. A ready batch may still be late, where the loop, its workers and the threads
between them want more cores than there are. That lateness was measured; it is scaled by the probability that workers
occupy all cores when a batch is requested.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..estimate.queue_model import QueueModel, Seconds
from ..measure.recording import Recording

_BISECTION_STEPS = 14
_MAX_FIXED_POINT_ROUNDS = 4
_MAX_FITTED_STEPS = 1000
_SCHEDULING_DELAY_SECONDS = 0.002
"""What a loop waits for its turn when others compute on all cores: half of Linux's time slice of 3 to 4 ms, and about
what was measured where one worker was added to a loop on two cores."""
_MAX_STEP_FACTOR = 1e6  # times the time between two batches: nothing helps


@dataclass(frozen=True, kw_only=True)
class WhatIfModel:
    """A model fitted to the steady state of a recording with batch timings.

    load_seconds: load time of each batch on a core of its own, (steps,). busy_share: CPU share of it. num_cores: of the
    machine; free_cores: left to workers by the loop. cpu_oversubscription: load time over what workers should need on
    those cores; above 1 where other processes use them too.
    """

    recording: Recording
    load_seconds: Seconds
    busy_share: float
    num_cores: int
    free_cores: float
    cpu_oversubscription: float

    @classmethod
    def fit(cls, recording: Recording, num_cores: int) -> WhatIfModel:
        """Fits the model to the last 1,000 steady steps; more would take longer and add little."""
        step_indices = np.flatnonzero(recording.is_steady)[-_MAX_FITTED_STEPS:]
        recording = recording.select(step_indices) if len(step_indices) else recording
        timings = recording.steady_batch_timings
        cpu_seconds = np.array([timing.cpu_seconds for timing in timings])
        core_wait_seconds = np.array([timing.core_wait_seconds for timing in timings])
        measured_seconds = recording.load_seconds[recording.is_steady]
        load_seconds = np.maximum(measured_seconds - core_wait_seconds, 1e-9)
        wall_seconds = float(recording.period_seconds.sum())
        loop_cpu_seconds = recording.loop_cpu_seconds - (
            0.0 if recording.num_workers else sum(timing.cpu_seconds for timing in recording.batch_timings)
        )
        busy_share = min(float(cpu_seconds.sum() / load_seconds.sum()), 1.0)
        free_cores = max(num_cores - max(loop_cpu_seconds, 0.0) / wall_seconds, 0.1)
        expected_seconds = float(load_seconds.sum()) * max(max(recording.num_workers, 1) * busy_share / free_cores, 1.0)
        return cls(
            recording=recording,
            load_seconds=load_seconds,
            busy_share=busy_share,
            num_cores=num_cores,
            free_cores=free_cores,
            cpu_oversubscription=float(measured_seconds.sum()) / expected_seconds,
        )

    def wait_share(
        self,
        *,
        step_seconds: float | None = None,
        queue: QueueModel | None = None,
        load_seconds: Seconds | None = None,
        extra_cores: int = 0,
        with_sampler: bool = True,
    ) -> float:
        """Predicted share of the time that the device waits, 0 to 1.

        Args:
            step_seconds: another mean step time.
            queue: other loader settings.
            load_seconds: other load times, (steps,).
            extra_cores: cores added to the machine.
            with_sampler: False: the sampler takes no time.

        """
        queue = queue or self.recording.queue_model
        load_seconds = self.load_seconds if load_seconds is None else load_seconds
        core_demand = max(queue.num_workers, 1) * self.busy_share / (self.free_cores + extra_cores)
        load_series = load_seconds * self.cpu_oversubscription * max(core_demand, 1.0)
        transport_seconds, late_seconds, sampler_seconds, step_series, launch_series = self._measured_parts
        sampler_seconds = sampler_seconds * with_sampler
        step_series = step_series if step_seconds is None else step_series * (step_seconds / step_series.mean())
        count = len(load_seconds)
        for _ in range(_MAX_FIXED_POINT_ROUNDS):  # how late depends on the pace, and the pace on how late
            series = (load_series, step_series, transport_seconds + late_seconds + sampler_seconds, launch_series)
            # Twice over, and without the first time: the queue fills in it.
            timeline = queue.replay(*(np.tile(seconds, 2) for seconds in series))
            share = timeline.wait_share(skip_batches=count)
            busy_workers = float(load_series.sum()) / (timeline.total_seconds - float(timeline.device_free_at[count]))
            new_late_seconds = self._late_seconds(
                timeline.not_ready_seconds[count:] > 0, queue.num_workers, busy_workers, self.num_cores + extra_cores
            )
            if np.array_equal(new_late_seconds, late_seconds):
                break
            late_seconds = new_late_seconds
        return share

    @cached_property
    def _measured_parts(self) -> tuple[Seconds, Seconds, Seconds, Seconds, Seconds]:
        """Of each steady step: transport, lateness for want of a core, sampler, the step, its launch, in seconds."""
        recording, is_steady = self.recording, self.recording.is_steady
        late_seconds = recording.excess_transport_seconds[is_steady]
        sampler_seconds = recording.sampler_seconds[is_steady]
        if recording.num_workers:
            sampler_seconds = recording.excess_sampler_seconds[is_steady]
            late_seconds = late_seconds - sampler_seconds
        return (
            recording.host_transport_seconds[is_steady] - late_seconds - sampler_seconds,
            late_seconds,
            sampler_seconds,
            recording.step_seconds[is_steady],
            recording.launch_seconds[is_steady],
        )

    @cached_property
    def _lateness(self) -> tuple[float, float, float]:
        """Mean lateness of batches that the loop waited for, and of others; probability that all cores were busy."""
        recording, is_steady = self.recording, self.recording.is_steady
        late_seconds = (recording.excess_transport_seconds - recording.excess_sampler_seconds)[is_steady]
        loop_waited = recording.not_ready_seconds[is_steady] > 0
        mean_if_waited, mean_otherwise = (
            float(late_seconds[selected].mean()) if selected.any() else float(late_seconds.mean())
            for selected in (loop_waited, ~loop_waited)
        )
        busy_workers = float(recording.load_seconds[is_steady].sum()) / recording.steady_seconds
        return (
            mean_if_waited,
            mean_otherwise,
            _all_cores_busy_probability(recording.num_workers, busy_workers * self.busy_share, self.num_cores),
        )

    def fastest_step_seconds(self, max_wait_share: float) -> float | None:
        """The shortest mean step that waits for at most `max_wait_share`; None where no step does."""
        batch_interval_seconds = (
            float(self.load_seconds.mean()) * self.cpu_oversubscription / max(self.recording.num_workers, 1)
        )
        slow = batch_interval_seconds
        while self.wait_share(step_seconds=slow) > max_wait_share:
            slow *= 2
            if slow > _MAX_STEP_FACTOR * batch_interval_seconds:
                return None
        fast = slow / 2
        while self.wait_share(step_seconds=fast) <= max_wait_share:
            slow, fast = fast, fast / 2
            if fast < batch_interval_seconds / _MAX_STEP_FACTOR:
                return slow
        for _ in range(_BISECTION_STEPS):
            middle = math.sqrt(fast * slow)
            fast, slow = (middle, slow) if self.wait_share(step_seconds=middle) > max_wait_share else (fast, middle)
        return slow

    def _late_seconds(
        self, loop_waited: NDArray[np.bool_], num_workers: int, busy_workers: float, num_cores: int
    ) -> Seconds:
        """Seconds that each ready batch is late. busy_workers: mean number of workers at work.

        loop_waited: batches that the loop requested before they were ready; these have the whole way to go.
        """
        mean_if_waited, mean_otherwise, measured_probability = self._lateness
        measured = np.where(loop_waited, mean_if_waited, mean_otherwise)
        probability = _all_cores_busy_probability(num_workers, busy_workers * self.busy_share, num_cores)
        if probability <= measured_probability:
            return measured * (probability / measured_probability if measured_probability else 1.0)
        return measured + (probability - measured_probability) * _SCHEDULING_DELAY_SECONDS


def _all_cores_busy_probability(num_workers: int, busy_workers: float, num_cores: int) -> float:
    """Probability that at least `num_cores` workers are at work, of which `busy_workers` are on average."""
    share = min(busy_workers / num_workers, 1.0) if num_workers else 0.0
    if not 0.0 < share < 1.0:
        return float(num_workers * share >= num_cores)
    # In logarithms: of a thousand workers, the binomial coefficients exceed a float.
    log_factorials = [math.lgamma(number + 1) for number in range(num_workers + 1)]
    return sum(
        math.exp(
            log_factorials[num_workers] - log_factorials[num_busy] - log_factorials[num_workers - num_busy]
            + num_busy * math.log(share) + (num_workers - num_busy) * math.log1p(-share)
        )
        for num_busy in range(num_cores, num_workers + 1)
    )  # fmt: skip
