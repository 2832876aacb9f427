"""What a user of `FaceDataModule` notices: the splits, and runs that go on at the very next batch."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import albumentations
import lightning
import numpy as np
import pytest
import torch
from assets_dataset import Clip, make_dataset
from assets_paths import SUPPORT
from assets_processes import in_processes
from assets_train import (
    TEST_FACES,
    TRAIN_FACES,
    VAL_FACES,
    RecordFaces,
    SaveEach,
    classifier,
    data,
    foreign,
    small_dataset,
    trainer,
)
from facefeed.loaders.augment import FaceCompose, SelfBlend
from facefeed.pipeline.dataset.crops import crop_protocol
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.sources import Entry
from facefeed.train.checkpoints.plain import read_checkpoint
from facefeed.train.config.options import DataOptions
from facefeed.train.datamodule import FaceDataModule

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_dataset(tmp_path_factory.mktemp("data") / "out")


def faces(loader: Any) -> list[str]:
    return [name for batch in loader for name in batch["face_id"]]


# ---- resume


@pytest.mark.parametrize(
    "options", [{}, {"accumulate_grad_batches": 3}, {"val_check_interval": 3}, {"limit_train_batches": 5}], ids=str
)
def test_a_run_resumed_from_any_batch_sees_exactly_the_batches_that_were_left(
    out: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    all_faces, model = RecordFaces(), foreign()
    trainer(max_epochs=2, callbacks=[all_faces, SaveEach(tmp_path)], **options).fit(model, data(out))
    epoch_batches = options.get("limit_train_batches", 7)
    assert len(all_faces.steps) == 2 * epoch_batches
    for batches in range(1, len(all_faces.steps)):
        resumed_faces, resumed_model = RecordFaces(), foreign()
        fit = trainer(max_epochs=2, callbacks=[resumed_faces], **options)
        fit.fit(resumed_model, data(out), ckpt_path=tmp_path / f"{batches}.ckpt")
        assert resumed_faces.steps == all_faces.steps[batches:]
        if batches % epoch_batches % options.get("accumulate_grad_batches", 1) == 0:  # no gradients were under way
            assert all(map(torch.equal, model.state_dict().values(), resumed_model.state_dict().values()))


# ---- processes that are killed


@dataclass(frozen=True)
class Killed:
    """Where runs that were killed and begun again left what they saw, beside a run that nothing disturbed."""

    one: Path
    two: Path
    whole: list[list[Any]]
    weights: dict[str, torch.Tensor]


KILLED_AT, SAVED_AT = 10, 9
"""Batches before the kill, and before the last checkpoint: steps end after batches 2, 4, 6, 7 | 9, 11, 13, 14."""


@pytest.fixture(scope="module")
def killed(out: Path, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    folder = tmp_path_factory.mktemp("killed")

    def stage(ranks: int, **options: Any) -> dict[str, Any]:
        arguments = {"out": str(out), "run": str(folder / f"{ranks}"), "ranks": ranks, **options}
        return {"run": f"{SUPPORT}/train/assets_train.py:train_in_process", "ranks": ranks, "arguments": arguments}

    codes = in_processes(stage(1, kill_at=KILLED_AT, workers=1), stage(1), stage(2, kill_at=KILLED_AT), stage(2))
    assert codes == [[-signal.SIGKILL], [0], [-signal.SIGKILL] * 2, [0, 0]]
    seen, model = RecordFaces(), classifier()
    trainer(max_epochs=2, accumulate_grad_batches=2, callbacks=[seen]).fit(model, data(out))
    assert len(seen.steps) == 14
    return Killed(folder / "1", folder / "2", seen.steps, model.state_dict())


@pytest.mark.processes
def test_after_sigkill_in_mid_epoch_a_new_process_trains_on_exactly_what_was_left(killed: Killed) -> None:
    assert RecordFaces.read(killed.one / "rank 0, after 0") == killed.whole[:KILLED_AT]
    assert RecordFaces.read(killed.one / "rank 0, after 5") == killed.whole[SAVED_AT:]
    resumed = torch.load(killed.one / "weights")
    assert all(map(torch.equal, killed.weights.values(), resumed.values()))


@pytest.mark.processes
def test_so_do_two_ranks_each_with_its_half_of_every_batch(killed: Killed) -> None:
    for name, expected in (("after 0", killed.whole[:KILLED_AT]), ("after 5", killed.whole[SAVED_AT:])):
        first, second = (RecordFaces.read(killed.two / f"rank {rank}, {name}") for rank in (0, 1))
        assert [[epoch, a + b] for (epoch, a), (_, b) in zip(first, second, strict=True)] == expected
        assert {abs(len(a) - len(b)) for (_, a), (_, b) in zip(first, second, strict=True)} == {0}


@pytest.mark.processes
def test_figures_of_two_ranks_are_those_of_one_with_the_face_that_fills_a_step_counted_once(
    killed: Killed, out: Path
) -> None:
    metrics = [json.loads((killed.two / f"metrics of {rank}").read_text()) for rank in (0, 1)]
    assert VAL_FACES % 8 == 1  # one face is left for two ranks
    (single,) = trainer().validate(classifier(), data(out), verbose=False)
    assert metrics[0] == metrics[1]
    assert metrics[0] == pytest.approx(single, rel=1e-5)


# ---- the splits


def test_training_is_balanced_and_validation_and_test_hold_every_face_once_in_order(out: Path) -> None:
    module = data(out)
    assert module.classes == ("real", "fake")
    train = list(module.train_dataloader())
    assert all(batch["label"].sum() * 2 == len(batch["label"]) for batch in train)
    for loader, count in ((module.val_dataloader(), VAL_FACES), (module.test_dataloader(), TEST_FACES)):
        assert len(faces(loader)) == len(set(faces(loader))) == count
        assert faces(loader) == faces(loader)
    batch = train[0]
    assert batch["image"].shape == (8, 3, 32, 32)
    assert batch["image"].dtype == torch.float32
    assert {name for train_batch in train for name in train_batch["method"]} == {None, "swap", "talk"}


def test_without_a_balance_an_epoch_holds_every_face_once_and_pairs_put_each_fake_after_its_original(out: Path) -> None:
    natural = faces(data(out, balance="none").train_dataloader())
    assert len(natural) == len(set(natural)) == TRAIN_FACES
    for batch in data(out, balance="pairs").train_dataloader():
        assert batch["label"].tolist() == [0, 1] * (len(batch["label"]) // 2)


def test_fakes_that_pairs_leave_out_are_reported(tmp_path: Path) -> None:
    clips = (Clip("real/anna.mp4", 4), Clip("fake/anna-swap.mp4", 3), Clip("fake/nobody-swap.mp4", 5))
    make_dataset(tmp_path / "out", (("train", clips),))
    with pytest.warns(UserWarning, match="out: data.balance=pairs trains on pairs alone: 5 fakes without rows of"):
        assert len(faces(data(tmp_path / "out", balance="pairs").train_dataloader())) == 6


def test_real_faces_beside_the_fakes_made_of_them_are_trained_on_and_the_other_splits_are_whole(out: Path) -> None:
    file = Path(__file__).resolve().parents[2] / "loaders" / "augment" / "self_blend.yaml"
    module = data(out, balance="blend_pairs", transform=str(file))
    loader = module.train_dataloader()
    labels = [label for batch in loader for label in batch["label"].tolist()]
    assert labels == [0, 1] * (len(labels) // 2)
    assert loader.stats().made_fakes == len(labels) // 2
    assert {label for batch in module.val_dataloader() for label in batch["label"].tolist()} == {0, 1}


def test_blend_pairs_take_the_class_that_the_transform_takes_for_real(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", (("train", (Clip("real/anna.mp4", 9),)),), labels=("live", "spoof"))
    pipeline = FaceCompose([SelfBlend(p=1, real=0, fake=1)])
    albumentations.save(pipeline, tmp_path / "blend.yaml", data_format="yaml")
    loader = data(tmp_path / "out", balance="blend_pairs", transform=str(tmp_path / "blend.yaml")).train_dataloader()
    assert next(iter(loader))["label"].tolist() == [0, 1] * 4


@pytest.mark.parametrize("name", ["self_blend.yaml", "self_blend_64.yaml"])
def test_the_ready_blends_are_refused_where_no_class_is_known_to_be_real(tmp_path: Path, name: str) -> None:
    """The first of two unknown classes may be the fakes."""
    make_dataset(tmp_path / "out", (("train", (Clip("real/anna.mp4", 9),)),), labels=("falsch", "wahr"))
    with pytest.raises(UsageError, match="no label of this dataset is called real"):
        data(tmp_path / "out", balance="blend_pairs", transform=name).train_dataloader()


def test_frames_per_video_thins_every_split_and_seeds_give_other_orders(out: Path) -> None:
    thin = data(out, frames_per_video=2, balance="none")
    assert len(faces(thin.train_dataloader())) == 3 * 2
    assert len(faces(thin.val_dataloader())) == 3 * 2
    assert faces(data(out, seed=1).train_dataloader()) != faces(data(out).train_dataloader())


def test_a_pipeline_file_is_applied_to_training_alone(out: Path, tmp_path: Path) -> None:
    pipelines = {
        "compose.yaml": albumentations.Compose([albumentations.InvertImg(p=1.0)]),
        "face.yaml": FaceCompose([albumentations.InvertImg(p=1.0)]),
        "json.json": albumentations.Compose([albumentations.InvertImg(p=1.0)]),
    }
    plain = data(out)
    first, validated = next(iter(plain.train_dataloader())), next(iter(plain.val_dataloader()))
    for name, pipeline in pipelines.items():
        albumentations.save(pipeline, str(tmp_path / name), data_format=name.rpartition(".")[2])
        module = data(out, transform=str(tmp_path / name))
        inverted = next(iter(module.train_dataloader()))
        assert inverted["face_id"] == first["face_id"]
        pixels = [batch["image"] * torch.tensor([0.229, 0.224, 0.225])[:, None, None] for batch in (first, inverted)]
        black = -torch.tensor([0.485, 0.456, 0.406])[:, None, None]
        assert torch.allclose(pixels[1] - black, 1 - (pixels[0] - black), atol=1e-5)
        assert torch.equal(next(iter(module.val_dataloader()))["image"], validated["image"])


def test_an_evaluation_transform_is_applied_to_validation_and_test_alone(out: Path, tmp_path: Path) -> None:
    albumentations.save(FaceCompose([albumentations.InvertImg(p=1.0)]), str(tmp_path / "a.yaml"), data_format="yaml")
    plain, inverted = data(out), data(out, eval_transform=str(tmp_path / "a.yaml"))
    for split in ("val", "test"):
        pixels = [next(iter(getattr(module, f"{split}_dataloader")()))["image"] for module in (plain, inverted)]
        assert not torch.equal(*pixels)
    assert torch.equal(*(next(iter(module.train_dataloader()))["image"] for module in (plain, inverted)))


@pytest.mark.parametrize("options", [{}, {"limit_val_batches": 1}])
def test_every_validation_sees_the_same_draws_of_its_transform(
    out: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    brightness = albumentations.RandomBrightnessContrast(brightness_limit=0.8, p=1.0)
    albumentations.save(albumentations.Compose([brightness]), str(tmp_path / "a.yaml"), data_format="yaml")
    seen: list[list[torch.Tensor]] = []
    recorder = lightning.Callback()
    recorder.on_validation_start = lambda *_: seen.append([])  # type: ignore[method-assign]
    recorder.on_validation_batch_start = (  # type: ignore[method-assign]
        lambda trainer, pl_module, batch, *_: seen[-1].append(batch["image"].clone())
    )
    module, model = data(out, eval_transform=str(tmp_path / "a.yaml")), classifier()
    fit = trainer(max_epochs=3, limit_train_batches=1, callbacks=[recorder], **options)
    fit.fit(model, module)
    fit.validate(model, module, verbose=False)
    first, *others = seen
    assert len(others) == 3
    assert all(torch.equal(torch.cat(first), torch.cat(other)) for other in others)


@pytest.mark.parametrize("split", ["val", "test"])
def test_evaluation_draws_the_same_for_a_face_in_any_batch_and_on_any_rank(
    out: Path, tmp_path: Path, split: str
) -> None:
    brightness = albumentations.RandomBrightnessContrast(brightness_limit=0.8, p=1.0)
    albumentations.save(albumentations.Compose([brightness]), str(tmp_path / "a.yaml"), data_format="yaml")

    def images(batch_size: int, seed: int = 0, **ranks: int) -> dict[int, torch.Tensor]:
        module = data(out, eval_transform=str(tmp_path / "a.yaml"), batch_size=batch_size, seed=seed)
        more = {**module.loader_arguments(), **ranks}
        module.loader_arguments = lambda: more  # type: ignore[method-assign]
        loader = getattr(module, f"{split}_dataloader")()
        return {
            row: image
            for batch in loader
            for row, image in zip(batch["row"].tolist(), batch["image"].clone(), strict=True)
        }

    small, large = images(2), images(7)
    on_two = images(3, rank=0, num_replicas=2) | images(3, rank=1, num_replicas=2)
    assert small.keys() == large.keys() == on_two.keys()
    assert all(torch.equal(image, large[row]) and torch.equal(image, on_two[row]) for row, image in small.items())
    assert not torch.equal(small[min(small)], images(2, seed=1)[min(small)])


def test_evaluation_never_takes_fakes_that_were_made_of_real_faces(out: Path) -> None:
    module = data(out, eval_transform="self_blend_64.yaml")
    for loader in (module.val_dataloader, module.test_dataloader):
        with pytest.raises(UsageError, match=r"data\.eval_transform=self_blend_64\.yaml: its SelfBlend makes fakes"):
            loader()


def test_blend_pairs_without_a_transform_that_blends_name_the_option(out: Path) -> None:
    with pytest.raises(
        UsageError, match=r"data\.balance=blend_pairs: needs a SelfBlend.*try data\.transform=self_blend"
    ):
        data(out, balance="blend_pairs").train_dataloader()


def test_a_dataset_with_one_class_or_unknown_labels_in_training_is_trained_on_what_there_is(tmp_path: Path) -> None:
    make_dataset(tmp_path, (("train", (Clip("real/anna.mp4", 9),)),))
    module = data(tmp_path)
    assert len(faces(module.train_dataloader())) == 9
    assert module.val_dataloader() == module.test_dataloader() == []


# ---- what is refused


def test_a_folder_that_is_no_dataset_and_a_checkpoint_of_another_order_are_refused(out: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="manifest"):
        FaceDataModule(tmp_path)
    saving = SaveEach(tmp_path)
    trainer(max_epochs=1, limit_train_batches=2, callbacks=[saving]).fit(foreign(), data(out))
    with pytest.raises(UsageError, match="seed=0, this loader 1; make the loader with the same data and settings"):
        trainer(max_epochs=1).fit(foreign(), data(out, seed=1), ckpt_path=tmp_path / "1.ckpt")


def test_testing_a_checkpoint_leaves_the_next_training_alone(out: Path, tmp_path: Path) -> None:
    module, model = data(out), classifier()
    trainer(max_epochs=1, limit_train_batches=2, callbacks=[SaveEach(tmp_path)]).fit(model, module)
    trainer().test(model, module, ckpt_path=tmp_path / "1.ckpt", verbose=False)
    seen = RecordFaces()
    trainer(max_epochs=1, limit_train_batches=2, callbacks=[seen]).fit(model, module)
    assert [names for _, names in seen.steps] == [
        batch["face_id"] for batch, _ in zip(data(out).train_dataloader(), range(2), strict=False)
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0: must be at least 1; try 64"),
        ({"batch_size": 2.5}, "batch_size=2.5: must be a whole number of at least 1; try 64"),
        ({"image_size": True}, "image_size=True: must be a whole number of at least 1; try 224"),
        ({"balance": "even"}, "balance='even': must be one of none, classes, pairs, blend_pairs"),
        ({"frames_per_video": 0}, "frames_per_video=0: must be at least 1; try 32"),
        ({"num_workers": -1}, "num_workers=-1: must be at least 0; try 2"),
        ({"eval_transform": ""}, "eval_transform='': must be the path of a pipeline's file, or None"),
        ({"transform": ""}, "transform='': must be the path of a pipeline's file, or None"),
        ({"seed": "x"}, "seed='x': must be a whole number of at least 0; try 0"),
        (
            {"crop": crop_protocol({"margin": 0.3, "size": 128})},
            "crop=SquareCrop(size_px=128, margin=0.3): is an object, which a checkpoint cannot hold; give the name of "
            'a protocol, as \'ffpp\', or a mapping like {"margin": 0.3, "size": 299}',
        ),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        DataOptions(**options)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("crop", {np.str_("margin"): np.float64(0.3), "size": 128, "align": np.str_("none")}),
        ("crop", np.str_("sbi")),
        ("balance", np.str_("pairs")),
        ("transform", np.str_("a.yaml")),
        ("eval_transform", np.str_("a.yaml")),
        ("cache", np.str_("cache")),
    ],
)
def test_a_checkpoint_with_options_that_were_numpy_values_is_read(tmp_path: Path, name: str, value: Any) -> None:
    file = tmp_path / "options.ckpt"
    torch.save({"state_dict": {}, "options": asdict(DataOptions(**{name: value}))}, file)
    assert read_checkpoint(file)["options"][name] == value


def test_what_the_loader_cannot_keep_is_refused_with_its_remedy(out: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"batch_size=7: cannot hold .* of 2; .* in Python .*\(batch_size=6\)"):
        data(out, batch_size=7).train_dataloader()
    with pytest.raises(UsageError, match=r"nothing\.yaml: No such file"):
        data(out, transform=str(tmp_path / "nothing.yaml")).train_dataloader()
    make_dataset(tmp_path / "empty", (("val", (Clip("real/anna.mp4", 3),)),))
    with pytest.raises(UsageError, match="has no face to train on, its split train is empty"):
        data(tmp_path / "empty").train_dataloader()
    make_dataset(tmp_path / "reals", (("train", (Clip("real/anna.mp4", 3),)),))
    with pytest.warns(UserWarning, match="all faces of train have the label real, so there is nothing to tell apart"):
        data(tmp_path / "reals").train_dataloader()


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_split_of_one_class_is_reported_before_it_is_measured(tmp_path: Path, split: str) -> None:
    both = (Clip("real/anna.mp4", 3), Clip("fake/anna-swap.mp4", 3))
    make_dataset(tmp_path / "out", (("train", both), (split, (Clip("fake/carl-swap.mp4", 3),))))
    with pytest.warns(UserWarning, match=f"all faces of {split} have the label fake, so its AUC is not defined"):
        getattr(data(tmp_path / "out"), f"{split}_dataloader")()


class Unlabelled(Clip):
    def entry(self) -> Entry:
        return replace(super().entry(), label=-1)


@pytest.mark.parametrize(
    ("clips", "warning"),
    [
        ((Clip("real/anna.mp4", 3), Unlabelled("web/dora.mp4", 3)), "all labelled faces of {} have the label real"),
        ((Unlabelled("web/dora.mp4", 3),), "no face of {} has a label"),
    ],
    ids=["one class", "none"],
)
def test_faces_without_a_label_are_no_second_class(tmp_path: Path, clips: tuple[Clip, ...], warning: str) -> None:
    make_dataset(tmp_path / "out", (("train", clips), ("val", (replace(clips[-1], name="web/emil.mp4"), *clips[:-1]))))
    module = data(tmp_path / "out", balance="none")
    for split in ("train", "val"):
        with pytest.warns(UserWarning, match=warning.format(split)):
            getattr(module, f"{split}_dataloader")()


@pytest.mark.parametrize(("devices", "workers"), [(1, 64), (2, 32)])
def test_the_ranks_of_a_machine_share_its_cores(
    out: Path, monkeypatch: pytest.MonkeyPatch, devices: int, workers: int
) -> None:
    monkeypatch.setattr("facefeed.loaders.workers.processes.usable_cores", lambda: 64)
    module = data(out, num_workers=None)
    module.trainer = trainer(devices=devices, strategy="ddp" if devices > 1 else "auto")
    assert module.train_dataloader().num_workers == workers
    assert module.val_dataloader().num_workers == workers
