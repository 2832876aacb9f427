"""A `Recording` of measured steps, and what follows from it without a model: closure, throughput, load by stage."""

from __future__ import annotations

import itertools
from collections import UserDict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..estimate.queue_model import QueueModel, Seconds
from .batch_timing import BatchTiming
from .step_times import StepTimes

_CLOCK_ROUNDING_SECONDS = 1e-6
_IDLE_STEP_SHARE = 0.01  # of a step; a device that waited for less may have been busy until then, by rounding
_MIN_IDLE_STEPS = 5
_SHORTEST_STEPS_QUANTILE = 0.05
_MAX_LOOKS = 64  # at values of a batch, for a tensor that shows how many images it has
_MAX_FIELDS = 16  # a longer list or tuple holds samples, not the fields of a batch


@dataclass(frozen=True, kw_only=True)
class Recording(StepTimes):
    """Measured steps of one loader with the figures that follow from them. See `StepTimes` for the fields."""

    @cached_property
    def launch_seconds(self) -> Seconds:
        """Seconds of the host to launch each step on a device that it runs ahead of, float64 (steps,).

        Its time from the batch to the next request, where the device was idle before the step: in other steps the host
        may wait for the device, so they get the median of these. Where there are few, the others get the CPU time of a
        step, in which all threads of the process count, but no more than the shortest steps of the host allow.
        """
        if not self.lead_steps:
            return np.zeros(len(self))  # the host does the step itself
        host_step_seconds = np.append(self.host_requested_at[1:], np.nan) - self.host_received_at
        was_idle = self.wait_seconds > _IDLE_STEP_SHARE * np.median(self.step_seconds)
        is_followed = ~np.append(self._is_segment_break, True)
        is_known, followed_seconds = was_idle & is_followed, host_step_seconds[is_followed]
        if np.count_nonzero(is_known) >= _MIN_IDLE_STEPS:
            usual_seconds = float(np.median(host_step_seconds[is_known]))
        else:
            load_cpu_seconds = 0.0 if self.num_workers else sum(timing.cpu_seconds for timing in self.batch_timings)
            cpu_seconds = (self.loop_cpu_seconds - load_cpu_seconds) / len(self)
            usual_seconds = max(cpu_seconds - float(np.median(self.host_transport_seconds)), 0.0)
            if len(followed_seconds):
                usual_seconds = min(usual_seconds, float(np.quantile(followed_seconds, _SHORTEST_STEPS_QUANTILE)))
        return np.where(is_known, host_step_seconds, usual_seconds)

    @property
    def unexplained_share(self) -> float:
        """Closure: share of the steady state's time on a second clock that its parts do not explain, 0 to 1.

        The parts: steps, batches not ready, sampler, no core free, and of the rest of all waits at most what transport
        takes on average. The time: from the beginning of one step to the next on CLOCK_MONOTONIC_RAW, which nothing
        else reads.
        """
        is_steady, mean_transport_seconds = self.is_steady, 0.0
        if self.batch_timings and is_steady.any():
            transport_seconds = self.host_transport_seconds - (
                self.excess_transport_seconds if self.num_workers else self.sampler_seconds
            )
            mean_transport_seconds = max(float(np.mean(transport_seconds[is_steady])), 0.0)
        is_consecutive = is_steady[1:] & is_steady[:-1] & ~self._is_segment_break
        total_seconds = float(np.diff(self.step_begin_raw_at)[is_consecutive].sum())
        parts_seconds = self.not_ready_seconds + self.sampler_wait_seconds + self.late_seconds
        rest_seconds = float(np.maximum(self.wait_seconds - parts_seconds, 0.0)[1:][is_consecutive].sum())
        explained_seconds = float((self.step_seconds[:-1] + parts_seconds[1:])[is_consecutive].sum())
        # Of all of them together: the transfer of a small batch takes half as long as the next one, or twice.
        explained_seconds += min(rest_seconds, mean_transport_seconds * int(is_consecutive.sum()))
        return abs(total_seconds - explained_seconds) / total_seconds if total_seconds else 1.0

    @property
    def lead_steps(self) -> int:
        """How many steps the host was ahead of the device when it requested a batch: the median."""
        lead_steps = np.arange(len(self)) - np.searchsorted(
            self.step_end_at - _CLOCK_ROUNDING_SECONDS, self.host_requested_at, side="right"
        )
        return int(np.median(lead_steps)) if len(self) else 0

    @property
    def queue_depth(self) -> NDArray[np.int64]:
        """Ready batches in the queue at each request, int64 (steps,); -1 where it is not known.

        It is unknown at the end of a segment: batches that were ready there but returned later have no timing in it.
        """
        num_ready, max_in_flight = np.full(len(self), -1, np.int64), self.num_workers * self.prefetch_factor
        for segment in self.segments if self.batch_timings else ():
            load_end_at, requested_at = self.load_end_at[segment], self.requested_at[segment]
            num_known = max(len(load_end_at) - max(max_in_flight - 1, 0), 0)
            is_ready = (load_end_at[later:][:num_known] <= requested_at[:num_known] for later in range(max_in_flight))
            num_ready[segment][:num_known] = sum(is_ready, np.zeros(num_known, np.int64))
        return num_ready

    @property
    def queue_room(self) -> int:
        """Batches by which the queue could grow at the end of the recording, as far as its depth is known."""
        max_in_flight = self.num_workers * self.prefetch_factor
        known = self.queue_depth[self.queue_depth >= 0][-max(max_in_flight, 1) :]
        return max_in_flight - int(np.median(known)) if len(known) else max_in_flight

    @property
    def steady_seconds(self) -> float:
        """Duration of the steady state."""
        return float(self.period_seconds[self.is_steady].sum())

    @property
    def images_per_second(self) -> float:
        """Throughput of the steady state."""
        return float(self.num_images[self.is_steady].sum()) / self.steady_seconds if self.steady_seconds else 0.0

    @property
    def images_per_batch(self) -> float:
        """Mean batch size of the steady state."""
        return float(self.num_images[self.is_steady].mean()) if self.is_steady.any() else 0.0

    @property
    def storage_bytes_per_image(self) -> float | None:
        """Bytes an image read from storage; None where the system does not report them."""
        return None if self.storage_bytes is None else self.storage_bytes / max(int(self.num_images.sum()), 1)

    @property
    def steady_batch_timings(self) -> list[BatchTiming]:
        """Timings of the steady state."""
        return [timing for timing, is_steady in zip(self.batch_timings, self.is_steady, strict=False) if is_steady]

    @property
    def stage_seconds(self) -> dict[str, float]:
        """Mean seconds a batch by stage, in the order of the stages, of the steady state; empty without timings.

        "other" is the rest of the load time, which no stage covers.
        """
        timings = [timing for timing in self.steady_batch_timings if timing.stage_seconds]
        if not timings:
            return {}
        names = list(dict.fromkeys(name for timing in timings for name in timing.stage_seconds))
        seconds_by_stage = {
            name: float(np.mean([timing.stage_seconds.get(name, 0.0) for timing in timings])) for name in names
        }
        load_seconds = float(np.mean([timing.end_at - timing.start_at for timing in timings]))
        return {**seconds_by_stage, "other": max(load_seconds - sum(seconds_by_stage.values()), 0.0)}

    @property
    def overhead_share(self) -> float:
        """Cost of the timings as a share of the time, 0 to 1; workers share the cost as they share the work."""
        mean_period_seconds = self.steady_seconds / max(int(self.is_steady.sum()), 1)
        return (
            self.timing_cost_seconds / (max(self.num_workers, 1) * mean_period_seconds)
            if self.batch_timings and mean_period_seconds
            else 0.0
        )

    @cached_property
    def queue_model(self) -> QueueModel:
        """The loader's settings and overheads for the queue model."""
        return QueueModel(
            num_workers=self.num_workers,
            prefetch_factor=self.prefetch_factor,
            transport_seconds=self.transport_floor_seconds,
            turnaround_seconds=self.turnaround_seconds,
            request_seconds=self.request_seconds,
            lead_steps=self.lead_steps,
            launch_seconds=float(np.median(self.launch_seconds)) if len(self) else 0.0,
        )

    @property
    def turnaround_seconds(self) -> float:
        """Seconds of a worker between two batches when the next one is already requested: the median."""
        begun_at, free_at, requested_at = self._load_starts
        return _median_from_0((begun_at - free_at)[requested_at < free_at])

    @property
    def request_seconds(self) -> float:
        """Seconds until an idle worker begins the batch that is requested from it: the median.

        torch sends the request from a thread, which may have to wait for what the step does in Python.
        """
        begun_at, free_at, requested_at = self._load_starts
        return _median_from_0((begun_at - requested_at)[requested_at >= free_at])

    @cached_property
    def _load_starts(self) -> Seconds:
        """Of batches: when it was begun, when its worker had ended the one before, when it was requested; (3, batches).

        A batch is requested by the return of the one that leaves room for it in the queue.
        """
        starts, ahead = [np.zeros((3, 0))], self.num_workers * self.prefetch_factor
        for segment in self.segments if self.num_workers and self.batch_timings else ():
            begun_at = self.load_start_at[segment][ahead:]
            free_at = self.load_end_at[segment][ahead - self.num_workers :]
            requested_at = self.host_received_at[segment]
            starts.append(np.stack((begun_at, free_at[: len(begun_at)], requested_at[: len(begun_at)])))
        return np.concatenate(starts, axis=1)

    def modelled_not_ready_seconds(self) -> Seconds:
        """`Estimator.MODEL`: `not_ready_seconds` as the queue alone predicts it, (steps,)."""
        not_ready_seconds, transport_seconds = np.zeros(len(self)), self.host_transport_seconds
        for segment in self.segments:
            # Batches loaded before the segment began were ready at once.
            load_seconds = np.where(
                self.load_end_at[segment] > self.requested_at[segment.start], self.load_seconds[segment], 0.0
            )
            not_ready_seconds[segment] = self.queue_model.replay(
                load_seconds, self.step_seconds[segment], transport_seconds[segment], self.launch_seconds[segment]
            ).not_ready_seconds
        return not_ready_seconds


def _median_from_0(seconds: Seconds) -> float:
    """The median, at least 0, and 0 of none."""
    return max(float(np.median(seconds)), 0.0) if len(seconds) else 0.0


def count_images(batch: Any) -> int:
    """Images in a batch: the length of its first tensor, of clips (N, T, 3, H, W) N x T.

    Of a sequence of images, (3, H, W) each and of any size, how many they are. A batch without tensors counts as one,
    and so does one that has none among the few values that are looked at: steps are measured meanwhile.
    """
    return _search_images(batch, _MAX_LOOKS)[0] or 1


def _search_images(batch: Any, max_looks: int) -> tuple[int, int]:
    """Images as far as tensors show them, 0 where there are none, and how many values were looked at.

    Each value of a container may take an equal part of the looks that those before it have left. Of a long sequence,
    such as token ids, boxes or the points of a polygon, only the first value is looked at: the others are like it.
    """
    if isinstance(batch, torch.Tensor):
        is_clips = batch.ndim == 5 and batch.shape[2] == 3
        return (len(batch) * (batch.shape[1] if is_clips else 1) if batch.ndim else 0), 1
    if isinstance(batch, (list, tuple)):
        if batch and all(isinstance(value, torch.Tensor) and value.ndim == 3 and len(value) == 3 for value in batch):
            return len(batch), 1
        values = list(batch[:1] if len(batch) > _MAX_FIELDS else batch)
    elif isinstance(batch, (dict, UserDict)):
        values = list(itertools.islice(batch.values(), max_looks))
    else:
        return 0, 1
    num_images, num_looks = 0, 1
    for num_left, value in zip(range(len(values), 0, -1), values, strict=True):
        if num_images or num_looks >= max_looks:
            break
        num_images, num_more_looks = _search_images(value, max((max_looks - num_looks) // num_left, 1))
        num_looks += num_more_looks
    return num_images, num_looks
