"""Reading, finding and cutting go on at once, no further ahead than they should, and give the same rows as in turn."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from assets_pairs import entry_of, film, pairs_of_sample
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.image_codec import ImageEncoder
from facefeed.pipeline.dataset.manifest import Receipt
from facefeed.pipeline.errors import InputError, StoppedError, UsageError
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces import FaceFilter, Faces
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import JobSpec, Options, hash_config
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.rows import input_pipeline, row_builder
from facefeed.pipeline.rows.prefetch import prefetch_one
from facefeed.pipeline.rows.row_builder import RowBuilder
from facefeed.pipeline.sources import Entry, list_source
from facefeed.pipeline.video import Frame, Sampling
from numpy.typing import NDArray

T = TypeVar("T")
MakeSource = Callable[..., Path]
PATIENCE_SECONDS = 30.0
"""How long something may take that is not to happen at all, or at once."""


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1, "test-prefetch") as thread:
        yield thread


def idle(*threads: Executor) -> None:
    """Waits until each thread has done what it was given, one after the other."""
    for thread in threads:
        thread.submit(int).result(PATIENCE_SECONDS)


# --- one item ahead


def test_items_come_whole_and_in_their_order(thread: ThreadPoolExecutor) -> None:
    with prefetch_one(iter(range(1000)), thread) as numbers:
        assert list(numbers) == list(range(1000))
    with prefetch_one(iter(()), thread) as nothing:
        assert list(nothing) == []


def test_the_next_item_is_made_while_one_is_in_hand_and_no_further_one(thread: ThreadPoolExecutor) -> None:
    produced: list[int] = []

    def items() -> Iterator[int]:
        for number in range(10):
            produced.append(number)
            yield number

    with prefetch_one(items(), thread) as numbers:
        for number in range(3):
            assert next(numbers) == number
            idle(thread)
            assert produced == list(range(number + 2))


def test_an_error_arrives_where_its_item_would_have(thread: ThreadPoolExecutor) -> None:
    def items() -> Iterator[int]:
        yield from (0, 1)
        raise InputError("truncated", "cut", frames_wanted=9, frames_decoded=2)

    taken: list[int] = []
    with pytest.raises(InputError) as caught, prefetch_one(items(), thread) as numbers:
        taken.extend(numbers)
    assert taken == [0, 1]
    assert (caught.value.reason, caught.value.frames_wanted, caught.value.frames_decoded) == ("truncated", 9, 2)


def test_given_up_half_way_it_waits_for_the_item_under_way_and_closes_what_makes_them(
    thread: ThreadPoolExecutor,
) -> None:
    events: list[str] = []
    begun, leaving = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        try:
            yield 0
            begun.set()
            assert leaving.wait(PATIENCE_SECONDS)
            events.append("made")
            yield 1
        finally:
            events.append("closed")

    def leave_half_way(numbers: Iterator[int]) -> None:
        for _ in numbers:
            assert begun.wait(PATIENCE_SECONDS)
            leaving.set()
            return

    with prefetch_one(items(), thread) as numbers:
        leave_half_way(numbers)
    events.append("left")
    assert events == ["made", "closed", "left"]


def test_after_its_thread_was_let_go_there_is_no_next_item_and_nothing_hangs() -> None:
    thread = ThreadPoolExecutor(1)
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            closed.set()

    with prefetch_one(items(), thread) as numbers:
        assert next(numbers) == 0
        thread.shutdown(wait=False)
        with pytest.raises(RuntimeError, match="after shutdown"):
            list(numbers)
    assert closed.is_set()


# --- the stages of one input


@dataclass
class Watched:
    """`FixedBoxDetector` that calls `on_detect` with the number of the call, from 0, before it answers."""

    on_detect: Callable[[int], None] = lambda _: None
    frames_at_once: int = 2
    inner: FixedBoxDetector = field(default_factory=FixedBoxDetector)
    calls: int = 0

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        number, self.calls = self.calls, self.calls + 1
        self.on_detect(number)
        return self.inner.detect(frames)


@dataclass
class Miscounting(Watched):
    """Gives `more` answers than there are frames."""

    more: int = 1

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        return [*super().detect(frames), Faces.empty()][: len(frames) + self.more]


def maker_of(detector: Any, **options: Any) -> RowBuilder:
    chosen = Options(**{"keep": FaceFilter(min_face_px=8), "size_px": 32, **options})
    job = JobSpec(root=Path(), out=Path(), options=chosen, detector=detector, labels=("real", "fake"), config_hash="")
    return RowBuilder(job)


def frames_of(count: int, on_read: Callable[[int], None] = lambda _: None) -> Iterator[Frame]:
    for number in range(count):
        on_read(number)
        yield Frame(number, number / 25, np.full((48, 64, 3), number, np.uint8))


def batches_of(maker: RowBuilder, frames: Iterator[Frame]) -> Iterator[pa.RecordBatch]:
    return maker.batches(Entry(video_id="a.mp4"), "train", frames)


def test_frames_are_read_while_others_are_searched_and_others_cut() -> None:
    """All three meet: the first list being cut, the second being searched, the third being read."""
    met = threading.Barrier(3)

    def meet_at(moment: int) -> Callable[[int], None]:
        def come(number: int) -> None:
            if number == moment:
                met.wait(PATIENCE_SECONDS)

        return come

    cut = meet_at(0)

    class MeetingEncoder(ImageEncoder):
        def __call__(self, rgb: NDArray[np.uint8]) -> bytes:
            cut(int(rgb.max()))
            return super().__call__(rgb)

    maker = maker_of(Watched(meet_at(1)), image=MeetingEncoder())
    (batch,) = batches_of(maker, frames_of(8, meet_at(4)))
    assert batch["frame_index"].to_pylist() == list(range(8))
    maker.close()


def test_no_stage_is_further_ahead_of_the_next_than_one_list() -> None:
    read: list[int] = []
    detector = Watched()
    maker = maker_of(detector)
    batches = batches_of(maker, frames_of(100, read.append))
    first = next(batches)  # sixteen frames are cut
    idle(maker._detect_executor, maker.read_executor)
    assert first.num_rows == 16
    assert detector.calls == 9
    assert len(read) == 20
    assert sum(batch.num_rows for batch in batches) == 84
    maker.close()


def test_rows_that_nobody_takes_to_the_end_leave_nothing_running() -> None:
    closed = threading.Event()

    def frames() -> Iterator[Frame]:
        try:
            yield from frames_of(100)
        finally:
            closed.set()

    maker = maker_of(Watched())
    batches = batches_of(maker, frames())
    next(batches)
    del batches
    assert closed.is_set()
    maker.close()


def test_a_video_that_breaks_off_says_so_after_its_sound_frames() -> None:
    def frames() -> Iterator[Frame]:
        yield from frames_of(21)
        raise InputError("truncated", "cut", frames_wanted=40, frames_decoded=21)

    maker = maker_of(Watched())
    batches = batches_of(maker, frames())
    assert next(batches).num_rows == 16
    with pytest.raises(InputError) as caught:
        next(batches)
    assert (caught.value.reason, caught.value.frames_wanted, caught.value.frames_decoded) == ("truncated", 40, 21)
    maker.close()


# --- units


@contextmanager
def in_series(items: Iterator[T], thread: Executor) -> Iterator[Iterator[T]]:
    """What `prefetch_one` would be without threads."""
    yield items


def job_of(root: Path, out: Path, detector: Any, labels: tuple[str, ...] = ("real", "fake"), **options: Any) -> JobSpec:
    chosen = Options(**{"sampling": Sampling(every=5), "keep": FaceFilter(min_face_px=16), "size_px": 64, **options})
    config_hash = hash_config(chosen.to_config(detector, labels))
    job = JobSpec(root=root, out=out, options=chosen, detector=detector, labels=labels, config_hash=config_hash)
    make_folders(job.paths)
    return job


def unit_of(job: JobSpec, entries: Sequence[Entry]) -> Unit:
    return Unit.make(entries, "train", config_hash=job.config_hash, salt="0")


def timeless(receipt: Receipt) -> list[Any]:
    """What became of the inputs, but for how long they took."""
    return [replace(outcome, seconds=0.0) for outcome in receipt.inputs]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An original and its fake, each of them also broken off."""
    folder = tmp_path_factory.mktemp("films")
    for clip in pairs_of_sample()[0]:
        film(folder, clip)
        whole = (folder / clip.name).read_bytes()
        (folder / f"cut-{clip.name}").write_bytes(whole[: len(whole) // 2])
    return folder


@pytest.mark.parametrize("options", [{}, {"boxes": "source", "smooth": True, "align": True}], ids=["plain", "all"])
@pytest.mark.parametrize("together", [True, False], ids=["in one unit", "without its original"])
def test_rows_are_those_of_one_stage_after_the_other(
    films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], together: bool
) -> None:
    original, fake = pairs_of_sample()[0]
    whole = [entry_of(films, clip) for clip in (original, fake)]
    cut = [replace(entry, video_id=f"cut-{entry.video_id}", source_id=entry.source_id and f"cut-{entry.source_id}")
           for entry in whole]  # fmt: skip
    cut_fake_of_whole = replace(cut[1], source_id=original.name)
    entries = [*whole, cut_fake_of_whole, *cut] if together else [whole[1]]
    outputs = {}
    for name in ("at once", "in series"):
        if name == "in series":
            monkeypatch.setattr(row_builder, "prefetch_one", in_series)
        worker = UnitWorker(job_of(films, tmp_path / name, Watched(frames_at_once=3), **options))
        receipt = worker.run(unit_of(worker.job, entries))
        outputs[name] = pq.read_table(worker.job.out / str(receipt.file)), timeless(receipt)
        worker.close()
    assert outputs["at once"] == outputs["in series"]
    assert outputs["at once"][0].num_rows > 10


def assert_nothing_is_left(worker: UnitWorker, threads_before: set[threading.Thread]) -> None:
    for new_thread in set(threading.enumerate()) - threads_before:
        new_thread.join(PATIENCE_SECONDS)
    assert set(threading.enumerate()) <= threads_before
    paths = worker.job.paths
    assert [*paths.receipts.iterdir(), *paths.temporary.iterdir(), *paths.faces.rglob("*.parquet")] == []


def test_a_worker_closed_from_another_thread_in_mid_video_stops_and_leaves_nothing(
    make_source: MakeSource, tmp_path: Path
) -> None:
    source = make_source("real/a.mp4", "real/b.mp4")
    searching, closed = threading.Event(), threading.Event()
    before = set(threading.enumerate())

    def until_closed(_: int) -> None:
        searching.set()
        assert closed.wait(PATIENCE_SECONDS)

    worker = UnitWorker(job_of(source, tmp_path / "out", Watched(until_closed, frames_at_once=1)))
    child_pids: list[int | None] = []

    def teardown() -> None:
        assert searching.wait(PATIENCE_SECONDS)
        child_pids.append(worker.pipeline.reader.child_pid)
        worker.close()
        closed.set()

    dask = threading.Thread(target=teardown)
    dask.start()
    with pytest.raises(StoppedError, match="this worker was stopped"):
        worker.run(unit_of(worker.job, list_source(source).entries))
    dask.join()
    assert child_pids[0] is not None
    assert not Path(f"/proc/{child_pids[0]}").exists()
    assert_nothing_is_left(worker, before)


def test_a_closed_worker_starts_nothing_anew(make_source: MakeSource, tmp_path: Path) -> None:
    source, before = make_source("real/a.mp4"), set(threading.enumerate())
    worker = UnitWorker(job_of(source, tmp_path / "out", Watched()))
    worker.close()
    with pytest.raises(StoppedError, match="this worker was stopped"):
        worker.run(unit_of(worker.job, list_source(source).entries))
    assert worker.pipeline.reader.child_pid is None
    assert_nothing_is_left(worker, before)


@pytest.mark.parametrize("more", [1, -1])
def test_a_detector_that_does_not_give_one_answer_for_each_frame_is_refused(
    make_source: MakeSource, tmp_path: Path, more: int
) -> None:
    source = make_source("real/a.mp4")
    worker = UnitWorker(job_of(source, tmp_path / "out", Miscounting(more=more)))
    with pytest.raises(UsageError, match=f"Miscounting gave {2 + more} answers for 2 frames"):
        worker.run(unit_of(worker.job, list_source(source).entries))
    worker.close()


def test_an_interrupt_in_mid_video_leaves_nothing_half_done_and_the_next_unit_is_whole(
    make_source: MakeSource, tmp_path: Path
) -> None:
    source = make_source("real/a.mp4", "real/b.mp4")

    def interrupted(number: int) -> None:
        if number == 2:
            os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C

    worker = UnitWorker(job_of(source, tmp_path / "out", Watched(interrupted, frames_at_once=1)))
    unit = unit_of(worker.job, list_source(source).entries)
    with pytest.raises(KeyboardInterrupt):
        worker.run(unit)
    assert list(worker.job.paths.temporary.iterdir()) == list(worker.job.paths.receipts.iterdir()) == []
    assert [outcome.outcome for outcome in worker.run(unit).inputs] == ["ok", "ok"]
    worker.close()


def test_a_dry_run_may_end_a_video_early_and_the_next_one_is_whole(make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source("real/a.mp4", "real/b.mp4")
    entries = list_source(source).entries
    pipeline = input_pipeline.InputPipeline(job_of(source, tmp_path / "out", Watched(frames_at_once=3)))

    def two(frames: input_pipeline.FrameIterator) -> input_pipeline.FrameIterator:
        yield from (next(frames) for _ in range(2))

    assert [sum(batch.num_rows for batch in pipeline.batches(entry, "train", [entry], limit))
            for entry in entries for limit in (two, iter)] == [2, 5, 2, 5]  # fmt: skip
    pipeline.close()
