"""Small networks, data and Trainers for tests of training, importable by processes that they start."""

from __future__ import annotations

import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

import lightning
import torch
from assets_dataset import Clip, make_dataset
from facefeed.train.config.options import DataOptions, ModelOptions
from facefeed.train.datamodule import FaceDataModule
from facefeed.train.model.face_classifier import FaceClassifier
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn

BACKBONE = "test_efficientnet"
"""The smallest of timm's networks that were made for tests: 0.1 M parameters, with BatchNorm."""

UNITS = (
    ("train", (Clip("real/anna.mp4", 26), Clip("fake/anna-swap.mp4", 14), Clip("fake/anna-talk.mp4", 12))),
    ("val", (Clip("real/dora.mp4", 8), Clip("fake/dora-swap.mp4", 5), Clip("real/fred.mp4", 4))),
    ("test", (Clip("real/emil.mp4", 6), Clip("fake/emil-talk.mp4", 5))),
)
TRAIN_FACES, VAL_FACES, TEST_FACES = 52, 17, 11


def small_dataset(out: Path) -> Path:
    """A dataset of 52 faces to train on, 17 to validate, 11 to test, of two classes and two methods."""
    make_dataset(out, UNITS)
    return out


def data(out: Path, **options: Any) -> FaceDataModule:
    """Returns batches of 8 faces of 32 px, loaded in this process."""
    return FaceDataModule(out, DataOptions(**{"batch_size": 8, "image_size": 32, "num_workers": 0, **options}))


def classifier(**options: Any) -> FaceClassifier:
    """Returns a small network with the same weights each time."""
    torch.manual_seed(0)
    return FaceClassifier(ModelOptions(**{"backbone": BACKBONE, **options}))


def trainer(**options: Any) -> lightning.Trainer:
    """Returns a Trainer on the CPU that logs and writes nothing by default."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet = {
        "accelerator": "cpu", "devices": 1, "logger": False, "enable_progress_bar": False,
        "enable_model_summary": False, "enable_checkpointing": False, "num_sanity_val_steps": 0,
    }  # fmt: skip
    return lightning.Trainer(**{**quiet, **options})


class SaveEach(lightning.Callback):
    """Saves after every batch, as `<batches>.ckpt`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.batches = folder, 0

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.batches += 1
        trainer.save_checkpoint(self.folder / f"{self.batches}.ckpt")


class RecordFaces(lightning.Callback):
    """Records the faces of every training batch in `steps`, a list of (epoch, face_ids), and optionally in a file."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self.steps: list[list[Any]] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.steps.append([trainer.current_epoch, batch["face_id"]])
        if self.file is not None:
            with self.file.open("a") as file:
                file.write(json.dumps(self.steps[-1]) + "\n")

    @staticmethod
    def read(file: Path) -> list[list[Any]]:
        return [json.loads(line) for line in file.read_text().splitlines()]


class Foreign(lightning.LightningModule):
    """A third-party LightningModule: an MLP on the pixels of (images, labels) or of dict batches.

    Reads the number of steps in `configure_optimizers`, as Lightning's documentation does.
    """

    def __init__(self, side_px: int = 32, width: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(3 * side_px * side_px, width), nn.LayerNorm(width), nn.ReLU())
        self.head = nn.Linear(width, 2)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(images))
        return logits

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        images, labels = (batch["image"], batch["label"]) if isinstance(batch, dict) else batch
        loss = nn.functional.cross_entropy(self(images), labels)
        self.log("loss", loss, batch_size=len(labels))
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), 1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=1e-3, total_steps=int(self.trainer.estimated_stepping_batches)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def foreign() -> Foreign:
    """Returns the module with the same weights each time."""
    torch.manual_seed(0)
    return Foreign()


class KillAtStep(lightning.Callback):
    """Kills its own process at the start of a training step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.fit_loop.total_batch_idx == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


# ---- a process of training


def train_in_process(out: str, run: str, ranks: int, kill_at: int | None = None, workers: int = 0) -> None:
    """Trains two epochs with two batches per step, or resumes. Each rank writes a line for every batch."""
    folder = Path(run)
    folder.mkdir(exist_ok=True)
    saved = sorted(folder.glob("*.ckpt"), key=lambda path: int(path.stem.split("=")[1]))
    seen = RecordFaces(folder / f"rank {os.environ.get('LOCAL_RANK', '0')}, after {len(saved)}")
    saving = ModelCheckpoint(run, every_n_train_steps=1, save_top_k=-1, filename="{step}")
    fit = trainer(
        max_epochs=2, accumulate_grad_batches=2, devices=ranks, strategy="ddp" if ranks > 1 else "auto",
        enable_checkpointing=True, callbacks=[*([] if kill_at is None else [KillAtStep(kill_at)]), seen, saving],
    )  # fmt: skip
    model, module = classifier(), data(Path(out), batch_size=8 // ranks, num_workers=workers)
    if ranks > 1 and not saved:
        (metrics,) = fit.validate(model, module, verbose=False)
        (folder / f"metrics of {fit.global_rank}").write_text(json.dumps(metrics))
    fit.fit(model, module, ckpt_path=saved[-1] if saved else None)
    if fit.is_global_zero:
        torch.save(model.state_dict(), folder / "weights")
