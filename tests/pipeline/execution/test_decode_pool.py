"""Several decoders for one detector: the same file, the same account, and one broken video hurts itself alone."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from assets_faults import faulty_child
from assets_pairs import entry_of, film, pairs_of_sample
from distributed import Client, LocalCluster
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.manifest import InputOutcome
from facefeed.pipeline.errors import StoppedError
from facefeed.pipeline.execution import capacity, decode_pool
from facefeed.pipeline.execution.capacity import decoders_per_worker
from facefeed.pipeline.execution.cluster import local_client
from facefeed.pipeline.execution.decode_pool import group_families
from facefeed.pipeline.execution.unit_task import UnitError, install_unit_workers, run_unit
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces import FaceFilter, Faces
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.faces.landmarks.landmarker import FaceShape
from facefeed.pipeline.faces.landmarks.template import TemplateLandmarker
from facefeed.pipeline.machine import usable_cores
from facefeed.pipeline.planning.options import JobSpec, Options, hash_config
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.rows import spools
from facefeed.pipeline.sources import Entry, list_source
from facefeed.pipeline.video import DecoderLimits, DecodeSummary, Frame, FrameTimes, MediaReader, Sampling
from numpy.typing import NDArray

MakeSource = Callable[..., Path]
PATIENCE_SECONDS = 30.0
SAMPLING = Sampling(every=5)


def entry(name: str, source: str | None = None) -> Entry:
    return Entry(video_id=name, source_id=source)


def names(families: list[list[Entry]]) -> list[str]:
    return ["".join(member.video_id for member in family) for family in families]


def test_neighbours_that_were_made_from_each_other_are_one_family() -> None:
    assert names(group_families([entry("a"), entry("b", "a"), entry("c", "a"), entry("d"), entry("e")])) == [
        "abc",
        "d",
        "e",
    ]
    assert names(group_families([entry("b", "a"), entry("c", "a"), entry("d", "x")])) == ["bc", "d"]  # half of a unit
    assert names(group_families([entry("a"), entry("b", "a"), entry("c", "b"), entry("d")])) == ["abc", "d"]
    assert names(group_families([])) == []


def job_of(root: Path, out: Path, detector: Any, **more: Any) -> JobSpec:
    options = Options(sampling=SAMPLING, keep=FaceFilter(min_face_px=16), size_px=64)
    labels = ("real", "fake")
    config_hash = hash_config(options.to_config(detector, labels))
    job = JobSpec(
        root=root, out=out, options=options, detector=detector, labels=labels, config_hash=config_hash, **more
    )
    make_folders(job.paths)
    return job


def run(job: JobSpec, entries: Sequence[Entry], decoders: int) -> tuple[list[dict[str, Any]], list[InputOutcome]]:
    """Rows in the order of the file, and what became of the inputs, but for how long they took."""
    worker = UnitWorker(job, decoders=decoders)
    reported: list[InputOutcome] = []
    receipt = worker.run(Unit.make(entries, "train", config_hash=job.config_hash, salt="0"), reported.append)
    worker.close()
    assert reported == receipt.inputs
    rows = pq.read_table(job.out / str(receipt.file)).to_pylist() if receipt.file else []
    return rows, [replace(outcome, seconds=0.0) for outcome in receipt.inputs]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two originals with their fakes, one of each broken off, and a file that is no video."""
    folder = tmp_path_factory.mktemp("films")
    for pair in pairs_of_sample()[:2]:
        film(folder, *pair)
    for clip in pairs_of_sample()[0]:
        whole = (folder / clip.name).read_bytes()
        (folder / f"cut-{clip.name}").write_bytes(whole[: len(whole) // 2])
    (folder / "text.mp4").write_text("no video\n" * 50)
    return folder


def test_three_decoders_make_the_file_that_one_makes(films: Path, tmp_path: Path) -> None:
    (first, first_fake), (second, second_fake) = ([entry_of(films, clip) for clip in pair]
                                                  for pair in pairs_of_sample()[:2])  # fmt: skip
    text, missing = replace(first, video_id="text.mp4"), replace(first, video_id="gone.mp4")
    cut, cut_fake = (replace(video, video_id=f"cut-{video.video_id}") for video in (first, first_fake))
    entries = [text, second, second_fake, missing, first, first_fake, cut_fake, cut]
    expected = run(job_of(films, tmp_path / "1", FixedBoxDetector()), entries, 1)
    assert run(job_of(films, tmp_path / "3", FixedBoxDetector()), entries, 3) == expected
    rows, outcomes = expected
    assert [outcome.reason for outcome in outcomes] == [
        "not_video", None, None, "unreadable", None, None, "truncated", "truncated"
    ]  # fmt: skip
    assert {row["video_id"] for row in rows if row["mask"]} == {first_fake.video_id, second_fake.video_id}


def test_what_is_gone_from_the_source_is_kept_on_any_lane(make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source("a.mp4", "b.mp4", "c.mp4", "d.mp4")
    entries = [replace(video, label=0) for video in list_source(source).entries]
    tables = []
    for decoders in (1, 3):
        job = job_of(source, tmp_path / str(decoders), FixedBoxDetector())
        first = Unit.make(entries, "train", config_hash=job.config_hash, salt="0")
        worker = UnitWorker(job, decoders=decoders)
        worker.run(first)
        shutil.move(source / "b.mp4", tmp_path / "b.mp4")
        replacement = Unit.make(entries, "train", config_hash=job.config_hash, salt="1", supersedes=[first.unit_id])
        receipt = worker.run(replacement)
        shutil.move(tmp_path / "b.mp4", source / "b.mp4")
        tables.append(pq.read_table(job.out / str(receipt.file)))
        assert [outcome.outcome for outcome in receipt.inputs] == ["ok"] * 4
        worker.close()
    assert tables[0] == tables[1]
    assert tables[0]["video_id"].to_pylist() == [f"{name}.mp4" for name in "abcd" for _ in range(5)]


class Unfilmed(MediaReader):
    """Makes up five frames of any video, and starts no child; calls `on_open` with the name first."""

    def __init__(self, on_open: Callable[[str], None]) -> None:
        super().__init__()
        self._on_open = on_open

    def times(self, path: Path, sampling: Sampling) -> FrameTimes:
        return FrameTimes(np.arange(5) / 25, np.arange(5))

    def frames(
        self, path: Path, sampling: Sampling, also: Sequence[int] = (), summary: DecodeSummary | None = None
    ) -> Iterator[Frame]:
        self._on_open(path.name)
        if summary is not None:
            summary.frames_wanted = summary.frames_decoded = 5
        for number in range(5):
            yield Frame(number, number / 25, np.full((48, 64, 3), number, np.uint8))


def unfilmed(job: JobSpec, decoders: int, on_open: Callable[[str], None]) -> UnitWorker:
    worker = UnitWorker(job, decoders=decoders)
    for pipeline in worker._pool._pipelines:
        pipeline.reader = Unfilmed(on_open)
    return worker


def unit_of(job: JobSpec, count: int) -> Unit:
    entries = [Entry(video_id=f"{number}.mp4", size_bytes=1, mtime_ns=1, label=0) for number in range(count)]
    return Unit.make(entries, "train", config_hash=job.config_hash, salt="0")


@dataclass
class Alone:
    """A detector that notes whether two threads were ever in it at once."""

    inner: FixedBoxDetector = field(default_factory=FixedBoxDetector)
    inside: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(1))
    met: threading.Event = field(default_factory=threading.Event)
    frames_at_once: int = 1

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        if not self.inside.acquire(blocking=False):
            self.met.set()
            return self.inner.detect(frames)
        self.met.wait(0.01)  # a moment for another to come in
        self.inside.release()
        return self.inner.detect(frames)


def test_three_videos_are_decoded_at_once_and_the_detector_is_one_thread_s_at_a_time(tmp_path: Path) -> None:
    opened = threading.Barrier(3)
    detector = Alone()
    worker = unfilmed(job_of(tmp_path, tmp_path / "out", detector), 3, lambda _: opened.wait(PATIENCE_SECONDS) and None)
    assert worker.run(unit_of(worker.job, 6)).rows == 30
    assert not detector.met.is_set()
    worker.close()


@dataclass
class LandmarkerAlone:
    """A landmarker that notes whether two threads were ever in it at once."""

    inner: TemplateLandmarker = field(default_factory=TemplateLandmarker)
    inside: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(1))
    met: threading.Event = field(default_factory=threading.Event)
    is_dense: bool = False

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def locate(self, frames: Sequence[NDArray[np.uint8]], faces: Sequence[Faces]) -> list[list[FaceShape]]:
        if not self.inside.acquire(blocking=False):
            self.met.set()
            return self.inner.locate(frames, faces)
        self.met.wait(0.01)  # a moment for another to come in
        self.inside.release()
        return self.inner.locate(frames, faces)


def test_the_points_of_a_face_are_of_its_own_video_where_several_are_decoded_at_once(tmp_path: Path) -> None:
    """A landmarker need not be thread-safe: a network that two threads call gives one the other's points."""
    opened = threading.Barrier(3)
    landmarker = LandmarkerAlone()
    job = job_of(tmp_path, tmp_path / "out", FixedBoxDetector(), landmarker=landmarker)
    worker = unfilmed(job, 3, lambda _: opened.wait(PATIENCE_SECONDS) and None)
    assert worker.run(unit_of(worker.job, 6)).rows == 30
    assert not landmarker.met.is_set()
    worker.close()


def test_no_more_than_two_families_a_decoder_are_held(tmp_path: Path) -> None:
    opened: list[str] = []
    held: list[int] = []
    worker = unfilmed(job_of(tmp_path, tmp_path / "out", FixedBoxDetector()), 2, opened.append)

    def count(_: InputOutcome) -> None:
        idle = threading.Barrier(2)  # both decoders have finished what they were given
        for waiting in [worker._pool._executor.submit(idle.wait, PATIENCE_SECONDS) for _ in range(2)]:
            waiting.result()
        held.append(len(opened) - len(held))

    assert worker.run(unit_of(worker.job, 6), count).rows == 30
    assert held == [4, 4, 4, 3, 2, 1]
    worker.close()


def bytes_in_memory(worker: UnitWorker) -> int:
    """What the rows that wait to be taken hold of it."""
    waiting = [spool for pipeline in worker._pool._pipelines for spool in pipeline._spools if not spool.closed]
    files = [getattr(spool, "_file") for spool in waiting]  # noqa: B009 (tempfile has no public way to it)
    return sum(len(file.getbuffer()) for file in files if hasattr(file, "getbuffer"))


def test_rows_that_wait_to_be_written_take_no_more_memory_than_their_bound_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spools, "SPOOL_BYTES", 64 << 10)
    held: list[int] = []
    worker = unfilmed(
        job_of(tmp_path, tmp_path / "out", FixedBoxDetector()), 2, lambda _: held.append(bytes_in_memory(worker))
    )
    unit = unit_of(worker.job, 2)
    fakes = [
        replace(unit.inputs[0], video_id=f"{number}-{fake}.mp4", label=1, source_id=f"{number}.mp4")
        for number in range(2)
        for fake in range(12)
    ]
    family = sorted(
        [*unit.inputs, *fakes], key=lambda video: (video.source_id or video.video_id, video.source_id or "")
    )
    assert worker.run(Unit.make(family, "train", config_hash=worker.job.config_hash, salt="0")).rows == 5 * 26
    assert 0 < max(held) <= 64 << 10
    assert list(worker.job.paths.temporary.iterdir()) == []
    worker.close()


def test_a_video_that_takes_long_does_not_stop_the_other_lane_at_once(tmp_path: Path) -> None:
    last_that_may_begin = threading.Event()

    def opened(name: str) -> None:
        if name == "0.mp4":
            assert last_that_may_begin.wait(PATIENCE_SECONDS)
        elif name == "3.mp4":
            last_that_may_begin.set()

    worker = unfilmed(job_of(tmp_path, tmp_path / "out", FixedBoxDetector()), 2, opened)
    receipt = worker.run(unit_of(worker.job, 6))
    assert [outcome.outcome for outcome in receipt.inputs] == ["ok"] * 6
    rows = pq.read_table(worker.job.out / str(receipt.file))["video_id"].to_pylist()
    assert rows == [f"{number}.mp4" for number in range(6) for _ in range(5)]
    worker.close()


def test_a_video_that_takes_its_decoder_down_hurts_no_lane_beside_it(make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source(*(f"{name}.mp4" for name in ("a", "b", "poison", "y", "z")))
    job = job_of(source, tmp_path / "out", FixedBoxDetector(), limits=DecoderLimits(command=faulty_child("segfault")))
    rows, outcomes = run(job, [replace(video, label=0) for video in list_source(source).entries], 3)
    assert [(outcome.outcome, outcome.reason) for outcome in outcomes] == [
        ("ok", None), ("ok", None), ("failed", "crashed"), ("ok", None), ("ok", None)
    ]  # fmt: skip
    assert [row["video_id"] for row in rows[::5]] == ["a.mp4", "b.mp4", "y.mp4", "z.mp4"]


def test_closed_in_mid_unit_every_lane_ends_and_nothing_is_left(make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source(*(f"{name}.mp4" for name in "abcdef"))
    begun, closed, before = threading.Barrier(4), threading.Event(), set(threading.enumerate())

    class Waiting(MediaReader):
        def frames(
            self, path: Path, sampling: Sampling, also: Sequence[int] = (), summary: DecodeSummary | None = None
        ) -> Iterator[Frame]:
            for number, frame in enumerate(super().frames(path, sampling, also, summary)):
                yield frame
                if number == 1:
                    begun.wait(PATIENCE_SECONDS)
                    assert closed.wait(PATIENCE_SECONDS)

    job = job_of(source, tmp_path / "out", FixedBoxDetector())
    worker = UnitWorker(job, decoders=3)
    readers = [Waiting(job.limits) for _ in range(3)]
    for pipeline, reader in zip(worker._pool._pipelines, readers, strict=True):
        pipeline.reader = reader
    child_pids: list[int | None] = []

    def teardown() -> None:
        begun.wait(PATIENCE_SECONDS)
        child_pids.extend(reader.child_pid for reader in readers)
        worker.close()
        closed.set()

    dask = threading.Thread(target=teardown)
    dask.start()
    with pytest.raises(StoppedError, match="this worker was stopped"):
        worker.run(Unit.make(list_source(source).entries, "train", config_hash=job.config_hash, salt="0"))
    dask.join()
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_SECONDS)
    assert set(threading.enumerate()) <= before
    assert len(set(child_pids)) == 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in child_pids)
    assert [*job.paths.receipts.iterdir(), *job.paths.temporary.iterdir(), *job.paths.faces.rglob("*.parquet")] == []


def test_a_source_that_vanishes_stops_the_unit_on_every_lane(make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source("a.mp4", "b.mp4", "c.mp4")
    job, entries = job_of(source, tmp_path / "out", FixedBoxDetector()), list_source(source).entries
    source.rename(tmp_path / "unmounted")
    with pytest.raises(StoppedError, match="does not exist on this worker"):
        run(job, entries, 3)
    assert list(job.paths.receipts.iterdir()) == []


def test_a_bug_in_the_detector_comes_out_of_any_lane(tmp_path: Path) -> None:
    @dataclass
    class Broken(Alone):
        def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
            raise ZeroDivisionError("a bug in the detector")

    worker = unfilmed(job_of(tmp_path, tmp_path / "out", Broken()), 3, lambda _: None)
    with pytest.raises(ZeroDivisionError, match="a bug in the detector"):
        worker.run(unit_of(worker.job, 6))
    assert [*worker.job.paths.receipts.iterdir(), *worker.job.paths.temporary.iterdir()] == []
    worker.close()


def test_a_unit_that_fails_is_not_worked_to_its_end_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    at_work, giving_up = threading.Event(), threading.Event()

    def wait(begun: Any) -> None:
        giving_up.set()
        futures.wait(begun)

    def on_open(name: str) -> None:
        opened.append(name)
        if name == "0.mp4":
            assert at_work.wait(PATIENCE_SECONDS)
            raise ZeroDivisionError("a bug in the reader")
        at_work.set()
        assert giving_up.wait(PATIENCE_SECONDS)

    monkeypatch.setattr(decode_pool, "wait", wait)
    worker = unfilmed(job_of(tmp_path, tmp_path / "out", FixedBoxDetector()), 2, on_open)
    first, *family = unit_of(worker.job, 4).inputs
    made_from_another = [replace(video, source_id="gone.mp4") for video in family]
    with pytest.raises(ZeroDivisionError, match="a bug in the reader"):
        worker.run(Unit.make([first, *made_from_another], "train", config_hash=worker.job.config_hash, salt="0"))
    assert sorted(opened) == ["0.mp4", "1.mp4"]
    worker.close()


@pytest.mark.parametrize(
    ("gpus", "of_machine", "cores", "workers_here", "decoders"),
    [
        ("", 2, 16, 16, 1),  # no GPU is to be used: a slot is a core
        ("0,1", 2, 12, 2, 6),
        ("0", 1, 2, 4, 1),  # more slots than cores
        ("0", 1, 64, 1, 8),
        ("3", 4, 16, None, 4),  # a worker that somebody else has started
        ("GPU-1b2c", 0, 4, None, 4),  # in a container that does not show the devices
        (None, 2, 6, 2, 3),
    ],
)
def test_a_slot_that_is_a_gpu_is_fed_by_its_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    gpus: str | None,
    of_machine: int,
    cores: int,
    workers_here: int | None,
    decoders: int,
) -> None:
    if gpus is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    monkeypatch.setattr(capacity, "_machine_gpus", lambda: [str(number) for number in range(of_machine)])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert decoders_per_worker(workers_here, tmp_path) == decoders


@pytest.mark.parametrize(
    ("driver", "devices", "count", "found"),
    [
        (True, ["nvidia0", "nvidia1", "nvidiactl"], "9", ["0", "1"]),
        (True, [], "2", ["0", "1"]),  # AMD's, or in WSL
        (True, [], "0", []),
        (True, [], "no_number", []),
        (False, [], "2", []),
    ],
)
def test_gpus_without_a_file_in_dev_get_a_worker_each_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, driver: bool, devices: list[str], count: str, found: list[str]
) -> None:
    for name in devices:
        (tmp_path / name).touch()
    (tmp_path / "torch.py").write_text(f"class cuda:\n    device_count = lambda: {count}\n")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(capacity, "_DEVICES", tmp_path)
    monkeypatch.setattr(capacity, "has_gpu_driver", lambda: driver)
    capacity._gpus_by_torch.cache_clear()
    try:
        assert capacity.visible_gpus() == found
    finally:
        capacity._gpus_by_torch.cache_clear()


@pytest.mark.processes
def test_a_worker_that_was_dealt_a_gpu_feeds_it_by_all_of_its_cores(make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source(*(f"{name}.mp4" for name in "abcd"))
    job = job_of(source, tmp_path / "out", FixedBoxDetector())
    unit = Unit.make(
        [replace(video, label=0) for video in list_source(source).entries],
        "train",
        config_hash=job.config_hash,
        salt="0",
    )

    def uses_tf32_with_torch(dask_worker: Any) -> bool:  # nested: a worker cannot import this module
        import torch  # noqa: PLC0415

        dask_worker.plugins[plugin].teardown(dask_worker)
        dask_worker.plugins[plugin].setup(dask_worker)
        return bool(torch.backends.cudnn.allow_tf32)

    with local_client(1) as client, install_unit_workers(client, job, ["0"], local=True) as plugin:
        counts = client.run(lambda dask_worker: len(dask_worker.plugins[plugin].unit_worker._pool._pipelines))
        receipt = client.submit(run_unit, unit, plugin, pure=False).result().receipt
        tf32 = client.run(uses_tf32_with_torch)
    assert list(counts.values()) == [min(usable_cores(), 8)]
    assert list(tf32.values()) == [False], "boxes would not be those of the CPU"
    assert [(outcome.video_id, outcome.faces) for outcome in receipt.inputs] == [(f"{name}.mp4", 5) for name in "abcd"]


def test_a_worker_that_joins_late_and_cannot_be_set_up_says_why_with_each_unit(
    make_source: MakeSource, tmp_path: Path
) -> None:
    """Dask drops the error of a worker that joins later: a node without SRC, or a GPU that is gone after a restart."""
    source = make_source("a.mp4")
    job = job_of(source, tmp_path / "out", FixedBoxDetector())
    unit = Unit.make([replace(list_source(source).entries[0], label=0)], "train", config_hash=job.config_hash, salt="0")
    with (
        LocalCluster(1, processes=False, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
        install_unit_workers(client, job, [], local=False) as plugin,
    ):
        (first,) = client.nthreads()
        source.rename(tmp_path / "unmounted")
        cluster.scale(2)
        client.wait_for_workers(2)
        (late,) = client.nthreads().keys() - {first}
        with pytest.raises(UnitError, match=r"src: does not exist on .*; all workers must see SRC and OUT alike"):
            client.submit(run_unit, unit, plugin, workers=[late], pure=False).result()
