"""`FaceClassifier`: a network of timm's that tells classes of faces apart, and how well it does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from ...pipeline.errors import UsageError
from ..config.options import ModelOptions
from ..datamodule import FaceDataModule
from ..lightning_internals import optimizer_step
from ..metrics.scores import FIGURES, Scores
from .backbone import Backbone
from .losses import loss
from .schedule import decay_groups, decaying, factor

__all__ = ["FaceClassifier", "ModelOptions", "logs"]


class FaceClassifier(LightningModule):  # type: ignore[misc]  # Lightning is not followed
    """Tells classes of faces apart: a backbone of timm's with a new last layer.

    Batches are `(images, labels)`, or dicts with `image`, `label` and, where they are there, `video_id`, `method`,
    `row`: images float32 (N, 3, H, W), normalised by ImageNet's mean and standard deviation as `FaceDataLoader` does
    it; labels int64 (N,), places in `options.classes`, -1 where unknown: these take no part. With two classes a label
    may be a float, the probability of class 1, in training.

    Logs `train/loss` by step; after each validation `val/loss`, `val/auc`, `val/log_loss`, `val/accuracy` of all
    faces, `val/video_...` the same of videos (the mean probability of a video's faces), `val/accuracy_<class>`,
    `val/accuracy_method_<method>`; after a test the same with `test/`. Figures are of all ranks together, a face that
    is known by its `row` counted once; what nobody can say is left out (see `Scores.result`). ROC curves and the
    confusion matrix go to TensorBoard, and as PNG files into the loggers' folders.

    The optimizer is AdamW, its rate scheduled by optimizer step: accumulated batches are one.

    scores: what was said of every face in the last validation or test, on all ranks; None before the first.

    A checkpoint holds plain values alone. `options` may be the mapping that one holds: its weights are to be loaded
    then, so none are fetched. Raises `UsageError` on a backbone that timm does not have, where pretrained weights
    cannot be had, and on data that it cannot be trained on.
    """

    def __init__(self, options: ModelOptions | Mapping[str, Any] = ModelOptions()) -> None:  # noqa: B008 (frozen)
        super().__init__()
        fetch = isinstance(options, ModelOptions) and options.pretrained
        self.options = options if isinstance(options, ModelOptions) else ModelOptions(**options)
        self.save_hyperparameters({"options": {**asdict(self.options), "classes": list(self.options.classes)}})
        self.backbone = Backbone(self.options, fetch=fetch)
        self._decays = decaying(self, {f"backbone.{name}" for name in self.backbone.no_weight_decay()})
        self.scores: Scores | None = None
        self._said = Scores(self.options.classes)
        self._total_steps = math.inf
        self._checked = False

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N, classes); with the loss "bce" (N, 1), of class 1 against class 0."""
        logits: Tensor = self.backbone(images)
        return logits

    # ---- training

    def setup(self, stage: str) -> None:
        """Says now what would fail in the first batch."""
        data = self.trainer.datamodule
        if not isinstance(data, FaceDataModule):
            return
        if data.classes != self.options.classes:
            raise UsageError(
                f"classes={self.options.classes}: the dataset's are {data.classes}, and labels are places among them; "
                "make the classifier with classes=datamodule.classes"
            )
        self.backbone.check_size(data.options.image_size)

    def on_train_start(self) -> None:
        """Learns how long the run is. Asking earlier has Lightning begin the epoch before a checkpoint is restored."""
        options, self._total_steps, self._checked = self.options, self.trainer.estimated_stepping_batches, False
        if options.schedule != "constant" and (math.isinf(self._total_steps) or self._total_steps < 0):
            raise UsageError(
                f"schedule={options.schedule!r}: falls until the last step, and this run has none; give the Trainer "
                "max_epochs or max_steps, or take schedule='constant'"
            )
        if options.warmup_steps >= self._total_steps > 0:
            rank_zero_warn(
                f"warmup_steps={options.warmup_steps}: the whole run has {self._total_steps:.0f} optimizer steps, so "
                f"the learning rate never comes to {options.learning_rate:g}; take fewer"
            )
        self._move_schedule()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Looks at a fit's first batch: of labels that do not fit a device would only say that it cannot index."""
        if not self._checked:
            _check(_columns(batch), self.options.classes)
            self._checked = True

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The mean loss of a batch."""
        columns = _columns(batch)
        value = self._loss(self(columns["image"]), columns["label"])
        self.log("train/loss", value.detach(), prog_bar=True, batch_size=len(columns["label"]))
        return value

    def configure_optimizers(self) -> Any:
        """AdamW over what is not frozen, and its schedule."""
        options = self.options
        groups = decay_groups(self, options.weight_decay, self._decays)
        if not groups:
            raise UsageError("every parameter is frozen: nothing is left to train; freeze fewer")
        optimizer = torch.optim.AdamW(groups, lr=options.learning_rate)

        def scaled(step: int) -> float:
            return factor(step, warmup_steps=options.warmup_steps, total_steps=self._total_steps, kind=options.schedule)

        schedule = LambdaLR(optimizer, scaled)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _move_schedule(self) -> None:
        """To where a run of the present steps would be by now, if those of the checkpoint were of another size.

        It keeps its count in checkpoints, so that later resumes go on from there. A run that `max_steps` ends has as
        many steps whatever their size, and those that were made are counted already.
        """
        data, schedule = self.trainer.datamodule, self.lr_schedulers()
        if isinstance(data, FaceDataModule) and self._total_steps == self.trainer.max_steps:
            data.resumed_at = None
        if isinstance(data, FaceDataModule) and data.resumed_at and isinstance(schedule, LambdaLR):
            schedule.last_epoch = optimizer_step(self.trainer, *data.resumed_at) - 1
            schedule.step()
            data.resumed_at = None

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        options = self.options
        return loss(
            logits, labels, kind=options.loss, label_smoothing=options.label_smoothing, focal_gamma=options.focal_gamma
        )

    # ---- validation and test

    def on_validation_epoch_start(self) -> None:
        """Begins to collect."""
        self._said = Scores(self.options.classes)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Collects what is said of a batch."""
        columns = _columns(batch)
        self._said.add(
            self(columns["image"]), columns["label"], columns.get("video_id"), columns.get("method"),
            rows=columns.get("row"),
        )  # fmt: skip

    def on_validation_epoch_end(self) -> None:
        """Logs the figures and the pictures."""
        if not self.trainer.sanity_checking:
            self._conclude("val")

    on_test_epoch_start = on_validation_epoch_start
    test_step = validation_step

    def on_test_epoch_end(self) -> None:
        """Logs the figures and the pictures."""
        self._conclude("test")

    def _conclude(self, stage: str) -> None:
        self.scores = scores = self._said.gathered()
        self._said = Scores(self.options.classes)
        faces = scores.faces
        if not len(faces):
            rank_zero_warn(f"{stage}: no face has a known label, so there is nothing to measure")
            return
        log_p = torch.from_numpy(faces.log_p)
        logits = log_p[:, 1:] - log_p[:, :1] if self.options.loss == "bce" else log_p
        figures = {"loss": float(self._loss(logits, torch.from_numpy(faces.labels))), **scores.result()}
        # The same on all ranks already; Lightning wants to be told that it is.
        self.log_dict(
            {f"{stage}/{name}": figure for name, figure in figures.items()}, sync_dist=self.trainer.world_size > 1
        )
        if self.trainer.is_global_zero and self.trainer.loggers:
            from ..metrics.figures import log_pictures  # noqa: PLC0415 (matplotlib: half a second)

            steps = self.trainer.fit_loop.epoch_loop._batches_that_stepped  # noqa: SLF001 (what Lightning logs at)
            log_pictures(self.trainer.loggers, scores, stage, steps)


def logs(metric: str) -> bool:
    """Whether a `FaceClassifier` may log a metric of that name by the end of a validation."""
    stage, _, figure = metric.partition("/")
    return metric == "train/loss" or (
        stage == "val" and (figure in ("loss", *FIGURES) or figure.startswith("accuracy_"))
    )


def _columns(batch: Any) -> Mapping[str, Any]:
    """A batch by the names of its columns."""
    if isinstance(batch, Mapping) and {"image", "label"} <= batch.keys():
        return batch
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return {"image": batch[0], "label": batch[1]}
    raise UsageError(
        f"a batch is {type(batch).__name__}: must be (images, labels), or a dict with 'image' and 'label'; with "
        "FaceDataLoader leave fields out, or name both in it"
    )


def _check(columns: Mapping[str, Any], classes: tuple[str, ...]) -> None:
    images, labels = columns["image"], columns["label"]
    if not images.is_floating_point():
        raise UsageError(f"images are {images.dtype}: must be normalised floats; leave dtype='uint8' out")
    if labels.is_floating_point():
        if len(classes) > 2:
            raise UsageError(
                f"labels are {labels.dtype}: between {len(classes)} classes a number does not say which; leave "
                "AlignedMixup out, or take two classes"
            )
    elif len(labels) and int(labels.max()) >= len(classes):
        raise UsageError(
            f"label {int(labels.max())}: the classes are {', '.join(classes)}, numbered from 0; make the classifier "
            "with the dataset's classes"
        )
