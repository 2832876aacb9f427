"""Measures one loader under one step, until the verdict is certain, and replays the step on preloaded batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ....pipeline.errors import UsageError
from ....pipeline.machine import usable_cores
from ...transfer.nested import iter_tensors, rebuild
from ...workers.local_ranks import share_of_cores
from ..estimate.bounds import MIN_BLOCKS, num_values_for_median
from ..measure.measured_loop import USUAL_MAX_IN_FLIGHT, MeasuredLoop, Step, replay_batches
from ..measure.page_cache import reads_store
from ..measure.ranks import RankGroup
from ..measure.recording import Recording
from ..measure.step_clock import HostStepClock, StepClock, SynchronisedHostClock, step_clock_for
from ..measure.steps import EmulatedDevice, SleepingStep
from ..measure.unseen_queue import drain_unseen_queue
from ..measure.variants import has_fixed_order, torch_loader_of
from .epoch_length import num_epoch_batches, short_epoch_batches, short_epoch_error, short_seen_batches
from .epoch_starts import NOT_JUDGED, REST_NOT_SEEN, EpochStarts, epoch_boundaries, seen_start_waits
from .headroom import without_hidden_reads
from .job import judge_job, report_of_rank
from .judge import judge
from .result import Profile
from .steady_state import draining_queue_reason, unseen_queue_remarks
from .step_series import StepSeries
from .unseen_steps import replay_doubts
from .verdict import STARVED_ABOVE, Verdict

Progress = Callable[[str, int, int], None]

DEFAULT_STEPS = 4000
"""None starved in so many is under 0.8 % of them, and of the time, with a confidence of 95 %."""

NUM_REPLAY_STEPS = 125
_CHUNK_STEPS = 1000  # between two decisions on how many more steps to run
_MIN_STEPS_SHARE = 0.5  # of the requested steps: fewer may all lie in one run of waits, and look like a steady state
_MAX_STEPS_FACTOR = 4  # times the requested steps, until the transient has ended
_MIN_EPOCH_STARTS = 5
_MAX_SECONDS_AFTER_BOUNDARY = 20.0
_PROGRESS_INTERVAL_STEPS = 50


class LoaderMeasurement:
    """Measures one loader under one step: its steady state, its epoch starts, and the step on preloaded batches."""

    def __init__(
        self, loader: Any, step: Step, *, num_steps: int, confidence: float, device: Any, num_epoch_batches: int | None,
        progress: Progress, ranks: RankGroup,
    ) -> None:  # fmt: skip
        self.loader, self.step, self.num_steps, self.confidence = loader, step, num_steps, confidence
        self.device, self.num_epoch_batches, self.progress, self.ranks = device, num_epoch_batches, progress, ranks
        self.loop = MeasuredLoop(loader)
        self._counted_step = _CountedStep("the loader", step, progress, num_steps)
        self.num_cores = share_of_cores(usable_cores())
        self.is_emulated = isinstance(step, (SleepingStep, EmulatedDevice))

    def measure(self) -> Profile:
        """The profile without trials and advice."""
        loop, batches = self.loop, list[Any]()
        self._check_epoch_length(short_epoch_batches(self.loader, loop))
        loop.record(1, self.step, step_clock=self.step_clock(self.step), batches_out=batches)
        if not self.is_emulated:
            _check_device(batches, self.device)
        device_batches = _batches_on_device(batches, self.device)
        replays = [self._replay(batches, device_batches)]
        max_hidden_batches, saw_batches = self._drain(float(replays[0][0].step_seconds.mean())), loop.sees_batches
        # Where batches came faster than steps take them, none of those before the run was slow.
        num_before = 0 if max_hidden_batches is not None else loop.num_in_epoch
        live = self._without_transient(
            loop.record(
                min(self.num_steps, _CHUNK_STEPS),
                self._counted_step,
                step_clock=self.step_clock(self.step),
                extra_steps=self._num_extra_steps,
                all_max=self.ranks.all_max,
            )
        )
        if not self._job_steps(live).is_steady.any():
            raise short_epoch_error(int(live.segment_step.max()) + 1, loop.max_in_flight)
        # Where the step raised on batches on its device, on any rank, it is not tried again.
        replays.append(self._replay(batches, None if replays[0][1] is None else device_batches))
        preloaded, preloaded_on_device = (
            None if None in recordings else Recording.concatenate(recordings)
            for recordings in zip(*replays, strict=True)
        )
        assert preloaded is not None
        if self.ranks.all_max(int(saw_batches and not loop.sees_batches)) and max_hidden_batches is None:
            max_hidden_batches = USUAL_MAX_IN_FLIGHT  # so many were taken before, or more
        epoch = self._epoch_starts(live, num_before + live.num_transient_steps)
        epoch_remarks = (*epoch.remarks, *self._remarks_on_order(len(live), epoch)) if epoch else (NOT_JUDGED,)
        remarks = (*unseen_queue_remarks(len(live), max_hidden_batches), *epoch_remarks, *self.ranks.remarks)
        doubts = (
            replay_doubts(live, [each for each, _ in replays], accelerator=self._unseen_device)
            if self._unseen_device
            else ()
        )
        own_verdict = self.judge(live, epoch, doubts=doubts, remarks=remarks)
        own_verdict = without_hidden_reads(own_verdict, torch_loader_of(self.loader))
        report = report_of_rank(self.ranks.rank, own_verdict, live, preloaded, epoch, doubts=doubts)
        verdict, ranks = judge_job(self.ranks.all_gather(report))
        return Profile(
            verdict=verdict,
            ranks=ranks,
            rank=self.ranks.rank,
            live=live,
            preloaded=preloaded,
            preloaded_on_device=preloaded_on_device,
            opening_seconds=loop.opening_seconds,
            first_batch_seconds=loop.first_batch_seconds,
            step_name=str(self.step)
            if self.is_emulated
            else getattr(self.step, "__qualname__", type(self.step).__name__),
            num_cores=self.num_cores,
        )

    @property
    def _unseen_device(self) -> str:
        """Type of the device that the step may run on unseen by the host's clock; empty where there is none."""
        is_timed_by_host = isinstance(self.step_clock(self.step), HostStepClock) and not self.is_emulated
        accelerator = torch.accelerator.current_accelerator() if is_timed_by_host else None
        return accelerator.type if accelerator is not None and torch.accelerator.is_available() else ""

    def _check_epoch_length(self, num_batches: int | None) -> None:
        """Raises `UsageError` where an epoch has no two steady steps one after the other: at once, not in the end.

        On all ranks, where it is so on any: the others would wait for it. num_batches: of this rank's epochs, if they
        are so short.
        """
        if not self.ranks.all_max(int(num_batches is not None)):
            return
        if num_batches is not None:
            raise short_epoch_error(num_batches, self.loop.max_in_flight)
        raise UsageError("an epoch of another rank ends before its steady state; that rank says what to do")

    def _replay(self, host_batches: list[Any], device_batches: list[Any] | None) -> tuple[Recording, Recording | None]:
        """The step on preloaded batches, and on batches on its device, where that is another place.

        The second is None on all ranks where the step raises on one of them: it may need some tensors on the host.
        """
        step_clock = SynchronisedHostClock() if self._unseen_device else self.step_clock(self.step)
        preloaded = replay_batches(host_batches, NUM_REPLAY_STEPS, self.step, step_clock)
        preloaded_on_device, has_failed = None, False
        if device_batches is not None:
            try:
                preloaded_on_device = replay_batches(device_batches, NUM_REPLAY_STEPS, self.step, step_clock)
            except Exception:
                has_failed = True
        return preloaded, None if self.ranks.all_max(int(has_failed)) else preloaded_on_device

    def _drain(self, step_seconds: float) -> int | None:
        """Empties the queue; for a loader that is not torch's the least of `drain_unseen_queue` of any rank."""
        if self.loop.sees_batches:
            self.loop.drain()
        num_hidden = drain_unseen_queue(self.loop, step_seconds, all_max=self.ranks.all_max)
        return min((number for number in self.ranks.all_gather(num_hidden) if number is not None), default=None)

    def _job_steps(self, recording: Recording) -> StepSeries:
        """The steps of all ranks, of which `recording` is this one's."""
        return StepSeries.of_job(self.ranks.all_gather(StepSeries.of_recording(recording)))

    def _without_transient(self, recording: Recording) -> Recording:
        """The recording with its transient marked; of several ranks, that of the job's waits."""
        return replace(recording, num_transient_steps=self._job_steps(recording).transient_length())

    def _num_extra_steps(self, recording: Recording) -> int:
        """Steps still missing: until as many as requested have followed the transient, if it ends, and enough blocks.

        0 where the loader is surely too slow, and half of the requested steps have shown it. Each of these looks may be
        wrong, so the doubt is divided among them. With several ranks it is decided for the job, and so equally on all
        of them. Raises `UsageError` where the epochs so far are too short.
        """
        self._check_epoch_length(short_seen_batches(self.loop, recording))
        settled = self._without_transient(recording)
        job_steps, draining_reasons = self._job_steps(settled), self.ranks.all_gather(draining_queue_reason(settled))
        num_steady = int(job_steps.is_steady.sum())
        num_left = _MAX_STEPS_FACTOR * (self.num_steps + 2 * self.ranks.all_max(self.loop.max_in_flight)) - len(settled)
        num_missing = self.num_steps - num_steady
        if job_steps.drift_reason() or any(draining_reasons):
            num_missing = max(num_missing, _CHUNK_STEPS)
        elif num_steady:
            num_looks = _MAX_STEPS_FACTOR * max(self.num_steps / _CHUNK_STEPS, 1)
            wait_share, block_steps = job_steps.estimate_wait_share(1 - (1 - self.confidence) / num_looks)
            if num_steady >= _MIN_STEPS_SHARE * self.num_steps and wait_share.lower > STARVED_ABOVE:
                return 0
            num_blocks_missing = MIN_BLOCKS * block_steps - num_steady
            num_missing = max(num_missing, num_blocks_missing if num_blocks_missing <= num_left else 0)
        self._counted_step.num_wanted = self._counted_step.num_done + max(min(num_missing, num_left), 0)
        return min(num_missing, _CHUNK_STEPS, num_left)

    def _epoch_starts(self, live: Recording, num_settling_batches: int) -> EpochStarts | None:
        """Additional waiting from one epoch to the next; None where no length is known and no boundary was seen.

        Of the boundaries in the recording, and of as many more as the confidence needs, measured one by one. Each until
        its queue is full, and beyond as many batches as the first epoch had delivered once the loop had settled.

        num_settling_batches: these. Slow ones at the start of every epoch are no part of the steady state.
        """
        job_steps = self._job_steps(live)
        boundaries = max(self.ranks.all_gather(epoch_boundaries(live.segment_step)), key=len)
        num_batches = self._num_epoch_batches()
        if num_batches is None:
            return None
        mean_wait_seconds = float(job_steps.wait_seconds[job_steps.is_steady].mean())
        # A count, and no limit of time: of several ranks all have to do the same steps. Those before the boundary have
        # no limit: without them the loop would not arrive at it as in mid-epoch. Nor have those until the queue is
        # full, which are no part of the steady state either.
        max_steps = round(_MAX_SECONDS_AFTER_BOUNDARY / float(live.period_seconds[live.is_steady].mean()))
        first, last = job_steps.num_transient_steps, len(live) - num_settling_batches
        if any(first <= boundary <= last for boundary in boundaries):
            num_settling_batches = 0  # the steady state has slow batches after a boundary, and an epoch is charged them
        num_wanted = min(2 * self.loop.max_in_flight + 1 + num_settling_batches, num_batches)
        num_start_steps = self.ranks.all_max(max(min(num_wanted, max_steps), self.loop.max_in_flight, 1))
        num_left_out = max(min(num_settling_batches, num_batches) - num_start_steps, 0)
        start_wait_seconds = seen_start_waits(
            job_steps, boundaries, num_start_steps=num_start_steps, mean_wait_seconds=mean_wait_seconds
        )
        num_starts = max(num_values_for_median(self.confidence), _MIN_EPOCH_STARTS) - len(start_wait_seconds)
        num_steps = num_starts * (2 * job_steps.max_in_flight + 1 + num_start_steps)
        counted_step = _CountedStep("the starts of epochs", self.step, self.progress, num_steps)
        for number in range(num_starts):
            recording = self.loop.record_epoch_start(
                num_start_steps, counted_step, step_clock=self.step_clock(self.step), all_max=self.ranks.all_max
            )
            recording = recording.select(np.arange(min(self.ranks.all_gather(len(recording)))))  # as long on all ranks
            wait_seconds = self._job_steps(recording).wait_seconds
            start_wait_seconds.append(float(wait_seconds.sum()) - mean_wait_seconds * len(recording))
            # Short epochs, and those of a `FaceDataLoader`, need other numbers of steps.
            counted_step.num_wanted = round(counted_step.num_done * num_starts / (number + 1))
        self.loop.leave_epoch_starts()
        return EpochStarts(
            num_batches=num_batches,
            start_wait_seconds=start_wait_seconds,
            num_steps_left_out=num_left_out if live.num_transient_steps else 0,
        )

    def _remarks_on_order(self, num_steps: int, epoch: EpochStarts) -> tuple[str, ...]:
        """What is to be said where the steps are the beginning of an epoch in order, and so no sample of it."""
        is_prefix = num_steps < epoch.num_batches and has_fixed_order(torch_loader_of(self.loader))
        return (REST_NOT_SEEN.format(num_steps, epoch.num_batches),) if is_prefix else ()

    def _num_epoch_batches(self) -> int | None:
        """Batches of an epoch, of the rank with the fewest; None where a rank states no length and none was seen.

        As requested; else as the loader states it, or as the run saw it where that is less: some loaders state what
        all ranks get, or what they would have if nothing ended them before.
        """
        lengths = self.ranks.all_gather(self.num_epoch_batches or num_epoch_batches(self.loader))
        seen_lengths = self.ranks.all_gather(None if self.num_epoch_batches else self.loop.seen_epoch_batches)
        known_lengths = [*filter(None, seen_lengths), *(() if None in lengths else lengths)]
        return min(known_lengths, default=None)

    def step_clock(self, step: Step) -> StepClock:
        """The clock of the step's device."""
        return step if isinstance(step, EmulatedDevice) else step_clock_for(self.device)

    def judge(
        self, recording: Recording, epoch: EpochStarts | None = None, *, doubts: tuple[str, ...] = (),
        remarks: tuple[str, ...] = (),
    ) -> Verdict:  # fmt: skip
        """The verdict on a recording of this step."""
        verdict = judge(
            recording,
            emulated=self.is_emulated,
            confidence=self.confidence,
            epoch=epoch,
            num_ranks=self.ranks.world_size,
            num_cores=self.num_cores,
            doubts=doubts,
            remarks=remarks,
        )
        return replace(verdict, reads_store=reads_store(torch_loader_of(self.loader)))


class _CountedStep:
    """A step that also reports how many of the wanted steps are done."""

    def __init__(self, activity: str, step: Step, progress: Progress, num_wanted: int) -> None:
        self.activity, self.step, self.progress = activity, step, progress
        self.num_wanted, self.num_done = num_wanted, 0

    def __call__(self, batch: Any) -> None:
        if self.num_done % _PROGRESS_INTERVAL_STEPS == 0:
            self.progress(self.activity, self.num_done, max(self.num_wanted, self.num_done))
        self.num_done += 1
        self.step(batch)


def _check_device(batches: list[Any], device: str | torch.device | None) -> None:
    """Raises `UsageError` for batches on a device whose clock is not read: no other one sees its steps."""
    devices = {tensor.device for batch in batches for tensor in iter_tensors(batch) if tensor.device.type != "cpu"}
    if not devices:
        return
    step_device = torch.device("cpu" if device is None else device)
    if step_device.type == "cuda" and step_device.index is None:
        step_device = torch.device("cuda", torch.cuda.current_device())
    if step_device in devices:
        return
    name, given = min(map(str, devices)), None if device is None else str(device)
    remedy = (
        f"is needed; give device={name!r}"
        if name.startswith("cuda")
        else "cannot be read; load them to the CPU, move them in the step, and end it with "
        "`torch.accelerator.synchronize()`"
    )
    raise UsageError(f"device={given!r}: the loader's batches are on {name}, whose clock {remedy}")


def _batches_on_device(batches: list[Any], device: str | torch.device | None) -> list[Any] | None:
    """The batches on the device of the step; None where they are there already."""
    step_device = torch.device("cpu" if device is None else device)
    if step_device.type == "cpu" or all(
        tensor.device.type != "cpu" for batch in batches for tensor in iter_tensors(batch)
    ):
        return None
    return [rebuild(batch, lambda tensor: tensor.to(step_device)) for batch in batches]
