"""What a loader costs at the boundaries between its epochs, and how sure that is."""

from __future__ import annotations

import itertools
import re
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from assets_clock import Clock
from assets_profiles import TwoAlike, recording_of
from facefeed.loaders.profiler import profile
from facefeed.loaders.profiler.estimate.bounds import BoundedEstimate, mean_bounds, num_values_for_median
from facefeed.loaders.profiler.measure.measured_loop import MeasuredLoop
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.report.json_report import report_values
from facefeed.loaders.profiler.verdict import loader_verdict
from facefeed.loaders.profiler.verdict.epoch_starts import (
    EpochStarts,
    epoch_boundaries,
    seen_start_waits,
)
from facefeed.loaders.profiler.verdict.gate import Gate
from facefeed.loaders.profiler.verdict.judge import judge
from facefeed.loaders.profiler.verdict.loader_verdict import LoaderMeasurement
from facefeed.loaders.profiler.verdict.step_series import StepSeries
from facefeed.loaders.profiler.verdict.verdict import VerdictKind
from facefeed.pipeline.errors import UsageError
from torch.utils.data import DataLoader, IterableDataset

STEP = 0.02
RESTART = 2.0


class Shards(IterableDataset[torch.Tensor]):
    """Epochs of `num_batches` without a length; each begins with a restart of `RESTART` seconds."""

    def __init__(self, clock: Clock, num_batches: int) -> None:
        self.clock, self.num_batches, self.num_begun = clock, num_batches, 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.num_begun += 1
        self.clock.pass_by(RESTART)
        for _ in range(self.num_batches):
            self.clock.pass_by(1e-5)
            yield torch.zeros(1)


def measured(clock: Clock, loader: Any, **options: Any) -> Any:
    return profile.profile(loader, lambda _: clock.pass_by(STEP), quick=True, **options)


LOADERS: dict[str, Callable[[Shards], Any]] = {
    "plain iterable": lambda shards: shards,
    "torch's over an iterable": lambda shards: DataLoader(shards, batch_size=None),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_a_loader_without_a_length_is_judged_by_the_epoch_boundaries_of_the_run(kind: str, clock: Clock) -> None:
    verdict = measured(clock, LOADERS[kind](Shards(clock, 200))).verdict
    assert verdict.wait_share.upper < 0.01  # once an epoch has begun, no step waits
    assert verdict.num_epoch_batches == 200
    assert verdict.epoch_wait_share.value == pytest.approx(RESTART / (RESTART + 200 * STEP), rel=0.01)
    assert verdict.kind is VerdictKind.STARVED


class Overstated(Shards):
    """States what all ranks get together."""

    def __len__(self) -> int:
        return 60_000


@pytest.mark.parametrize("kind", LOADERS)
def test_a_loader_that_states_more_batches_than_it_yields_is_judged_by_those_of_the_run(
    kind: str, clock: Clock
) -> None:
    verdict = measured(clock, LOADERS[kind](Overstated(clock, 200))).verdict
    assert verdict.num_epoch_batches == 200
    assert verdict.kind is VerdictKind.STARVED
    stated = measured(clock, LOADERS[kind](Overstated(clock, 200)), epoch_batches=60_000).verdict
    assert stated.num_epoch_batches == 60_000


class Resumed(Shards):
    """Yields the last 500 batches of an epoch first."""

    def __len__(self) -> int:
        return 3000

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise NotImplementedError

    def __iter__(self) -> Iterator[torch.Tensor]:
        first_number = 2500 if not self.num_begun else 0
        return itertools.islice(super().__iter__(), first_number, None)


def test_the_rest_of_an_epoch_in_which_a_loader_resumes_is_not_taken_for_a_whole_one(clock: Clock) -> None:
    assert measured(clock, Resumed(clock, 3000), steps=2000).verdict.num_epoch_batches == 3000


def test_boundaries_that_were_seen_are_not_measured_again(clock: Clock) -> None:
    shards = Shards(clock, 200)
    live = measured(clock, shards).live
    assert shards.num_begun <= 3 + len(live) // 200


@pytest.mark.parametrize("kind", LOADERS)
def test_an_epoch_of_which_one_boundary_was_seen_is_judged_by_all_of_its_batches(kind: str, clock: Clock) -> None:
    verdict = measured(clock, LOADERS[kind](Shards(clock, 3000))).verdict
    assert verdict.num_epoch_batches == 3000  # also those that were taken before the run
    assert verdict.epoch_start_wait_seconds == pytest.approx(RESTART)
    assert verdict.epoch_wait_share.confidence == 0.95
    assert verdict.kind is VerdictKind.STARVED


def test_a_verdict_without_epoch_boundaries_names_them_and_how_to_have_them_judged(clock: Clock) -> None:
    endless = measured(clock, Shards(clock, 10**9))
    assert endless.verdict.kind is VerdictKind.FED
    note = "epoch boundaries not judged: the loader has no length, and none was seen; give epoch_batches"
    assert str(endless.verdict).endswith(note)
    assert note in report_values(endless, Gate())["verdict"]["remarks"]
    judged = measured(clock, Shards(clock, 10**9), epoch_batches=100).verdict
    assert (judged.kind, judged.num_epoch_batches) == (VerdictKind.STARVED, 100)
    assert "not judged" not in str(judged)


def test_a_job_is_judged_by_the_epoch_boundaries_of_its_ranks(clock: Clock) -> None:
    measurement = LoaderMeasurement(
        Shards(clock, 200), lambda _: clock.pass_by(STEP), num_steps=1000, confidence=0.95, device=None,
        num_epoch_batches=None, progress=lambda *_: None, ranks=TwoAlike(),
    )  # fmt: skip
    result = measurement.measure()
    assert len(result.ranks) == 2
    assert (result.verdict.kind, result.verdict.num_epoch_batches) == (VerdictKind.STARVED, 200)
    endless = LoaderMeasurement(
        Shards(clock, 10**9), lambda _: clock.pass_by(STEP), num_steps=1000, confidence=0.95, device=None,
        num_epoch_batches=None, progress=lambda *_: None, ranks=TwoAlike(),
    )  # fmt: skip
    assert "epoch boundaries not judged" in str(endless.measure().verdict)


class OtherIsShort(TwoAlike):
    """Two ranks, of which the other one's epochs are too short."""

    def all_max(self, value: int) -> int:
        return max(value, 1)


def test_a_rank_does_not_wait_for_one_whose_epochs_are_too_short(clock: Clock) -> None:
    measurement = LoaderMeasurement(
        Shards(clock, 200), lambda _: clock.pass_by(STEP), num_steps=1000, confidence=0.95, device=None,
        num_epoch_batches=None, progress=lambda *_: None, ranks=OtherIsShort(),
    )  # fmt: skip
    with pytest.raises(UsageError, match="an epoch of another rank ends before its steady state"):
        measurement.measure()


def test_epochs_that_turn_out_too_short_are_refused_once_a_few_were_seen(clock: Clock) -> None:
    """A loader without a length whose epochs have one step after the first, which follows no steady one."""
    num_steps = 0

    def step(_batch: Any) -> None:
        nonlocal num_steps
        num_steps += 1
        clock.pass_by(STEP)

    message = "an epoch has 2 batches, and 0 can be made ahead: it ends before its steady state"
    with pytest.raises(UsageError, match=message):
        profile.profile(Shards(clock, 2), step, steps=4000, quick=True)
    assert num_steps < 1500
    assert measured(clock, Shards(clock, 3), steps=100).verdict.num_epoch_batches == 3


def test_a_start_lasts_until_the_queue_is_filled_and_starts_in_the_transient_do_not_count() -> None:
    """Four workers with two batches each: a restart of 2 s, then waits of 10 ms, and 1 ms in every other step."""
    parts = [recording_of(np.full(100, 0.5 * STEP), STEP, workers=4, began=10.0 * number) for number in range(4)]
    steps = replace(StepSeries.of_recording(Recording.concatenate(parts)), num_transient_steps=150)
    wait_seconds = np.full(400, 0.001)
    wait_seconds[[100, 200, 300]] = RESTART
    wait_seconds[195], wait_seconds[210], wait_seconds[230] = 0.011, 0.011, 0.5
    boundaries = epoch_boundaries(Recording.concatenate(parts).segment_step)
    assert boundaries == [100, 200, 300]
    waits = seen_start_waits(
        replace(steps, wait_seconds=wait_seconds), boundaries, num_start_steps=17, mean_wait_seconds=0.001
    )
    assert waits == pytest.approx([RESTART - 0.001 + 0.02, RESTART - 0.001])


def test_progress_counts_every_step_of_the_starts_of_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 batches in flight: 16 steps fill the queue, 17 end the epoch, and 33 begin the next one, five times.

    And as many more as the first epoch had delivered when the run began, with an empty queue: 1 + 16.
    """
    monkeypatch.setattr(StepSeries, "transient_length", lambda _: 0)  # which is of the machine
    shown, done = list[tuple[str, int, int, int]](), list[Any]()
    loader = DataLoader(torch.utils.data.TensorDataset(torch.arange(10_000.0)), num_workers=2, prefetch_factor=8)
    profile.profile(
        loader, done.append, steps=60, quick=True,
        progress=lambda what, count, wanted: shown.append((what, count, wanted, len(done))),
    )  # fmt: skip
    starts = [numbers for what, *numbers in shown if what == "the starts of epochs"]
    num_before, num_steps = starts[0][2], 5 * (16 + 17 + 33 + 17)
    assert starts == [[count, num_steps, num_before + count] for count in range(0, num_steps, 50)]
    assert len(done) == num_before + num_steps


class Warming(Shards):
    """The first 120 batches of each epoch take half as long again as a step."""

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(len(self)):
            self.clock.pass_by(1.5 * STEP if number < 120 else 1e-5)
            yield torch.zeros(1)


@pytest.mark.parametrize("kind", LOADERS)
def test_slow_batches_at_the_start_of_every_epoch_are_a_part_of_it(kind: str, clock: Clock) -> None:
    verdict = measured(clock, LOADERS[kind](Warming(clock, 4600))).verdict
    assert verdict.wait_share.upper < 0.01
    assert verdict.epoch_wait_share.value == pytest.approx(120 * 1.5 / (120 * 1.5 + 4600), rel=0.02)
    assert verdict.kind is VerdictKind.STARVED


@pytest.mark.parametrize(("num_transient_steps", "said"), [(20, ["21"]), (0, [])])
def test_a_start_is_measured_until_the_queue_is_full_and_what_follows_is_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, num_transient_steps: int, said: list[str]
) -> None:
    """However long that takes: those steps are no part of the steady state."""
    monkeypatch.setattr(loader_verdict, "_MAX_SECONDS_AFTER_BOUNDARY", 0.0)
    monkeypatch.setattr(StepSeries, "transient_length", lambda _: num_transient_steps)
    wanted = list[int]()
    loader = DataLoader(torch.utils.data.TensorDataset(torch.arange(10_000.0)), num_workers=2, prefetch_factor=8)
    verdict = profile.profile(
        loader, lambda _: None, steps=60, quick=True,
        progress=lambda what, _, num_steps: wanted.append(num_steps) if what == "the starts of epochs" else None,
    ).verdict  # fmt: skip
    assert wanted[0] == 5 * (16 + 17 + 16)
    assert re.findall(r"not judged to their end: .* (\d+) more steps", "; ".join(verdict.remarks)) == said


@pytest.mark.parametrize("num_batches", [4060, 4100, *range(4110, 4130, 2), 4180])
def test_slow_batches_of_an_epoch_that_begins_as_the_run_ends_are_charged_whole(clock: Clock, num_batches: int) -> None:
    verdict = measured(clock, Warming(clock, num_batches)).verdict
    truth = 120 * 1.5 / (120 * 1.5 + num_batches)
    assert 0.85 * truth < verdict.epoch_wait_share.value < 1.15 * truth  # the run may see two starts in 2.3 epochs
    assert truth < verdict.epoch_wait_share.upper
    assert verdict.kind is not VerdictKind.FED


def test_slow_batches_that_the_steady_state_has_are_not_charged_to_an_epoch_again(clock: Clock) -> None:
    """Of epochs of 1,000 batches, four begin in the run, of which the first is cut off."""
    verdict = measured(clock, Warming(clock, 1000)).verdict
    truth = 120 * 1.5 / (120 * 1.5 + 1000)
    assert 0.7 * truth < verdict.epoch_wait_share.value < 1.1 * truth


def own_batches(**options: Any) -> Any:
    dataset = torch.utils.data.TensorDataset(torch.arange(2_000.0))
    sampler = options.pop("sampler", None)
    if sampler is None:
        return DataLoader(dataset, **options)
    return DataLoader(dataset, batch_sampler=torch.utils.data.BatchSampler(sampler(dataset), 1, drop_last=False))


@pytest.mark.parametrize(
    ("options", "is_said"),
    [
        ({}, True), ({"shuffle": True}, False), ({"sampler": torch.utils.data.SequentialSampler}, True),
        ({"sampler": torch.utils.data.RandomSampler}, False),
    ],
)  # fmt: skip
def test_the_first_batches_of_an_epoch_in_order_are_not_passed_off_for_all(
    options: dict[str, bool], is_said: bool
) -> None:
    remarks = profile.profile(own_batches(**options), lambda _: None, steps=60, quick=True).verdict.remarks
    assert any("of 2,000 batches of an epoch were seen, in order" in remark for remark in remarks) == is_said


# ---- how sure a whole epoch is


def test_starts_that_cost_nothing_add_nothing_to_an_epoch_however_seldom_its_steps_wait() -> None:
    """Epochs of 40 batches, 8 in flight; one step in 52 waits for as long as it takes, wherever the epochs begin."""
    num_steps = 52 * 80
    steps = replace(
        StepSeries.of_recording(recording_of(np.full(num_steps, 0.5 * STEP), STEP, workers=4)),
        wait_seconds=np.where(np.arange(num_steps) % 52 == 30, STEP, 0.0),
        num_transient_steps=0,
    )
    boundaries = list(range(40, num_steps, 40))
    start_wait_seconds = seen_start_waits(steps, boundaries, num_start_steps=17, mean_wait_seconds=STEP / 52)
    assert len(start_wait_seconds) > 90
    truth, sure = 1 / 53, BoundedEstimate(value=1 / 53, lower=1 / 53, upper=1 / 53, confidence=0.95)
    share = EpochStarts(num_batches=40, start_wait_seconds=start_wait_seconds).epoch_wait_share(
        sure, STEP * 53 / 52, unseen_wait_seconds=0.0
    )
    assert share.lower == pytest.approx(truth)
    assert share.value == pytest.approx(truth, abs=0.0005)
    assert share.upper < 1.3 * truth


def test_an_epoch_is_not_said_to_wait_less_than_its_steps_because_starts_happened_to_be_quick() -> None:
    starts = EpochStarts(num_batches=10, start_wait_seconds=[-0.2, -0.1, -0.3, 0.1, -0.2])
    steady = BoundedEstimate(value=0.02, lower=0.01, upper=0.03, confidence=0.95)
    share = starts.epoch_wait_share(steady, 1.0, unseen_wait_seconds=0.0)
    assert starts.mean_start_wait_seconds == 0.0
    assert (share.lower, share.value) == (0.01, pytest.approx(0.02))
    assert share.upper == pytest.approx((0.1 + 0.3) / 10.1)


@pytest.mark.parametrize(("confidence", "count"), [(0.95, 5), (0.99, 7), (0.999, 10)])
def test_the_largest_of_as_many_values_is_above_the_median_as_surely_as_requested(
    confidence: float, count: int
) -> None:
    assert num_values_for_median(confidence) == count
    bounds = mean_bounds([float(number) for number in range(count)], confidence=confidence)
    assert (bounds.lower, bounds.value, bounds.upper) == (0.0, (count - 1) / 2, count - 1.0)
    assert bounds.confidence == confidence
    assert mean_bounds([1.0], confidence=confidence).confidence == 0.5


def test_the_extremes_of_many_values_are_no_bounds_of_their_mean() -> None:
    bounds = mean_bounds([float(number) for number in range(20)], confidence=0.95)
    assert 6.0 < bounds.lower < bounds.value == 9.5 < bounds.upper < 13.0
    assert bounds.confidence == 0.95


@pytest.mark.parametrize("slow_share", [0.1, 0.25, 0.5])
def test_a_bound_of_the_mean_of_many_holds_where_only_some_are_slow(slow_share: float) -> None:
    rng = np.random.default_rng(0)
    draws = [mean_bounds((rng.random(50) < slow_share).astype(float), confidence=0.9) for _ in range(300)]
    assert np.mean([bounds.upper >= slow_share for bounds in draws]) >= 0.89
    assert np.mean([bounds.lower <= slow_share for bounds in draws]) >= 0.89


def test_restarts_at_some_epochs_alone_are_a_part_of_the_wait() -> None:
    """Five of twenty epochs of 4 s begin with 1 s of waiting."""
    verdict = judge(
        recording_of(np.full(4000, STEP / 2), STEP), emulated=False, num_cores=4,
        epoch=EpochStarts(num_batches=200, start_wait_seconds=(0.0, 0.0, 0.0, 1.0) * 5),
    )  # fmt: skip
    assert verdict.epoch_start_wait_seconds == 0.25
    assert verdict.epoch_wait_share is not None
    assert verdict.epoch_wait_share.value == pytest.approx(0.25 / 4.25, rel=0.01)
    assert verdict.epoch_wait_share.lower > 0.02
    assert verdict.kind is VerdictKind.STARVED


def epoch_start_of(clock: Clock, loader: Any) -> Recording:
    loop = MeasuredLoop(loader)
    loop.record(40, lambda _: clock.pass_by(STEP))
    recording = loop.record_epoch_start(10, lambda _: clock.pass_by(STEP))
    loop.close()
    return recording


class Generating(DataLoader[Any]):
    """Yields the batches of torch's own iterator, as litdata's `StreamingDataLoader` does."""

    def __iter__(self) -> Any:
        yield from super().__iter__()


class Counting(DataLoader[Any]):
    """Takes as many batches as the loader has, and no fewer."""

    def __iter__(self) -> Any:
        batches = super().__iter__()
        for _ in range(len(self)):
            yield next(batches)


class Chain:
    """Begins with a DataLoader, as webdataset's `WebLoader` does; yields its batches as they are, or joins two."""

    def __init__(self, loader: Any, num_joined: int = 1) -> None:
        self.pipeline, self.num_joined = [loader], num_joined

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.pipeline[0])
        while joined := list(itertools.islice(batches, self.num_joined)):
            yield joined[0] if self.num_joined == 1 else joined


TORCH_LOADERS: dict[str, Callable[..., Any]] = {
    "torch's": DataLoader,
    "a generator of torch's batches": Generating,
    "a generator that counts torch's batches": Counting,
    "a pipeline of torch's batches": lambda *args, **options: Chain(DataLoader(*args, **options)),
}


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("kind", TORCH_LOADERS)
def test_an_epoch_of_a_torch_loader_ends_with_the_batches_that_it_has_requested(
    clock: Clock, workers: int, persistent: bool, kind: str
) -> None:
    """As in training: broken off, persistent workers would first have to make all that they were asked for."""
    loader = TORCH_LOADERS[kind](
        torch.utils.data.TensorDataset(torch.arange(1000.0)), batch_size=1, num_workers=workers,
        prefetch_factor=3 if workers else None, persistent_workers=persistent,
    )  # fmt: skip
    recording = epoch_start_of(clock, loader)
    (boundary,) = np.flatnonzero(recording.segment_step == 0)
    assert boundary == 3 * workers
    assert len(recording) == boundary + 10


class Counted(Chain):
    """Ends its epochs after a number of batches, as a `WebLoader` does that has `with_epoch`."""

    repetitions = sys.maxsize

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(itertools.chain.from_iterable(super(Counted, self).__iter__() for _ in range(2)), 1500)


class Own(DataLoader[Any]):
    """Makes batches without torch's iterator."""

    def __iter__(self) -> Any:
        return iter(torch.arange(1000.0))


@pytest.mark.parametrize(
    "unseen",
    [
        lambda dataset: Chain(DataLoader(dataset, num_workers=2, persistent_workers=True), 2),
        lambda dataset: Counted(DataLoader(dataset, num_workers=2, persistent_workers=True)),
        Own,
    ],
    ids=["a pipeline that joins batches", "a pipeline that counts batches", "a DataLoader that makes its own"],
)  # fmt: skip
def test_an_epoch_whose_requests_are_not_those_of_steps_is_broken_off(
    clock: Clock, unseen: Callable[[Any], Any]
) -> None:
    recording = epoch_start_of(clock, unseen(torch.utils.data.TensorDataset(torch.arange(1000.0))))
    assert recording.segment_step.tolist()[:10] == list(range(10))


class Exclusive(IterableDataset[torch.Tensor]):
    """Numbers from a file that one reader at a time may have open; to close it takes `RESTART` seconds."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.is_open = clock, False

    def __iter__(self) -> Iterator[torch.Tensor]:
        assert not self.is_open
        self.is_open = True
        try:
            yield from torch.arange(1000.0)
        finally:
            self.is_open = False
            self.clock.pass_by(RESTART)


def test_a_dataset_is_closed_at_the_end_of_an_epoch_before_the_next_one_opens_it(clock: Clock) -> None:
    recording = epoch_start_of(clock, DataLoader(Exclusive(clock), batch_size=None))
    assert recording.segment_step.tolist() == list(range(10))
    assert recording.wait_seconds.tolist() == pytest.approx([RESTART] + [0.0] * 9)


class OtherRank:
    """`all_max` of two ranks, of which the other one's values are known; each has to be asked for."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)

    def all_max(self, value: int) -> int:
        return max(value, self.values.pop(0))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_ranks_with_different_numbers_of_workers_run_as_many_steps_to_the_next_epoch(
    clock: Clock, workers: int
) -> None:
    """The other rank has four batches in flight, and so fills its queue by four steps."""
    numbers = torch.utils.data.TensorDataset(torch.arange(1000.0))
    loop = MeasuredLoop(DataLoader(numbers, batch_size=1, num_workers=workers, prefetch_factor=2 if workers else None))
    other, done = OtherRank(4, 0, 4), list[Any]()
    loop.record(3, lambda _: None)
    recording = loop.record_epoch_start(10, done.append, all_max=other.all_max)
    loop.close()
    assert len(done) == 4 + (1 + 4) + 10
    assert np.flatnonzero(recording.segment_step == 0).tolist() == [4]
    assert other.values == []


def test_a_rank_in_mid_epoch_goes_on_with_the_steps_that_a_rank_whose_epoch_just_began_needs(clock: Clock) -> None:
    """The other rank's epoch begins with the second of four steps, so that it lacks one more."""
    numbers = torch.utils.data.TensorDataset(torch.arange(1000.0))
    loop = MeasuredLoop(DataLoader(numbers, batch_size=1, num_workers=2, prefetch_factor=2))
    other, done = OtherRank(4, 1, 0, 4), list[Any]()
    loop.record(3, lambda _: None)
    loop.record_epoch_start(10, done.append, all_max=other.all_max)
    loop.close()
    assert len(done) == (4 + 1) + (1 + 4) + 10
    assert other.values == []


def test_a_start_together_with_another_rank_is_measured_although_an_epoch_ends_shortly_before(clock: Clock) -> None:
    """Of 14 batches, the 15th is the fourth that is measured; six later the next epoch begins, as the other rank's."""
    numbers = torch.utils.data.TensorDataset(torch.arange(14.0))
    loop = MeasuredLoop(DataLoader(numbers, batch_size=1, num_workers=1, prefetch_factor=2))
    loop.record(3, lambda _: None)
    recording = loop.record_epoch_start(10, lambda _: None, all_max=OtherRank(8, 0, 8).all_max)
    loop.close()
    assert recording.segment_step.tolist() == [1, 2, *range(6), *range(10)]


def test_starts_of_thousands_of_short_epochs_need_little_memory() -> None:
    values = list(np.random.default_rng(0).exponential(size=20_000))
    tracemalloc.start()
    bounds = mean_bounds(values, confidence=0.999)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 100e6
    assert 0.97 < bounds.lower < bounds.value < bounds.upper < 1.04


def test_an_epoch_is_as_sure_as_the_starts_that_were_measured_allow(clock: Clock) -> None:
    few = judge(
        recording_of(np.full(4000, STEP / 2), STEP), emulated=False, num_cores=4,
        epoch=EpochStarts(num_batches=1000, start_wait_seconds=(0.2, 0.3)),
    )  # fmt: skip
    assert few.epoch_wait_share is not None
    assert few.epoch_wait_share.confidence == 0.75
    assert few.wait_share.confidence == 0.95
    begun = [Shards(clock, 10**9) for _ in range(2)]
    verdicts = [
        measured(clock, shards, epoch_batches=1000, confidence=confidence).verdict
        for shards, confidence in zip(begun, (0.95, 0.99), strict=True)
    ]
    assert [verdict.epoch_wait_share.confidence for verdict in verdicts] == [0.95, 0.99]
    assert [shards.num_begun for shards in begun] == [1 + 5, 1 + 7]


def test_starts_that_were_never_seen_to_wait_may_wait_for_the_transfer_of_a_batch() -> None:
    verdict = judge(
        recording_of(np.full(4000, STEP / 2), STEP), emulated=False, num_cores=4,
        epoch=EpochStarts(num_batches=10, start_wait_seconds=(0.0,) * 5),
    )  # fmt: skip
    assert verdict.epoch_wait_share is not None
    assert verdict.epoch_wait_share.value == 0.0
    transfer = verdict.starved_threshold_seconds / 3
    assert verdict.epoch_wait_share.upper == pytest.approx(verdict.wait_share.upper + transfer / (10 * STEP), rel=0.02)
