"""What a training loop notices of the last stretch: batches on their device, in order, in either form."""

from __future__ import annotations

import math
import pickle
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from assets_rows import images_of, make_small, rows_seen, shown
from facefeed.loaders import DevicePrefetcher, FaceDataLoader
from facefeed.loaders.batching.shared_pool import empty_pinned
from facefeed.loaders.batching.worker_batch import WorkerBatch
from facefeed.loaders.normalise import normalise
from facefeed.loaders.transfer.postprocessor import BatchPostprocessor
from facefeed.pipeline.errors import UsageError
from torch.utils.data import default_collate

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


def loader_of(out: Path, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(out, **{"num_workers": 0, "image_size": 24, "batch_size": 20, **options})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_batches_come_on_the_device_they_were_wanted_on(dataset: Path, device: str, dtype: Any) -> None:
    options: dict[str, Any] = {"dtype": dtype, "fields": ("image", "label", "landmarks", "hull", "face_id")}
    for batch, expected in zip(
        loader_of(dataset, device=device, **options), loader_of(dataset, **options), strict=True
    ):
        for tensor in (batch["image"], batch["label"], batch["landmarks"], *batch["hull"]):
            assert tensor.device.type == device
        assert batch["face_id"] == expected["face_id"]
        assert batch["image"].is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(batch["image"].cpu(), expected["image"], rtol=0, atol=1e-6)
        assert torch.equal(batch["label"].cpu(), expected["label"])


@pytest.mark.parametrize("device", DEVICES)
def test_a_prefetcher_is_the_loader_on_a_device(dataset: Path, device: str) -> None:
    loader = loader_of(dataset)
    prefetched = DevicePrefetcher(loader, device)
    assert len(prefetched) == len(loader) == 6
    expected = list(loader_of(dataset))
    for number, ((images, labels), (expected_images, expected_labels)) in enumerate(
        zip(prefetched, expected, strict=True)
    ):
        assert images.device.type == labels.device.type == device
        torch.testing.assert_close(images.cpu(), expected_images, rtol=0, atol=1e-6)
        assert torch.equal(labels.cpu(), expected_labels)
        assert prefetched.state_dict()["images"] == 20 * ((number + 1) % 6)
    assert prefetched.stats().images == 107
    prefetched.set_epoch(0)
    assert sum(len(labels) for _, labels in prefetched) == 107


@pytest.mark.gpu
def test_a_device_that_is_set_after_an_epoch_gets_normalised_images(dataset: Path) -> None:
    loader = loader_of(dataset)
    next(iter(loader))
    loader.set_epoch(0)
    for (images, _), (expected, _) in zip(loader.to("cuda"), loader_of(dataset), strict=True):
        torch.testing.assert_close(images.cpu(), expected, rtol=0, atol=1e-6)


def test_a_prefetcher_over_a_loader_that_has_begun_is_refused(dataset: Path) -> None:
    loader = loader_of(dataset)
    batches = iter(loader)
    next(batches)
    with pytest.raises(UsageError, match=r"give the device before the first iter\(\)"):
        DevicePrefetcher(loader, "cpu")


def test_a_prefetcher_copies_like_any_object(dataset: Path) -> None:
    reloaded = pickle.loads(pickle.dumps(DevicePrefetcher(loader_of(dataset, fields=("image", "row")), "cpu")))
    assert rows_seen(reloaded) == rows_seen(loader_of(dataset, fields=("image", "row")))


@pytest.mark.parametrize("as_dict", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_a_worker_batch_becomes_what_the_loop_gets(as_dict: bool, dtype: str) -> None:
    images = torch.arange(2 * 4 * 4 * 3).to(torch.uint8).view(2, 4, 4, 3)
    worker_batches = [
        WorkerBatch(0, step, 2, None, images + step, {"label": torch.tensor([step, 1]).numpy(), "names": ["a", None]})
        for step in range(3)
    ]
    postprocessor = BatchPostprocessor(
        pool=None, dtype=dtype, channels_last=True, as_dict=as_dict, device=None, pin_memory=False
    )
    for step, (batch, count) in enumerate(postprocessor(iter(worker_batches))):
        expected = normalise(images + step) if dtype == "float32" else (images + step).movedim(-1, -3)
        assert count == 2
        assert torch.equal(images_of(batch), expected)
        assert (batch["label"] if as_dict else batch[1]).tolist() == [step, 1]
        if as_dict:
            assert batch["names"] == ["a", None]


class VirtualHostMemory:
    """Page-locked memory as torch's allocator keeps it, and a device that copies only when `synchronize` is called.

    A block is free when its tensor is gone and no copy from it is pending; `blocks` is all there is.
    """

    def __init__(self, blocks: int, num_bytes: int) -> None:
        self._free = [torch.zeros(num_bytes, dtype=torch.uint8) for _ in range(blocks)]
        self._pending: list[tuple[torch.Tensor, torch.Size, list[torch.Tensor]]] = []
        self._alive: list[tuple[weakref.ref[Any], torch.Tensor]] = []

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        in_copies = {block.data_ptr() for block, _, _ in self._pending}
        for entry in list(self._alive):
            if entry[0]() is None and entry[1].data_ptr() not in in_copies:
                self._alive.remove(entry)
                self._free.append(entry[1])
        block = self._free.pop()  # the last one that came back, as a cache does; IndexError where all are in use
        array = block.numpy().view()
        self._alive.append((weakref.ref(array), block))
        return torch.from_numpy(array).view(dtype)[: math.prod(shape)].view(*shape)

    def copy_later(self, images: torch.Tensor) -> list[torch.Tensor]:
        """As `images.to(device, non_blocking=True)`: a list that the copy will be put in."""
        (block,) = [block for _, block in self._alive if block.data_ptr() == images.data_ptr()]
        copied: list[torch.Tensor] = []
        self._pending.append((block, images.permute(0, 2, 3, 1).shape, copied))
        return copied

    def synchronize(self) -> None:
        for block, shape, copied in self._pending:
            copied.append(block[: shape.numel()].view(shape).movedim(-1, -3).clone())
        self._pending.clear()


def test_a_copy_that_a_device_has_still_to_make_reads_the_batch_that_it_was_asked_for() -> None:
    memory = VirtualHostMemory(blocks=7, num_bytes=96)  # of five images whose copies are pending, an image, a label
    worker_batches = [
        WorkerBatch(0, step, 2, None, torch.full((2, 4, 4, 3), step, dtype=torch.uint8), {"label": np.array([step, 1])})
        for step in range(6)
    ]
    postprocessor = BatchPostprocessor(
        pool=None,
        dtype="uint8",
        channels_last=True,
        as_dict=False,
        device=None,
        pin_memory=True,
        allocate_pinned=memory,
    )
    copied = []
    for number, ((images, _), _) in enumerate(postprocessor(iter(worker_batches))):
        copied.append(memory.copy_later(images))
        del images  # the loop goes on while the copy is still in the device's queue
        if number == 4:
            memory.synchronize()
    memory.synchronize()
    assert [int(images.unique()) for (images,) in copied] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("channels_last", [True, False])
def test_every_column_comes_in_page_locked_memory_so_that_no_copy_of_it_waits(channels_last: bool) -> None:
    allocated: list[torch.Tensor] = []

    def allocate(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        allocated.append(torch.empty(tuple(shape), dtype=dtype))
        return allocated[-1]

    columns = {"label": np.array([1, 0]), "hull": [np.ones((3, 2), np.float32), np.zeros((4, 2), np.float32)]}
    postprocessor = BatchPostprocessor(
        pool=None, dtype="uint8", channels_last=channels_last, as_dict=True, device=None, pin_memory=True,
        allocate_pinned=allocate,
    )  # fmt: skip
    images = torch.arange(96, dtype=torch.uint8).view(2, 4, 4, 3)
    ((batch, _),) = postprocessor(iter([WorkerBatch(0, 0, 2, None, images, {**columns, "names": ["a", None]})]))
    given = [batch["image"], batch["label"], *batch["hull"]]
    assert [tensor.data_ptr() for tensor in given] == [tensor.data_ptr() for tensor in allocated]
    assert torch.equal(batch["image"], images.movedim(-1, -3))
    assert batch["image"].is_contiguous() is not channels_last
    assert (batch["label"].tolist(), batch["hull"][0].tolist()) == ([1, 0], [[1, 1]] * 3)


def test_page_locked_memory_is_given_back_to_its_allocator_when_nobody_holds_it() -> None:
    memory = VirtualHostMemory(blocks=2, num_bytes=96)
    worker_batches = (
        WorkerBatch(0, step, 2, None, torch.zeros((2, 4, 4, 3), dtype=torch.uint8), {}) for step in range(9)
    )
    postprocessor = BatchPostprocessor(
        pool=None, dtype="uint8", channels_last=True, as_dict=True, device=None, pin_memory=True, allocate_pinned=memory
    )
    assert sum(count for _, count in postprocessor(worker_batches)) == 18


def test_host_memory_is_that_of_torchs_allocator_which_waits_for_copies() -> None:
    assert BatchPostprocessor.allocate_pinned is empty_pinned
    if torch.cuda.is_available():
        assert empty_pinned((2, 3), torch.uint8).is_pinned()
    else:
        with pytest.raises(RuntimeError):  # ordinary memory would do without a device
            empty_pinned((2, 3), torch.uint8)


def test_what_a_collate_fn_made_is_handed_on_as_it_is() -> None:
    collated = object()
    postprocessor = BatchPostprocessor(
        pool=None, dtype="float32", channels_last=True, as_dict=False, device="cpu", pin_memory=False
    )
    ((batch, count),) = list(postprocessor(iter([WorkerBatch(0, 0, 5, None, collated=collated)])))
    assert batch is collated
    assert count == 5


class Pinnable:
    """As a batch class of one's own that torch can pin."""

    def pin_memory(self) -> str:
        return "page-locked"


def test_pin_memory_holds_for_the_output_of_a_collate_fn_too() -> None:
    postprocessor = BatchPostprocessor(
        pool=None, dtype="float32", channels_last=True, as_dict=False, device=None, pin_memory=True
    )
    ((batch, _),) = list(postprocessor(iter([WorkerBatch(0, 0, 5, None, collated={"image": Pinnable()})])))
    assert batch == {"image": "page-locked"}


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"dtype": "uint8"}, {"num_workers": 2}, {"channels_last": False}], ids=str)
def test_on_cuda_batches_may_be_kept_and_are_right_after_later_ones_came(
    dataset: Path, options: dict[str, Any]
) -> None:
    loader = loader_of(dataset, device="cuda", batch_size=4, **options)
    kept = [batch[0] for batch in loader]
    torch.cuda.synchronize()
    expected = [batch[0] for batch in loader_of(dataset, batch_size=4, **{**options, "num_workers": 0})]
    for images, expected_images in zip(kept, expected, strict=True):
        torch.testing.assert_close(images.cpu(), expected_images, rtol=0, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options", [{}, {"channels_last": False}, {"collate_fn": default_collate}], ids=["usual", "rows", "collate_fn"]
)
def test_pinned_batches_are_page_locked_and_the_same(dataset: Path, options: dict[str, Any]) -> None:
    batches = list(loader_of(dataset, pin_memory=True, **options))
    assert all(images.is_pinned() for images, _ in batches)
    assert shown(batches) == shown(loader_of(dataset))


@pytest.mark.gpu
def test_a_copy_queued_behind_a_long_kernel_reads_the_batch_that_it_was_asked_for(dataset: Path) -> None:
    torch.cuda._sleep(200_000_000)  # the host runs ahead of the device
    copied = [images.to("cuda", non_blocking=True) for images, _ in loader_of(dataset, pin_memory=True)]
    assert shown((images.cpu(), None) for images in copied) == shown(loader_of(dataset))
