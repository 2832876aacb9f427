"""What a user of `FaceClassifier` notices: it learns, says how well, draws it, and says clearly what cannot be."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import albumentations
import lightning
import numpy as np
import pytest
import torch
from assets_dataset import Clip, make_dataset
from assets_train import VAL_FACES, classifier, data, small_dataset, trainer
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.augment import AlignedMixup, FaceCompose
from facefeed.pipeline.errors import UsageError
from facefeed.train.config.options import ModelOptions
from facefeed.train.metrics.eval_metrics import EvalMetrics
from facefeed.train.model.face_classifier import FaceClassifier
from facefeed.train.model.schedule import learning_rate_factor
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_dataset(tmp_path_factory.mktemp("data") / "out")


class Losses(lightning.Callback):
    """What was logged as the loss of each batch, and the rate of each optimizer step."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.rates: list[float] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self.rates.append(optimizer.param_groups[0]["lr"])

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.losses.append(float(trainer.callback_metrics["train/loss"]))


def batches(images: torch.Tensor, labels: torch.Tensor, batch_size: int = 8) -> Any:
    return DataLoader(TensorDataset(images, labels), batch_size)


def noise(count: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images that a network can tell apart by their mean."""
    labels = torch.arange(count) % classes
    images = torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return images + labels[:, None, None, None], labels


# ---- it learns


def test_the_loss_falls_on_faces(out: Path) -> None:
    seen = Losses()
    trainer(max_epochs=6, callbacks=[seen], limit_val_batches=0).fit(classifier(), data(out))
    assert np.mean(seen.losses[-7:]) < 0.3 * np.mean(seen.losses[:7])


@pytest.mark.parametrize("loss", ["bce", "ce", "focal"])
def test_a_fixed_batch_is_overfitted_to_zero_error(out: Path, loss: Any) -> None:
    batch = next(iter(data(out).train_dataloader()))
    model = classifier(loss=loss, schedule="constant", weight_decay=0.0)
    trainer(max_steps=30).fit(model, batches(batch["image"], batch["label"]))
    with torch.no_grad():
        model.train()  # BatchNorm by the batch itself, as it was trained
        scores = EvalMetrics(model.options.classes)
        scores.add(model(batch["image"]), batch["label"])
    assert scores.result()["accuracy"] == scores.result()["auc"] == 1.0
    assert scores.result()["log_loss"] < 0.1


def test_the_rate_goes_by_optimizer_steps_also_where_batches_are_accumulated(out: Path) -> None:
    for accumulated, steps in ((1, 14), (3, 6)):  # 7 batches an epoch: 3 + 3 + 1
        seen = Losses()
        model = classifier(warmup_steps=2, schedule="linear", learning_rate=0.01)
        trainer(max_epochs=2, accumulate_grad_batches=accumulated, callbacks=[seen]).fit(model, data(out))
        expected = [
            0.01 * learning_rate_factor(step, warmup_steps=2, total_steps=steps, kind="linear") for step in range(steps)
        ]
        assert seen.rates == pytest.approx(expected)


def test_a_strategy_that_lays_parameters_out_flat_does_not_take_their_decay() -> None:
    model = classifier(weight_decay=0.2)
    expected = [len(group["params"]) for group in model.configure_optimizers()["optimizer"].param_groups]
    for parameter in model.parameters():
        parameter.data = parameter.data.flatten()
    groups = model.configure_optimizers()["optimizer"].param_groups
    assert [group["weight_decay"] for group in groups] == [0.2, 0.0]
    assert [len(group["params"]) for group in groups] == expected


def test_norms_biases_and_what_is_frozen_do_not_decay() -> None:
    model = classifier(backbone="test_vit", weight_decay=0.2)
    model.backbone.net.patch_embed.requires_grad_(False)
    optimizer = model.configure_optimizers()["optimizer"]
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decaying_parameters, others = (
        {names[id(parameter)] for parameter in group["params"]} for group in optimizer.param_groups
    )
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.2, 0.0]
    assert {"backbone.net.head.weight", "backbone.net.blocks.0.mlp.fc1.weight"} <= decaying_parameters
    assert {"backbone.net.pos_embed", "backbone.net.norm.weight", "backbone.net.head.bias"} <= others
    assert not {name for name in decaying_parameters | others if "patch_embed" in name}
    model.requires_grad_(False)
    with pytest.raises(UsageError, match="every parameter is frozen: nothing is left to train"):
        model.configure_optimizers()


def test_position_embeddings_that_timm_names_by_a_pattern_do_not_decay() -> None:
    model = classifier(backbone="xcit_nano_12_p16_224", weight_decay=0.2)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decaying, others = model.configure_optimizers()["optimizer"].param_groups
    assert {"backbone.net.cls_token", "backbone.net.pos_embed.token_projection.weight"} <= {
        names[id(parameter)] for parameter in others["params"]
    }
    assert not [name for parameter in decaying["params"] if "pos_embed" in (name := names[id(parameter)])]


def test_faces_of_unknown_label_change_nothing() -> None:
    images, labels = noise(8, 2)
    results = []
    for unknown in (torch.zeros(0, 3, 32, 32), torch.full((4, 3, 32, 32), 9.0)):
        model = classifier().eval()
        all_labels = torch.cat([labels, torch.full((len(unknown),), -1)])
        loss = model._loss(model(torch.cat([images, unknown])), all_labels)
        loss.backward()
        results.append((loss.detach(), model.backbone.net.conv_stem.weight.grad))
    torch.testing.assert_close(results[0], results[1])


def test_three_classes_are_learned_and_scored(tmp_path: Path) -> None:
    images, labels = noise(24, 3)
    model = classifier(classes=("real", "swap", "talk"))
    fit = trainer(max_epochs=8)
    fit.fit(model, batches(images, labels))
    (metrics,) = fit.validate(model, batches(images, labels), verbose=False)
    assert {"val/auc", "val/accuracy_real", "val/accuracy_swap", "val/accuracy_talk"} <= metrics.keys()
    assert not {name for name in metrics if "video" in name or "method" in name}
    assert metrics["val/auc"] > 0.9
    assert model.scores is not None
    assert model.scores.faces.confusion.sum() == 24


def test_mixed_labels_of_two_classes_are_trained_on(out: Path, tmp_path: Path) -> None:
    albumentations.save(FaceCompose([AlignedMixup(p=1.0)]), str(tmp_path / "mix.yaml"), data_format="yaml")
    module, seen = data(out, balance="pairs", transform=str(tmp_path / "mix.yaml")), Losses()
    labels = next(iter(module.train_dataloader()))["label"]
    assert ((labels > 0) & (labels < 1)).any()
    for loss in ("ce", "bce", "focal"):
        trainer(max_epochs=1, callbacks=[seen]).fit(classifier(loss=loss), module)
    assert np.isfinite(seen.losses).all()
    with pytest.raises(UsageError, match="between 3 classes a number does not say which; leave AlignedMixup out"):
        trainer(max_epochs=1).fit(classifier(classes=("a", "b", "c")), module.train_dataloader())


# ---- it says how well


def test_figures_of_faces_videos_classes_and_methods_are_logged(out: Path, tmp_path: Path) -> None:
    model, logger = classifier(label_smoothing=0.1), CSVLogger(tmp_path)
    fit = trainer(max_epochs=1, logger=logger, log_every_n_steps=1)
    fit.fit(model, data(out))
    assert model.scores is not None
    metrics = model.scores.result()
    assert (len(model.scores.faces), len(model.scores.videos)) == (VAL_FACES, 3)
    with Path(logger.log_dir, "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [bool(row["train/loss"]) for row in rows].count(True) == 7
    (validated,) = [row for row in rows if row["val/loss"]]
    named = {f"{kind}{name}" for kind in ("", "video_") for name in ("auc", "log_loss", "accuracy")}
    assert set(metrics) == {*named, "accuracy_real", "accuracy_fake", "accuracy_method_swap"}
    for name, value in metrics.items():
        assert float(validated[f"val/{name}"]) == pytest.approx(value, rel=1e-5)
    assert float(validated["val/loss"]) > metrics["log_loss"] or metrics["log_loss"] > 0.7  # smoothed
    (tested,) = fit.test(model, data(out), verbose=False)
    assert {f"test/{name}" for name in (*named, "loss", "accuracy_method_talk")} <= tested.keys()


def test_videos_of_equal_names_in_two_datasets_of_a_mixture_are_measured_apart(out: Path, tmp_path: Path) -> None:
    others = (Clip("real/dora.mp4", 9), Clip("fake/dora-swap.mp4", 6), Clip("real/zoe.mp4", 4))
    make_dataset(tmp_path / "other", (("train", (Clip("real/anna.mp4", 26),)), ("val", others)))
    settings = {"split": "val", "batch_size": 8, "image_size": 32, "num_workers": 0}
    fields = ("image", "label", "row", "video_id", "method")
    mixture = FaceDataLoader([out, tmp_path / "other"], fields=(*fields, "dataset_index"), **settings)
    model, fit = classifier(), trainer(max_steps=1)
    fit.validate(model, mixture, verbose=False)
    assert model.scores is not None
    assert (len(model.scores.faces), len(model.scores.videos), model.scores.num_videos) == (VAL_FACES + 19, 6, 6)
    without_datasets = FaceDataLoader([out, tmp_path / "other"], fields=fields, **settings)
    message = "videos of equal names .* add 'dataset_index' to fields, or leave 'video_id' out"
    with pytest.raises(UsageError, match=message):
        fit.validate(model, without_datasets, verbose=False)
    with pytest.raises(UsageError, match=message):
        fit.test(model, without_datasets, verbose=False)
    with pytest.raises(UsageError, match=message):
        fit.fit(model, data(out).train_dataloader(), without_datasets)
    assert fit.global_step == 0
    fit = trainer(max_steps=1)
    fit.fit(model, data(out).train_dataloader(), mixture)
    with pytest.raises(UsageError, match=message):
        fit.validate(model, without_datasets, verbose=False)
    fit.validate(model, FaceDataLoader([out], fields=fields, **settings), verbose=False)  # has each name once


@pytest.mark.parametrize("loss", ["bce", "ce", "focal"])
def test_the_loss_of_validation_is_that_of_training_on_all_faces_at_once(out: Path, loss: Any) -> None:
    model = classifier(loss=loss, label_smoothing=0.1).eval()
    (metrics,) = trainer().validate(model, data(out), verbose=False)
    (whole,) = data(out, batch_size=VAL_FACES).val_dataloader()
    with torch.no_grad():
        assert metrics["val/loss"] == pytest.approx(float(model._loss(model(whole["image"]), whole["label"])), rel=1e-4)


def test_with_one_class_there_is_no_auc_and_without_labels_nothing_is_measured(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", (("val", (Clip("real/anna.mp4", 5),)),))
    logger = TensorBoardLogger(tmp_path / "logs")
    (metrics,) = trainer(logger=logger).validate(classifier(), data(tmp_path / "out"), verbose=False)
    assert "val/auc" not in metrics
    assert "val/video_auc" not in metrics
    assert "val/video_accuracy" in metrics
    assert not Path(logger.log_dir, "val_roc.png").exists()
    unlabelled = batches(torch.zeros(4, 3, 32, 32), torch.full((4,), -1))
    with pytest.warns(UserWarning, match="no face has a known label"):
        trainer().validate(classifier(), unlabelled, verbose=False)


def test_roc_and_confusion_are_pictures_in_tensorboard_and_on_disk(out: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

    board, table = TensorBoardLogger(tmp_path / "board"), CSVLogger(tmp_path / "table")
    model = classifier()
    fit = trainer(max_epochs=2, logger=[board, table], num_sanity_val_steps=1)
    fit.fit(model, data(out))
    fit.test(model, data(out), verbose=False)
    board.finalize("success")
    events = EventAccumulator(str(board.log_dir), size_guidance={"images": 0}).Reload()
    names = {"val/roc", "val/confusion", "test/roc", "test/confusion"}
    assert set(events.Tags()["images"]) == names
    steps = [[event.step for event in kind] for kind in (events.Images("val/roc"), events.Scalars("val/auc"))]
    assert steps[0] == steps[1]
    assert len(steps[0]) == 2  # one an epoch, and none of the sanity check
    for folder in (board.log_dir, table.log_dir):
        assert {path.name for path in Path(folder).glob("*.png")} == {f"{name.replace('/', '_')}.png" for name in names}
        with Image.open(Path(folder, "val_confusion.png")) as picture:
            assert np.asarray(picture).std() > 10


# ---- what cannot be


def test_an_unknown_backbone_is_refused_with_near_names() -> None:
    with pytest.raises(UsageError, match=r"backbone='resnet_18': timm .* has no network of this name; try resnet18, "):
        classifier(backbone="resnet_18")
    with pytest.raises(UsageError, match=r"timm.list_models\(\) names all"):
        classifier(backbone="§§§§")
    with pytest.raises(
        UsageError, match=r"backbone='resnet18.nope': Invalid pretrained tag .*; there are resnet18\.a1"
    ):
        classifier(backbone="resnet18.nope")


def test_pretrained_weights_that_cannot_be_had_are_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants  # noqa: PLC0415

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError) as refused:
        classifier(pretrained=True)
    assert str(refused.value).startswith("pretrained=True: the weights of test_efficientnet could not be had (")
    assert str(refused.value).endswith("keeps them in its cache), or take pretrained=False")
    assert "\n" not in str(refused.value)


def test_pretrained_weights_see_pixels_normalised_as_they_knew_them() -> None:
    # As a checkpoint holds it: the weights come from there.
    model = FaceClassifier({"backbone": "test_resnet", "pretrained": True}).eval()
    pixels = torch.rand(2, 3, 32, 32)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    as_loaded = (pixels - mean[:, None, None]) / std[:, None, None]
    with torch.no_grad():
        torch.testing.assert_close(model(as_loaded), model.backbone.net((pixels - 0.5) / 0.5), rtol=1e-4, atol=1e-5)
        plain = FaceClassifier(ModelOptions(backbone="test_resnet")).eval()
        assert torch.equal(plain(as_loaded), plain.backbone.net(as_loaded))


def test_pretrained_weights_in_16_bits_beside_buffers_in_32_as_of_zero_see_pixels_in_16() -> None:
    model = FaceClassifier({"backbone": "test_vit", "pretrained": True}).eval()
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    with torch.no_grad():
        assert model(torch.rand(1, 3, 160, 160, dtype=torch.bfloat16)).dtype is torch.bfloat16


def test_a_size_classes_or_labels_that_do_not_fit_are_refused_before_the_first_step(out: Path) -> None:
    for backbone, usual in (("test_vit3", 160), ("test_coatnet", 160)):
        with pytest.raises(UsageError, match=f"image_size=32: {backbone} cannot take it .* take image_size={usual}, "):
            trainer(max_steps=1).fit(classifier(backbone=backbone), data(out))
    with pytest.raises(UsageError, match=r"the dataset's are \('real', 'fake'\), .* classes=datamodule.classes"):
        trainer(max_steps=1).fit(classifier(classes=("fake", "real")), data(out))
    with pytest.raises(UsageError, match="label 2: the classes are real, fake, numbered from 0"):
        trainer(max_steps=1).fit(classifier(), batches(*noise(8, 3)))
    with pytest.raises(UsageError, match="label 2, 2 logits: there are 2 classes"):
        trainer().validate(classifier(), batches(*noise(8, 3)), verbose=False)
    with pytest.raises(UsageError, match=r"images are torch.uint8: must be normalised floats"):
        trainer(max_steps=1).fit(classifier(), batches(torch.zeros(8, 3, 32, 32, dtype=torch.uint8), torch.zeros(8)))
    with pytest.raises(UsageError, match=r"a batch is Tensor: must be \(images, labels\)"):
        trainer(max_steps=1).fit(classifier(), DataLoader(noise(8, 2)[0]))
    clips = torch.zeros(8, 4, 3, 32, 32)
    for columns in ((clips, torch.zeros(8)), (clips, torch.zeros(8), torch.ones(8, 4))):
        with pytest.raises(UsageError, match="FaceClassifier classifies single images, not clips; leave clip= out"):
            trainer(max_steps=1).fit(classifier(), DataLoader(TensorDataset(*columns), batch_size=4))


def test_a_loader_of_labels_in_another_order_than_the_classes_is_refused(tmp_path: Path) -> None:
    clips = (Clip("real/anna.mp4", 5), Clip("fake/anna-swap.mp4", 4))
    make_dataset(tmp_path / "out", (("train", clips), ("val", (Clip("real/dora.mp4", 3),))), labels=("fake", "real"))
    settings = {"batch_size": 4, "image_size": 32, "num_workers": 0}
    training = FaceDataLoader(tmp_path / "out", **settings)
    validation = FaceDataLoader(tmp_path / "out", split="val", **settings)
    message = r"classes=\('real', 'fake'\): the labels of .*out are \('fake', 'real'\), .* as another class; "
    of_training, of_trained = r"make the classifier with classes=\('fake', 'real'\)", "renumber .*facefeed evaluate"
    fit = trainer(max_steps=1)
    with pytest.raises(UsageError, match=message + of_training):
        fit.fit(classifier(), training)
    with pytest.raises(UsageError, match=message + of_training):
        fit.fit(classifier(), batches(*noise(8, 2)), validation)
    assert fit.global_step == 0
    with pytest.raises(UsageError, match=message + of_trained):
        fit.validate(classifier(), validation, verbose=False)
    with pytest.raises(UsageError, match=message + of_trained):
        fit.test(classifier(), validation, verbose=False)
    trainer(max_steps=1).fit(classifier(classes=("fake", "real")), training, validation)
    trainer(max_steps=1).fit(classifier(classes=("fake", "real", "talk")), training)
    trainer(max_steps=1).fit(classifier(classes=("swap", "original")), training)  # other names of the same
    with pytest.raises(UsageError, match=r"classes=\('pristine', 'swap'\): the labels of"):
        trainer(max_steps=1).fit(classifier(classes=("pristine", "swap")), training)
    renumbered = FaceDataLoader(tmp_path / "out", **settings, collate_fn=swap_labels)
    trainer(max_steps=1).fit(classifier(), renumbered)


def swap_labels(items: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack([image for image, _ in items]), torch.tensor([1 - label for _, label in items])


def test_a_run_without_an_end_needs_a_constant_rate_and_a_warm_up_that_fits(out: Path) -> None:
    with pytest.raises(UsageError, match="schedule='cosine': falls until the last step, and this run has none"):
        trainer(max_epochs=-1).fit(classifier(), data(out))
    with pytest.warns(UserWarning, match="warmup_steps=9: the whole run has 3 optimizer steps"):
        trainer(max_steps=3).fit(classifier(warmup_steps=9), data(out))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": ""}, "backbone='': must be a name of timm's; try 'resnet18'"),
        ({"pretrained": 1}, "pretrained=1: must be True or False"),
        ({"classes": "ab"}, "classes='ab': must be two or more names, each another; try ('real', 'fake')"),
        ({"classes": ("a", "a")}, "classes=('a', 'a'): must be two or more names, each another; try ('real', 'fake')"),
        ({"loss": "mse"}, "loss='mse': must be one of bce, ce, focal"),
        ({"schedule": "step"}, "schedule='step': must be one of constant, cosine, linear"),
        ({"label_smoothing": 1.0}, "label_smoothing=1.0: must be a share, from 0 to less than 1; try 0.1"),
        ({"drop_rate": -0.1}, "drop_rate=-0.1: must be a number of at least 0; try 0.2"),
        ({"focal_gamma": float("nan")}, "focal_gamma=nan: must be a number of at least 0; try 2"),
        ({"learning_rate": 0}, "learning_rate=0: must be above 0, else nothing is learned; try 0.001"),
        ({"weight_decay": "0.1"}, "weight_decay='0.1': must be a number of at least 0; try 0.05"),
        ({"warmup_steps": 0.5}, "warmup_steps=0.5: must be a whole number of at least 0; try 100"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        ModelOptions(**options)
    assert str(refused.value) == message


def test_options_become_plain_values() -> None:
    options = ModelOptions(
        learning_rate=np.float64(0.1), warmup_steps=np.int64(3), label_smoothing=np.float32(0.5), classes=["a", "b"],
        backbone=np.str_("resnet18"), loss=np.str_("ce"), schedule=np.str_("linear"),
    )  # fmt: skip
    assert {type(value) for value in (options.backbone, options.loss, options.schedule)} == {str}
    assert {type(value) for value in (options.learning_rate, options.label_smoothing)} == {float}
    assert type(options.warmup_steps) is int
    assert options.classes == ("a", "b")


def test_one_logit_is_for_two_classes() -> None:
    with pytest.raises(UsageError, match="loss='bce': has one logit, for two classes, and there are 3: a, b, c"):
        ModelOptions(loss="bce", classes=("a", "b", "c"))


def test_options_are_made_without_importing_what_trains() -> None:
    code = "import sys, json, facefeed.train.config.options; print(json.dumps(sorted(sys.modules)))"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.split(".")[0] for name in json.loads(completed.stdout)} & {"lightning", "torch", "timm"} == set()
