"""What a user notices of beginning with other weights: they are there, and what does not fit is reported or refused."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision.transforms.functional as tf
from assets_fit import STEPS, config, trained
from assets_train import BACKBONE, small_dataset
from facefeed.pipeline.errors import RefusedError, UsageError
from facefeed.train.checkpoints import plain
from facefeed.train.config.options import ModelOptions
from facefeed.train.model.face_classifier import FaceClassifier
from facefeed.train.model.stored_classifier import load_classifier
from facefeed.train.model.warm_start import warm_start
from facefeed.train.run.result import Result
from facefeed.train.run.runner import train
from facefeed.train.run.tables import show_result
from lightning.pytorch.callbacks import EMAWeightAveraging
from rich.console import Console
from safetensors.torch import save_file

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")

OPTIONS = ModelOptions(backbone=BACKBONE)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return small_dataset(tmp_path_factory.mktemp("warm") / "out")


@pytest.fixture(scope="module")
def before(out: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    return trained(out, tmp_path_factory.mktemp("before") / "run", epochs=1)[0]


def weights(path: str | Path) -> dict[str, torch.Tensor]:
    return plain.read_checkpoint(path)["state_dict"]


def same(model: Any, expected: dict[str, torch.Tensor], *, without: str = "-") -> bool:
    state = model.state_dict()
    return all(torch.equal(state[name], weight) for name, weight in expected.items() if without not in name)


def test_a_run_begins_with_the_weights_of_another_and_goes_on_without_their_file(
    out: Path, before: Result, tmp_path: Path
) -> None:
    run, file = tmp_path / "run", tmp_path / "weights.ckpt"
    file.write_bytes(Path(before.checkpoint).read_bytes())
    slow = {"model": {"learning_rate": 1e-12}, "init_from": str(file)}
    first, _ = trained(out, run, epochs=1, steps=1, **slow)
    assert first.best_step == 1
    actual, expected = weights(run / "checkpoints" / "last.ckpt"), weights(file)
    assert all(torch.allclose(actual[name], expected[name]) for name in expected if "weight" in name)
    (run / "result.json").unlink()
    file.unlink()
    second_result, _ = trained(out, run, epochs=1, steps=1, **slow)
    assert second_result.steps == 1
    with pytest.raises(RefusedError, match="init_from"):
        train(out, config(epochs=1, steps=1, model={"learning_rate": 1e-12}), run)
    assert STEPS > 1


def test_a_run_that_resumes_fetches_no_weights_and_its_table_says_with_what_it_began(
    out: Path, before: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The machine that resumes may have no network, and the first session fetched none either."""
    create = timm.create_model

    def create_offline(*arguments: Any, pretrained: bool = False, **options: Any) -> Any:
        assert not pretrained
        return create(*arguments, pretrained=False, **options)

    monkeypatch.setattr(timm, "create_model", create_offline)
    file, run = tmp_path / "weights.pt", tmp_path / "run"
    torch.save(weights(before.checkpoint), file)
    settings: dict[str, Any] = {"model": {"pretrained": True}, "init_from": str(file)}
    first, _ = trained(out, run, epochs=2, **settings)
    (run / "result.json").unlink()
    second, _ = trained(out, run, epochs=2, **settings)
    assert second.steps == first.steps
    show_result(second)
    shown = re.sub(r"[\s│]", "", capsys.readouterr().err)  # a long path is wrapped in its cell
    assert f"begunwith{file}" in shown
    assert "pretrained" not in shown


@pytest.mark.parametrize("kind", ["checkpoint", "weights", "of the network alone", "safetensors"])
def test_weights_are_taken_from_files_of_every_kind(before: Result, tmp_path: Path, kind: str) -> None:
    expected = weights(before.checkpoint)
    alone = {name.removeprefix("backbone.net."): weight for name, weight in expected.items()}
    file = tmp_path / ("weights.safetensors" if kind == "safetensors" else "weights.pt")
    if kind == "safetensors":
        save_file(alone, file)
    else:
        stored = {"checkpoint": torch.load(before.checkpoint, weights_only=True), "weights": expected}
        torch.save(stored.get(kind, alone), file)
    model, note = warm_start(OPTIONS, file)
    assert note is None
    assert same(model, expected)


def test_a_last_layer_for_other_classes_begins_anew_and_that_is_reported(
    out: Path, before: Result, tmp_path: Path
) -> None:
    three = ModelOptions(**{**asdict(OPTIONS), "classes": ("real", "fake", "drawn")})
    model, note = warm_start(three, before.checkpoint)
    assert note is not None
    assert "last layer" in note
    assert same(model, weights(before.checkpoint), without="classifier")
    output = io.StringIO()
    train(
        out, config(steps=1, init_from=before.checkpoint, model={"loss": "bce"}), tmp_path / "run",
        console=Console(file=output, soft_wrap=True),
    )  # fmt: skip
    assert output.getvalue().startswith(note)


@pytest.mark.parametrize("classes", [("fake", "real"), ("real", "drawn")])
def test_a_last_layer_for_as_many_other_classes_begins_anew_too(
    before: Result, tmp_path: Path, classes: tuple[str, str]
) -> None:
    expected = weights(before.checkpoint)
    options = ModelOptions(**{**asdict(OPTIONS), "classes": classes})
    model, note = warm_start(options, before.checkpoint)
    assert note is not None
    assert "last layer" in note
    assert not same(model, expected)
    assert same(model, expected, without="classifier")
    torch.save(expected, tmp_path / "weights.pt")  # which does not say what its classes are
    model, note = warm_start(options, tmp_path / "weights.pt")
    assert note is None
    assert same(model, expected)


class _Writes:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def untrained_checkpoint(path: Path, options: ModelOptions) -> Path:
    model = FaceClassifier(asdict(options))
    torch.save({"state_dict": model.state_dict(), "hyper_parameters": {"options": asdict(options)}}, path)
    return path


@pytest.mark.parametrize(
    ("trained_with", "options"),
    [
        (
            {"backbone": "mobilenetv4_conv_small.e3600_r256_in1k", "pretrained": True},
            {"backbone": "mobilenetv4_conv_small.e2400_r224_in1k", "pretrained": True},
        ),
        ({"backbone": "test_resnet", "pretrained": True}, {"backbone": "test_resnet", "pretrained": False}),
        ({"backbone": "test_resnet", "pretrained": False}, {"backbone": "test_resnet", "pretrained": True}),
    ],
    ids=["of another tag", "not pretrained now", "not pretrained before"],
)
def test_weights_that_were_trained_on_pixels_of_another_mean_are_refused_with_the_settings_to_give(
    tmp_path: Path, trained_with: dict[str, Any], options: dict[str, Any]
) -> None:
    file = untrained_checkpoint(tmp_path / "weights.ckpt", ModelOptions(**trained_with))
    remedy = f"--set model.backbone={trained_with['backbone']} --set model.pretrained={trained_with['pretrained']}"
    with pytest.raises(UsageError, match=f"{re.escape(remedy.lower())}$"):
        warm_start(ModelOptions(**options), file)


def test_weights_that_were_trained_on_pixels_of_the_same_mean_are_taken_whatever_they_began_with(
    before: Result, tmp_path: Path
) -> None:
    model, note = warm_start(ModelOptions(backbone=BACKBONE, pretrained=True), before.checkpoint)
    assert note is None
    assert same(model, weights(before.checkpoint))
    file = untrained_checkpoint(tmp_path / "weights.ckpt", OPTIONS)
    stored = torch.load(file, weights_only=True)
    stored["hyper_parameters"]["options"]["backbone"] = "removed_from_timm"
    torch.save(stored, file)
    assert warm_start(OPTIONS, file)[1] is None, "neither is pretrained"
    stored["hyper_parameters"]["options"]["pretrained"] = True
    torch.save(stored, file)
    with pytest.raises(UsageError, match=r"how its pixels were normalised is unknown .*state_dict alone"):
        warm_start(OPTIONS, file)


@pytest.mark.parametrize("load", [load_classifier, lambda file: warm_start(OPTIONS, file)[0]], ids=["stored", "warm"])
def test_weights_see_pixels_as_in_their_training_whatever_timm_knows_by_the_name_now(
    before: Result, tmp_path: Path, load: Callable[[Path], FaceClassifier]
) -> None:
    stored, file = plain.read_checkpoint(before.checkpoint), tmp_path / "weights.ckpt"
    assert stored["pixel_normalisation"] == {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    torch.save({**stored, "pixel_normalisation": {"mean": [0.5] * 3, "std": [0.25] * 3}}, file)
    model, imagenet = load(file).eval(), load_classifier(before.checkpoint)
    pixels = torch.rand(2, 3, 32, 32)
    as_loaded, as_trained = (
        tf.normalize(pixels, **stored["pixel_normalisation"]),
        tf.normalize(pixels, [0.5] * 3, [0.25] * 3),
    )
    with torch.no_grad():
        torch.testing.assert_close(model(as_loaded), imagenet.backbone.net(as_trained), rtol=1e-4, atol=1e-5)


def test_averaged_weights_see_pixels_as_in_their_training_once_a_run_is_resumed(before: Result) -> None:
    stored, half = plain.read_checkpoint(before.checkpoint), {"mean": [0.5] * 3, "std": [0.25] * 3}
    model, averaging = load_classifier(before.checkpoint), EMAWeightAveraging()
    averaging.setup(trainer=None, pl_module=model, stage="fit")  # before the checkpoint is loaded
    model.on_load_checkpoint({"pixel_normalisation": half})
    averaging.on_validation_epoch_start(trainer=None, pl_module=model)
    pixels = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        actual = model(tf.normalize(pixels, **stored["pixel_normalisation"]))
        torch.testing.assert_close(actual, model.backbone.net(tf.normalize(pixels, **half)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "nonsense",
    [
        {"mean": [0.5] * 3},
        {"mean": "rgb", "std": [1] * 3},
        [0.5, 0.5],
        {"mean": [1, 2], "std": [1, 2]},
        {"mean": [0.5] * 3, "std": [0.0] * 3},
        {"mean": [float("nan")] * 3, "std": [1.0] * 3},
    ],
)
def test_a_checkpoint_with_an_unreadable_normalisation_is_refused(
    before: Result, tmp_path: Path, nonsense: object
) -> None:
    file = tmp_path / "weights.ckpt"
    torch.save({**plain.read_checkpoint(before.checkpoint), "pixel_normalisation": nonsense}, file)
    for load in (load_classifier, lambda path: warm_start(OPTIONS, path)):
        with pytest.raises(UsageError, match="pixel_normalisation="):
            load(file)


def test_what_does_not_fit_or_would_run_code_is_refused(before: Result, tmp_path: Path) -> None:
    other = ModelOptions(backbone="test_resnet")
    with pytest.raises(UsageError, match=r"init_from=.*: holds other weights than those of test_resnet: \d+ .*missing"):
        warm_start(other, before.checkpoint)
    torch.save({"weight": _Writes(tmp_path / "written")}, tmp_path / "bad.pt")
    with pytest.raises(UsageError, match="mkdir to be run"):
        warm_start(OPTIONS, tmp_path / "bad.pt")
    assert not (tmp_path / "written").exists()
    torch.save([1, 2], tmp_path / "list.pt")
    (tmp_path / "cut.safetensors").write_bytes(b"nothing")
    for name in ("list.pt", "cut.safetensors", "none.pt", "none.safetensors"):
        with pytest.raises(UsageError, match=name):
            warm_start(OPTIONS, tmp_path / name)
