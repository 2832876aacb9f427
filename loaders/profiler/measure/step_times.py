"""Times of measured steps and of their batches, and the waits split by cause."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..estimate.queue_model import Seconds
from .batch_timing import BatchTiming

_SERIES = (
    "requested_at", "received_at", "step_end_at", "host_requested_at", "host_received_at", "step_begin_raw_at",
    "segment_step", "num_images",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Measured steps, in one or more segments. Times are on CLOCK_MONOTONIC, in seconds, float64 (steps,).

    A segment begins with an iteration, and after a pause, which skips one `segment_step`.

    requested_at, received_at, step_end_at: when the device (or the host that runs the steps) reached the moment before
    `next()`, the moment after it, and the end of the step. host_requested_at, host_received_at: when the host reached
    the first two; equal to them where the host runs the steps. step_begin_raw_at: when the host began each step, on
    CLOCK_MONOTONIC_RAW. segment_step: int64, index of the step in its segment. batch_timings: one a step; empty for a
    loader that is not torch's. num_workers, prefetch_factor, in_order, persistent_workers: of the loader;
    prefetch_factor is 0 without workers. num_images: of each batch, int64 (steps,). num_transient_steps: steps before
    the steady state. loop_cpu_seconds: CPU time of the looping process, its steps included. storage_bytes: read from
    storage, not the page cache, by all processes; None where the system does not report them. timing_cost_seconds:
    estimated cost of the timings for each batch.
    """

    requested_at: Seconds
    received_at: Seconds
    step_end_at: Seconds
    host_requested_at: Seconds
    host_received_at: Seconds
    step_begin_raw_at: Seconds
    segment_step: NDArray[np.int64]
    batch_timings: Sequence[BatchTiming] = field(repr=False)
    num_workers: int
    prefetch_factor: int
    num_images: NDArray[np.int64]
    num_transient_steps: int = 0
    in_order: bool = True
    persistent_workers: bool = False
    loop_cpu_seconds: float = 0.0
    storage_bytes: int | None = None
    timing_cost_seconds: float = 0.0

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Several recordings of one loader as one."""
        series: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _SERIES}
        storage_bytes = [part.storage_bytes for part in parts]
        return cls(
            **series,
            batch_timings=[timing for part in parts for timing in part.batch_timings],
            num_transient_steps=parts[0].num_transient_steps,
            num_workers=parts[0].num_workers,
            prefetch_factor=parts[0].prefetch_factor,
            in_order=parts[0].in_order,
            persistent_workers=parts[0].persistent_workers,
            loop_cpu_seconds=sum(part.loop_cpu_seconds for part in parts),
            storage_bytes=None if None in storage_bytes else sum(filter(None, storage_bytes)),
            timing_cost_seconds=parts[-1].timing_cost_seconds,
        )

    def __len__(self) -> int:
        return len(self.requested_at)

    @property
    def is_steady(self) -> NDArray[np.bool_]:
        """Steps of the steady state, bool (steps,): after the transient, without those in which a queue fills."""
        return (self.segment_step >= max(self.num_workers * self.prefetch_factor, 1)) & (
            np.arange(len(self)) >= self.num_transient_steps
        )

    def select(self, step_indices: NDArray[np.intp]) -> Self:
        """The recording of the steps with these indices."""
        series = {name: getattr(self, name)[step_indices] for name in _SERIES}
        loop_cpu_seconds = self.loop_cpu_seconds * len(step_indices) / max(len(self), 1)
        return replace(
            self,
            **series,
            batch_timings=[self.batch_timings[index] for index in step_indices] if self.batch_timings else (),
            loop_cpu_seconds=loop_cpu_seconds,
            num_transient_steps=0,
        )

    @property
    def _is_segment_break(self) -> NDArray[np.bool_]:
        """Whether a step does not follow the one before it, bool (steps - 1,)."""
        is_break: NDArray[np.bool_] = self.segment_step[1:] != self.segment_step[:-1] + 1
        return is_break

    @property
    def segments(self) -> list[slice]:
        """The slice of each segment."""
        starts = (np.flatnonzero(self._is_segment_break) + 1).tolist()
        return [slice(start, end) for start, end in itertools.pairwise([0, *starts, len(self)])]

    @property
    def period_seconds(self) -> Seconds:
        """From one request to the next; for the last step of a segment, to the end of the step."""
        next_requested_at = np.append(self.requested_at[1:], np.nan)
        is_last = np.append(self._is_segment_break, True)
        return np.where(is_last, self.step_end_at, next_requested_at) - self.requested_at

    @property
    def wait_seconds(self) -> Seconds:
        """`Estimator.LIVE`: idle time of the device before each step; on the host, all of `next()`."""
        return self.received_at - self.requested_at

    @property
    def step_seconds(self) -> Seconds:
        """Duration of each step, from its batch to the next request."""
        return self.step_end_at - self.received_at

    @property
    def load_seconds(self) -> Seconds:
        """Time to load each batch, in whichever process; without timings, the wait for it."""
        return self.load_end_at - self.load_start_at if self.batch_timings else self.wait_seconds

    @cached_property
    def load_start_at(self) -> Seconds:
        """When loading of each batch began."""
        return np.array([timing.start_at for timing in self.batch_timings])

    @cached_property
    def load_end_at(self) -> Seconds:
        """When each batch was ready."""
        return np.array([timing.end_at for timing in self.batch_timings])

    @cached_property
    def host_transport_seconds(self) -> Seconds:
        """Host time to receive each ready, requested batch (queue, unpickling, sampler); device work may hide it."""
        fetch_seconds = self.host_received_at - self.host_requested_at
        if not self.batch_timings:
            return np.zeros(len(self))
        load_part = (
            np.clip(self.load_end_at - self.host_requested_at, 0.0, fetch_seconds)
            if self.num_workers
            else np.minimum(self.load_seconds, fetch_seconds)
        )
        return fetch_seconds - load_part

    @property
    def transport_floor_seconds(self) -> float:
        """Time to receive a ready batch without any contention: the tenth percentile."""
        transport_seconds = (self.host_transport_seconds - self.sampler_seconds)[self.is_steady]
        return max(float(np.quantile(transport_seconds, 0.1)), 0.0) if len(transport_seconds) else 0.0

    @property
    def not_ready_seconds(self) -> Seconds:
        """Part of each wait in which the batch was still being loaded; all of it without timings."""
        if not self.batch_timings:
            return self.wait_seconds
        return np.maximum(
            np.clip(self.load_end_at - self.requested_at, 0.0, self.wait_seconds) - self._sampler_wait_without_workers,
            0.0,
        )

    @cached_property
    def sampler_seconds(self) -> Seconds:
        """Sampler time within each `next()`. Workers load meanwhile, but the loop does not run."""
        sampler_seconds = (
            [timing.sampler_seconds for timing in self.batch_timings] if self.batch_timings else np.zeros(len(self))
        )
        return np.minimum(np.asarray(sampler_seconds, np.float64), self.host_received_at - self.host_requested_at)

    @property
    def _sampler_wait_without_workers(self) -> Seconds:
        """Without workers the sampler runs before loading, within the same wait."""
        return np.zeros(len(self)) if self.num_workers else np.minimum(self.sampler_seconds, self.wait_seconds)

    @property
    def excess_transport_seconds(self) -> Seconds:
        """Transport of a ready batch on the host beyond the transport floor, where it is over three times the floor.

        It means that the loop, its workers and the queue want more cores than there are, or that the sampler is slow.
        Below that it is clock noise and counts as transport. 0 without workers, where nothing is transferred.
        """
        excess_seconds = self.host_transport_seconds - self.transport_floor_seconds
        is_excessive = (
            excess_seconds > 2 * self.transport_floor_seconds
            if self.batch_timings and self.num_workers
            else np.zeros(len(self), np.bool_)
        )
        return np.where(is_excessive, excess_seconds, 0.0)

    @property
    def excess_sampler_seconds(self) -> Seconds:
        """Part of `excess_transport_seconds` that the sampler took."""
        return np.where(
            self.sampler_seconds > 2 * self.transport_floor_seconds,
            np.minimum(self.excess_transport_seconds, self.sampler_seconds),
            0.0,
        )

    @property
    def sampler_wait_seconds(self) -> Seconds:
        """Part of each wait that the sampler took; with workers only where it exceeds clock noise."""
        if not self.num_workers:
            return self._sampler_wait_without_workers
        return np.minimum(self.excess_sampler_seconds, self.wait_seconds - self.not_ready_seconds)

    @property
    def late_seconds(self) -> Seconds:
        """Part of each wait in which a ready batch was late for want of a free core."""
        return np.minimum(
            self.excess_transport_seconds - self.excess_sampler_seconds,
            self.wait_seconds - self.not_ready_seconds - self.sampler_wait_seconds,
        )

    @property
    def waits_by_cause(self) -> dict[str, Seconds]:
        """The parts of each wait by cause: transport; the sampler; no core free; batch not ready."""
        return {
            "transport": self.transport_seconds,
            "sampling": self.sampler_wait_seconds,
            "contention": self.late_seconds,
            "preparation": self.not_ready_seconds,
        }

    @property
    def wait_boundaries(self) -> NDArray[np.float64]:
        """Boundaries of the parts of each wait, (4, steps): requested; batch ready; core free; sampler done.

        From there to `received_at` it is transport. Only the lengths of the parts are measured, not always their order.
        """
        parts = np.cumsum(
            [np.zeros(len(self)), self.not_ready_seconds, self.late_seconds, self.sampler_wait_seconds], axis=0
        )
        boundaries: NDArray[np.float64] = np.minimum(self.requested_at + parts, self.received_at)
        return boundaries

    @property
    def transport_seconds(self) -> Seconds:
        """Part of each wait spent on the transfer of a ready batch, where device work did not hide it."""
        return self.wait_seconds - self.not_ready_seconds - self.late_seconds - self.sampler_wait_seconds
