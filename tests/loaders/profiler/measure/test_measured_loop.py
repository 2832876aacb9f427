"""What is seen of a loader by a device's clock, of one that is no DataLoader, and of files in and out of memory."""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from assets_clock import Clock
from assets_loaders import CountingStream, LoaderOfStreams
from assets_rows import make_small, shown
from facefeed.loaders import Clip, DevicePrefetcher, FaceDataLoader
from facefeed.loaders.loader import worker_batch_loader
from facefeed.loaders.profiler import arguments
from facefeed.loaders.profiler.measure import batch_timing, instrument, measured_loop, page_cache
from facefeed.loaders.profiler.measure import step_clock as ticks
from facefeed.loaders.profiler.measure.measured_loop import MeasuredLoop, replay_batches
from facefeed.loaders.profiler.measure.recording import Recording, count_images
from facefeed.loaders.profiler.measure.step_clock import CudaStepClock, HostStepClock, step_clock_for
from facefeed.loaders.profiler.measure.steps import SleepingStep
from facefeed.loaders.profiler.measure.variants import with_longer_epoch, with_settings
from facefeed.loaders.profiler.profile import profile
from facefeed.loaders.profiler.verdict import loader_verdict
from facefeed.loaders.profiler.verdict.judge import judge
from facefeed.loaders.torch_internals import workers_of
from facefeed.loaders.workers import worker_options
from facefeed.pipeline.errors import UsageError
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("live") / "out")


class Stream:
    """A device that works through what it is given in order, and the host that gives it; ticks are the device's."""

    def __init__(self) -> None:
        self.host = self.device = 0.0

    def launch(self, seconds: float) -> None:
        self.device = max(self.device, self.host) + seconds

    def begin(self) -> None:
        self.host = self.device = max(self.host, self.device)

    def mark(self) -> float:
        self.device = max(self.device, self.host)
        return self.device

    def seconds_of(self, marks: list[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array(marks)


class Loader:
    """Takes the host a given time for each batch."""

    def __init__(self, stream: Stream, seconds: float) -> None:
        self.stream, self.seconds = stream, seconds

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(1000):
            self.stream.host += self.seconds
            yield torch.zeros(4)


@pytest.mark.parametrize(("load", "share"), [(0.004, 0.0), (0.016, 0.006 / 0.016)])
def test_what_the_host_waits_for_while_the_device_works_is_no_wait(load: float, share: float) -> None:
    stream = Stream()
    recording = MeasuredLoop(Loader(stream, load)).record(300, lambda _: stream.launch(0.010), step_clock=stream)
    assert judge(recording, emulated=False).wait_share.value == pytest.approx(share, abs=1e-3)
    assert recording.step_seconds == pytest.approx(np.full(300, 0.010))


class Held:
    """A batch that takes the host a while to free."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __del__(self) -> None:
        self.stream.host += 0.002


def test_what_freeing_the_last_batch_takes_is_waited_for_as_in_a_for_loop() -> None:
    stream = Stream()

    def step(_batch: Any) -> None:
        stream.launch(0.010)
        stream.begin()

    recording = MeasuredLoop(Held(stream) for _ in range(300)).record(300, step, step_clock=stream)
    assert recording.wait_seconds[1:] == pytest.approx(np.full(299, 0.002))
    assert recording.step_seconds == pytest.approx(np.full(300, 0.010))


def test_a_step_that_is_replayed_on_a_device_takes_what_the_device_takes() -> None:
    stream = Stream()
    assert replay_batches([None], 50, lambda _: stream.launch(0.010), stream).step_seconds == pytest.approx(
        np.full(50, 0.010)
    )


@pytest.mark.gpu
def test_a_gpu_that_is_never_without_work_shows_no_wait_however_long_the_host_waits() -> None:
    device = torch.device("cuda")
    device_clock = step_clock_for(device)
    assert isinstance(device_clock, CudaStepClock)
    batches = [torch.zeros(4)] * 200

    def step(_batch: Any) -> None:
        torch.cuda._sleep(50_000_000)

    recording = MeasuredLoop(batches).record(100, step, step_clock=device_clock)
    assert judge(recording, emulated=False).wait_share.value < 0.01
    assert recording.step_seconds.mean() > 0.005


def test_the_batches_of_a_prefetcher_and_of_a_plain_list_are_seen_as_well(dataset: Path) -> None:
    loader = FaceDataLoader(dataset, 10, image_size=16, num_workers=0)
    batches: list[object] = []
    recording = MeasuredLoop(DevicePrefetcher(loader, "cpu")).record(11, lambda _: None, batches_out=batches)
    assert len(recording.batch_timings) == 11
    assert shown(batches) == shown(loader)
    plain = MeasuredLoop([torch.zeros(3)] * 5).record(12, lambda _: None)
    assert (len(plain.batch_timings), plain.num_images.sum(), plain.segment_step.tolist()) == (
        0,
        36,
        [0, 1, 2, 3, 4] * 2 + [0, 1],
    )


def test_of_clips_the_images_are_counted(dataset: Path) -> None:
    loader = FaceDataLoader(dataset, 3, image_size=16, num_workers=0, clip=Clip(frames=4, clips_per_video=9))
    recording = MeasuredLoop(loader).record(4, lambda _: None)
    assert recording.num_images.tolist() == [12] * 4
    assert count_images(torch.zeros(5, 3, 4, 8, 8)) == 5


def test_a_loader_of_clips_is_profiled(dataset: Path) -> None:
    clip = Clip(frames=4, clips_per_video=9)
    loader = FaceDataLoader(dataset, 3, image_size=16, num_workers=0, clip=clip)
    result = profile(with_longer_epoch(loader, 40), SleepingStep(0.001), steps=60, quick=True)
    assert result.live.num_images.tolist()[0] == 12


@pytest.mark.parametrize("workers", [0, 1])
def test_the_beginning_of_an_epoch_is_measured_with_the_end_of_the_one_before(dataset: Path, workers: int) -> None:
    loop = MeasuredLoop(FaceDataLoader(dataset, 10, image_size=16, num_workers=workers))
    loop.record(3, lambda _: None)
    for _ in range(2):
        recording = loop.record_epoch_start(6, lambda _: None)
        assert recording.segment_step.tolist()[2 * workers + 1 :] == list(range(6))


@pytest.mark.parametrize(
    ("workers", "of_other_rank", "num_before", "num_left"),
    [(0, [4, -11, 9], 3, 6), (1, [4, -11, 9], 3, 6), (0, [0, -4, 12], 10, 2)],
    ids=["no workers", "fewer workers", "a longer epoch"],
)
def test_a_rank_comes_to_the_end_of_an_epoch_by_as_many_steps_as_another_one_with_other_workers_or_epochs(
    dataset: Path, workers: int, of_other_rank: list[int], num_before: int, num_left: int
) -> None:
    """The other one's values: batches in flight, less its epoch's batches, and steps to the end of its epoch."""
    loop, done = MeasuredLoop(FaceDataLoader(dataset, 10, image_size=16, num_workers=workers)), list[Any]()
    loop.record(3, lambda _: None)
    recording = loop.record_epoch_start(3, done.append, all_max=lambda own: max(own, of_other_rank.pop(0)))
    loop.close()
    assert len(done) == num_before + num_left + 3
    assert recording.segment_step.tolist()[num_left - 1 :] == [0, 1, 2]
    assert of_other_rank == []


def test_of_a_device_that_was_idle_before_no_wait_counts_for_the_beginning_of_an_epoch() -> None:
    stream = Stream()
    loop = MeasuredLoop(Loader(stream, 0.008))
    waits = loop.record_epoch_start(6, lambda _: stream.launch(0.010), step_clock=stream).wait_seconds
    assert len(waits) == 6
    assert waits.sum() == pytest.approx(0.0, abs=1e-6)  # loading is hidden by the step before


def test_epochs_of_fewer_batches_than_are_in_flight_begin_as_in_training(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[object]()
    start = FaceDataLoader._start_workers
    monkeypatch.setattr(
        FaceDataLoader, "_start_workers", lambda loader, requests: made.append(loader) or start(loader, requests)
    )
    short = FaceDataLoader(dataset, 50, image_size=16, num_workers=1, prefetch_factor=6)
    steps = len(short)
    assert 1 < steps < 6
    loop = MeasuredLoop(with_longer_epoch(short, 40))
    loop.record(3, lambda _: None)
    for _ in range(2):
        recording = loop.record_epoch_start(steps, lambda _: None)
        assert recording.segment_step.tolist() == [*range(1, steps), *range(steps)]
        assert len(made) == 2, "since then workers go on from one epoch to the next"
    loop.leave_epoch_starts()
    assert loop.record(20, lambda _: None).segment_step.tolist() == list(range(20)), "the long epoch again"


def test_a_stretch_ends_when_its_time_is_over() -> None:
    assert len(MeasuredLoop([torch.zeros(3)] * 5).record(12, lambda _: None, max_seconds=-1)) == 1


def test_how_many_batches_waited_is_known_of_each_question() -> None:
    stream = Stream()
    recording = MeasuredLoop(Loader(stream, 0.001)).record(20, lambda _: stream.launch(0.010), step_clock=stream)
    assert set(recording.queue_depth.tolist()) == {-1}  # nobody knows
    loader = DataLoader(TensorDataset(torch.zeros(100, 1)), 1, num_workers=1, multiprocessing_context="forkserver")
    depth = MeasuredLoop(loader).record(100, lambda _: None).queue_depth
    assert set(depth[:99].tolist()) <= {0, 1, 2}
    assert depth[99] == -1  # what was ready then was handed out later


def test_an_evicted_file_comes_from_storage_and_one_that_was_read_from_memory(dataset: Path, tmp_path: Path) -> None:
    loader = FaceDataLoader(dataset, 10, image_size=16, num_workers=0)
    files = page_cache.parquet_files(loader)
    assert files
    assert all(parquet_file.suffix == ".parquet" for parquet_file in files)
    assert page_cache.parquet_files([1, 2]) == []
    path = tmp_path / "file"
    path.write_bytes(os.urandom(4 << 20))
    with path.open("rb") as file:
        os.fsync(file.fileno())
    before = page_cache.storage_bytes_read()
    page_cache.evict([path])
    path.read_bytes()
    evicted = page_cache.storage_bytes_read()
    path.read_bytes()
    after = page_cache.storage_bytes_read()
    if before is None or evicted is None or after is None:
        pytest.skip("the system does not say what came from storage")
    if evicted == before:
        pytest.skip("this file system keeps its files in memory")
    assert evicted - before >= 4 << 20
    assert after == evicted


def test_of_a_chain_that_begins_with_a_dataloader_the_dataloader_is_seen() -> None:
    """As webdataset's WebLoader is."""

    class Chain:
        def __init__(self) -> None:
            self.pipeline: list[Any] = [DataLoader(TensorDataset(torch.arange(6.0)), 2), lambda batch: batch[0]]

        def __iter__(self) -> Iterator[Any]:
            return map(self.pipeline[1], self.pipeline[0])

    chain, batches = Chain(), list[Any]()
    recording = MeasuredLoop(chain).record(3, lambda _: None, batches_out=batches)
    assert len(recording.batch_timings) == 3
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5]]
    assert isinstance(with_settings(chain, num_workers=1, prefetch_factor=2), Chain)


class Rebatched:
    """Batches of `num_inner` of a DataLoader joined, or cut into `num_outer`, as webdataset's recipe has it."""

    def __init__(self, num_inner: int, num_outer: int) -> None:
        self.pipeline: list[Any] = [DataLoader(TensorDataset(torch.arange(4000.0)), 4, num_workers=0)]
        self.num_inner, self.num_outer = num_inner, num_outer

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.pipeline[0])
        while joined := list(itertools.islice(batches, self.num_inner)):
            yield from torch.cat([batch[0] for batch in joined]).chunk(self.num_outer)


@pytest.mark.parametrize(("num_inner", "num_outer"), [(4, 1), (1, 4)])
def test_timings_of_batches_that_are_joined_or_cut_later_are_not_taken_for_those_of_steps(
    clock: Clock, num_inner: int, num_outer: int
) -> None:
    profiled = profile(Rebatched(num_inner, num_outer), lambda _: clock.pass_by(0.02), steps=100)
    assert len(profiled.live.batch_timings) == 0
    assert profiled.verdict.headroom is None
    assert not profiled.advice
    assert "queue is not seen" in str(profiled.verdict)


class Opened(torch.utils.data.Dataset[torch.Tensor]):
    """Opened by `worker_init_fn`, as torch's documentation has it; and no place for anything else."""

    __slots__ = ("transform", "value")

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1,), self.value + index)


def open_dataset(_worker: int) -> None:
    info = torch.utils.data.get_worker_info()
    assert info is not None
    assert type(info.dataset) is Opened
    info.dataset.value = 100


def test_a_dataset_that_workers_open_is_the_one_that_is_read() -> None:
    loader = DataLoader(Opened(), 4, num_workers=1, worker_init_fn=open_dataset)
    batches: list[Any] = []
    MeasuredLoop(loader).record(10, lambda _: None, batches_out=batches)
    assert torch.cat(batches).ravel().tolist() == list(range(100, 140))


class Doubled(torch.utils.data.Dataset[torch.Tensor]):
    """With a transform, as torchvision's datasets have theirs."""

    def __init__(self) -> None:
        self.transform = lambda value: 2 * value

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.transform(torch.tensor(float(index)))


class OpenedOnce(torch.utils.data.Dataset[torch.Tensor]):
    """Opens its file with the first item, which fails for a file that is open already, as of LMDB."""

    def __init__(self) -> None:
        self.transform: Any = float
        self.file: Any = None
        self.opened: list[int] = []  # shared by its copies

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.file is None:
            self.opened.append(index)
            self.file = "open"
        return torch.tensor(self.transform(index))


def test_a_dataset_that_opens_its_file_with_the_first_item_opens_it_once() -> None:
    dataset = OpenedOnce()
    recording = MeasuredLoop(DataLoader(dataset, 4)).record(10, lambda _: None)
    assert dataset.opened == [0]
    stages = [bool(timing.stage_seconds.get("augment")) for timing in recording.batch_timings]
    assert stages == [True, False, False, False, True, False, False, False, True, False]


@pytest.mark.parametrize("workers", [0, 3])
def test_settings_that_are_tried_are_those_that_the_loader_runs_with(dataset: Path, workers: int) -> None:
    loader = FaceDataLoader(dataset, 5, image_size=16, **({} if workers else {"num_workers": 0}))
    tried = with_settings(loader, num_workers=1, prefetch_factor=3)
    list(tried)
    assert (tried.num_workers, tried.prefetch_factor, tried.persistent_workers) == (1, 3, True)
    assert len(workers_of(tried._iterator)) == 1


def test_a_loader_that_was_made_before_its_ranks_started_is_recorded_with_the_workers_that_it_runs_with(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made for one rank with two cores, and run as one of two."""
    monkeypatch.setattr(worker_options, "default_num_workers", lambda _ranks: 2)
    loader = FaceDataLoader(dataset, 5, image_size=16)
    monkeypatch.setattr(worker_batch_loader, "default_num_workers", lambda _ranks: 1)
    loop = MeasuredLoop(loader)
    assert loop.max_in_flight == 2
    recording = loop.record(2, lambda _: None)
    assert recording.num_workers == loop._loader.num_workers == 1
    assert loader.num_workers == 2
    loop.close()


def test_a_recording_says_whether_workers_go_on_to_the_next_epoch(dataset: Path) -> None:
    loaders = {
        True: FaceDataLoader(dataset, 5, image_size=16, num_workers=1),
        False: DataLoader(TensorDataset(torch.arange(8)), 4, num_workers=1),
    }
    for persist, loader in loaders.items():
        loop = MeasuredLoop(loader)
        recording = loop.record(2, lambda _: None)
        loop.close()
        assert Recording.concatenate([recording, recording]).persistent_workers is persist


def test_a_closed_loop_has_no_workers_left_though_they_persist() -> None:
    before = multiprocessing.active_children()
    loop = MeasuredLoop(DataLoader(TensorDataset(torch.arange(80)), 4, num_workers=1, persistent_workers=True))
    loop.record(3, lambda _: None)
    assert multiprocessing.active_children() != before
    loop.close()
    assert multiprocessing.active_children() == before


def test_bytes_that_workers_read_before_they_ended_are_counted(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "storage_bytes_read", lambda: 0)
    monkeypatch.setattr(batch_timing.ThreadCounters, "new_storage_bytes", lambda _self: 4096)
    recording = MeasuredLoop(DataLoader(TensorDataset(torch.arange(80)), 4)).record(10, lambda _: clock.pass_by(0.01))
    assert recording.storage_bytes == 10 * 4096


def test_a_step_that_waits_for_a_core_is_not_taken_for_a_batch_that_does(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(TensorDataset):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
            clock.pass_by(0.001)
            return super().__getitem__(index)

    # The kernel counts that the thread has waited for a core all the time.
    monkeypatch.setattr(os, "pread", lambda *_: b"0 %d 0" % round(1e9 * clock()))
    loop = MeasuredLoop(DataLoader(Slow(torch.arange(80)), 4))
    recording = loop.record(10, lambda _: clock.pass_by(0.01))
    assert [timing.core_wait_seconds for timing in recording.batch_timings] == pytest.approx([0.004] * 10)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize(
    ("batches_on", "message"),
    [
        ("cuda:0", "batches are on cuda:0, whose clock is needed; give device='cuda:0'"),
        ("mps:0", r"batches are on mps:0, whose clock cannot be read; load them .* with `torch\.accelerator"),
        ("xpu:1", "batches are on xpu:1, whose clock cannot be read; load them to the CPU, move them in the step"),
    ],
)
def test_batches_on_a_device_whose_clock_is_not_read_are_refused(
    device: str | None, batches_on: str, message: str
) -> None:
    with FakeTensorMode():
        batches = [torch.zeros(4, device=batches_on) for _ in range(20)]
    with pytest.raises(UsageError, match=f"^device={device!r}: the loader's {message}"):
        profile(batches, lambda _: None, steps=50, device=device)
    profile(batches, SleepingStep(0.0005), steps=50, quick=True)  # it has a clock of its own


class EmulatedCudaClock(CudaStepClock):
    """The clock of a card that is not here."""

    begin, mark, seconds_of = HostStepClock.begin, HostStepClock.mark, HostStepClock.seconds_of  # type: ignore[assignment]


@pytest.mark.parametrize(("device", "is_refused"), [("cuda", True), ("cuda:0", True), ("cuda:1", False)])
def test_a_device_that_is_another_card_than_the_batches_is_refused(
    monkeypatch: pytest.MonkeyPatch, device: str, is_refused: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(arguments, "check_options", lambda **_: None)  # no card is here
    monkeypatch.setattr(loader_verdict, "step_clock_for", lambda _: EmulatedCudaClock(torch.device(device)))
    with FakeTensorMode():
        batches = [torch.zeros(4, device="cuda:1") for _ in range(20)]
    refused = pytest.raises(UsageError, match=f"^device='{device}': the loader's batches are on cuda:1, whose clock is")
    with refused if is_refused else contextlib.nullcontext():
        profile(batches, lambda _: None, steps=50, device=device, quick=True)


@pytest.mark.parametrize(("workers", "batches"), [(0, 1), (0, 2), (2, 4), (2, 5)])
def test_an_epoch_without_two_steady_steps_is_refused_at_once(workers: int, batches: int) -> None:
    calls = list[Any]()
    loader = DataLoader(TensorDataset(torch.arange(batches)), 1, num_workers=workers)
    with pytest.raises(UsageError, match=f"an epoch has {batches} batch"):
        profile(loader, calls.append, steps=50)
    assert calls == []


@pytest.mark.parametrize(
    ("parts", "values"),
    [
        (Subset(Doubled(), [1, 3]), [2.0, 6.0]),
        (ConcatDataset([Subset(Doubled(), [5]), Doubled()]), [10.0, *range(0, 16, 2)]),
    ],
)
def test_transforms_are_timed_apart_in_parts_of_a_dataset_too(parts: Any, values: list[float]) -> None:
    batches: list[Any] = []
    recording = MeasuredLoop(DataLoader(parts, 3)).record(-(-len(values) // 3), lambda _: None, batches_out=batches)
    assert torch.cat(batches).tolist() == values
    assert recording.batch_timings[0].stage_seconds["augment"] > 0


def test_a_profile_disturbs_no_order_and_no_random_number() -> None:
    data = TensorDataset(torch.arange(100))

    def draw(*, profiled: bool) -> list[Any]:
        torch.manual_seed(3)
        loader = DataLoader(data, 10, shuffle=True, generator=torch.Generator().manual_seed(1))
        if profiled:
            profile(loader, lambda _: None, steps=50, quick=True)
        return [batch[0].tolist() for batch in loader] + torch.rand(3).tolist()

    assert draw(profiled=True) == draw(profiled=False)


class LookedAt(Clock):
    """Moves by a microsecond at every look, so that who waits for it gets on."""

    def __call__(self) -> float:
        self.pass_by(1e-6)
        return self.now


class Slow(torch.utils.data.Sampler[list[int]]):
    """A batch sampler that takes 20 ms a batch, in the loop's own process."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def __len__(self) -> int:
        return 100

    def __iter__(self) -> Iterator[list[int]]:
        for number in range(100):
            self.clock.pass_by(0.02)
            yield [number]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_that_waits_for_its_sampler_is_starved_and_advised_of_it(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = LookedAt()
    for module in (measured_loop, batch_timing, instrument, ticks):
        monkeypatch.setattr(module, "clock", clock)
    loader = DataLoader(
        TensorDataset(torch.arange(100)), batch_sampler=Slow(clock), num_workers=workers,
        multiprocessing_context="fork" if workers else None,  # workers take the clock along: making takes no time
    )  # fmt: skip
    loader_profile = profile(loader, lambda _: clock.pass_by(0.005), steps=200)
    assert loader_profile.verdict.wait_share.value == pytest.approx(0.8, abs=0.02)  # 20 of 25 ms
    assert loader_profile.verdict.model_wait_share == pytest.approx(loader_profile.verdict.wait_share.value, abs=0.02)
    assert loader_profile.step_part_seconds["sampling"] == pytest.approx(
        0.02, rel=0.05
    )  # an epoch's first ones are drawn as it opens
    sampler = next(item for item in loader_profile.advice if item.change.startswith("the sampler keeps the loop for"))
    assert sampler.predicted_wait_share < loader_profile.verdict.wait_share.value / 2


def test_of_batches_that_come_in_any_order_nothing_is_computed() -> None:
    loader_profile = profile(
        DataLoader(TensorDataset(torch.arange(400)), 2, num_workers=2, in_order=False), lambda _: None, steps=60
    )
    assert loader_profile.verdict.model_wait_share is None
    assert (loader_profile.advice, loader_profile.curve, loader_profile.verdict.fastest_step_seconds) == ((), (), None)


def test_images_a_second_are_those_of_the_steady_state() -> None:
    loader = DataLoader(TensorDataset(torch.arange(13)), 4)  # 4, 4, 4, 1: without workers all but the first are steady
    recording = MeasuredLoop(loader).record(4, lambda _: None)
    assert recording.num_images.tolist() == [4, 4, 4, 1]
    assert recording.images_per_second * recording.steady_seconds == pytest.approx(9)


class BeginsAnew:
    """An iterator over 40 batches that begins anew with `iter()`, as those of DALI and Lightning do."""

    def __iter__(self) -> BeginsAnew:
        self.num_left = 40
        return self

    def __next__(self) -> torch.Tensor:
        self.num_left -= 1
        if self.num_left < 0:
            raise StopIteration
        return torch.zeros(4)


def test_an_iterator_that_begins_anew_is_profiled(clock: Clock) -> None:
    assert profile(BeginsAnew(), lambda _: clock.pass_by(0.005), steps=100, quick=True).verdict.num_epoch_batches == 40


def test_what_cannot_be_profiled_is_refused_with_the_reason(dataset: Path) -> None:
    batches = [torch.zeros(1)] * 100
    of_loaders = iter(DataLoader(batches)), iter(FaceDataLoader(dataset, 10, image_size=16, num_workers=0))
    for iterator in ((batch for batch in batches), iter(batches), itertools.cycle(batches), *of_loaders):
        with pytest.raises(UsageError, match="can be iterated only once"):
            profile(iterator, lambda _: None)
    short = DataLoader(TensorDataset(torch.zeros(4)), 4, num_workers=1)
    with pytest.raises(UsageError, match="an epoch has 1 batch, and 2 can be made ahead"):
        profile(short, lambda _: None, steps=50, quick=True)
    with pytest.raises(UsageError, match=r"an epoch has 1 batch, and 0 can be made ahead: .* smaller batch_size$"):
        profile([torch.zeros(1)], lambda _: None, steps=50, quick=True)
    passes = iter([[torch.zeros(1)] * 5, []])

    class Emptied(list[torch.Tensor]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            return iter(next(passes))

        __len__ = None  # type: ignore[assignment]

    with pytest.raises(UsageError, match="the loader has no batches when it is iterated again"):
        profile(Emptied(), lambda _: None, steps=50, quick=True)
    for unusable in ({"a": 1}, 5):
        with pytest.raises(UsageError, match=f"{type(unusable).__name__}: has no batches to iterate over"):
            profile(unusable, lambda _: None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"confidence": 95}, "confidence=95: must be between 0 and 1"),
        ({"confidence": 0.9999}, r"confidence=0\.9999: must be at most 0\.999, the highest that .* resolve; try 0\.99"),
        ({"confidence": "0.9"}, "confidence='0.9': must be between 0 and 1"),
        ({"confidence": 10**400}, "must be between 0 and 1"),
        ({"loader": "faces"}, r"^'faces': is a path; .* FaceDataLoader\('faces'\)"),
        ({"step": None}, "step=None: must be a function of a batch"),
        ({"steps": 60.5}, r"steps=60\.5: must be a whole number of at least 50"),
        ({"steps": "60"}, "steps='60': must be a whole number of at least 50"),
        ({"steps": float("nan")}, "steps=nan: must be a whole number of at least 50"),
        ({"epoch_batches": 0}, "epoch_batches=0: must be at least 1"),
        ({"epoch_batches": -1}, "epoch_batches=-1: must be at least 1"),
        ({"against": 5}, "against=5: must be loaders by their names"),
        ({"against": {"a": 3}}, "against='a': int: has no batches to iterate over"),
        ({"device": "gpu"}, "device='gpu': must be 'cpu' or 'cuda'"),
        ({"verify": True, "quick": True}, "verify follows advice, which quick does not give"),
    ],
    ids=str,
)
def test_arguments_that_cannot_be_meant_are_refused_before_a_batch_is_loaded(
    arguments: dict[str, Any], message: str
) -> None:
    class Unread(list[torch.Tensor]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            raise AssertionError("a batch was loaded")

    with pytest.raises(UsageError, match=message):
        profile(**{"loader": Unread(), "step": len, **arguments})


def test_images_are_counted_wherever_a_batch_has_them() -> None:
    assert count_images({"path": ["a", "b"], "x": torch.zeros(5, 3)}) == 5
    assert count_images({"epoch": torch.tensor(3), "x": torch.zeros(5, 3)}) == 5
    assert count_images((torch.zeros(2, 8, 3, 4, 4), torch.zeros(2))) == 16, "clips"


def test_images_of_any_size_are_counted_one_by_one() -> None:
    images = tuple(torch.zeros(3, height, 20) for height in (10, 20, 30, 40))
    assert count_images((images, ({"boxes": torch.zeros(2, 4)},) * 4)) == 4
    assert count_images({"images": list(images), "labels": torch.zeros(4)}) == 4


def test_a_batch_without_tensors_counts_as_one_so_that_what_is_read_for_it_is_not_the_whole_run_s() -> None:
    assert count_images(None) == count_images(["a"]) == count_images({"path": ["a", "b"]}) == 1


class Looks(list[Any]):
    """A list that counts how often one of its kind was read."""

    count = 0

    def __iter__(self) -> Iterator[Any]:
        for value in super().__iter__():
            Looks.count += 1
            yield value


def test_a_batch_of_token_ids_or_polygons_is_not_read_through_within_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Looks, "count", 0)
    token_ids = {"input_ids": [Looks([1] * 512)] * 64, "labels": Looks([0] * 64)}
    polygon = {"category_id": 1, "bbox": Looks([1.0, 2.0, 3.0, 4.0]), "segmentation": Looks([Looks([0.5] * 120)])}
    polygons = {"annotations": Looks([Looks([polygon] * 8)] * 8), "image": torch.zeros(8, 3, 4, 4)}
    assert (count_images(token_ids), count_images(polygons)) == (1, 8)
    assert Looks.count < 100


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_asks_for_its_datasets_type_and_methods_is_measured(workers: int) -> None:
    loader = LoaderOfStreams(
        CountingStream(), 2, num_workers=workers, multiprocessing_context="spawn" if workers else None
    )
    batches: list[Any] = []
    MeasuredLoop(loader).record(4, lambda _: None, batches_out=batches)
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_a_loop_that_nobody_holds_any_more_ends_its_workers_at_once() -> None:
    """In a cycle with its loader it would wait for the garbage collector, and the next step for its workers to end."""
    loop = MeasuredLoop(DataLoader(TensorDataset(torch.arange(40)), 4, num_workers=1))
    loop.record(2, lambda _: None)
    (worker,) = workers_of(loop._iterator)
    gc.disable()
    try:
        del loop
        assert not worker.is_alive()
    finally:
        gc.enable()
