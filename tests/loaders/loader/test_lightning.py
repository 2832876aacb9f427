"""What a user of Lightning notices: the loader goes into a Trainer as it is, on one rank and on two, and resumes."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from assets_paths import python_path

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")

_SCRIPT = """
import json, logging, sys, warnings
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
sys.path[:0] = {tests!r}
from test_lightning import Model, loader, trainer

if __name__ == "__main__":
    model, fit = Model(), trainer(max_epochs=2, strategy="ddp", devices=2, enable_checkpointing=False)
    fit.fit(model, loader({out!r}, "train"), loader({out!r}, "val"))
    sampler = type(fit.train_dataloader.sampler).__name__
    predicted = [name for batch in fit.predict(model, loader({out!r}, "val")) for name in batch]
    with open({out!r} + f"/rank{{fit.global_rank}}.json", "w") as file:
        json.dump({{"seen": model.seen, "predicted": predicted, "sampler": sampler}}, file)
"""


def Model() -> Any:  # noqa: N802 (a class, made when Lightning is wanted: importing it takes seconds)
    import lightning  # noqa: PLC0415
    import torch  # noqa: PLC0415

    class _Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(3, 2)
            self.seen: list[list[Any]] = []

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            self.seen.append([self.current_epoch, batch["face_id"]])
            return torch.nn.functional.cross_entropy(self.head(batch["image"].mean((2, 3))), batch["label"])

        def validation_step(self, batch: Any, _: int) -> None:
            assert batch["image"].shape[1:] == (3, 32, 32)

        def predict_step(self, batch: Any, _: int) -> list[str]:
            return batch["face_id"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    return _Model()


def loader(out: str | Path, split: str, **options: Any) -> Any:
    from facefeed.loaders import FaceDataLoader  # noqa: PLC0415

    options = {"image_size": 32, "fields": ("image", "label", "face_id"), "num_workers": 0, **options}
    return FaceDataLoader(out, 16, split=split, **options)


def trainer(**options: Any) -> Any:
    import lightning  # noqa: PLC0415

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(accelerator="cpu", **quiet, **options)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from assets_dataset import make_dataset  # noqa: PLC0415

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    out = tmp_path_factory.mktemp("lightning") / "out"
    make_dataset(out)
    return out


def epochs(seen: list[list[Any]]) -> dict[int, list[str]]:
    names_by_epoch: dict[int, list[str]] = {}
    for epoch, names in seen:
        names_by_epoch.setdefault(epoch, []).extend(names)
    return names_by_epoch


def test_a_trainer_sees_every_face_once_an_epoch_in_another_order_each_time(dataset: Path) -> None:
    model = Model()
    trainer(max_epochs=2, enable_checkpointing=False).fit(model, loader(dataset, "train"), loader(dataset, "val"))
    names = epochs(model.seen)
    expected = {name for batch in loader(dataset, "train") for name in batch["face_id"]}
    assert set(names[0]) == set(names[1]) == expected
    assert len(names[0]) == len(names[1]) == len(expected)
    assert names[0] != names[1]


def test_a_data_module_hands_it_out_and_validation_and_prediction_take_it(dataset: Path) -> None:
    import lightning  # noqa: PLC0415

    class Data(lightning.LightningDataModule):
        def train_dataloader(self) -> Any:
            return loader(dataset, "train")

        def val_dataloader(self) -> Any:
            return loader(dataset, "val")

        def predict_dataloader(self) -> Any:
            return loader(dataset, "val")

    model, fit = Model(), trainer(max_epochs=1, enable_checkpointing=False)
    fit.fit(model, datamodule=Data())
    fit.validate(model, datamodule=Data(), verbose=False)
    predicted = [name for batch in fit.predict(model, datamodule=Data()) for name in batch]
    assert predicted == [name for batch in loader(dataset, "val") for name in batch["face_id"]]


def test_prediction_keeps_the_loaders_settings_when_lightning_makes_it_anew(dataset: Path) -> None:
    filtered = loader(dataset, "val", filters=[("label", "==", 1)], seed=3)
    predicted = [name for batch in trainer().predict(Model(), filtered) for name in batch]
    assert predicted == [name for batch in filtered for name in batch["face_id"]]
    assert all("/fake" in name or name.startswith("fake/") for name in predicted)


@pytest.mark.parametrize("shuffle", [True, False])
def test_overfitting_takes_the_same_few_batches_again_and_again(dataset: Path, shuffle: bool) -> None:
    model = Model()
    fit = trainer(max_epochs=2, overfit_batches=2, enable_checkpointing=False)
    fit.fit(model, loader(dataset, "train", shuffle=shuffle))
    names = epochs(model.seen)
    assert len(names[0]) == 32
    assert names[0] == names[1]


def test_a_checkpoint_from_mid_epoch_goes_on_at_the_very_batch(dataset: Path, tmp_path: Path) -> None:
    from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: PLC0415

    full_run, resumed = Model(), Model()
    checkpoint = ModelCheckpoint(tmp_path, every_n_train_steps=5, save_top_k=-1)
    trainer(max_epochs=2, callbacks=[checkpoint]).fit(full_run, loader(dataset, "train"))
    trainer(max_epochs=2, enable_checkpointing=False).fit(
        resumed, loader(dataset, "train"), ckpt_path=tmp_path / "epoch=0-step=5.ckpt"
    )
    assert resumed.seen == full_run.seen[5:]
    assert len(resumed.seen) > 22


@pytest.fixture(scope="module")
def uninterrupted(dataset: Path) -> list[list[Any]]:
    """What a run of three epochs sees that nothing disturbs."""
    model = Model()
    trainer(max_epochs=3, enable_checkpointing=False).fit(model, loader(dataset, "train"))
    return model.seen


def test_a_checkpoint_from_mid_epoch_with_workers_and_validation_between_goes_on_at_the_very_batch(
    dataset: Path, tmp_path: Path, uninterrupted: list[list[Any]]
) -> None:
    from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: PLC0415

    model = Model()
    checkpoint = ModelCheckpoint(tmp_path, every_n_train_steps=5, save_top_k=-1)
    fit = trainer(max_epochs=2, val_check_interval=6, callbacks=[checkpoint])
    fit.fit(model, loader(dataset, "train", num_workers=2), loader(dataset, "val", num_workers=1))
    assert model.seen == uninterrupted[: len(model.seen)]
    for epoch, steps in ((0, 10), (1, 30)):
        resumed = Model()
        fit = trainer(max_epochs=2, val_check_interval=6, enable_checkpointing=False)
        path = tmp_path / f"epoch={epoch}-step={steps}.ckpt"
        fit.fit(resumed, loader(dataset, "train", num_workers=1), loader(dataset, "val"), ckpt_path=path)
        assert resumed.seen == model.seen[steps:]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_checkpoint_from_the_end_of_an_epoch_goes_on_with_the_order_of_the_next(
    dataset: Path, tmp_path: Path, uninterrupted: list[list[Any]], workers: int
) -> None:
    from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: PLC0415

    checkpoint, resumed = ModelCheckpoint(tmp_path, save_top_k=-1), Model()
    trainer(max_epochs=1, callbacks=[checkpoint]).fit(Model(), loader(dataset, "train"))
    fit = trainer(max_epochs=3, enable_checkpointing=False)
    fit.fit(resumed, loader(dataset, "train", num_workers=workers), ckpt_path=tmp_path / "epoch=0-step=22.ckpt")
    assert resumed.seen == uninterrupted[22:]


def test_a_second_trainer_begins_with_the_first_epoch_of_the_same_loader(
    dataset: Path, uninterrupted: list[list[Any]]
) -> None:
    train_loader = loader(dataset, "train")
    for _ in range(2):
        model = Model()
        trainer(max_epochs=2, enable_checkpointing=False).fit(model, train_loader)
        assert model.seen == uninterrupted[:44]


def test_loaders_that_are_made_anew_for_each_epoch_go_on_with_the_next(
    dataset: Path, uninterrupted: list[list[Any]]
) -> None:
    import lightning  # noqa: PLC0415

    class Data(lightning.LightningDataModule):
        def train_dataloader(self) -> Any:
            return loader(dataset, "train")

    model = Model()
    fit = trainer(max_epochs=3, reload_dataloaders_every_n_epochs=1, enable_checkpointing=False)
    fit.fit(model, datamodule=Data())
    assert model.seen == uninterrupted


def test_a_part_of_each_epoch_is_the_beginning_of_that_epoch(dataset: Path, uninterrupted: list[list[Any]]) -> None:
    model = Model()
    fit = trainer(max_epochs=3, limit_train_batches=5, enable_checkpointing=False)
    fit.fit(model, loader(dataset, "train", num_workers=1))
    assert model.seen == [*uninterrupted[:5], *uninterrupted[22:27], *uninterrupted[44:49]]


@pytest.mark.processes
def test_two_ranks_share_each_epoch_and_lightning_leaves_the_order_alone(dataset: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    tests = python_path(Path(__file__).parent).split(os.pathsep)
    script.write_text(_SCRIPT.format(tests=tests, out=str(dataset)), encoding="utf-8")
    process = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=False)
    assert process.returncode == 0, process.stderr[-3000:]
    ranks = [json.loads((dataset / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    assert [rank["sampler"] for rank in ranks] == ["EpochSampler"] * 2
    assert len(ranks[0]["seen"]) == len(ranks[1]["seen"])
    by_rank = [epochs(rank["seen"]) for rank in ranks]
    expected = sorted(name for batch in loader(dataset, "train") for name in batch["face_id"])
    for epoch in (0, 1):
        assert sorted(by_rank[0][epoch] + by_rank[1][epoch]) == expected
    assert by_rank[0][0] != by_rank[0][1]
    predicted = ranks[0]["predicted"] + ranks[1]["predicted"]
    assert sorted(predicted) == sorted(name for batch in loader(dataset, "val") for name in batch["face_id"])
