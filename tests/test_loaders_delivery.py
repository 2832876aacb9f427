"""What a training loop notices of the last stretch: batches on their device, in order, in either form."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_rows import images_of, make_small, rows_seen, shown
from facefeed.loaders import DevicePrefetcher, FaceDataLoader
from facefeed.loaders.batch import RawBatch
from facefeed.loaders.delivery import Delivery
from facefeed.loaders.normalise import normalise
from facefeed.pipeline.errors import UsageError

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


def loader_of(out: Path, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(out, **{"num_workers": 0, "image_size": 24, "batch_size": 20, **options})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_batches_come_on_the_device_they_were_wanted_on(dataset: Path, device: str, dtype: Any) -> None:
    options: dict[str, Any] = {"dtype": dtype, "fields": ("image", "label", "landmarks", "hull", "face_id")}
    for batch, wanted in zip(loader_of(dataset, device=device, **options), loader_of(dataset, **options), strict=True):
        for tensor in (batch["image"], batch["label"], batch["landmarks"], *batch["hull"]):
            assert tensor.device.type == device
        assert batch["face_id"] == wanted["face_id"]
        assert batch["image"].is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(batch["image"].cpu(), wanted["image"], rtol=0, atol=1e-6)
        assert torch.equal(batch["label"].cpu(), wanted["label"])


@pytest.mark.parametrize("device", DEVICES)
def test_a_prefetcher_is_the_loader_on_a_device(dataset: Path, device: str) -> None:
    loader = loader_of(dataset)
    prefetched = DevicePrefetcher(loader, device)
    assert len(prefetched) == len(loader) == 6
    wanted = list(loader_of(dataset))
    for number, ((images, labels), (other, their_labels)) in enumerate(zip(prefetched, wanted, strict=True)):
        assert images.device.type == labels.device.type == device
        torch.testing.assert_close(images.cpu(), other, rtol=0, atol=1e-6)
        assert torch.equal(labels.cpu(), their_labels)
        assert prefetched.state_dict()["step"] == (number + 1) % 6
    assert prefetched.stats().images == 107
    prefetched.set_epoch(0)
    assert sum(len(labels) for _, labels in prefetched) == 107


def test_a_prefetcher_over_a_loader_that_has_begun_is_refused(dataset: Path) -> None:
    loader = loader_of(dataset)
    batches = iter(loader)
    next(batches)
    with pytest.raises(UsageError, match=r"give the device before the first iter\(\)"):
        DevicePrefetcher(loader, "cpu")


def test_a_prefetcher_copies_like_any_object(dataset: Path) -> None:
    again = pickle.loads(pickle.dumps(DevicePrefetcher(loader_of(dataset, fields=("image", "row")), "cpu")))
    assert rows_seen(again) == rows_seen(loader_of(dataset, fields=("image", "row")))


@pytest.mark.parametrize("as_dict", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_a_raw_batch_becomes_what_the_loop_gets(as_dict: bool, dtype: str) -> None:
    images = torch.arange(2 * 4 * 4 * 3).to(torch.uint8).view(2, 4, 4, 3)
    raw = [
        RawBatch(step, 2, None, images + step, {"label": torch.tensor([step, 1]).numpy(), "names": ["a", None]})
        for step in range(3)
    ]
    delivery = Delivery(ring=None, dtype=dtype, channels_last=True, as_dict=as_dict, device=None, pinned=False)
    for step, (batch, count) in enumerate(delivery(iter(raw))):
        wanted = normalise(images + step) if dtype == "float32" else (images + step).movedim(-1, -3)
        assert count == 2
        assert torch.equal(images_of(batch), wanted)
        assert (batch["label"] if as_dict else batch[1]).tolist() == [step, 1]
        if as_dict:
            assert batch["names"] == ["a", None]


def test_what_a_collate_fn_made_is_handed_on_as_it_is() -> None:
    made = object()
    delivery = Delivery(ring=None, dtype="float32", channels_last=True, as_dict=False, device="cpu", pinned=False)
    ((batch, count),) = list(delivery(iter([RawBatch(0, 5, None, collated=made)])))
    assert batch is made
    assert count == 5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("options", [{}, {"dtype": "uint8"}, {"num_workers": 2}, {"channels_last": False}], ids=str)
def test_on_cuda_batches_may_be_kept_and_are_right_after_later_ones_came(
    dataset: Path, options: dict[str, Any]
) -> None:
    loader = loader_of(dataset, device="cuda", batch_size=4, **options)
    kept = [batch[0] for batch in loader]
    torch.cuda.synchronize()
    wanted = [batch[0] for batch in loader_of(dataset, batch_size=4, **{**options, "num_workers": 0})]
    for one, other in zip(kept, wanted, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=0, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_pinned_batches_are_page_locked_and_the_same(dataset: Path) -> None:
    batches = list(loader_of(dataset, pin_memory=True))
    assert all(images.is_pinned() for images, _ in batches)
    assert shown(batches) == shown(loader_of(dataset))
