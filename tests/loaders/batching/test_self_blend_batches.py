"""Batches of faces that `SelfBlend` changes: labels, masks and statistics say what was made of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import numpy as np
import pytest
import torch
from assets_dataset import make_dataset
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.loaders.augment import FaceCompose, FaceXRay, MouthCrop, SelfBlend
from facefeed.loaders.augment.pipeline_file import dataset_arguments
from facefeed.loaders.sampling.balance import BlendPairs, Quotas
from facefeed.pipeline.errors import UsageError

SIDE = 48
FIELDS = ("image", "label", "row", "mask", "manipulated")
REALS = [("label", "==", 0)]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("self_blend") / "out"
    make_dataset(path)
    return path


def loader_of(out: Path, *transforms: Any, **options: Any) -> FaceDataLoader:
    settings = {
        "split": None,
        "num_workers": 0,
        "image_size": SIDE,
        "batch_size": 8,
        "shuffle": False,
        "fields": FIELDS,
    }
    return FaceDataLoader(out, face_transform=[*transforms], **{**settings, **options})


def epoch_of(loader: FaceDataLoader) -> dict[str, torch.Tensor]:
    batches = list(loader)
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}


def test_reals_alone_give_both_labels_and_the_statistics_count_the_fakes(out: Path) -> None:
    loader = loader_of(out, SelfBlend(p=0.5), filters=REALS)
    epoch = epoch_of(loader)
    labels = epoch["label"]
    assert labels.dtype == torch.int64
    assert set(labels.tolist()) == {0, 1}
    assert loader.stats().made_fakes == int(labels.sum())
    assert f", {int(labels.sum())} real faces made fakes" in str(loader.stats())
    assert loader.dataset.index.numbers("label", epoch["row"].tolist()).sum() == 0
    for label, mask, manipulated in zip(labels, epoch["mask"], epoch["manipulated"], strict=True):
        assert mask.shape == (SIDE, SIDE)
        assert bool(mask.any()) == bool(label)
        assert (float(manipulated) == pytest.approx(float((mask >= 1 / 255).float().mean()))) or not label


def test_a_loader_without_it_makes_none_and_says_nothing_of_it(out: Path) -> None:
    loader = loader_of(out, A.HorizontalFlip())
    epoch_of(loader)
    assert loader.stats().made_fakes == 0
    assert "made fakes" not in str(loader.stats())


def test_an_epoch_is_the_same_with_workers_and_another_one_differs(out: Path) -> None:
    here, there = (loader_of(out, SelfBlend(p=0.5), filters=REALS, num_workers=n) for n in (0, 1))
    first, same = epoch_of(here), epoch_of(there)
    for name in ("image", "label", "mask"):
        assert torch.equal(first[name], same[name])
    assert there.stats().made_fakes == here.stats().made_fakes
    assert not torch.equal(epoch_of(here)["image"], first["image"])


# ---- each real face beside the fake made of it

LATER = (A.RandomGamma(p=0.5), A.HorizontalFlip(p=0.5))


def pairs_of(out: Path, *transforms: Any, **options: Any) -> FaceDataLoader:
    return loader_of(out, A.HorizontalFlip(p=0.5), SelfBlend(), *transforms, balance=BlendPairs(), **options)


def test_blend_pairs_give_each_real_face_and_then_the_fake_made_of_it_which_differs_within_the_mask_alone(
    out: Path,
) -> None:
    loader = pairs_of(out, *LATER, shuffle=True)
    epoch = epoch_of(loader)
    pairs = len(epoch["label"]) // 2
    assert epoch["label"].tolist() == [0, 1] * pairs
    assert torch.equal(epoch["row"][::2], epoch["row"][1::2])
    reals = np.flatnonzero(loader.dataset.index.numbers("label", np.arange(len(loader.dataset.index))) == 0)
    assert sorted(epoch["row"][::2].tolist()) == reals.tolist()
    assert loader.stats().made_fakes == pairs
    real, fake, mask = epoch["image"][::2], epoch["image"][1::2], epoch["mask"][1::2]
    outside = (mask == 0)[:, None].expand_as(real)
    assert torch.equal(real[outside], fake[outside])
    assert all((a != b).any() for a, b in zip(real, fake, strict=True))
    assert not epoch["mask"][::2].any()


@pytest.mark.parametrize("options", [{"num_workers": 1}, {"batch_size": 4}], ids=str)
def test_blend_pairs_are_the_same_with_workers_and_follow_seed_and_epoch(out: Path, options: dict[str, Any]) -> None:
    plain, other = pairs_of(out, *LATER, shuffle=True), pairs_of(out, *LATER, shuffle=True, **options)
    first, second = epoch_of(plain), epoch_of(other)
    assert torch.equal(first["row"], second["row"])
    if "num_workers" in options:
        assert torch.equal(first["image"], second["image"])
    assert not torch.equal(epoch_of(plain)["image"], first["image"])


def test_what_is_drawn_on_the_device_is_the_same_for_both_of_a_blend_pair(out: Path) -> None:
    shifts: list[torch.Tensor] = []

    def shift(images: torch.Tensor) -> torch.Tensor:
        shifts.append(torch.rand(3))
        return images

    list(pairs_of(out, device_transform=shift, fields=("image", "label")))
    assert all(torch.equal(real, fake) for real, fake in zip(shifts[::2], shifts[1::2], strict=True))
    assert len({tuple(each.tolist()) for each in shifts}) == len(shifts) // 2


def test_two_ranks_share_whole_blend_pairs(out: Path) -> None:
    whole = epoch_of(pairs_of(out, *LATER, batch_size=8, drop_last=True))
    parts = [
        epoch_of(pairs_of(out, *LATER, batch_size=4, drop_last=True, rank=rank, num_replicas=2)) for rank in (0, 1)
    ]
    for name in ("row", "label", "image"):
        halves = [part[name].unflatten(0, (-1, 4)) for part in parts]
        assert torch.equal(torch.cat(halves, 1).flatten(0, 1), whole[name])


def test_real_halves_of_blend_pairs_have_empty_masks_whatever_the_labels_are_called(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", labels=("bona fide", "attack"))
    epoch = epoch_of(
        loader_of(tmp_path / "out", SelfBlend(real=0, fake=1), balance=BlendPairs(real="bona fide"), batch_size=4)
    )
    assert (epoch["mask"][::2] == 0).all()
    assert (epoch["mask"][1::2] > 0).any(dim=(1, 2)).all()


@pytest.mark.parametrize(
    ("transforms", "balance", "message"),
    [
        ([A.HorizontalFlip()], BlendPairs(), r"BlendPairs\(real='real'\): needs a SelfBlend"),
        ([SelfBlend(p=0)], BlendPairs(), r"needs a SelfBlend with p above 0"),
        ([SelfBlend()], BlendPairs(real="fake"), r"takes 'real' for real; give BlendPairs\(real='real'\)"),
        (
            [SelfBlend()],
            BlendPairs(real="genuine"),
            r"real='genuine'\): no label is called so; there are real, fake; give BlendPairs\(real='real'\)",
        ),
    ],
)
def test_blend_pairs_that_nothing_would_blend_are_refused(
    out: Path, transforms: list[Any], balance: BlendPairs, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        loader_of(out, *transforms, balance=balance)


@pytest.mark.parametrize(
    "pipeline",
    [
        FaceCompose([A.OneOf([SelfBlend(p=0.5), A.HorizontalFlip(p=1)], p=1)]),
        FaceCompose([A.SomeOf([SelfBlend(p=0.5), A.HorizontalFlip(p=1)], n=1, p=1)]),
        FaceCompose([A.Sequential([SelfBlend()], p=0.5)]),
        FaceCompose([SelfBlend()], p=0.5),
    ],
    ids=["OneOf", "SomeOf", "Sequential", "FaceCompose"],
)
@pytest.mark.parametrize("balance", [BlendPairs(), None], ids=["blend pairs", "all"])
def test_a_self_blend_that_does_not_reach_every_face_is_refused(
    out: Path, pipeline: FaceCompose, balance: BlendPairs | None
) -> None:
    with pytest.raises(UsageError, match=r"SelfBlend must be applied to every face: .* FaceCompose whose own p is 1"):
        FaceDataLoader(out, face_transform=pipeline, balance=balance, num_workers=0)


def test_a_limit_of_images_of_a_video_is_refused_where_each_face_comes_twice(out: Path) -> None:
    with pytest.raises(UsageError, match="max_per_video: BlendPairs gives each face twice in a batch"):
        pairs_of(out, shuffle=True, max_per_video=4)


def test_blend_pairs_without_a_real_face_are_refused(out: Path) -> None:
    with pytest.raises(UsageError, match="BlendPairs: no selected row has label 'real'"):
        loader_of(out, SelfBlend(), balance=BlendPairs(), filters=[("label", "==", 1)])


def test_quotas_hold_for_stored_labels(out: Path) -> None:
    loader = loader_of(out, SelfBlend(p=1), balance=Quotas({"real": 1, "fake": 1}), drop_last=True)
    stored, delivered = [], []
    for batch in loader:
        labels = loader.dataset.index.numbers("label", batch["row"].tolist())
        stored.append(int(labels.sum()))
        delivered.append(int(batch["label"].sum()))
    assert set(stored) == {4}
    assert set(delivered) == {8}


def test_masks_are_0_for_real_faces_and_nan_where_nobody_knows(out: Path) -> None:
    epoch = epoch_of(loader_of(out))
    real = epoch["label"] == 0
    assert not epoch["mask"][real].any()
    empty = torch.isnan(epoch["mask"]).flatten(1).all(1)
    assert torch.equal(empty, ~real & torch.isnan(epoch["manipulated"]))
    for mask, manipulated in zip(epoch["mask"][~empty & ~real], epoch["manipulated"][~empty & ~real], strict=True):
        assert float(mask.mean()) == pytest.approx(float(manipulated), abs=0.05)


def test_the_mask_of_a_batch_may_be_the_x_ray(out: Path) -> None:
    soft = epoch_of(loader_of(out, SelfBlend(p=1), filters=REALS))["mask"]
    xray = epoch_of(loader_of(out, SelfBlend(p=1), FaceXRay(), filters=REALS))["mask"]
    assert torch.allclose(xray, 4 * soft * (1 - soft), atol=1e-5)


def test_the_manipulated_share_is_that_of_the_blend_also_where_the_mask_becomes_an_x_ray(out: Path) -> None:
    plain, xray = (
        epoch_of(loader_of(out, SelfBlend(p=1), *more, fields=("image", "label", "manipulated")))
        for more in ([], [A.Sequential([FaceXRay()], p=1), FaceCompose([A.HorizontalFlip(p=1)])])
    )
    assert torch.equal(plain["label"], xray["label"])
    assert torch.equal(torch.nan_to_num(plain["manipulated"]), torch.nan_to_num(xray["manipulated"]))
    assert (plain["manipulated"] > 0).any()


def top_left(image: Any, **_: Any) -> Any:
    return image[:32, :32]


def test_a_mask_that_does_not_follow_its_image_is_refused(out: Path) -> None:
    loader = loader_of(out, SelfBlend(p=1), filters=REALS, transform=A.Lambda(image=top_left))
    with pytest.raises(
        UsageError, match="an image of 32 x 32 px of one of 48 x 48, and does not say where mask went; give what moves"
    ):
        next(iter(loader))


def test_items_and_a_collate_fn_get_the_changed_labels(out: Path) -> None:
    faces = FaceDataset(out, split=None, image_size=SIDE, filters=REALS, face_transform=[SelfBlend(p=1)])
    assert faces[0][1] == 1
    loader = FaceDataLoader(faces, 4, num_workers=0, collate_fn=lambda items: [label for _, label in items])
    assert next(iter(loader)) == [1, 1, 1, 1]
    assert loader.stats().made_fakes == 4


def test_the_ready_pipeline_makes_fakes_of_half_of_the_real_faces(out: Path) -> None:
    arguments = dataset_arguments(ROOT / "loaders" / "augment" / "self_blend.yaml")
    loader = FaceDataLoader(
        out,
        split=None,
        filters=REALS,
        num_workers=0,
        image_size=SIDE,
        fields=("image", "label"),
        batch_size=8,
        **arguments,
    )
    labels = np.concatenate([batch["label"].numpy() for _ in range(4) for batch in loader])
    assert labels.mean() == pytest.approx(0.5, abs=0.15)


def test_dense_points_that_a_transform_needs_are_missed_when_the_dataset_is_made(out: Path) -> None:
    with pytest.raises(UsageError, match=rf"landmarks_68, which {out} lacks; run `facefeed add {out} landmarks"):
        FaceDataset(out, face_transform=[MouthCrop()])


def test_labels_that_the_dataset_does_not_have_are_refused_when_it_is_made(out: Path) -> None:
    with pytest.raises(UsageError, match=r"SelfBlend\(real=1\): is 'fake' in this dataset.*try real=0"):
        FaceDataset(out, face_transform=[SelfBlend(real=1, fake=0)])
