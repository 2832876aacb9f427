"""What a training loop on a GPU notices of the transfer: nothing waits, and no batch is overwritten under a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_rows import make_small
from facefeed.loaders import DevicePrefetcher, FaceDataLoader
from facefeed.loaders.device import BatchedBrightnessContrast, BatchedCrop, BatchedFlip

pytestmark = pytest.mark.gpu

BATCH, SIDE = 8, 48


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("gpu") / "out")


def loader_of(out: Path, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(out, **{"num_workers": 0, "image_size": SIDE, "batch_size": BATCH, **options})


@contextmanager
def no_synchronisation() -> Iterator[None]:
    """Any operation of torch that makes the host wait for the device raises."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def on_cuda(**options: Any) -> Callable[[Path], Iterable[Any]]:
    return lambda out: loader_of(out, device="cuda", **options)


LOADERS: dict[str, Callable[[Path], Iterable[Any]]] = {
    "usual": on_cuda(),
    "workers": on_cuda(num_workers=2),
    "by its number": lambda out: loader_of(out, device=0, device_transform=BatchedFlip()),
    "uint8": on_cuda(dtype="uint8"),
    "rows first": on_cuda(channels_last=False),
    "points": on_cuda(fields=("image", "label", "landmarks", "hull", "mask")),
    "device transform": on_cuda(device_transform=[BatchedFlip(), BatchedBrightnessContrast(), BatchedCrop()]),
    "prefetcher": lambda out: DevicePrefetcher(loader_of(out), "cuda"),
    "pinned": lambda out: (
        (images.to("cuda", non_blocking=True), labels.to("cuda", non_blocking=True))
        for images, labels in loader_of(out, pin_memory=True)
    ),
}


@pytest.mark.parametrize("name", LOADERS)
def test_no_step_makes_the_host_wait_for_the_device(name: str, dataset: Path) -> None:
    loader = LOADERS[name](dataset)
    list(LOADERS[name](dataset))  # what is on the device only once, as the factors of the normalisation, is there now
    total = torch.zeros((), device="cuda", dtype=torch.float64)
    with no_synchronisation():
        for batch in loader:
            images = batch["image"] if isinstance(batch, dict) else batch[0]
            total += images.double().sum()
    assert float(total) != 0


def test_a_step_that_does_wait_is_noticed(dataset: Path) -> None:
    (images, _), *_ = loader_of(dataset, device="cuda")
    with no_synchronisation(), pytest.raises(RuntimeError, match="synchronizing"):
        images.sum().item()


@pytest.mark.parametrize("device", [None, "cuda"], ids=["pinned", "on the device"])
def test_under_a_cuda_graph_each_step_sees_its_own_batch(device: str | None, dataset: Path) -> None:
    options: dict[str, Any] = {"dtype": "uint8", "drop_last": True, "channels_last": False}
    expected = [images.double().sum().item() for images, _ in loader_of(dataset, **options)]
    fixed = torch.zeros((BATCH, 3, SIDE, SIDE), dtype=torch.uint8, device="cuda")
    total = torch.zeros((), device="cuda", dtype=torch.float64)
    graph, side_stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        total.copy_(fixed.double().sum())  # a warm-up, as torch asks for
    torch.cuda.current_stream().wait_stream(side_stream)
    with torch.cuda.graph(graph):
        total.copy_(fixed.double().sum())
    loader = loader_of(dataset, **options, **({"pin_memory": True} if device is None else {"device": device}))
    sums = []
    for _ in range(3):
        loader.set_epoch(0)
        torch.cuda._sleep(200_000_000)  # the host runs a whole epoch ahead of the device
        for images, _labels in loader:
            fixed.copy_(images, non_blocking=True)
            graph.replay()
            sums.append(total.clone())
    assert [float(each) for each in sums] == expected * 3


def test_batches_of_workers_reach_the_device_without_a_copy_on_the_host(dataset: Path) -> None:
    loader = loader_of(dataset, device="cuda", num_workers=2)
    assert loader._batch_dataset.pool is None
    batches = iter(loader)
    next(batches)
    pool = loader._batch_dataset.pool
    assert pool is not None
    assert pool.is_page_locked
    assert pool.blocks.is_pinned()
    del batches


def test_memory_is_unlocked_with_its_loader_and_locked_anew_by_the_next(dataset: Path) -> None:
    for _ in range(3):
        loader = loader_of(dataset, device="cuda", num_workers=2)
        expected = loader_of(dataset)
        for (images, _), (expected_images, _) in zip(loader, expected, strict=True):
            torch.testing.assert_close(images.cpu(), expected_images, rtol=0, atol=1e-6)
        blocks = loader._batch_dataset.pool.blocks  # type: ignore[union-attr]
        assert blocks.is_pinned()
        del loader
        assert not blocks.is_pinned()


def test_an_epoch_that_is_left_early_while_the_device_is_busy_overwrites_nothing(dataset: Path) -> None:
    expected = [images for images, _ in loader_of(dataset)]
    loader = loader_of(dataset, device="cuda", num_workers=2)
    kept = []
    for _ in range(4):
        loader.set_epoch(0)
        torch.cuda._sleep(100_000_000)
        for images, _labels in loader:
            kept.append(images)
            break
    for images in kept:
        torch.testing.assert_close(images.cpu(), expected[0], rtol=0, atol=1e-6)


def test_later_epochs_use_the_memory_of_the_first(dataset: Path) -> None:
    loader = loader_of(dataset, device="cuda")
    reserved_bytes = []
    for _ in range(40):  # more than torch has streams
        for images, _labels in loader:
            images.sum()
        torch.cuda.synchronize()
        reserved_bytes.append(torch.cuda.memory_reserved())
    assert reserved_bytes[-1] == reserved_bytes[1]


@pytest.mark.parametrize("options", [{"device_transform": [BatchedFlip(), BatchedCrop()]}, {"decode": "device"}, {}])
def test_the_first_device_may_be_given_by_its_number(options: dict[str, Any], dataset: Path) -> None:
    for batch, expected in zip(
        loader_of(dataset, device=0, **options), loader_of(dataset, device="cuda", **options), strict=True
    ):
        assert batch[0].device == torch.device("cuda", 0)
        assert torch.equal(batch[0], expected[0])
