"""Iterates over a loader as training does, and times every request, batch and step."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from ....pipeline.errors import UsageError
from ...loader.face_dataloader import FaceDataLoader
from ...torch_internals import end_requests
from ...transfer.nested import rebuild
from . import page_cache
from .batch_timing import BatchTiming, clock
from .instrument import instrument
from .recording import Recording, count_images
from .step_clock import HostStepClock, StepClock
from .step_marks import StepMarks, timing_cost_per_batch
from .variants import RepeatedBalance, ends_with_torch_loader, torch_loader_of, with_torch_loader

Step = Callable[[Any], Any]

USUAL_MAX_IN_FLIGHT = 64
"""Batches that a loader which does not say so may have waiting."""

_MAX_DRAIN_SECONDS = 5.0
_MIN_PERIOD_SECONDS = 1e-6
_MAX_FILLING_ROUNDS = 3  # in each of the first two the epoch of another rank may end


def raw_clock() -> float:
    """Seconds of CLOCK_MONOTONIC_RAW, an independent clock that the summed parts of a step are checked against."""
    return time.clock_gettime(_RAW_CLOCK_ID)


_RAW_CLOCK_ID = getattr(time, "CLOCK_MONOTONIC_RAW", time.CLOCK_MONOTONIC)


class MeasuredLoop:
    """Iterates over a loader in segments of measured steps; each segment continues the current iteration.

    opening_seconds: of the first `iter()`. first_batch_seconds: from there to the first batch. sees_batches: whether
    each `next()` takes one batch of a torch DataLoader, whose timing and queue belong to the step. is_pipeline:
    whether batches go through further stages, which may cut, join and shuffle them. num_in_epoch: batches of the
    current epoch so far.
    """

    def __init__(self, loader: Any) -> None:
        self._arrived: list[BatchTiming] = []  # timings of the batches that came in the current `next()`
        self._timing = BatchTiming(0.0)  # of the batch that the last `next()` waited for
        torch_loader = torch_loader_of(loader)
        instrumented = None if torch_loader is None else instrument(torch_loader, self._arrived.append)
        self._loader = loader if instrumented is None else with_torch_loader(loader, instrumented)
        self._face_sampler: Any = instrumented.sampler if isinstance(instrumented, FaceDataLoader) else None
        self.is_pipeline = instrumented is not None and self._loader is not instrumented
        iterate: Any = None if torch_loader is None or self.is_pipeline else type(torch_loader).__iter__
        self._may_run_ahead = iterate is FaceDataLoader.__iter__
        self._may_change_batches = iterate not in (DataLoader.__iter__, FaceDataLoader.__iter__)
        self.sees_batches = torch_loader is not None
        # Of the copy, which counts its default workers now: ranks may have started since the loader was made.
        self._num_workers = getattr(instrumented, "num_workers", 0)
        self._prefetch_factor = (getattr(instrumented, "prefetch_factor", 0) or 0) if self._num_workers else 0
        self._in_order = bool(getattr(torch_loader, "in_order", True))
        self._persistent_workers = bool(getattr(torch_loader, "persistent_workers", False))
        self._iterator: Iterator[Any] | None = None
        self._long_balance: RepeatedBalance | None = None  # of the loader, while epochs are as long as in training
        self._ends_in, self._was_told_to_end = 0, False  # requests; 0: where its epochs end
        # Of one that can resume the first epoch may be the rest of one.
        self._may_be_resumed = any(hasattr(each, "load_state_dict") for each in (loader, torch_loader))
        self.num_in_epoch, self._epoch_lengths = 0, list[int]()  # the latter: of epochs that ended by themselves
        self.opening_seconds = self.first_batch_seconds = 0.0

    @property
    def max_in_flight(self) -> int:
        """Most batches that are requested but not yet returned."""
        return self._num_workers * self._prefetch_factor

    @property
    def seen_epoch_batches(self) -> int | None:
        """Batches of an epoch: the median of those that were seen whole; None before one was."""
        return statistics.median_low(self._epoch_lengths) if self._epoch_lengths else None

    def drain(self) -> None:
        """Consumes all batches that may be queued, so that the next segment begins with an empty queue."""
        deadline = clock() + _MAX_DRAIN_SECONDS
        is_known = self.sees_batches and not self._may_change_batches
        for _ in range(self.max_in_flight if is_known else max(self.max_in_flight, USUAL_MAX_IN_FLIGHT)):
            self._next()
            if clock() > deadline:
                return

    def record_epoch_start(
        self, num_steps: int, step: Step, *, step_clock: StepClock | None = None, all_max: Callable[[int], int] = int
    ) -> Recording:
        """Measures the end of an epoch and the first `num_steps` steps of the next, as training comes to them.

        The loop arrives as in mid-epoch, by so many steps that are not measured. The first step that is measured is
        left out: its device was idle, and so waited for what is hidden by the step before in training. Of a
        `FaceDataLoader`, an epoch is as long as in training until `leave_epoch_starts`; its workers go on to the next
        epoch once the last batch is requested. Another one of torch's requests no more batches, and ends its epoch with
        those that it has requested. The iteration of any other loader, and of a pipeline that joins, cuts or counts
        batches, is broken off where an epoch would end.

        all_max: see `record`; all ranks run equally many steps, although their workers and epochs may differ.
        """
        if self._face_sampler is not None:
            num_left = self._approach_epoch_end(step, num_steps, all_max)
        else:
            self._fill_queue(step, all_max)
            num_left = 1 + all_max(self.max_in_flight)
            self._ends_in = 1 + num_left - self.max_in_flight
        recording = self.record(num_left + num_steps, step, step_clock=step_clock)
        starts = np.flatnonzero(recording.segment_step[1:] == 0) + 1
        if num_left in starts and num_left > self.max_in_flight + 1:
            # The start that is measured is that of all ranks; where others have more in flight, one may come before.
            starts = starts[starts >= num_left]
        # A short epoch may end before that, with fewer requested batches left: the next start is not a part of this.
        return recording.select(np.arange(1, starts[1] if len(starts) > 1 else len(recording)))

    def _fill_queue(self, step: Step, all_max: Callable[[int], int]) -> None:
        """Runs steps until as many as the queue holds have passed since an epoch began: a short one may just end."""
        num_in_epoch = 0
        for _ in range(_MAX_FILLING_ROUNDS):
            num_missing = all_max(max(self.max_in_flight - num_in_epoch, 0))
            for _ in range(num_missing):
                batch, is_first = self._next()
                step(batch)
                num_in_epoch = 1 if is_first else num_in_epoch + 1
            if not num_missing:
                return

    def _approach_epoch_end(self, step: Step, num_steps: int, all_max: Callable[[int], int]) -> int:
        """Runs at least `num_steps` steps to where the last batch of an epoch is not requested yet; returns how many
        steps are left of it, of which the first is not judged.
        """
        sampler = self._face_sampler
        if isinstance(sampler.balance, RepeatedBalance):
            self._long_balance, sampler.balance = sampler.balance, sampler.balance.balance
        num_batches = len(sampler)
        num_left = min(all_max(self.max_in_flight) + 2, -all_max(-num_batches))
        num_to_end = num_steps + num_left
        if num_to_end > num_batches:
            # Workers are several epochs ahead in training then: whole epochs come before.
            num_to_end = num_batches * math.ceil(num_to_end / num_batches)
        num_to_end = all_max(num_to_end)
        self._restart_at(-num_to_end % num_batches)
        for _ in range(num_to_end - num_left):
            step(self._next()[0])
        return num_left

    def leave_epoch_starts(self) -> None:
        """Goes on with the long epochs of the loader as it was given, after `record_epoch_start`."""
        if self._long_balance is not None:
            self._face_sampler.balance, self._long_balance = self._long_balance, None
            self._restart_at(0)

    def _restart_at(self, first_step: int) -> None:
        """The next batch is that one of the current epoch."""
        self._iterator = None
        self._face_sampler.position = self._face_sampler.epoch, first_step * self._face_sampler.global_batch

    def record(
        self, num_steps: int, step: Step, *, step_clock: StepClock | None = None, batches_out: list[Any] | None = None,
        extra_steps: Callable[[Recording], int] | None = None, all_max: Callable[[int], int] = int,
        max_seconds: float = float("inf"),
    ) -> Recording:  # fmt: skip
        """Runs and measures steps.

        Args:
            num_steps: steps to run, in one segment.
            step: called with each batch.
            step_clock: clock of the device that runs the step; None: the host's.
            batches_out: list that the batches are appended to, in containers of their own, which no step changes.
            extra_steps: called with the recording so far once `num_steps` are done; returns how many more steps to run.
                Its own time is not measured, and the queue is as deep as before it when measuring continues.
            all_max: the largest value of any rank, so that all run equally many unmeasured steps.
            max_seconds: ends early after so long.

        Raises:
            UsageError: the loader has no batches.

        """
        marks = StepMarks(step_clock or HostStepClock())
        deadline = clock() + max_seconds
        while True:
            while len(marks) < num_steps and not (len(marks) and clock() > deadline):
                self._run_step(marks, step, batches_out)
            paused_at, recording = clock(), self._recording(marks)
            num_extra = extra_steps(recording) if extra_steps and clock() <= deadline else 0
            if num_extra <= 0:
                return recording
            num_steps += num_extra
            marks.is_paused = True
            self._catch_up(marks, step, all_max(self._num_missed_batches(recording, clock() - paused_at)))

    def _num_missed_batches(self, recording: Recording, pause_seconds: float) -> int:
        """Batches that the loop would have consumed in a pause, as far as the queue had room for them."""
        room = recording.queue_room if self.sees_batches else USUAL_MAX_IN_FLIGHT
        return min(math.ceil(pause_seconds / max(float(recording.period_seconds.mean()), _MIN_PERIOD_SECONDS)), room)

    def _catch_up(self, marks: StepMarks, step: Step, num_missed: int) -> None:
        """Brings the queue back to where it was before a pause, in which it filled.

        Discards the batches that steps would have consumed meanwhile. The workers start all those anew at once, so as
        many steps run unmeasured until they are out of step again.
        """
        for _ in range(num_missed):
            if self._next()[1]:
                marks.advance(is_first=True)
        for _ in range(num_missed):
            marks.batch, is_first = self._next()
            marks.advance(is_first=is_first)
            step(marks.batch)

    def _run_step(self, marks: StepMarks, step: Step, batches_out: list[Any] | None) -> None:
        requested_mark, host_requested_at = marks.step_clock.mark(), clock()
        # The last batch is kept until now, as by a `for` loop: to free its memory is a part of the wait.
        marks.batch, is_first = self._next()
        host_received_at, received_mark = clock(), marks.step_clock.mark()
        marks.host_times += (host_requested_at, host_received_at, raw_clock())
        # Before the step, which may take what it needs out of the batch.
        marks.num_images.append(count_images(marks.batch))
        if batches_out is not None:
            batches_out.append(rebuild(marks.batch))
        step(marks.batch)
        marks.marks += (requested_mark, received_mark, marks.step_clock.mark())
        marks.advance(is_first=is_first)
        if marks.is_paused and marks.segment_step == marks.segment_steps[-1] + 1:
            marks.segment_step += 1
        marks.segment_steps.append(marks.segment_step)
        marks.is_paused = False
        if self.sees_batches:
            marks.batch_timings.append(self._timing)

    def _next(self) -> tuple[Any, bool]:
        """The next batch, and whether it is the first of an iteration."""
        started_at = clock()
        if self._ends_in:
            self._ends_in -= 1
            if not self._ends_in:
                self._end_epoch()
        is_first = self._iterator is None
        iterator = self._open_iterator() if self._iterator is None else self._iterator
        batch = self._next_or_self(iterator)
        if batch is self:
            if not self._was_told_to_end and not self._may_be_resumed:
                self._epoch_lengths.append(self.num_in_epoch)
            self._may_be_resumed = False
            # Freed first, as after a `for` loop: an epoch that was made to end here still has its dataset open.
            del iterator
            self._iterator = None
            batch, is_first = next(self._open_iterator(), self), True
            if batch is self and self.first_batch_seconds:
                raise UsageError(
                    "the loader has no batches when it is iterated again; give one that has them every time"
                )
            if batch is self:
                raise UsageError("the loader has no batches; give it more rows or a smaller batch_size")
        self.first_batch_seconds = self.first_batch_seconds or clock() - started_at - self.opening_seconds
        self.num_in_epoch = 1 if is_first else self.num_in_epoch + 1
        self._note_arrivals()
        return batch, is_first

    def _next_or_self(self, iterator: Iterator[Any]) -> Any:
        """The next batch; this loop where the epoch is over."""
        try:
            return next(iterator, self)
        except RuntimeError as error:  # of a generator that counts on as many batches as the loader's length
            if not (self._was_told_to_end and isinstance(error.__cause__, StopIteration)):
                raise
            return self

    def _note_arrivals(self) -> None:
        """Notes the timing of the batch that `next()` waited for.

        A `FaceDataLoader` for a device runs one ahead: it has waited for the last batch that came, returns an earlier
        one, and at the end of an epoch waits for none. Any other loader is taken for an iterable of whatever batches,
        once a batch was not exactly one of its DataLoader.
        """
        if len(self._arrived) != 1 and not self._may_run_ahead:
            self.sees_batches, self._num_workers, self._prefetch_factor = False, 0, 0
        ready_at = self._timing.end_at
        self._timing = self._arrived[-1] if self._arrived else BatchTiming(ready_at, ready_at, pid=self._timing.pid)
        self._arrived.clear()

    def _end_epoch(self) -> None:
        """Ends the epoch here, as far as batches are not requested yet."""
        # Of a pipeline that joins or cuts batches it is not known which step the last requested one would reach.
        # Of a loader that keeps its iterator, which has no `torch_loader_of`, all further epochs would end too.
        self._was_told_to_end = (
            self.sees_batches and ends_with_torch_loader(self._loader) and end_requests(torch_loader_of(self._loader))
        )
        if not self._was_told_to_end:
            self._iterator = None

    def _recording(self, marks: StepMarks) -> Recording:
        storage_bytes = page_cache.storage_bytes_read()
        return Recording(
            **marks.series(),
            segment_step=np.array(marks.segment_steps, np.int64),
            batch_timings=tuple(marks.batch_timings) if self.sees_batches else (),
            num_workers=self._num_workers,
            prefetch_factor=self._prefetch_factor,
            in_order=self._in_order,
            persistent_workers=self._persistent_workers,
            num_images=np.array(marks.num_images, np.int64),
            loop_cpu_seconds=time.process_time() - marks.cpu_seconds_at_start,
            timing_cost_seconds=timing_cost_per_batch(marks.batch_timings, sum(marks.num_images)),
            storage_bytes=None
            if marks.storage_bytes_at_start is None or storage_bytes is None
            # Those of workers that have ended since are known by their batches alone.
            else max(
                storage_bytes - marks.storage_bytes_at_start,
                sum(timing.storage_bytes for timing in marks.batch_timings),
            ),
        )

    def close(self) -> None:
        """Releases the iteration and its workers."""
        self._iterator = self._loader = self._face_sampler = None

    def _open_iterator(self) -> Iterator[Any]:
        started_at = clock()
        self._arrived.clear()  # what came at the end of the epoch before was for no step
        self._iterator, self._was_told_to_end = iter(self._loader), False
        self.opening_seconds = self.opening_seconds or clock() - started_at
        return self._iterator


def replay_batches(batches: list[Any], num_steps: int, step: Step, step_clock: StepClock | None = None) -> Recording:
    """Runs the step on preloaded batches in rotation: its duration without any loading.

    Each step gets containers of its own, since it may change them; the tensors in them are shared.
    """
    marks = StepMarks(step_clock or HostStepClock())
    for number in range(num_steps):
        requested_mark, host_requested_at = marks.step_clock.mark(), clock()
        batch = rebuild(batches[number % len(batches)])
        host_received_at, received_mark = clock(), marks.step_clock.mark()
        marks.host_times += (host_requested_at, host_received_at, raw_clock())
        step(batch)
        marks.marks += (requested_mark, received_mark, marks.step_clock.mark())
    return Recording(
        **marks.series(),
        segment_step=np.arange(num_steps),
        batch_timings=(),
        num_workers=0,
        prefetch_factor=0,
        num_images=np.full(num_steps, count_images(batches[0])),
        loop_cpu_seconds=time.process_time() - marks.cpu_seconds_at_start,
        storage_bytes=0,
    )
