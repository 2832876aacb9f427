"""What storage notices of windows: long reads in order, each window requested once and before it is needed."""

from __future__ import annotations

import gc
import itertools
import os
import queue
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import facefeed.loaders.workers.readahead as module
import facefeed.loaders.workers.request_preparer as request_preparer
import numpy as np
import pytest
from assets_random import examples
from assets_rows import ColumnsOnly, RowsOnly, make_small, order_of, rows_seen, stored_rows
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.dataset.store_datasets import StoreDatasets
from facefeed.loaders.sampling.epoch_sampler import EpochSampler
from facefeed.loaders.workers.readahead import ReadAhead, byte_runs
from facefeed.loaders.workers.request_preparer import RequestPreparer
from facefeed.pipeline.dataset.byte_ranges import MissingFileError
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.errors import CorruptDataError
from hypothesis import given
from hypothesis import strategies as st

KIB = 1024
PATIENCE_SECONDS = 60


def index_of(*images: tuple[str, int, int]) -> Any:
    """An index of images as (file, offset, bytes)."""
    files, offsets, sizes = zip(*images, strict=True)
    return ColumnsOnly({"file": files, "image_offset": offsets, "image_bytes": sizes})


def runs_of(index: Any, *rows: int) -> list[tuple[str, int, int]]:
    return list(byte_runs(index, np.array(rows, np.uint32)))


def test_images_side_by_side_are_one_read_and_small_gaps_are_read_through() -> None:
    index = index_of(("a", 0, 100), ("a", 100, 50), ("a", 150 + 64 * KIB, 10), ("a", 161 + 128 * KIB, 20), ("b", 0, 7))
    assert runs_of(index, 0, 1) == [("a", 0, 150)]
    assert runs_of(index, 0, 1, 2) == [("a", 0, 160 + 64 * KIB)]  # a gap of 64 KiB
    after_gap = 161 + 128 * KIB
    assert runs_of(index, 3, 1, 4, 2, 0) == [("a", 0, 160 + 64 * KIB), ("a", after_gap, after_gap + 20), ("b", 0, 7)]
    assert runs_of(index, 4) == [("b", 0, 7)]
    assert runs_of(index, 0, 0, 1, 1, 1) == [("a", 0, 150)]
    assert runs_of(index) == []


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 200 * KIB), st.integers(1, 30 * KIB)), min_size=1, max_size=30), st.data())
def test_runs_hold_every_image_and_no_byte_twice(gaps: list[tuple[int, int]], data: st.DataObject) -> None:
    images, end = [], 0
    for number, (gap, size) in enumerate(gaps):
        name = f"file {number // 7}"
        end = gap if images and images[-1][0] != name else end + gap
        images.append((name, end, size))
        end += size
    index = index_of(*images)
    rows = data.draw(st.lists(st.integers(0, len(images) - 1), max_size=40))
    runs = runs_of(index, *rows)
    for row in rows:
        name, offset, size = images[row]
        assert sum(run[0] == name and run[1] <= offset and offset + size <= run[2] for run in runs) == 1
    assert runs == sorted(runs)
    for (name, _, end), (next_name, start, _) in itertools.pairwise(runs):
        assert name != next_name or start - end > 64 * KIB


# ---- the thread


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


def test_windows_are_read_one_after_another_and_the_thread_ends_with_its_owner(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: queue.Queue[tuple[Path, int, int]] = queue.Queue()
    monkeypatch.setattr(module, "_read", lambda *run: reads.put(run))
    index = Index(dataset)
    threads_before = set(threading.enumerate())
    ahead = ReadAhead(dataset, index)
    (thread,) = set(threading.enumerate()) - threads_before
    windows = [np.array(rows, np.uint32) for rows in ([40, 3, 4], [100, 101], [0])]
    for window in windows:
        ahead.submit(window)
    expected = [(dataset / name, start, end) for window in windows for name, start, end in byte_runs(index, window)]
    assert [reads.get(timeout=PATIENCE_SECONDS) for _ in expected] == expected
    del ahead
    gc.collect()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def test_submitted_rows_are_read_in_full_and_unreadable_files_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: queue.Queue[tuple[int, int]] = queue.Queue()
    monkeypatch.setattr(module, "_READ_BYTES", 64)
    monkeypatch.setattr(module.os, "pread", lambda _, size, offset: read.put((offset, size)))
    (tmp_path / "there").write_bytes(bytes(1000))
    ahead = ReadAhead(tmp_path, index_of(("gone", 0, 10), ("there", 100, 150)))
    ahead.submit(np.array([0, 1], np.uint32))
    pieces = [read.get(timeout=PATIENCE_SECONDS) for _ in range(3)]
    assert pieces == [(100, 64), (164, 64), (228, 22)]
    del ahead


def test_a_window_in_a_damaged_part_of_the_index_is_left_to_the_workers_and_the_next_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: queue.Queue[Path] = queue.Queue()
    monkeypatch.setattr(module, "_read", lambda path, *_: reads.put(path))
    index = index_of(("damaged", 0, 10), ("there", 0, 10))
    numbers = index.numbers

    def numbers_of_undamaged(name: str, rows: Any) -> Any:
        if 0 in rows:
            raise CorruptDataError("index.arrow: cannot be read")
        return numbers(name, rows)

    index.numbers = numbers_of_undamaged
    ahead = ReadAhead(tmp_path, index)
    ahead.submit(np.array([0], np.uint32))
    ahead.submit(np.array([1], np.uint32))
    assert reads.get(timeout=PATIENCE_SECONDS) == tmp_path / "there"
    del ahead


# ---- which windows are submitted, and when


class FakeReadAhead:
    """Records the windows that are submitted."""

    instances: list[FakeReadAhead]

    def __init__(self, out: Path, index: Any, stores: Any) -> None:
        self.windows: list[list[int]] = []
        FakeReadAhead.instances.append(self)

    def submit(self, rows: Any) -> None:
        self.windows.append(rows.tolist())


@pytest.fixture
def readaheads(monkeypatch: pytest.MonkeyPatch) -> list[FakeReadAhead]:
    FakeReadAhead.instances = []
    monkeypatch.setattr(request_preparer, "ReadAhead", FakeReadAhead)
    return FakeReadAhead.instances


IN_A_STORE: Any = ["s3://bucket/out"]


def windowed_sampler(count: int, batch_size: int, stores: Any = StoreDatasets(), **options: Any) -> EpochSampler:  # noqa: B008 (frozen)
    order = order_of(count, batch_size, **{"shuffle": "window", "window_images": 128, **options})
    source: Any = SimpleNamespace(out=Path("/nowhere"), index=order.dataset.index, pool=None, clips=None, stores=stores)
    order.prepare_requests_with(RequestPreparer(source))
    return order


@pytest.mark.parametrize("batch_size", [1, 16, 50, 100, 128, 200, 300, 1000])
@pytest.mark.parametrize("count", [100, 128, 700])
def test_each_window_is_submitted_once_in_order_and_before_its_first_batch(
    readaheads: list[FakeReadAhead], count: int, batch_size: int
) -> None:
    order = windowed_sampler(count, batch_size)
    for epoch in range(2):
        windows = [window.tolist() for window in order.windows(epoch)]
        start = len(readaheads[0].windows) if readaheads else 0
        order.set_epoch(epoch)
        for request in order:
            submitted = readaheads[0].windows[start:]
            assert submitted == windows[: len(submitted)]
            assert set(request.rows.tolist()) <= {row for window in submitted for row in window}
        assert readaheads[0].windows[start:] == windows
    assert len(readaheads) == 1


either_order = pytest.mark.parametrize("options", [{}, {"shuffle": False, "stores": IN_A_STORE}], ids=str)


@either_order
def test_only_the_current_window_and_the_next_are_submitted(
    readaheads: list[FakeReadAhead], options: dict[str, Any]
) -> None:
    order = windowed_sampler(1280, 32, **options)
    for request in order:
        assert len(readaheads[0].windows) == min(request.step * 32 // 128 + 2, 10)
    assert {len(window) for window in readaheads[0].windows} == {128}


@either_order
def test_after_a_resume_reading_starts_with_the_current_window(
    readaheads: list[FakeReadAhead], options: dict[str, Any]
) -> None:
    order = windowed_sampler(1280, 32, **options)
    order.position = 3, 21 * 32
    list(order)
    assert len(readaheads[0].windows) == 5
    assert readaheads[0].windows == [window.tolist() for window in [*order.windows(3)][5:]]


def test_going_back_reads_again(readaheads: list[FakeReadAhead]) -> None:
    order = windowed_sampler(640, 64)
    list(order)
    order.position = 0, 0
    list(order)
    assert readaheads[0].windows == 2 * [window.tolist() for window in order.windows(0)]


@pytest.mark.parametrize("shuffle", [True, False])
def test_without_windows_nothing_is_read_ahead(readaheads: list[FakeReadAhead], shuffle: bool) -> None:
    list(windowed_sampler(700, 32, shuffle=shuffle))
    assert readaheads == []


def test_windows_follow_the_batches_where_videos_are_counted(readaheads: list[FakeReadAhead]) -> None:
    rows = RowsOnly({"label": [0] * 1000, "video_id": [f"video {number // 2}" for number in range(1000)]})
    order = order_of(rows, 50, "window", window_images=128, max_per_video=2)
    source: Any = SimpleNamespace(out=Path("/nowhere"), index=rows.index, pool=None, clips=None, stores=StoreDatasets())
    order.prepare_requests_with(RequestPreparer(source))
    list(order)
    assert [len(window) for window in readaheads[0].windows] == [100] + [150] * 6


def test_a_loader_with_windows_hands_out_every_row(dataset: Path) -> None:
    loader = FaceDataLoader(
        dataset,
        shuffle="window",
        window_images=128,
        image_size=8,
        batch_size=16,
        fields=("image", "row"),
        num_workers=0,
    )
    rows = rows_seen(loader)
    assert sorted(rows) == [number for number, row in enumerate(stored_rows(dataset)) if row["split"] == "train"]
    assert rows != sorted(rows)
    assert rows != rows_seen(loader)


@pytest.mark.parametrize("shuffle", ["window", False])
def test_a_pipe_in_place_of_a_file_is_an_error_and_not_waited_for(shuffle: str | bool, tmp_path: Path) -> None:
    out = make_small(tmp_path / "out")
    file = min((out / "faces").rglob("*.parquet"))
    file.unlink()
    os.mkfifo(file)
    loader = FaceDataLoader(out, batch_size=8, image_size=16, num_workers=0, shuffle=shuffle)
    with pytest.raises(MissingFileError, match="is a pipe, must be a file"):
        list(loader)
