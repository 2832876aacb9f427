"""What a training loop notices of batches of clips: their form, one order on any workers and ranks, resume, damage."""

from __future__ import annotations

import json
import logging
from itertools import islice
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as its own documentation writes it)
import numpy as np
import pyarrow as pa
import pytest
import torch
from assets_clips import write_clip
from assets_columns import Returning
from assets_dataset import Clip as Video
from assets_dataset import copy_dataset, make_dataset
from assets_in_process import in_process
from assets_loaders import Noise, start_training, take_steps
from assets_rows import SIDE, damage, stored_pixels, stored_rows
from facefeed.loaders import Clip, DevicePrefetcher, FaceDataLoader, FaceDataset, Pairs, Quotas, Weights
from facefeed.loaders.augment import AlignedMixup, BlockMask, FaceCutout, HullHalfBlackout, LandmarkBlackout, SelfBlend
from facefeed.loaders.augment.base import FaceTransform
from facefeed.loaders.normalise import normalise
from facefeed.pipeline.added_columns.run import add_columns
from facefeed.pipeline.errors import CorruptDataError, UsageError
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.video import Sampling

FIELDS = ("image", "label", "row", "video_id", "track_id", "frame_index", "pts_seconds")
CLIP = Clip(frames=4, stride=2, clips_per_video=6, pick="random")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("clips") / "out"
    make_dataset(out)
    return out


@pytest.fixture(scope="module")
def stored(dataset: Path) -> list[dict[str, Any]]:
    return stored_rows(dataset)


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    return copy_dataset(dataset, tmp_path / "out")


def loader_of(out: Path, **options: Any) -> FaceDataLoader:
    defaults = {"num_workers": 0, "image_size": SIDE, "batch_size": 6, "fields": FIELDS, "clip": CLIP}
    return FaceDataLoader(out, **{**defaults, **options})


Seen = list[tuple[list[int], bytes]]


def seen(batches: Any) -> list[Seen]:
    """Each batch as the rows and the pixels of its clips."""
    return [
        [(rows.tolist(), clip.numpy().tobytes()) for rows, clip in zip(batch["row"], batch["image"], strict=True)]
        for batch in batches
    ]


# ---- form


def test_a_batch_is_clips_and_a_label_each(dataset: Path) -> None:
    images, labels = next(iter(loader_of(dataset, fields=None)))
    assert (images.dtype, images.shape) == (torch.float32, (6, 4, 3, SIDE, SIDE))
    assert (labels.dtype, labels.shape) == (torch.int64, (6,))


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("size", [SIDE, 20])
def test_each_image_is_that_of_its_row(
    dataset: Path, stored: list[dict[str, Any]], channels_last: bool, size: int
) -> None:
    options: dict[str, Any] = {"channels_last": channels_last, "image_size": size}
    single = FaceDataset(dataset, split="train", image_size=size)
    for bytes_batch, batch in zip(
        loader_of(dataset, dtype="uint8", **options), loader_of(dataset, **options), strict=True
    ):
        assert (
            batch["image"]
            .flatten(0, 1)
            .is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
        )
        pixels = bytes_batch["image"]
        assert torch.equal(normalise(pixels.flatten(0, 1).permute(0, 2, 3, 1)), batch["image"].flatten(0, 1))
        for clip, floats, rows in zip(pixels, batch["image"], batch["row"].tolist(), strict=True):
            for image, as_float, row in zip(clip, floats, rows, strict=True):
                if size == SIDE:
                    assert (image.permute(1, 2, 0).numpy() == stored_pixels(stored[row])).all()
                assert torch.equal(as_float, single[single.rows.tolist().index(row)][0])


def test_every_column_has_a_value_for_each_image(dataset: Path, stored: list[dict[str, Any]]) -> None:
    names = ("label", "labels_per_frame", "valid", "row", "video_id", "frame_index", "pts_seconds", "landmarks",
             "hull", "regions", "box_xyxy", "method")  # fmt: skip
    for batch in loader_of(dataset, fields=("image", *names)):
        assert list(batch) == ["image", *names]
        count = len(batch["label"])
        assert batch["landmarks"].shape == (count, 4, 5, 2)
        assert batch["box_xyxy"].shape == (count, 4, 4)
        assert {tuple(values.shape) for values in batch["regions"].values()} == {(count, 4, 4)}
        assert batch["valid"].all()
        for number in range(count):
            rows = [stored[row] for row in batch["row"][number].tolist()]
            for name in ("video_id", "method"):
                assert batch[name][number] == [row[name] for row in rows]
            assert batch["frame_index"][number].tolist() == [row["frame_index"] for row in rows]
            assert batch["labels_per_frame"][number].tolist() == [row["label"] for row in rows]
            assert [len(hull) for hull in batch["hull"][number]] == [len(row["hull"]) for row in rows]
            assert batch["label"][number] == rows[0]["label"]


def test_with_padding_a_batch_says_which_images_are_valid(dataset: Path) -> None:
    batches = list(loader_of(dataset, fields=None, clip=Clip(frames=8, pad=True), split="train"))
    images, valid = (torch.cat([batch[number] for batch in batches]) for number in (0, 2))
    assert (valid.dtype, valid.shape) == (torch.bool, images.shape[:2])
    assert sorted(valid.sum(1).tolist()) == [5, 7, 8, 8, 8]
    for clip, is_valid in zip(images, valid, strict=True):
        last = int(is_valid.sum()) - 1
        assert is_valid.tolist() == [True] * (last + 1) + [False] * (7 - last)
        assert all(torch.equal(clip[frame], clip[last]) for frame in range(last, 8))


def test_the_fields_of_clips_are_unknown_where_batches_are_of_images(dataset: Path) -> None:
    for name in ("valid", "labels_per_frame"):
        with pytest.raises(UsageError, match=f"{name!r} is no column, but a field of clips; give clip="):
            loader_of(dataset, clip=None, fields=("image", name))


def test_a_collate_fn_gets_clips(dataset: Path) -> None:
    def collate(items: list[tuple[torch.Tensor, int]]) -> Any:
        return torch.stack([clip for clip, _ in items]), [label for _, label in items]

    for (clips, labels), batch in zip(
        loader_of(dataset, fields=None, collate_fn=collate), loader_of(dataset), strict=True
    ):
        assert torch.equal(clips, batch["image"])
        assert labels == batch["label"].tolist()


def test_clips_come_on_a_device_as_images_do(dataset: Path) -> None:
    prefetched = list(DevicePrefetcher(loader_of(dataset), "cpu"))
    assert seen(prefetched) == seen(loader_of(dataset))


def test_what_gives_no_clip_is_reported(dataset: Path, caplog: pytest.LogCaptureFixture) -> None:
    loader = loader_of(dataset, clip=Clip(frames=8))
    note = "2 of 5 tracks without a clip; 12 faces are in runs of under 8 images without a gap"
    (record,) = caplog.records
    assert (record.levelno, note in record.getMessage()) == (logging.WARNING, True)
    assert f"clips of 8 images: 3; {note}" in str(loader.describe())
    assert "6 clips of 8 images a step" in str(loader.describe())
    list(loader)
    assert loader.stats().images == 3 * 8
    with pytest.raises(UsageError, match=r"no track has 200 images in a row.*the longest run has 170"):
        loader_of(dataset, clip=Clip(frames=200))


# ---- order


@pytest.mark.parametrize("options", [{}, {"shuffle": "window", "window_images": 512}], ids=["full", "window"])
def test_the_order_is_the_same_for_any_number_of_workers(dataset: Path, options: dict[str, Any]) -> None:
    loaders = [loader_of(dataset, num_workers=workers, transform=Noise(), **options) for workers in (0, 1, 2)]
    for _ in range(2):
        epochs = [seen(loader) for loader in loaders]
        assert epochs[0] == epochs[1] == epochs[2]


@pytest.mark.parametrize("balance", [None, Quotas({"real": 1, "fake": 1}), Pairs(), Weights({"fake": 3.0})], ids=str)
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_ranks_share_the_clips_of_each_step(dataset: Path, ranks: int, balance: Any) -> None:
    options: dict[str, Any] = {"balance": balance, "transform": Noise()}
    whole = seen(loader_of(dataset, batch_size=12, **options))
    loaders = [
        loader_of(dataset, batch_size=12 // ranks, rank=rank, num_replicas=ranks, **options) for rank in range(ranks)
    ]
    parts = [seen(loader) for loader in loaders]
    assert {len(part) for part in parts} == {len(loader) for loader in loaders} == {len(whole)}
    together = [[clip for part in step for clip in part] for step in zip(*parts, strict=True)]
    assert together[:-1] == whole[:-1]
    assert together[-1][: len(whole[-1])] == whole[-1]


def test_epochs_have_other_clips_in_train_and_the_same_elsewhere(dataset: Path) -> None:
    clip = Clip(frames=4, clips_per_video=3)
    for split, repeats in (("train", False), ("val", True)):
        loader = loader_of(dataset, split=split, clip=clip)
        epochs = [{tuple(rows) for batch in seen(loader) for rows, _ in batch} for _ in range(2)]
        assert (epochs[0] == epochs[1]) is repeats


def test_max_per_video_counts_clips(dataset: Path) -> None:
    loader = loader_of(dataset, max_per_video=3, batch_size=8, filters=[("video_id", "in", _LONG_ENOUGH)])
    for batch in loader:
        videos = [names[0] for names in batch["video_id"]]
        assert max(videos.count(name) for name in videos) <= 3


_LONG_ENOUGH = ["real/anna.mp4", "fake/anna-swap.mp4", "real/bert.mp4", "fake/bert-swap.mp4"]


@pytest.mark.parametrize("is_mixture", [False, True], ids=["one", "mixture"])
def test_clips_are_balanced_by_no_column_in_which_images_that_an_epoch_may_draw_for_an_item_differ(
    tmp_path: Path, is_mixture: bool
) -> None:
    out = tmp_path / "out"
    make_dataset(out, (("train", (Video("real/anna.mp4", 24), Video("real/bert.mp4", 8))),))
    sides = Returning(
        lambda faces: {"side": ["early" if at < 8 else "late" for at in faces.rows.column("frame_index").to_pylist()]},
        pa.schema([("side", pa.string())]), name="side",
    )  # fmt: skip
    add_columns(out, sides, workers=1)
    data: Any = [out, copy_dataset(out, tmp_path / "other")] if is_mixture else out

    def batches_by(side: Any, frames: int, **options: Any) -> list[Any]:
        clip = Clip(frames=frames, pick=options.pop("pick", "random"))
        return list(loader_of(data, clip=clip, balance=side, batch_size=2, fields=("image", "side"), **options))

    even = Quotas({"early": 1, "late": 1}, column="side")
    for side in (even, Weights({"late": 2.0}, column="side")):
        with pytest.raises(UsageError, match=r"^column='side': differs between images of \S*real/anna\.mp4 that"):
            batches_by(side, 3)
    with pytest.raises(UsageError, match="column='side': differs"):
        batches_by(even, 5, pick="all")
    for batch in batches_by(even, 8, pick="all"):
        assert sorted(batch["side"]) == [["early"] * 8, ["late"] * 8]
    assert batches_by(Weights({"late": 2.0}, column="side"), 3, filters=[("side", "==", "late")])


def test_pairs_of_clips_are_of_the_same_frames(dataset: Path) -> None:
    for epoch in range(3):
        loader = loader_of(dataset, balance=Pairs())
        loader.set_epoch(epoch)
        for batch in loader:
            assert batch["label"].tolist() == [0, 1] * (len(batch["label"]) // 2)
            assert torch.equal(batch["frame_index"][::2], batch["frame_index"][1::2])


# ---- resume


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("balance", [None, Quotas({"real": 1, "fake": 1})], ids=["rows", "quotas"])
def test_stopped_anywhere_it_goes_on_with_exactly_the_clips_that_were_left(
    dataset: Path, workers: int, balance: Any
) -> None:
    options: dict[str, Any] = {"transform": Noise(), "balance": balance, "batch_size": 4}
    loader = loader_of(dataset, **options)
    whole = [*seen(loader), *seen(loader)]
    interrupted = loader_of(dataset, num_workers=workers, **options)
    consumed = seen(islice(iter(interrupted), 3))
    state = json.loads(json.dumps(interrupted.state_dict()))
    resumed = loader_of(dataset, **options)
    resumed.load_state_dict(state)
    assert [*consumed, *seen(resumed), *seen(resumed)] == whole


@pytest.mark.parametrize(
    "clip", [None, Clip(frames=3, stride=2, clips_per_video=6), Clip(frames=4, stride=2, clips_per_video=6, pad=True)],
    ids=["images", "frames", "pad"],
)  # fmt: skip
def test_a_state_of_other_clips_is_refused(dataset: Path, clip: Any) -> None:
    state = loader_of(dataset).state_dict()
    with pytest.raises(UsageError, match="make the loader with the same data and settings"):
        loader_of(dataset, clip=clip).load_state_dict(state)


def test_a_state_of_other_rows_with_the_same_number_of_clips_is_refused(dataset: Path) -> None:
    state = loader_of(dataset, clip=Clip(frames=2, clips_per_video=1)).state_dict()
    for filters in ([("frame_index", "!=", 1)], [("frame_index", "<", 149)]):
        other = loader_of(dataset, clip=Clip(frames=2, clips_per_video=1), filters=filters)
        with pytest.raises(UsageError, match="make the loader with the same data and settings"):
            other.load_state_dict(state)


@pytest.mark.processes
def test_killed_in_mid_epoch_training_goes_on_with_exactly_the_clips_that_were_left(
    dataset: Path, tmp_path: Path
) -> None:
    settings = {"frames": 4, "stride": 2, "clips_per_video": 6, "pick": "random"}
    training = start_training(dataset, tmp_path, num_workers=2, batch_size=4, clip=settings)
    try:
        take_steps(training, 3)
    finally:
        training.kill()
        training.communicate()
    options: dict[str, Any] = {"batch_size": 4, "transform": Noise()}
    resumed = loader_of(dataset, **options)
    resumed.load_state_dict(json.loads((tmp_path / "state.json").read_text()))
    assert seen(resumed) == seen(loader_of(dataset, **options))[3:]


# ---- augmentation


class _OnePicture:
    """Puts the same picture in place of every image, so that only the draws of what follows differ."""

    picture = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)

    def __call__(self, image: Any) -> dict[str, Any]:
        return {"image": self.pipeline(image=self.picture.copy())["image"]}

    def __init__(self, *transforms: Any) -> None:
        self.pipeline = A.Compose([*transforms])


SPATIAL = [
    A.HorizontalFlip(p=0.5), A.Affine(rotate=(-30, 30), scale=(0.8, 1.2), translate_percent=(-0.1, 0.1), p=0.9),
    A.RandomResizedCrop((SIDE, SIDE), scale=(0.5, 1.0)), A.Perspective(p=0.5), A.ElasticTransform(p=0.5),
    A.GridDistortion(p=0.5), A.CoarseDropout(p=0.5), A.OneOf([A.Rotate(), A.Transpose(), A.RandomRotate90()]),
]  # fmt: skip
COLOUR = [A.RandomBrightnessContrast(p=0.9), A.HueSaturationValue(p=0.5), A.ImageCompression(p=0.5), A.GaussNoise(),
          A.GaussianBlur(p=0.5)]  # fmt: skip


@pytest.mark.parametrize("transforms", [SPATIAL, COLOUR, [Noise()]], ids=["spatial", "colour", "own"])
def test_all_images_of_a_clip_have_one_draw_and_clips_have_their_own(dataset: Path, transforms: Any) -> None:
    transform = Noise() if isinstance(transforms[0], Noise) else _OnePicture(*transforms)
    if isinstance(transform, Noise):  # noise of a picture: what differs between images is the picture
        draws = [clip ^ plain for clip, plain in _with_and_without(dataset, transform)]
    else:
        draws = [clip for clip, _ in _with_and_without(dataset, transform)]
    for clip in draws:
        assert all(torch.equal(image, clip[0]) for image in clip)
    assert len({clip[0].numpy().tobytes() for clip in draws}) > len(draws) * 0.8


def _with_and_without(dataset: Path, transform: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    batches = zip(
        loader_of(dataset, dtype="uint8", transform=transform), loader_of(dataset, dtype="uint8"), strict=True
    )
    return [pair for one, two in batches for pair in zip(one["image"], two["image"], strict=True)]


def test_landmarks_follow_the_one_geometric_draw_of_their_clip(dataset: Path) -> None:
    turned = A.Affine(rotate=(-30, 30), scale=(0.8, 1.2), p=1.0)
    fields = (*FIELDS, "landmarks")
    plain = loader_of(dataset, fields=fields)
    moved = loader_of(dataset, fields=fields, face_transform=[turned])
    maps = []
    for batch, moved_batch in zip(plain, moved, strict=True):
        for before, after in zip(batch["landmarks"].numpy(), moved_batch["landmarks"].numpy(), strict=True):
            ones = np.ones((*before.shape[:2], 1))
            of_images = [
                np.linalg.lstsq(np.hstack([x, o]), y, rcond=None)[0]
                for x, o, y in zip(before, ones, after, strict=True)
            ]
            assert all(np.allclose(of_image, of_images[0], atol=1e-3) for of_image in of_images)
            maps.append(of_images[0])
    assert np.ptp([each[0, 0] for each in maps]) > 0.1


@pytest.mark.parametrize("transform", [LandmarkBlackout(p=0.7), HullHalfBlackout(p=0.7)], ids=["part", "half"])
def test_the_same_part_of_the_face_is_blacked_out_in_a_whole_clip(dataset: Path, transform: Any) -> None:
    areas = []
    for batch in loader_of(dataset, face_transform=[transform], dtype="uint8"):
        for clip in (batch["image"] == 0).all(dim=2).numpy():
            assert all((black == clip[0]).mean() > 0.97 for black in clip)  # the same box in all frames here
            areas.append(clip[0].tobytes())
    assert len(set(areas)) > 2


@pytest.mark.parametrize(
    ("transform", "name"),
    [
        (FaceCutout(), "FaceCutout"),
        (A.OneOf([A.HorizontalFlip(), BlockMask()]), "BlockMask"),
        (SelfBlend(), "SelfBlend"),
    ],
    ids=["FaceCutout", "BlockMask", "SelfBlend"],
)
def test_transforms_that_decide_by_the_mask_of_each_image_are_refused(dataset: Path, transform: Any, name: str) -> None:
    with pytest.raises(UsageError, match=f"clip: {name} decides by each image's own mask"):
        loader_of(dataset, face_transform=[transform])


class Brighten(FaceTransform):
    """A user's own transform, which changes fakes alone."""

    @property
    def targets(self) -> dict[str, Any]:
        return {"image": lambda image, **_: image}


class BrightenAll(Brighten):
    """The same for every image, as it states."""

    allowed_in_clips = True


def test_a_new_transform_of_faces_is_refused_until_it_states_that_it_treats_a_clip_alike(dataset: Path) -> None:
    with pytest.raises(UsageError, match=r"clip: Brighten decides by each image's own.*set allowed_in_clips = True"):
        loader_of(dataset, face_transform=[A.HorizontalFlip(), Brighten()])
    loader_of(dataset, face_transform=[A.HorizontalFlip(), BrightenAll()])


def test_mixup_of_clips_is_refused(dataset: Path) -> None:
    with pytest.raises(UsageError, match="clip: AlignedMixup"):
        loader_of(dataset, face_transform=[AlignedMixup()], balance=Pairs())


@pytest.mark.parametrize("clip", [16, {"frames": 16}, Clip])
def test_what_is_no_clip_is_refused(dataset: Path, clip: Any) -> None:
    with pytest.raises(UsageError, match=r"clip=.*must be a Clip, such as Clip\(frames=16\), or None"):
        loader_of(dataset, clip=clip)


# ---- damage


def rows_of(stored: list[dict[str, Any]], video: str) -> list[int]:
    return [number for number, row in enumerate(stored) if row["video_id"] == video]


def test_a_clip_with_a_damaged_image_is_replaced_by_the_next_sound_one_of_its_segment(
    dataset: Path, copy: Path, stored: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"clip": Clip(frames=4, pick="even"), "dtype": "uint8", "batch_size": 3}
    sound = {tuple(rows): image for batch in seen(loader_of(dataset, **options)) for rows, image in batch}
    anna = rows_of(stored, "real/anna.mp4")
    (drawn,) = (rows for rows in sound if rows[0] in anna)
    damage(copy, drawn[2])
    loader = loader_of(copy, **options)
    batches = list(loader)
    clips = [tuple(rows) for batch in seen(batches) for rows, _ in batch]
    expected = tuple(range(drawn[2] + 1, drawn[2] + 5))
    assert [drawn if rows == expected else rows for rows in clips] == [*sound]
    assert len(batches) == len(loader)
    assert loader.stats().corrupt == 1
    (replaced,) = loader.stats().replaced
    assert (replaced.face_id, replaced.replaced_by) == (
        stored[drawn[2]]["face_id"], stored[expected[0]]["face_id"]
    )  # fmt: skip
    assert "clips with 1 damaged images were replaced by" in caplog.records[-1].getMessage()
    assert drawn[2] not in {row for rows in clips for row in rows}


def test_no_epoch_ends_at_damage_while_any_clip_of_its_label_is_sound(tmp_path: Path) -> None:
    out = tmp_path / "out"
    make_dataset(out, (("train", (Video("real/anna.mp4", 12), Video("real/bert.mp4", 12))),))
    damaged = [rows_of(stored_rows(out), name)[5] for name in ("real/anna.mp4", "real/bert.mp4")]
    damage(out, *damaged)  # of seven clips of each video, the last one is sound
    loader = loader_of(out, clip=Clip(frames=6, clips_per_video=2), batch_size=4)
    for _ in range(8):
        (batch,) = loader
        assert not {*damaged} & {*batch["row"].flatten().tolist()}


@pytest.mark.parametrize("balance", [None, Quotas({"real": 1, "fake": 1}), Pairs()], ids=str)
def test_damage_changes_neither_steps_nor_labels_nor_what_workers_and_ranks_see(
    dataset: Path, copy: Path, stored: list[dict[str, Any]], balance: Any
) -> None:
    damage(copy, *rows_of(stored, "real/anna.mp4")[::9], *rows_of(stored, "fake/bert-swap.mp4"))
    options: dict[str, Any] = {"balance": balance, "batch_size": 4}
    whole, sound = list(loader_of(copy, **options)), list(loader_of(dataset, **options))
    assert [batch["label"].tolist() for batch in whole] == [batch["label"].tolist() for batch in sound]
    damaged = {*rows_of(stored, "real/anna.mp4")[::9], *rows_of(stored, "fake/bert-swap.mp4")}
    for batch in whole:
        for rows in batch["row"].tolist():
            assert not damaged & {*rows}
            assert set(np.diff(rows)) == {2}
            assert len({stored[row]["video_id"] for row in rows}) == 1
    assert seen(loader_of(copy, num_workers=2, **options)) == seen(whole)
    parts = [seen(loader_of(copy, **{**options, "batch_size": 2}, rank=rank, num_replicas=2)) for rank in range(2)]
    steps = [[*one, *two] for one, two in zip(*parts, strict=True)]
    assert steps[:-1] == seen(whole)[:-1]


def test_a_damaged_image_can_stop_the_run_and_so_it_does_where_nothing_is_sound(
    copy: Path, stored: list[dict[str, Any]]
) -> None:
    damage(copy, *rows_of(stored, "real/dora.mp4"))
    with pytest.raises(CorruptDataError, match="no sound clip of its video or label is among the selected rows"):
        list(loader_of(copy, split="val"))
    with pytest.raises(CorruptDataError, match="is not the one that was written"):
        list(loader_of(copy, split="val", on_corrupt="raise"))


def test_a_damaged_image_of_a_padded_clip_is_replaced_too(copy: Path, stored: list[dict[str, Any]]) -> None:
    cleo = rows_of(stored, "real/cleo.mp4")
    damage(copy, cleo[-1])
    loader = loader_of(copy, clip=Clip(frames=8, pad=True), fields=(*FIELDS, "valid"), batch_size=3)
    rows = [row for batch in loader for row in batch["row"].flatten().tolist()]
    assert loader.stats().corrupt == 1
    assert cleo[-1] not in rows


def test_a_padded_clip_is_never_given_without_saying_what_of_it_is_valid(dataset: Path) -> None:
    with pytest.raises(UsageError, match=r"collate_fn: gets \(clip, label\) pairs, without `valid`"):
        loader_of(dataset, clip=Clip(frames=4, pad=True), collate_fn=list, fields=None)


def test_a_clip_holds_no_gap_in_images_that_are_all_taken_whatever_the_rate_of_videos(tmp_path: Path) -> None:
    write_clip(tmp_path / "src/clip", (1, 2, 3, 5, 6, 7), "{:04}.png")
    options = Options(sampling=Sampling(fps=5, all_images=True, fps_of_images=25), margin=0)
    with in_process():
        precompute(tmp_path / "src", tmp_path / "out", options=options, detector="whole-frame", allow_unlabelled=True)
    settings: dict[str, Any] = {"split": None, "fields": ("image", "frame_number"), "shuffle": False}
    clips = loader_of(tmp_path / "out", clip=Clip(frames=3, clips_per_video=9), **settings)
    assert [batch["frame_number"].tolist() for batch in clips] == [[[1, 2, 3], [5, 6, 7]]]


@pytest.mark.parametrize(
    ("sampling", "step"),
    [
        (Sampling.default(), 1), (Sampling(every=1), 1), (Sampling(every=3), 3),
        (Sampling(every=3, all_images=True), 1), (Sampling(fps=5, all_images=True, fps_of_images=25), 1),
    ],
    ids=str,
)  # fmt: skip
def test_a_clip_of_a_numbered_folder_steps_over_no_image_that_a_filter_leaves_out(
    tmp_path: Path, sampling: Sampling, step: int
) -> None:
    write_clip(tmp_path / "src/clip", tuple(range(24)), "{:04}.png")
    options = Options(sampling=sampling, margin=0)
    with in_process():
        precompute(tmp_path / "src", tmp_path / "out", options=options, detector="whole-frame", allow_unlabelled=True)
    settings: dict[str, Any] = {"split": None, "fields": ("image", "frame_number"), "shuffle": False}
    every_second, first_half = range(0, 24, 2 * step), range(0, 12, step)
    whole = loader_of(tmp_path / "out", clip=Clip(frames=3, clips_per_video=1), **settings)
    assert {*np.diff(next(iter(whole))["frame_number"].numpy()).flatten()} == {step}
    half = loader_of(
        tmp_path / "out", clip=Clip(frames=3, clips_per_video=1), filters=[("frame_number", "in", [*first_half])],
        **settings,
    )  # fmt: skip
    assert {*next(iter(half))["frame_number"].numpy().flatten()} <= {*first_half}
    with pytest.raises(UsageError, match="longest run has 1"):
        loader_of(tmp_path / "out", clip=Clip(frames=3), filters=[("frame_number", "in", [*every_second])], **settings)


def test_a_gap_in_seconds_is_refused_for_frames_whose_times_nobody_knows(tmp_path: Path) -> None:
    write_clip(tmp_path / "src/clip", (1, 2, 3, 9, 10, 11), "{:04}.png")
    for out, rate in (("numbers", None), ("times", 25)):
        sampling = Sampling(every=1, fps_of_images=rate)
        options = Options(sampling=sampling, margin=0)
        with in_process():
            precompute(tmp_path / "src", tmp_path / out, options=options, detector="whole-frame", allow_unlabelled=True)
    settings: dict[str, Any] = {"split": None, "fields": ("image", "frame_number"), "shuffle": False}
    with pytest.raises(UsageError, match=r"max_gap_seconds=1\.0: .*numbers has folders of frames.*--fps-of-images"):
        loader_of(tmp_path / "numbers", clip=Clip(frames=3, max_gap_seconds=1), **settings)
    timed = loader_of(tmp_path / "times", clip=Clip(frames=3, max_gap_seconds=0.05, clips_per_video=9), **settings)
    assert [batch["frame_number"].tolist() for batch in timed] == [[[1, 2, 3], [9, 10, 11]]]
    longer = Clip(frames=4, max_gap_seconds=0.3, clips_per_video=9)
    assert len(loader_of(tmp_path / "times", clip=longer, batch_size=1, **settings)) == 3
