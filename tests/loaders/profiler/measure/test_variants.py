"""What a profile's trials compare a loader with: as many images of it, and what each of them is spared."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_loaders import SIDE
from assets_rows import make_small, shown
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.augment import AlignedMixup, FaceCutout
from facefeed.loaders.profiler.measure.variants import with_less_work, with_longer_epoch, with_settings
from facefeed.loaders.sampling.balance import Pairs
from torch.utils.data import DataLoader, TensorDataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("variants") / "out")


def counted_stages(loader: FaceDataLoader) -> Counter[str]:
    """How often an epoch of the loader passes through each stage but its transforms."""
    calls = Counter[str]()

    def counting(stage: str, call: Any) -> Any:
        def counted(*arguments: Any, **keywords: Any) -> Any:
            calls[stage] += 1
            return call(*arguments, **keywords)

        return call if stage == "augment" else counted

    batches: Any = loader.dataset
    list(loader.with_batch_dataset(batches.with_wrapped_stages(counting)))
    return calls


def test_a_longer_epoch_has_every_face_as_often_and_never_in_the_same_order(dataset: Path) -> None:
    options: dict[str, Any] = {"image_size": 16, "num_workers": 0, "dtype": "uint8"}
    one_epoch = shown(FaceDataLoader(dataset, 10, **options))
    three_epochs = shown(with_longer_epoch(FaceDataLoader(dataset, 10, **options), 3))
    epochs = [three_epochs[first : first + 107] for first in (0, 107, 214)]
    assert all(sorted(epoch) == sorted(one_epoch) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_other_settings_change_no_batch_and_not_the_loader(dataset: Path) -> None:
    options: dict[str, Any] = {"image_size": 16, "dtype": "uint8"}
    loader = FaceDataLoader(dataset, 10, num_workers=0, **options)
    expected = shown(FaceDataLoader(dataset, 10, num_workers=0, **options))
    changed = with_settings(loader, num_workers=2, prefetch_factor=3)
    assert (changed.num_workers, changed.prefetch_factor, loader.num_workers) == (2, 3, 0)
    assert shown(changed) == expected
    plain = DataLoader(TensorDataset(torch.arange(6)), 2, num_workers=2, timeout=30)
    assert [batch[0].tolist() for batch in with_settings(plain, num_workers=0, prefetch_factor=2)] == [
        [0, 1],
        [2, 3],
        [4, 5],
    ]


def test_a_loader_without_transforms_is_compared_with_reading_alone(dataset: Path) -> None:
    variants = with_less_work(FaceDataLoader(dataset, 10, image_size=16, num_workers=0, dtype="uint8"))
    assert set(variants) == {"without decoding"}
    images = next(iter(variants["without decoding"]))[0]
    assert images.shape == (10, 3, 16, 16)
    assert images.unique().tolist() == [128]


@pytest.mark.parametrize("fields", [None, ("image", "label", "mask"), ("image", "label", "landmarks")], ids=str)
def test_the_evaluation_transform_costs_what_a_loader_without_transforms_costs(dataset: Path, fields: Any) -> None:
    """A pair's partner and the masks that only transforms read are spared too."""
    options: dict[str, Any] = {
        "balance": Pairs(), "batch_size": 10, "image_size": SIDE, "num_workers": 0, "fields": fields
    }  # fmt: skip
    trained = FaceDataLoader(dataset, face_transform=[FaceCutout(p=1), AlignedMixup(p=1)], **options)
    plain = with_less_work(trained)["evaluation transform"]
    as_evaluated = FaceDataLoader(dataset, **options)
    assert counted_stages(plain) == counted_stages(as_evaluated) != counted_stages(trained)
    assert shown(plain) == shown(as_evaluated)


def test_the_evaluation_transform_changes_no_type_that_a_step_gets(dataset: Path) -> None:
    """A loss for labels that mixup makes fractions refuses whole numbers."""
    trained = FaceDataLoader(
        dataset, 10, image_size=SIDE, num_workers=0, balance=Pairs(), face_transform=[AlignedMixup(p=1)]
    )
    for loader in (trained, *with_less_work(trained).values()):
        images, labels = next(iter(loader))
        assert (images.dtype, labels.dtype) == (torch.float32, torch.float32)


def test_a_loader_that_decodes_on_the_device_has_no_trial_without_decoding(dataset: Path) -> None:
    """Its workers decode nothing: the trial would be of the loader as it is, under another name."""
    assert not with_less_work(FaceDataLoader(dataset, 10, image_size=SIDE, num_workers=0, decode="device"))
