"""What somebody notices who asks a loader about itself: how fast it was, and what it is going to do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from assets_rows import RowsOnly, make_small, order_of, stored_rows
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.loader.describe import describe_epoch
from facefeed.loaders.loader.stats import EpochMeter
from facefeed.loaders.sampling.balance import Quotas
from facefeed.pipeline.dataset.index import Index

KIB = 1024


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


def loader_of(out: Path, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(out, **{"num_workers": 0, "image_size": 8, "batch_size": 20, **options})


# ---- stats


class Clock:
    """Advances only when the test moves it."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


def test_time_is_split_into_waiting_and_training(clock: Clock) -> None:
    meter = EpochMeter(3)
    with meter.time_wait():  # iter()
        clock.seconds += 1.5
    for ready, waited, trained in ((0, 0.5, 1.0), (2, 0.25, 2.0), (4, 0.25, 4.0)):
        meter.record_ready(ready)
        with meter.time_wait():
            clock.seconds += waited
        meter.record_batch(100)
        clock.seconds += trained
    stats = meter.stats()
    assert (stats.epoch, stats.batches, stats.images, stats.corrupt) == (3, 3, 300, 0)
    assert stats.seconds == 5.5  # up to the last batch; what is done with it is not known yet
    assert stats.wait_seconds == 2.5
    assert stats.wait_share == pytest.approx(2.5 / 5.5)
    assert stats.first_batch_seconds == 2.0
    assert stats.queue_depth == 2.0
    assert stats.latest_ready == 4
    assert stats.images_per_second == pytest.approx(300 / 5.5)


def test_the_figures_fit_on_a_line(clock: Clock) -> None:
    meter = EpochMeter(3)
    with meter.time_wait():
        clock.seconds += 2
    meter.record_ready(1)
    meter.record_batch(12_345)
    assert str(meter.stats()) == (
        "epoch 3: 12,345 images in 1 batches, 6,172 images/s, waited 100%, first batch 2.00 s, queue 1.0, corrupt 0"
    )


def test_before_the_first_batch_all_figures_are_zero(dataset: Path) -> None:
    stats = loader_of(dataset).stats()
    assert (stats.epoch, stats.batches, stats.images, stats.seconds, stats.wait_share) == (0, 0, 0, 0, 0)
    assert (stats.images_per_second, stats.queue_depth, stats.replaced) == (0, 0, ())
    assert len(str(stats).splitlines()) == 1


def test_it_counts_the_epoch_that_is_under_way(dataset: Path) -> None:
    loader = loader_of(dataset)
    figures = []
    for images, _ in loader:
        stats = loader.stats()
        figures.append((stats.epoch, stats.batches, stats.images, len(images)))
        assert 0 < stats.wait_seconds <= stats.seconds
        assert stats.first_batch_seconds <= stats.seconds
    assert figures == [(0, number, min(20 * number, 107), 20 if number < 6 else 7) for number in range(1, 7)]
    next(iter(loader))
    assert (loader.stats().epoch, loader.stats().batches, loader.stats().images) == (1, 1, 20)


def test_after_a_resume_it_counts_what_was_handed_out_since(dataset: Path) -> None:
    loader = loader_of(dataset)
    loader.load_state_dict({**loader.state_dict(), "epoch": 4, "images": 80})
    list(loader)
    assert (loader.stats().epoch, loader.stats().batches, loader.stats().images) == (4, 2, 27)


def test_a_rank_counts_its_own_images(dataset: Path) -> None:
    loaders = [loader_of(dataset, rank=rank, num_replicas=2) for rank in range(2)]
    for loader in loaders:
        list(loader)
    assert [loader.stats().images for loader in loaders] == [54, 53]


# ---- describe


def describe_rows(rows: RowsOnly, **options: Any) -> Any:
    return describe_epoch(order_of(rows, **options), num_workers=0, shared_bytes=0)


def images(*places: tuple[str, int, int]) -> RowsOnly:
    """Rows whose images lie at (file, offset, bytes)."""
    files, offsets, sizes = zip(*places, strict=True)
    return RowsOnly({"file": files, "image_offset": offsets, "image_bytes": sizes, "label": [0] * len(files)})


@pytest.mark.parametrize("shuffle", [True, "full"])
def test_random_access_reads_whole_pages(shuffle: Any) -> None:
    single = images(("a", 0, 4096))
    assert describe_rows(single, shuffle=shuffle).read_amplification == 1.0
    assert describe_rows(images(("a", 4095, 2)), shuffle=shuffle).read_amplification == 2 * 4096 / 2
    three_images = images(("a", 0, 4096), ("a", 4096, 100), ("a", 8000, 200))
    assert describe_rows(three_images, shuffle=shuffle).read_amplification == pytest.approx(4 * 4096 / 4396)


def test_windows_read_their_runs_with_the_gaps_in_them() -> None:
    rows = images(*(("a", 3000 * number, 1000) for number in range(256)))
    description = describe_rows(rows, shuffle="window", window_images=256)
    assert description.read_amplification == pytest.approx((255 * 3000 + 1000) / 256_000)
    rows = images(*(("a", 100 * KIB * number, 10 * KIB) for number in range(256)))
    assert describe_rows(rows, shuffle="window", window_images=128).read_amplification == 1.0


def test_rows_that_come_twice_in_a_window_are_read_once() -> None:
    rows = RowsOnly({
        "file": ["a"] * 128, "image_offset": [1000 * number for number in range(128)], "image_bytes": [1000] * 128,
        "label": [0] * 4 + [1] * 124,
    })  # fmt: skip
    order = order_of(rows, shuffle="window", window_images=128, balance=Quotas({"real": 1, "fake": 1}))
    unique_rows = sorted(set(order.rows(0).tolist()))
    assert len(unique_rows) == 4 + 64  # of 128 images, 64 show the same four
    description = describe_epoch(order, num_workers=0, shared_bytes=0)
    assert description.read_amplification == pytest.approx((unique_rows[-1] + 1 - unique_rows[0]) / len(unique_rows))


def test_the_windows_memory_is_that_of_two(dataset: Path) -> None:
    rows = images(*(("a", 1000 * number, 600 if number % 2 else 1000) for number in range(1000)))
    assert describe_rows(rows, shuffle="window", window_images=200).window_bytes == 2 * 200 * 800
    assert describe_rows(rows, shuffle="window", window_images=5000).window_bytes == 2 * 1000 * 800
    assert describe_rows(rows).window_bytes is None
    description = loader_of(dataset, shuffle="window", window_images=128).describe()
    index = Index(dataset)
    mean = index.numbers("image_bytes", index.rows_where("split", "train")).mean()
    assert description.window_bytes == round(2 * 107 * mean)
    assert "window: 0 MB of page cache for two windows" in str(description)


def test_the_description_says_rule_rows_and_steps(dataset: Path) -> None:
    loader = loader_of(dataset, rank=1, num_replicas=2, seed=7)
    description = loader.describe()
    assert (
        description.rows,
        description.batches,
        description.global_batch,
        description.rank,
        description.num_replicas,
    ) == (107, 3, 40, 1, 2)
    assert (description.unknown_labels, description.notes, description.num_workers) == (0, (), 0)
    assert description.read_amplification > 1
    lines = str(description).splitlines()
    assert [line.split(":")[0] for line in lines] == ["order", "rows", "batches", "workers", "reads"]
    for part in ("mixed over all rows", "every row once", "dataset, seed 7, epoch and batch number alone"):
        assert part in lines[0]
    assert lines[2].startswith("batches: 3 on rank 1 of 2, 40 images a step over all ranks")
    assert "mixed within windows of 128 images" in str(
        loader_of(dataset, shuffle="window", window_images=128).describe()
    )
    assert "as in the index" in str(loader_of(dataset, shuffle=False).describe())


def test_the_memory_of_batches_under_way_is_stated_before_there_is_any(dataset: Path) -> None:
    assert loader_of(dataset).describe().shared_bytes == 3 * 20 * 8 * 8 * 3 * 4
    assert loader_of(dataset, dtype="uint8").describe().shared_bytes == 3 * 20 * 8 * 8 * 3
    assert loader_of(dataset, num_workers=2).describe().shared_bytes == (3 + 2 * 2) * 20 * 8 * 8 * 3 * 4


def test_describing_changes_nothing(dataset: Path) -> None:
    loader, other = (loader_of(dataset, fields=("image", "row")) for _ in range(2))
    rows = []
    for batch in loader:
        loader.describe()
        rows.append(batch["row"].tolist())
    assert rows == [batch["row"].tolist() for batch in other]
    assert str(loader.describe()) == str(other.describe())


def test_rows_without_a_label_are_counted(dataset: Path) -> None:
    rows = RowsOnly({"label": [0, -1, 1, -1], "image_offset": [0] * 4, "image_bytes": [9] * 4, "file": ["a"] * 4})
    description = describe_rows(rows)
    assert description.unknown_labels == 2
    assert str(description).splitlines()[-1] == "labels: 2 rows have none (-1)"


def test_amplification_of_a_real_dataset_is_what_its_files_say(dataset: Path) -> None:
    index = Index(dataset)
    pages = read = 0
    for number, row in enumerate(stored_rows(dataset)):
        if row["split"] == "train":
            start, size = index.value("image_offset", number), len(row["image"])
            pages += len({byte // 4096 for byte in range(start, start + size)})
            read += size
    assert loader_of(dataset).describe().read_amplification == pytest.approx(4096 * pages / read)
