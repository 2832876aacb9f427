"""What a training loop notices of a mixture: one sequence on any workers, exact resume, damage by dataset, clips."""

from __future__ import annotations

import inspect
import json
import logging
import pickle
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from assets_dataset import copy_dataset
from assets_loaders import Noise, Seen, loader, seen, start_training, take_steps
from assets_mixtures import FACES, OFFSETS, make_one, make_three
from assets_rows import damage, stored_pixels, stored_rows
from facefeed.loaders import Clip, DevicePrefetcher, FaceDataLoader, Pairs, Quotas
from facefeed.loaders.augment import SelfBlend
from facefeed.pipeline.dataset.reserved_names import RESERVED_NAMES
from facefeed.pipeline.errors import CorruptDataError, UsageError
from facefeed.pipeline.video import Sampling

WEIGHTS = [0.2, 0.3, 0.5]
FIELDS = ("image", "label", "dataset_index", "face_id", "video_id", "row")


@pytest.fixture(scope="module")
def outs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make_three(tmp_path_factory.mktemp("mixture"))


@pytest.fixture
def copies(outs: list[str], tmp_path: Path) -> list[str]:
    return [str(copy_dataset(Path(out), tmp_path / Path(out).name)) for out in outs]


def mixture(outs: list[str], **options: Any) -> FaceDataLoader:
    settings = {"batch_size": 8, "num_workers": 0, "weights": WEIGHTS, "epoch_length": 12, "transform": Noise()}
    return loader(outs, **{**settings, **options})


# ---- what is in a batch


def test_no_added_column_can_have_the_name_of_a_field_that_the_loader_has_itself(outs: list[str]) -> None:
    with pytest.raises(UsageError, match="'nothing' is no column; there are ") as refused:
        mixture(outs, clip=Clip(frames=2), fields=("image", "nothing"))
    fields = str(refused.value).partition("there are ")[2].split(", ")
    assert {"image", "mask", "row", "valid", "labels_per_frame", "dataset_index", "label"} <= {*fields}
    assert set(fields) <= RESERVED_NAMES


def test_each_face_has_the_pixels_label_and_dataset_that_its_folder_has(outs: list[str]) -> None:
    stored = [stored_rows(Path(out)) for out in outs]
    batches = mixture(outs, transform=None, fields=FIELDS, dtype="uint8", epoch_length="ffpp")
    came = set()
    for batch in batches:
        assert (batch["dataset_index"].dtype, batch["dataset_index"].shape) == (torch.int64, batch["label"].shape)
        for image, label, dataset, face_id, row in zip(
            *(batch[name] for name in ("image", "label", "dataset_index", "face_id", "row")), strict=True
        ):
            own = stored[dataset][int(row) - int(OFFSETS[dataset])]
            assert own["face_id"] == face_id
            assert own["label"] == label
            assert np.array_equal(image.permute(1, 2, 0).numpy(), stored_pixels(own))
            came.add(int(dataset))
    assert came == {0, 1, 2}


def test_tuples_points_and_collate_functions_work_as_for_one_dataset(outs: list[str]) -> None:
    images, labels = next(iter(mixture(outs, fields=None)))
    assert (images.shape, labels.dtype) == ((8, 3, 32, 32), torch.int64)
    batch = next(iter(mixture(outs, fields=("image", "landmarks", "regions", "method", "split", "score", "mask"))))
    assert batch["landmarks"].shape == (8, 5, 2)
    assert batch["mask"].shape == (8, 32, 32)
    assert set(batch["split"]) == {"train"}
    assert len(next(iter(mixture(outs, fields=None, collate_fn=list)))) == 8
    crops = next(iter(mixture(outs, crop={"margin": 0.0, "size": 16}, image_size="auto", fields=None)))
    assert crops[0].shape == (8, 3, 16, 16)


def test_made_fakes_and_a_device_work_as_for_one_dataset(outs: list[str]) -> None:
    batches = mixture(outs, transform=None, face_transform=[SelfBlend(p=1.0)], fields=("image", "label"))
    list(batches)
    assert batches.stats().made_fakes > 20
    on_device = DevicePrefetcher(mixture(outs), "cpu")
    assert seen(on_device) == seen(mixture(outs))


def test_the_description_names_the_datasets_in_the_order_of_their_numbers(outs: list[str]) -> None:
    description = mixture(outs).describe()
    assert [(each.name, str(each.out), each.items) for each in description.datasets] == [
        (name, out, faces) for (name, faces), out in zip(FACES.items(), outs, strict=True)
    ]
    assert [each.share for each in description.datasets] == pytest.approx(WEIGHTS)
    assert sum(each.drawn for each in description.datasets) == 12 * 8
    assert "dataset 2: dfdc, 50.00% of each batch, 48 images an epoch, 5.33 passes through 9;" in str(description)
    assert "the datasets below by their shares" in str(description)
    assert loader(outs[0]).describe().datasets == ()


@pytest.mark.parametrize("split", ["train", "val", None])
def test_a_split_is_taken_of_each_dataset(outs: list[str], split: str | None) -> None:
    batches = loader(outs, num_workers=0, split=split, fields=("image", "split", "dataset_index"))
    counts = {"train": [60, 24, 9], "val": [5, 5, 5], None: [65, 29, 14]}[split]
    splits, datasets = [], []
    for batch in batches:
        splits += batch["split"]
        datasets += batch["dataset_index"].tolist()
    assert np.bincount(datasets).tolist() == counts
    assert set(splits) == ({split} if split else {"train", "val"})


def test_filters_and_frames_per_video_are_applied_to_each_dataset(outs: list[str]) -> None:
    batches = loader(outs, num_workers=0, filters=[("label", "==", 1)], frames_per_video=2)
    assert [each.items for each in batches.describe().datasets] == [4, 4, 4]


def test_a_dataset_of_which_nothing_is_selected_is_named(outs: list[str]) -> None:
    with pytest.raises(UsageError, match="dfdc: nothing of this split passes the filters; leave it out"):
        loader(outs, num_workers=0, filters=[("frame_index", ">", 5)])


# ---- one sequence


@pytest.mark.parametrize("options", [{}, {"shuffle": "window", "window_images": 128}], ids=["full", "window"])
@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_workers_gives_the_same_images(outs: list[str], workers: int, options: dict[str, Any]) -> None:
    batches, expected = mixture(outs, num_workers=workers, **options), mixture(outs, **options)
    for _ in range(2):
        assert seen(batches) == seen(expected)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_deliver_the_parts_of_one_sequence_of_images(outs: list[str], ranks: int) -> None:
    parts = [seen(mixture(outs, rank=rank, num_replicas=ranks)) for rank in range(ranks)]
    together = [[image for part in step for image in part] for step in zip(*parts, strict=True)]
    assert together == seen(mixture(outs, batch_size=8 * ranks))


# ---- resume


def state_after(steps: int, batches: FaceDataLoader) -> tuple[list[Seen], dict[str, Any]]:
    iterator = iter(batches)
    return seen(islice(iterator, steps)), json.loads(json.dumps(batches.state_dict()))


@pytest.mark.parametrize(
    "options",
    [{}, {"epoch_length": None}, {"balance": Quotas({"real": 1, "fake": 1})}, {"balance": Pairs()},
     {"shuffle": "window", "window_images": 128}, {"split": "val"}],
    ids=["weights", "sizes", "quotas", "pairs", "window", "unshuffled"],
)  # fmt: skip
def test_stopped_in_mid_epoch_exactly_the_rest_comes(outs: list[str], options: dict[str, Any]) -> None:
    whole = mixture(outs, **options)
    expected = [batch for _ in range(2) for batch in seen(whole)]
    for steps in (1, 5):
        consumed, state = state_after(steps, mixture(outs, **options))
        resumed = mixture(outs, **options)
        resumed.load_state_dict(state)
        assert [*consumed, *seen(resumed), *seen(resumed)] == expected


@pytest.mark.parametrize(("before", "after"), [(2, 0), (0, 1), (1, 2)])
def test_stopped_with_some_workers_it_goes_on_with_others(outs: list[str], before: int, after: int) -> None:
    consumed, state = state_after(4, mixture(outs, num_workers=before))
    resumed = mixture(outs, num_workers=after)
    resumed.load_state_dict(state)
    assert [*consumed, *seen(resumed)] == seen(mixture(outs))


@pytest.mark.processes
def test_a_killed_process_goes_on_with_exactly_the_rest(outs: list[str], tmp_path: Path) -> None:
    training = start_training(outs, tmp_path, num_workers=1, batch_size=8, weights=WEIGHTS, epoch_length=12)
    try:
        take_steps(training, 5)
    finally:
        training.kill()
        training.communicate()
    with (tmp_path / "steps.pickle").open("rb") as log:
        consumed = [batch for _ in range(5) for batch in pickle.load(log)]
    resumed = mixture(outs)
    resumed.load_state_dict(json.loads((tmp_path / "state.json").read_text()))
    assert [*consumed, *seen(resumed)] == seen(mixture(outs))


def test_another_batch_size_goes_on_too_but_not_in_epochs_of_so_many_batches(outs: list[str]) -> None:
    consumed, state = state_after(3, mixture(outs, epoch_length=None, transform=None))
    resumed = mixture(outs, epoch_length=None, transform=None, batch_size=5)
    resumed.load_state_dict(state)
    images = [image for batch in [*consumed, *seen(resumed)] for image in batch]
    assert images == [image for batch in seen(mixture(outs, epoch_length=None, transform=None)) for image in batch]
    _, state = state_after(3, mixture(outs))
    with pytest.raises(UsageError, match="with epochs of so many batches the order depends on it"):
        mixture(outs, batch_size=5).load_state_dict(state)


@pytest.mark.parametrize(
    "options", [{"weights": [1, 1, 1]}, {"weights": None}, {"epoch_length": "dfdc"}, {"balance": Pairs()}], ids=str
)
def test_a_state_of_another_mixture_is_refused(outs: list[str], options: dict[str, Any]) -> None:
    _, state = state_after(2, mixture(outs))
    with pytest.raises(UsageError, match="the state has order="):
        mixture(outs, **options).load_state_dict(state)


def test_weights_of_the_same_ratio_resume_each_others_states(outs: list[str]) -> None:
    consumed, state = state_after(2, mixture(outs, weights=[1, 1, 2]))
    resumed = mixture(outs, weights=[3.0, 3, 6])
    resumed.load_state_dict(state)
    assert [*consumed, *seen(resumed)] == seen(mixture(outs, weights=[1, 1, 2]))


def test_a_state_of_other_datasets_is_refused_and_of_moved_ones_taken(outs: list[str], copies: list[str]) -> None:
    _, state = state_after(2, mixture(outs))
    with pytest.raises(UsageError, match="the state has fingerprint="):
        mixture([*outs[1:], outs[0]]).load_state_dict(state)
    moved = mixture({f"moved {n}": out for n, out in enumerate(copies)}, weights=[0.2, 0.3, 0.5])  # type: ignore[arg-type]
    moved.load_state_dict(state)
    assert len(seen(moved)) == 10


def test_a_trainer_may_rebuild_the_loader_from_its_attributes(outs: list[str]) -> None:
    batches = mixture(outs, balance=Quotas({"real": 1, "fake": 1}), rename={"dfdc": {"method": {"swap": "FaceSwap"}}})
    names = [name for name in inspect.signature(FaceDataLoader).parameters if name not in ("sampler", "unsupported")]
    arguments = {name: getattr(batches, name) for name in names if hasattr(batches, name)}
    assert {"weights", "epoch_length", "temperature", "rename", "dataset"} <= arguments.keys()
    untouched = ("split", "image_size", "crop", "face_transform", "transform", "filters", "frames_per_video")
    rebuilt = FaceDataLoader(**{name: value for name, value in arguments.items() if name not in untouched})
    assert seen(rebuilt) == seen(batches)


# ---- damage


def test_damage_is_counted_by_dataset_and_replaced_within_it(
    copies: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    damage(Path(copies[0]), 3)
    whole_video = [n for n, row in enumerate(stored_rows(Path(copies[2]))) if row["video_id"] == "real/anna.mp4"]
    damage(Path(copies[2]), *whole_video[:-1])
    with caplog.at_level(logging.WARNING, "facefeed.loaders"):
        batches = loader(copies, num_workers=0, fields=FIELDS)
        labels, datasets, rows = _columns(batches)
    assert np.bincount(datasets).tolist() == list(FACES.values())
    assert np.searchsorted(OFFSETS, rows, side="right").tolist() == [dataset + 1 for dataset in datasets]
    assert sum(label == 0 for label in labels) == sum(faces // 3 for faces in FACES.values())
    stats = batches.stats()
    assert (stats.corrupt, stats.corrupt_by_dataset) == (3, {"ffpp": 1, "celebdf": 0, "dfdc": 2})
    assert "corrupt 3 (ffpp 1, celebdf 0, dfdc 2)" in str(stats)
    assert "3 damaged images (ffpp 1, dfdc 2) were replaced" in caplog.text
    assert f"run `facefeed verify {copies[0]}` and `facefeed verify {copies[2]}`" in caplog.text


def _columns(batches: FaceDataLoader) -> tuple[list[int], list[int], list[int]]:
    labels: list[int] = []
    datasets: list[int] = []
    rows: list[int] = []
    for batch in batches:
        labels += batch["label"].tolist()
        datasets += batch["dataset_index"].tolist()
        rows += batch["row"].tolist()
    return labels, datasets, rows


def test_a_dataset_without_a_sound_face_of_a_label_is_never_filled_up_from_another(copies: list[str]) -> None:
    reals = [n for n, row in enumerate(stored_rows(Path(copies[2]))) if row["video_id"] == "real/anna.mp4"]
    damage(Path(copies[2]), *reals)
    with pytest.raises(CorruptDataError, match="no sound image of its video or label"):
        list(loader(copies, num_workers=0))


def test_damage_may_raise(copies: list[str]) -> None:
    damage(Path(copies[1]), 2)
    with pytest.raises(CorruptDataError, match=rf"{copies[1]}/faces/train.*\(real/anna\.mp4, frame \d+\); run"):
        list(loader(copies, num_workers=0, on_corrupt="raise"))


# ---- clips


@pytest.mark.parametrize("pick", ["random", "all"])
def test_clips_come_by_shares_too_each_of_one_video_of_one_dataset(outs: list[str], pick: Any) -> None:
    options = {"clip": Clip(frames=3, pick=pick), "fields": ("image", "dataset_index", "video_id", "frame_index")}
    batches = mixture(outs, transform=None, batch_size=4, **options)
    datasets = []
    for batch in batches:
        assert batch["image"].shape == (4, 3, 3, 32, 32)
        for videos, frames, numbers in zip(
            batch["video_id"], batch["frame_index"].tolist(), batch["dataset_index"].tolist(), strict=True
        ):
            assert len(set(videos)) == len(set(numbers)) == 1
            assert frames == list(range(frames[0], frames[0] + 3))
            datasets.append(numbers[0])
    assert np.bincount(datasets) / len(datasets) == pytest.approx(WEIGHTS, abs=0.03)


def test_clips_of_a_mixture_resume_and_do_not_depend_on_workers(outs: list[str]) -> None:
    options = {"clip": Clip(frames=3, clips_per_video=4), "batch_size": 4}
    expected = seen_clips(mixture(outs, **options))
    assert seen_clips(mixture(outs, num_workers=1, **options)) == expected
    first = mixture(outs, **options)
    iterator = iter(first)
    consumed = seen_clips(islice(iterator, 4))
    resumed = mixture(outs, **options)
    resumed.load_state_dict(first.state_dict())
    assert [*consumed, *seen_clips(resumed)] == expected


def seen_clips(batches: Any) -> list[tuple[Any, bytes]]:
    return [(batch["face_id"], batch["image"].numpy().tobytes()) for batch in batches]


def test_a_fake_clip_is_paired_with_its_source_in_its_own_dataset(outs: list[str]) -> None:
    fields = ("image", "dataset_index", "video_id", "source_id", "frame_index")
    for batch in mixture(outs, transform=None, clip=Clip(frames=3), balance=Pairs(), fields=fields):
        datasets, videos, sources = (batch[name] for name in ("dataset_index", "video_id", "source_id"))
        for real in range(0, 8, 2):
            assert datasets[real, 0] == datasets[real + 1, 0]
            assert videos[real][0] == sources[real + 1][0]
            assert batch["frame_index"][real].tolist() == batch["frame_index"][real + 1].tolist()


def test_a_damaged_clip_is_replaced_within_its_dataset(copies: list[str]) -> None:
    damage(Path(copies[1]), 0)
    batches = loader(copies, num_workers=0, clip=Clip(frames=3, pick="all"), fields=("image", "dataset_index"))
    datasets = [number for batch in batches for number in batch["dataset_index"][:, 0].tolist()]
    assert batches.stats().corrupt_by_dataset["celebdf"] == batches.stats().corrupt == 1
    assert np.bincount(datasets).tolist() == [each.items for each in batches.describe().datasets]


def test_clips_of_datasets_that_were_sampled_differently_need_a_gap(outs: list[str], tmp_path: Path) -> None:
    other = make_one(tmp_path / "other", 30, sampling=Sampling(fps=25))
    with pytest.raises(UsageError, match=r"sampled by different rules.*same --every or --fps, or give Clip\(max_gap"):
        loader([outs[0], other], num_workers=0, clip=Clip(frames=3))
    batches = loader([outs[0], other], num_workers=0, clip=Clip(frames=3, max_gap_seconds=0.05))
    assert len(list(batches)) == len(batches)
    picked = loader([outs[0], other], num_workers=0, clip=Clip(frames=5, pick="all"), frames_per_video=5)
    assert [each.items for each in picked.describe().datasets] == [3, 3]


def test_a_dataset_of_the_mixture_that_has_no_clip_is_named(outs: list[str], tmp_path: Path) -> None:
    short = make_one(tmp_path / "short", 6)
    with pytest.raises(UsageError, match=r"^short: Clip\(frames=5.*the longest run has 2"):
        loader([outs[0], short], num_workers=0, clip=Clip(frames=5))


# ---- mistakes


def test_names_that_are_no_text_are_named(outs: list[str]) -> None:
    with pytest.raises(UsageError, match=r"dataset: 1, the name of '.*ffpp' in a mixture: must be a text"):
        loader({1: outs[0]})  # type: ignore[dict-item, arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch_length": 10**9}, r"epoch_length=1000000000: an epoch of .* images, of at most .*; take fewer batches"),
        ({"epoch_length": "ffpp", "weights": [1e-8, 1, 1]}, "epoch_length='ffpp': an epoch of .*a larger weight"),
    ],
    ids=["batches", "dataset"],
)
def test_an_epoch_that_no_memory_holds_is_refused(outs: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        loader(outs, num_workers=0, **options)
