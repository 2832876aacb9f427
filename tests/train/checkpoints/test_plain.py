"""What a user notices of checkpoints: their own load and go on, and nothing in a stranger's is ever run."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_train import classifier, data, small_dataset, trainer
from facefeed.pipeline.errors import StoppedError, UsageError
from facefeed.train.checkpoints import plain
from facefeed.train.model.face_classifier import FaceClassifier
from facefeed.train.model.stored_classifier import load_classifier

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")


class Payload:
    """Writes a file when it is unpickled by somebody who trusts it."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.file),)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_dataset(tmp_path_factory.mktemp("data") / "out")


@pytest.fixture(scope="module")
def saved(out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a few steps of training, with all that Lightning saves."""
    path = tmp_path_factory.mktemp("saved") / "last.ckpt"
    fit = trainer(max_steps=2)
    fit.fit(classifier(loss="bce", classes=("real", "fake"), weight_decay=0.1), data(out))
    fit.save_checkpoint(path)
    return path


@pytest.fixture
def evil(saved: Path, tmp_path: Path) -> Path:
    """The same, with something in it that would run."""
    path = tmp_path / "evil.ckpt"
    torch.save({**plain.read_checkpoint(saved), "callbacks": {"Saver": Payload(tmp_path / "owned")}}, path)
    return path


def test_a_payload_that_is_trusted_does_its_deed(evil: Path, tmp_path: Path) -> None:
    torch.load(evil, weights_only=False)
    assert (tmp_path / "owned").exists()


def test_reading_a_malicious_checkpoint_is_refused_and_runs_nothing(
    evil: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # what some set for old checkpoints
    with pytest.raises(UsageError, match=r"evil.ckpt: asks for posix.mkdir to be run, which a checkpoint may not"):
        plain.read_checkpoint(evil)
    with pytest.raises(UsageError, match="refused; if it is yours, save its state_dict anew"):
        load_classifier(evil)
    assert not (tmp_path / "owned").exists()


def test_so_is_resuming_validating_and_testing_from_one(
    evil: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    for work in ("fit", "validate", "test"):
        safe = trainer(max_epochs=1, plugins=[plain.PlainCheckpointIO()])
        with pytest.raises(UsageError, match=r"posix.mkdir"):
            getattr(safe, work)(classifier(loss="bce"), datamodule=data(out), ckpt_path=evil)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("way", ["old torch", "pickle", "pickle of protocol 4", "alone"])
def test_nothing_runs_in_whatever_way_it_was_written(tmp_path: Path, way: str) -> None:
    path, contents = tmp_path / "evil.ckpt", {"state_dict": {}, "more": Payload(tmp_path / "owned")}
    if way == "old torch":
        torch.save(contents, path, _use_new_zipfile_serialization=False)
    else:
        protocol = 4 if way == "pickle of protocol 4" else 2
        path.write_bytes(pickle.dumps(contents["more"] if way == "alone" else contents, protocol=protocol))
    with pytest.raises(UsageError, match=r"evil.ckpt: (asks for posix.mkdir to be run|is no checkpoint)"):
        plain.read_checkpoint(path)
    assert not (tmp_path / "owned").exists()


def test_a_checkpoint_of_ones_own_gives_the_classifier_back(saved: Path, out: Path) -> None:
    model = load_classifier(saved)
    assert (model.options.loss, model.options.weight_decay) == ("bce", 0.1)
    assert not model.training
    for name, value in plain.read_checkpoint(saved)["state_dict"].items():
        assert torch.equal(model.state_dict()[name], value)
    lightnings = FaceClassifier.load_from_checkpoint(saved, weights_only=True)
    images = next(iter(data(out).val_dataloader()))["image"]
    assert torch.equal(lightnings.eval()(images), model(images))


def test_a_trainer_goes_on_from_it_by_plain_data_alone(saved: Path, out: Path) -> None:
    fit = trainer(max_steps=4, plugins=[plain.PlainCheckpointIO()])
    fit.fit(classifier(loss="bce"), data(out), ckpt_path=saved)
    assert fit.global_step == 4


def test_a_file_that_is_cut_short_or_damaged_anywhere_is_refused(saved: Path, tmp_path: Path) -> None:
    whole, path = saved.read_bytes(), tmp_path / "last.ckpt"
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(UsageError, match=r"last.ckpt: .*(cut short or damaged|is no checkpoint)"):
            plain.read_checkpoint(path)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1  # a single bit of one weight
    path.write_bytes(flipped)
    with pytest.raises(UsageError, match="cut short or damaged"):
        plain.read_checkpoint(path)


def test_what_is_no_checkpoint_is_refused_in_one_line(tmp_path: Path) -> None:
    def refusal(path: Path) -> str:
        with pytest.raises(UsageError) as refused:
            load_classifier(path)
        assert "\n" not in str(refused.value)
        return str(refused.value).removeprefix(f"{path}: ")

    path = tmp_path / "it"
    assert refusal(path).startswith("No such file or directory; give a file that training saved")
    assert refusal(tmp_path).startswith("is a folder without shards; ")
    path.write_text("{}")
    assert "damaged" in refusal(path)
    torch.save({"weights": torch.zeros(2)}, path)
    assert refusal(path).startswith("is no checkpoint, it holds no state_dict; ")
    torch.save({"state_dict": {}, "hyper_parameters": {"width": 3}}, path)
    assert refusal(path).startswith("holds another kind of module than FaceClassifier; ")
    torch.save({"state_dict": {}, "hyper_parameters": {"options": {"backbone": "test_efficientnet"}}}, path)
    assert refusal(path).startswith("holds no FaceClassifier of this version: ")
    torch.save({"state_dict": {}, "hyper_parameters": {"options": {"backbone": "hf-hub:somebody/network"}}}, path)
    assert "timm" in refusal(path)
    torch.save({"state_dict": {}, "hyper_parameters": {"options": {"depth": 3}}}, path)
    assert refusal(path).startswith("holds no FaceClassifier of this version: ")


def test_a_classifier_of_pretrained_weights_is_loaded_without_fetching_them(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants  # noqa: PLC0415

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    checkpoint = plain.read_checkpoint(saved)
    checkpoint["hyper_parameters"]["options"]["pretrained"] = True
    torch.save(checkpoint, tmp_path / "last.ckpt")
    assert load_classifier(tmp_path / "last.ckpt").options.pretrained


def test_the_state_of_an_8_bit_optimizer_is_plain_data_too(tmp_path: Path) -> None:
    subclass = pytest.importorskip("torchao.optim.subclass_8bit")
    average = subclass.OptimState8bit.zeros((16, 256))
    torch.save({"state_dict": {}, "optimizer_states": [{"exp_avg": average}]}, tmp_path / "it")
    (state,) = plain.read_checkpoint(tmp_path / "it")["optimizer_states"]
    assert torch.equal(state["exp_avg"].codes, average.codes)


def test_a_disk_that_fails_is_not_called_a_damaged_checkpoint() -> None:
    with pytest.raises(StoppedError, match="Input/output error"):
        plain.read_checkpoint("/proc/self/mem")  # its first bytes belong to no memory: the kernel answers EIO


def test_memory_that_does_not_suffice_is_not_called_a_damaged_checkpoint(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "load", lambda *_, **__: torch.empty(1 << 44, dtype=torch.uint8))
    with pytest.raises(StoppedError, match="Cannot allocate memory"):
        plain.read_checkpoint(saved)
