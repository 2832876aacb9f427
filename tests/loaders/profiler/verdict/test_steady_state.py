"""What is judged of a loader is how it goes on, however deep its queue, and not how it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from assets_clock import Clock
from assets_profiles import recording_of, uneven
from facefeed.loaders.profiler import profile
from facefeed.loaders.profiler.measure import batch_timing, measured_loop, steps
from facefeed.loaders.profiler.measure.measured_loop import MeasuredLoop
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.measure.steps import EmulatedDevice
from facefeed.loaders.profiler.measure.unseen_queue import drain_unseen_queue
from facefeed.loaders.profiler.verdict import loader_verdict
from facefeed.loaders.profiler.verdict.epoch_starts import EpochStarts
from facefeed.loaders.profiler.verdict.gate import Gate
from facefeed.loaders.profiler.verdict.judge import judge
from facefeed.loaders.profiler.verdict.steady_state import draining_queue_reason
from facefeed.loaders.profiler.verdict.step_series import StepSeries
from facefeed.loaders.profiler.verdict.verdict import VerdictKind

STEP = 0.02


@dataclass
class Queued:
    """Batches of `workers` that each take `load` seconds and work `prefetch` batches ahead, on a clock that is moved.

    The queue goes on while nobody asks, as processes do, and is full when it is first asked.
    """

    clock: Clock
    load: float
    workers: int
    prefetch: int
    finish: list[float] = field(default_factory=list)
    handed: list[float] = field(default_factory=list)

    def __iter__(self) -> Iterator[torch.Tensor]:
        ahead = self.workers * self.prefetch
        self.clock.pass_by(self.load * (self.prefetch + 1))
        while True:
            number = len(self.finish)
            free_at = self.finish[number - self.workers] if number >= self.workers else 0.0
            started_at = max(free_at, self.handed[number - ahead] if number >= ahead else 0.0)
            self.finish.append(started_at + self.load)
            self.clock.now = max(self.clock.now, self.finish[-1])
            self.handed.append(self.clock.now)
            yield torch.zeros(1)


@pytest.mark.parametrize("too_slow", [0.03, 0.07, 0.15])
@pytest.mark.parametrize(("workers", "prefetch"), [(2, 1), (8, 2), (4, 4), (16, 4)])
def test_a_loader_that_is_a_little_too_slow_cannot_hide_in_its_queue(
    too_slow: float, workers: int, prefetch: int, clock: Clock
) -> None:
    loader = Queued(clock, workers * STEP * (1 + too_slow), workers, prefetch)
    verdict = profile.profile(loader, lambda _: clock.pass_by(STEP), steps=1000, quick=True).verdict
    expected = too_slow / (1 + too_slow)
    assert verdict.wait_share.value == pytest.approx(expected, abs=0.01)
    assert verdict.wait_share.lower <= expected <= verdict.wait_share.upper
    assert verdict.kind is VerdictKind.STARVED


@pytest.mark.parametrize(("workers", "prefetch"), [(8, 2), (16, 4)])
def test_a_loader_that_is_too_slow_cannot_hide_in_the_queue_that_fills_while_the_profiler_decides(
    workers: int, prefetch: int, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It decides four times, for a second each, in which all batches ahead are loaded."""
    decide = loader_verdict.LoaderMeasurement._num_extra_steps

    def decide_slowly(measurement: loader_verdict.LoaderMeasurement, recording: Recording) -> int:
        clock.pass_by(1.0)
        return decide(measurement, recording)

    monkeypatch.setattr(loader_verdict.LoaderMeasurement, "_num_extra_steps", decide_slowly)
    loader = Queued(clock, workers * STEP * 1.025, workers, prefetch)
    verdict = profile.profile(loader, lambda _: clock.pass_by(STEP), quick=True).verdict
    assert verdict.num_steps > 2 * loader_verdict._CHUNK_STEPS
    assert verdict.wait_share.value == pytest.approx(0.025 / 1.025, abs=0.001)


@pytest.mark.parametrize(("workers", "prefetch"), [(2, 1), (8, 2), (16, 8)])
def test_a_loader_with_room_to_spare_feeds_the_step_at_the_defaults(workers: int, prefetch: int, clock: Clock) -> None:
    loader = Queued(clock, workers * STEP / 1.3, workers, prefetch)
    verdict = profile.profile(loader, lambda _: clock.pass_by(STEP), quick=True).verdict
    assert verdict.kind is VerdictKind.FED
    assert verdict.num_steps >= loader_verdict.DEFAULT_STEPS - 1


def test_a_slow_loader_is_not_watched_longer_than_it_takes_to_be_sure(clock: Clock) -> None:
    loader = Queued(clock, 4 * STEP, 2, 2)
    loader_profile = profile.profile(loader, lambda _: clock.pass_by(STEP), quick=True)
    assert loader_profile.verdict.kind is VerdictKind.STARVED
    assert loader_verdict.DEFAULT_STEPS / 2 <= len(loader_profile.live) <= 0.75 * loader_verdict.DEFAULT_STEPS


def test_waits_that_come_in_long_runs_are_watched_until_there_are_enough_of_them(clock: Clock) -> None:
    """Now twice as fast as the step, now 2 % too slow, for 20 batches on average."""
    draws = np.random.default_rng(3)

    class InRuns(Queued):
        def __iter__(self) -> Iterator[torch.Tensor]:
            for batch in super().__iter__():
                yield batch
                if draws.random() < 1 / 20:
                    self.load = STEP * (1.02 if self.load < STEP else 0.5)

    loader = InRuns(clock, STEP / 2, 1, 2)
    verdict = profile.profile(loader, lambda _: clock.pass_by(STEP), steps=1000, quick=True).verdict
    assert not any("too few steps" in reason for reason in verdict.reasons)
    assert 1000 < verdict.num_steps <= 4100
    assert verdict.kind is VerdictKind.MARGINAL


def test_waits_while_the_queue_fills_are_no_part_of_the_steady_state() -> None:
    recording = recording_of(np.concatenate([np.full(200, 6 * STEP), np.full(3800, STEP)]), STEP, workers=2, prefetch=4)
    assert 200 <= StepSeries.of_recording(recording).transient_length() <= 240
    assert StepSeries.of_recording(recording_of(uneven(2000, 0.9 * STEP), STEP)).transient_length() <= 20


@pytest.mark.parametrize("load", [0.0, 0.005, 0.03])
def test_a_long_wait_after_the_queue_was_full_counts_as_waiting(load: float, clock: Clock) -> None:
    """Without workers, 12 s once, as where storage hangs; `load`: of each batch, as a share of the step."""

    class Stalling:
        def __len__(self) -> int:
            return 5600

        def __iter__(self) -> Iterator[torch.Tensor]:
            for number in range(5600):
                clock.pass_by(12.0 if number == 1000 else load * STEP)
                yield torch.zeros(1)

    loader_profile = profile.profile(Stalling(), lambda _: clock.pass_by(STEP), quick=True)
    verdict, live = loader_profile.verdict, loader_profile.live
    waited = float(live.wait_seconds.sum() / live.period_seconds.sum())
    assert waited > 0.1
    assert verdict.wait_share.value == pytest.approx(waited, abs=0.002)
    assert verdict.epoch_wait_share is not None
    assert verdict.epoch_wait_share.value == pytest.approx(waited, abs=0.002)
    assert verdict.kind is not VerdictKind.FED


@pytest.mark.parametrize(("workers", "prefetch"), [(1, 2), (4, 2), (8, 4)])
@pytest.mark.parametrize("busy", [0.5, 0.9])
def test_a_long_wait_of_a_worker_is_no_part_of_the_transient(workers: int, prefetch: int, busy: float) -> None:
    filling = np.full(16 * workers, 2.5 * workers * STEP)
    load = np.concatenate([filling, uneven(4000, busy * workers * STEP)])
    load[1500] = 40.0
    recording = recording_of(load, STEP, workers=workers, prefetch=prefetch)
    steps = StepSeries.of_recording(recording)
    transient = steps.transient_length()
    assert len(filling) - workers * (prefetch + 1) <= transient < 1000
    assert replace(steps, num_transient_steps=transient).estimate_wait_share(0.95)[0].value > 0.3


def test_a_machine_that_becomes_slower_on_the_way_has_no_steady_state() -> None:
    load = np.concatenate([np.full(3000, STEP), np.full(1000, 3 * STEP)])
    verdict = judge(recording_of(load, STEP), emulated=False, num_cores=4)
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert any(reason.startswith("no steady state: waiting went from 0.0") for reason in verdict.reasons)


def test_a_queue_that_still_empties_has_not_shown_yet_how_long_the_device_will_wait() -> None:
    """Three per cent too slow, behind a queue of 64 that was full: for 2,000 steps nothing waits."""
    first_batches = np.full(64, 1e-6)
    load = np.concatenate([first_batches, np.full(1500, 16 * 1.03 * STEP)])
    verdict = judge(recording_of(load, STEP, workers=16, prefetch=4), emulated=False, num_cores=64)
    assert verdict.wait_share.value < 0.001
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert any(reason.startswith("no steady state: the queue loses") for reason in verdict.reasons)


def test_a_late_batch_does_not_hide_that_the_queue_still_empties() -> None:
    """Three per cent too slow behind 128 batches; two are late on the way, while over 40 behind them are ready."""
    load = np.concatenate([np.full(128, 1e-6), uneven(2500, 16 * 1.03 * STEP, spread=0.1, seed=1)])
    recording = recording_of(load, STEP, workers=16, prefetch=8)
    assert (recording.not_ready_seconds[1000:] > 0).sum() == 2
    verdict = judge(recording, emulated=False, num_cores=64)
    assert verdict.wait_share.value < 0.003
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert any(reason.startswith("no steady state: the queue loses") for reason in verdict.reasons)


def test_a_queue_that_still_empties_is_no_doubt_about_a_device_that_surely_waits() -> None:
    load = np.concatenate([np.full(64, 1e-6), uneven(1200, 16 * 1.1 * STEP, spread=0.3, seed=5)])
    recording = recording_of(load, STEP, workers=16, prefetch=4)
    assert draining_queue_reason(recording)
    assert judge(recording, emulated=False, num_cores=64).kind is VerdictKind.STARVED


def test_a_loader_of_any_kind_that_is_too_slow_cannot_hide_in_a_deep_queue(clock: Clock) -> None:
    """Three per cent too slow, behind 200 batches: more than were ever taken from it, and enough for 6,600 steps."""
    loader = Queued(clock, 50 * STEP * 1.03, 50, 4)
    verdict = profile.profile(loader, lambda _: clock.pass_by(STEP), quick=True).verdict
    assert verdict.kind is VerdictKind.STARVED
    assert verdict.wait_share.value == pytest.approx(0.03 / 1.03, abs=0.002)
    assert not [remark for remark in verdict.remarks if "queue" in remark]  # it was empty, as the waits show


@pytest.mark.parametrize(("speed", "depth"), [(1.02, 240), (1.5, 300)])
def test_a_queue_that_is_not_seen_is_named_as_what_the_verdict_relies_on(
    speed: float, depth: int, clock: Clock
) -> None:
    """Of 200 batches ahead; in 10 s a loader that is 2 % faster makes 10 more than steps take meanwhile."""
    loader = Queued(clock, STEP / speed, 1, 200)
    verdict = profile.profile(loader, lambda _: clock.pass_by(STEP), quick=True).verdict
    assert verdict.kind is VerdictKind.FED
    (remark,) = (remark for remark in verdict.remarks if "queue" in remark)
    prefix = "the loader's queue is not seen, and assumed to hold at most "
    assert remark.startswith(prefix)
    assert remark in str(verdict)
    assert int(remark.removeprefix(prefix).split()[0]) == pytest.approx(depth, abs=30)


def test_a_queue_that_is_not_seen_does_not_fill_again_while_other_ranks_still_empty_theirs(clock: Clock) -> None:
    """Else it would hide for thousands of steps that its loader is 1.5 % too slow."""
    loop = MeasuredLoop(Queued(clock, 1.015 * STEP, 1, 64))
    others = iter([1, 1, 1, 1, 0])

    def all_max(value: int) -> int:
        other = next(others)
        clock.pass_by(0.6 if other and not value else 0.0)  # this rank waits for the other one's round
        return max(value, other)

    assert drain_unseen_queue(loop, STEP, all_max=all_max) is None
    clock.pass_by(0.6 * sum(others))  # so long it would still wait
    recording = loop.record(100, lambda _: clock.pass_by(STEP))
    assert float(recording.wait_seconds.sum()) > 0.01 * float(recording.period_seconds.sum())


# ---- what a user sees meanwhile


def test_progress_names_the_number_of_steps_that_is_wanted_now(clock: Clock) -> None:
    """Waits that come in long runs take more steps than were requested."""
    shown: list[tuple[int, int]] = []
    draws = np.random.default_rng(3)

    class InRuns(Queued):
        def __iter__(self) -> Iterator[torch.Tensor]:
            for batch in super().__iter__():
                yield batch
                if draws.random() < 1 / 20:
                    self.load = STEP * (1.02 if self.load < STEP else 0.5)

    def progress(what: str, done: int, wanted: int) -> None:
        shown.extend([(done, wanted)] if what == "the loader" else [])

    loader = InRuns(clock, STEP / 2, 1, 2)
    live = profile.profile(loader, lambda _: clock.pass_by(STEP), steps=1000, quick=True, progress=progress).live
    extended = [wanted for done, wanted in shown if done > 1000]
    assert len(extended) >= 3
    assert set(extended) == {shown[0][0] + len(live)}


# ---- what the parts add up to


def closure_without(part: str, recording: Recording, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(Recording, part, property(lambda instance: np.zeros(len(instance))))
    return recording.unexplained_share


@pytest.mark.parametrize("part", ["not_ready_seconds", "late_seconds", "sampler_wait_seconds", "step_seconds"])
def test_a_part_that_is_left_out_of_a_steps_time_is_missed(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = recording_of(np.full(1000, 2.2 * STEP), STEP, lead=0)
    is_even = np.arange(1000) % 2 == 0
    late, sampled = np.where(is_even, 0.003, 0.0), np.where(~is_even, 0.004, 0.0)
    delayed = delay_batches(recording, late + sampled)
    for timing, seconds in zip(delayed.batch_timings, sampled, strict=True):
        timing.sampler_seconds = float(seconds)
    assert delayed.unexplained_share < 0.005
    assert closure_without(part, delayed, monkeypatch) > 0.02


def test_transfers_that_are_not_alike_are_accounted_for() -> None:
    """Batches of which every other one takes .4 ms to receive, and the others 1.1, under steps of 1 ms."""
    recording = recording_of(np.full(1000, 0.0002), 0.001, lead=0)
    uneven = delay_batches(recording, np.where(np.arange(1000) % 2, 0.0007, 0.0))
    verdict = judge(uneven, emulated=False, num_cores=4)
    assert verdict.unexplained_share < 0.005
    assert verdict.kind is VerdictKind.STARVED


def delay_batches(recording: Recording, seconds: Any) -> Recording:
    """The same, every batch handed over later by so much, and all that follows as well."""
    shift_before, shift_after = np.cumsum(seconds) - seconds, np.cumsum(seconds)
    shifted = {name: getattr(recording, name) + shift_before for name in ("requested_at", "host_requested_at")}
    shifted |= {
        name: getattr(recording, name) + shift_after
        for name in ("received_at", "host_received_at", "step_begin_raw_at", "step_end_at")
    }
    timings = [batch_timing.BatchTiming(timing.start_at + shift, timing.end_at + shift, cpu_seconds=timing.cpu_seconds)
               for timing, shift in zip(recording.batch_timings, shift_before, strict=True)]  # fmt: skip
    return Recording(**{**recording.__dict__, **shifted, "batch_timings": timings})


def test_a_second_clock_that_says_something_else_is_believed() -> None:
    recording = recording_of(np.full(1000, STEP), STEP)
    slower = Recording(**{**recording.__dict__, "step_begin_raw_at": 1.05 * recording.step_begin_raw_at})
    assert slower.unexplained_share == pytest.approx(0.05 / 1.05, rel=0.05)
    assert judge(slower, emulated=False, num_cores=4).kind is VerdictKind.INCONCLUSIVE


def test_a_slow_sampler_without_workers_is_accounted_for_once() -> None:
    """Its 2 ms are in the wait, and no part of handing over."""
    recording = recording_of(np.full(500, STEP / 4), STEP, workers=0, lead=0)
    delayed = delay_batches(recording, np.full(500, 0.002))
    timings = [
        replace(timing, start_at=timing.start_at + 0.002, end_at=timing.end_at + 0.002, sampler_seconds=0.002)
        for timing in delayed.batch_timings
    ]
    assert replace(delayed, batch_timings=timings).unexplained_share < 0.005


# ---- whole epochs


def test_the_beginning_of_an_epoch_counts_as_much_as_the_epoch_is_short() -> None:
    recording = recording_of(np.full(4000, STEP / 2), STEP)
    long, short, tiny = (
        judge(
            recording,
            emulated=False,
            num_cores=4,
            epoch=EpochStarts(num_batches=batches, start_wait_seconds=(0.2, 0.3, 0.6)),
        )
        for batches in (20_000, 1000, 100)
    )
    assert [verdict.kind for verdict in (long, short, tiny)] == [
        VerdictKind.FED,
        VerdictKind.MARGINAL,
        VerdictKind.STARVED,
    ]
    assert tiny.epoch_wait_share is not None
    mean = (0.2 + 0.3 + 0.6) / 3
    assert tiny.epoch_wait_share.value == pytest.approx(mean / (mean + 2), rel=0.01)
    assert tiny.epoch_wait_share.lower == pytest.approx(0.2 / 2.2, rel=0.01)
    assert tiny.epoch_wait_share.upper > 0.6 / 2.6
    gate = Gate(max_wait_share=0.01)
    assert gate.failures(long) == []
    assert [failure.split(" <=")[0] for failure in gate.failures(short)] == ["an epoch's waiting"]


def test_short_epochs_are_no_contradiction_between_model_and_clock() -> None:
    """Forty epochs of fifty batches; the first of each waits for 0.3 s, and is no step of the steady state."""
    parts = [recording_of(np.full(50, STEP), STEP, workers=4, began=100.0 + 10 * number) for number in range(40)]
    verdict = judge(Recording.concatenate(parts), emulated=False, num_cores=64)
    assert verdict.num_steps == 40 * (50 - 8)
    assert verdict.model_wait_share == pytest.approx(verdict.wait_share.value, abs=0.01)
    assert not [reason for reason in verdict.reasons if "model" in reason]


# ---- the emulated device


def test_what_the_host_does_while_the_emulated_device_works_is_not_waited_for(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of 15 ms made by the host, steps of 20 ms of which launching takes 4: the host is done in 19."""
    monkeypatch.setattr(steps, "clock", lambda: tick(clock))
    monkeypatch.setattr(steps, "time", SimpleNamespace(sleep=clock.pass_by))

    def slow_batches(seconds: float) -> Iterator[torch.Tensor]:
        while True:
            clock.pass_by(seconds)
            yield torch.zeros(1)

    for seconds, wait in ((0.015, 0.0), (0.019, 0.003)):
        device = EmulatedDevice(STEP, 0.2)
        recording = measured_loop.MeasuredLoop(Iterated(lambda seconds=seconds: slow_batches(seconds))).record(
            50, device, step_clock=device
        )
        assert recording.wait_seconds[5:] == pytest.approx(np.full(45, wait), abs=1e-4)
        assert recording.step_seconds == pytest.approx(np.full(50, STEP), abs=1e-4)
        assert recording.lead_steps == 1


def tick(clock: Clock) -> float:
    """Moves a little at every look, so that who computes until a moment gets there."""
    clock.pass_by(1e-6)
    return clock.now


@dataclass
class Iterated:
    """A loader whose iterations are these."""

    begin: Callable[[], Iterator[torch.Tensor]]

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self.begin()


def test_what_the_profiler_takes_to_look_at_what_it_saw_is_no_part_of_the_loops_time(clock: Clock) -> None:
    def more_steps(recording: Recording) -> int:
        clock.pass_by(5 * STEP)
        return 100 if len(recording) < 300 else 0

    measured = measured_loop.MeasuredLoop([torch.zeros(1)] * 1000).record(
        100, lambda _: clock.pass_by(STEP), extra_steps=more_steps
    )
    assert len(measured) == 300
    assert measured.period_seconds == pytest.approx(np.full(300, STEP))
    assert measured.unexplained_share < 0.001
    assert measured.is_steady.sum() == 299


def test_of_a_queue_that_was_full_nothing_is_discarded_after_a_pause() -> None:
    full, empty = (recording_of(np.full(500, load * STEP), STEP, workers=4, prefetch=2) for load in (0.5, 8.0))
    assert full.queue_room <= 1
    assert empty.queue_room >= 6
    assert recording_of(np.full(500, STEP / 2), STEP, workers=0).queue_room == 0


def test_a_loader_without_workers_loses_no_batch_in_a_pause(clock: Clock) -> None:
    def pause_once(recording: Recording) -> int:
        clock.pass_by(100 * STEP)
        return 0 if len(recording) > 10 else 10

    batches: list[Any] = []
    loader = torch.utils.data.DataLoader(range(40), batch_size=None)  # type: ignore[arg-type]
    measured_loop.MeasuredLoop(loader).record(
        10, lambda _: clock.pass_by(STEP), extra_steps=pause_once, batches_out=batches
    )
    assert batches == list(range(20))


def test_an_epoch_that_ends_after_a_pause_does_not_join_the_steps_before_and_after_it(clock: Clock) -> None:
    """The pause of four steps discards the rest of the epoch, and leaves out four of the next one."""

    def pause_once(recording: Recording) -> int:
        clock.pass_by(4 * STEP)
        return 0 if len(recording) > 4 else 2

    measured = measured_loop.MeasuredLoop([torch.zeros(1)] * 8).record(
        4, lambda _: clock.pass_by(STEP), extra_steps=pause_once
    )
    assert measured.segment_step.tolist() == [0, 1, 2, 3, 5, 6]
    assert measured.period_seconds == pytest.approx(np.full(6, STEP))
