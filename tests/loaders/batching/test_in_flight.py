"""Memory of the batches in flight: there is enough of it, or the loader is refused before workers start."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as its own documentation writes it)
import pytest
import torch
from assets_rows import make_small, shown
from facefeed.loaders import Clip, FaceDataLoader
from facefeed.loaders.batching.in_flight import InFlightBatches, SharedMemorySpace
from facefeed.loaders.workers.processes import describe_deaths
from facefeed.pipeline.errors import StoppedError, UsageError

MB = 1 << 20


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


def in_flight(**options: Any) -> InFlightBatches:
    settings = {
        "num_workers": 2,
        "prefetch_factor": 2,
        "batch_size": 64,
        "max_image_numel": 224 * 224 * 3,
        "dtype": torch.float32,
    }
    return InFlightBatches(**{**settings, **options})


def test_its_size_is_that_of_all_batches_that_may_be_under_way() -> None:
    assert (in_flight().num_batches, in_flight().batch_bytes) == (7, 64 * 224 * 224 * 3 * 4)
    assert in_flight().total_bytes == 7 * 64 * 224 * 224 * 3 * 4
    assert in_flight(dtype=torch.uint8).total_bytes * 4 == in_flight().total_bytes
    assert (in_flight(max_image_numel=None).num_batches, in_flight(max_image_numel=None).total_bytes) == (0, 0)


def test_in_a_container_of_64_mb_it_is_refused_with_sizes_and_the_way_out() -> None:
    space = SharedMemorySpace(total_bytes=64 * MB, free_bytes=60 * MB)
    with pytest.raises(UsageError) as error:
        in_flight().allocate(space)
    message = str(error.value)
    for part in ("num_workers=2", "prefetch_factor=2", "batch_size=64", "270 MB of /dev/shm", "67 MB 63 MB are free"):
        assert part in message
    for part in ("--shm-size=1g", "dtype='uint8'", "num_workers=0 needs none"):
        assert part in message


def test_what_fits_is_made_and_without_workers_none_of_it_is_shared() -> None:
    small = in_flight(max_image_numel=8 * 8 * 3)
    space = SharedMemorySpace(total_bytes=64 * MB, free_bytes=small.total_bytes)
    pool = small.allocate(space)
    assert pool is not None
    assert pool.blocks.is_shared()
    pool = in_flight(max_image_numel=8 * 8 * 3, num_workers=0).allocate(
        SharedMemorySpace(total_bytes=64 * MB, free_bytes=0)
    )
    assert pool is not None
    assert not pool.blocks.is_shared()
    assert in_flight(max_image_numel=None).allocate(space) is None


def test_the_room_of_this_machine_is_that_of_its_file_system(tmp_path: Path) -> None:
    space = SharedMemorySpace.of(tmp_path)
    assert space is not None
    assert 0 < space.free_bytes <= space.total_bytes
    assert SharedMemorySpace.of(tmp_path / "nothing") is None


def test_a_loader_that_needs_more_than_there_is_starts_no_worker(dataset: Path) -> None:
    space = SharedMemorySpace.of()
    assert space is not None
    loader = FaceDataLoader(dataset, space.free_bytes // (224 * 224 * 3 * 4), num_workers=1)
    with pytest.raises(UsageError, match=r"need [\d,]+ MB of /dev/shm, of whose .* are free; .*--shm-size="):
        next(iter(loader))
    assert loader._iterator is None


@pytest.mark.parametrize(
    ("num_workers", "message"),
    [
        (
            0,
            r"^batch_size=4, Clip\(frames=1000000000\): 3 batches of .* need .* of memory, which .*; take fewer frames",
        ),
        (1, r"batch_size=4, Clip\(frames=1000000000\): 5 batches under way .* of /dev/shm.* or take fewer frames"),
    ],
)
def test_clips_that_no_memory_holds_are_refused_by_their_frames(dataset: Path, num_workers: int, message: str) -> None:
    clip = Clip(frames=10**9, pad=True)
    loader = FaceDataLoader(dataset, 4, clip=clip, num_workers=num_workers)
    with pytest.raises(UsageError, match=message) as refused:
        next(iter(loader))
    assert ("num_workers=0 needs none" in str(refused.value)) == (num_workers > 0)


def test_images_whose_bytes_no_number_of_64_bits_counts_are_refused_too(dataset: Path) -> None:
    """As a damaged checkpoint may ask for."""
    with pytest.raises(UsageError, match=r"^batch_size=4: 3 batches of .* need .* of memory, which this machine"):
        next(iter(FaceDataLoader(dataset, 4, image_size=10**12, num_workers=0)))


def test_memory_that_is_refused_though_the_machine_has_it_ends_a_run_that_can_be_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.raises(StoppedError, match=r"^batch_size=64: 3 batches of 39 MB .*: Cannot allocate memory .* again"):
        in_flight(num_workers=0).allocate(None)


def test_a_worker_that_ran_out_of_shared_memory_is_distinguished_from_others() -> None:
    class Ended:
        pid, exitcode = 17, -7

        def is_alive(self) -> bool:
            return False

    assert describe_deaths([Ended()]) == "worker 17 was killed by signal 7 (is /dev/shm full?)"


# ---- images of another size than image_size


def loader_of(out: Path, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(out, 20, **{"num_workers": 0, "image_size": 32, **options})


def lies_in_pool(loader: FaceDataLoader, images: torch.Tensor) -> bool:
    pool = loader._batch_dataset.pool
    assert pool is not None
    start = pool.blocks.data_ptr()
    return start <= images.data_ptr() < start + pool.blocks.numel() * pool.blocks.element_size()


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_a_crop_of_the_image_lies_in_the_memory_that_is_used_again(
    dataset: Path, dtype: Any, caplog: pytest.LogCaptureFixture
) -> None:
    crop = A.Compose([A.CenterCrop(24, 28)])
    loader = loader_of(dataset, dtype=dtype, transform=crop)
    batches = []
    for images, _ in loader:
        assert images.shape[1:] == (3, 24, 28)
        assert lies_in_pool(loader, images)
        batches.append((images.clone(), None))
    expected = [images[:, :, 4:28, 2:30] for images, _ in loader_of(dataset, dtype=dtype)]
    assert shown(batches) == shown((images.contiguous(), None) for images in expected)
    assert caplog.records == []


def test_images_that_a_transform_enlarges_come_too_and_are_warned_of_once(
    dataset: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loader = loader_of(dataset, transform=A.Compose([A.Resize(40, 36)]), drop_last=True)
    for images, _ in [*loader, *loader]:
        assert images.shape[1:] == (3, 40, 36)
        assert not lies_in_pool(loader, images)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "40 x 36 px, more than image_size" in record.getMessage()
    assert "give image_size=40" in record.getMessage()
