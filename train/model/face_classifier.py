"""`FaceClassifier`: a timm network as a LightningModule that classifies faces and logs exact metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from ...loaders import FaceDataset
from ...pipeline.dataset.reserved_names import DATASET_COLUMN
from ...pipeline.errors import UsageError
from ..config.options import ModelOptions
from ..datamodule import FaceDataModule
from ..lightning_internals import evaluation_loaders, final_step, logged_step, optimizer_steps_at
from ..metrics.defined_metrics import defined_metrics
from ..metrics.eval_metrics import EvalMetrics
from ..warning import warn
from .backbone import Backbone
from .loader_checks import check_labels, check_videos
from .losses import classification_loss
from .schedule import decay_groups, decaying_parameters, learning_rate_factor

__all__ = ["FaceClassifier", "ModelOptions", "validation_metrics"]

PIXEL_NORMALISATION = "pixel_normalisation"
"""The key in checkpoints of the mean and standard deviation (R, G, B) by which the network gets its pixels."""


class FaceClassifier(LightningModule):  # type: ignore[misc]  # Lightning is not followed
    """Classifies faces: a timm backbone with a new classification head.

    Batches are `(images, labels)`, or dicts with `image`, `label` and optionally `video_id`, `method`, `row` and, of
    mixtures, `dataset_index`: images float32 (N, 3, H, W), normalised by ImageNet's mean and standard deviation as by
    `FaceDataLoader`; labels int64 (N,), indices into `options.classes`, -1 (ignored) if unknown. With two classes a
    training label may be a float, the probability of class 1.

    Logs `train/loss` by step; after each validation `val/loss`, `val/auc`, `val/log_loss`, `val/accuracy` of all
    faces, `val/video_...` the same of videos (the mean probability of a video's faces), `val/accuracy_<class>`,
    `val/accuracy_method_<method>`; after a test the same with `test/`. Metrics cover all ranks, and a face with a
    `row` counts once; undefined metrics are left out, and those of NaN predictions are NaN, with a warning (see
    `EvalMetrics.result`). ROC curves and the confusion matrix go to TensorBoard, and as PNG files into the loggers'
    folders.

    The optimizer is AdamW; its learning rate is scheduled by optimizer step.

    scores: metrics of the last validation or test over all ranks; None before the first.

    Checkpoints hold plain values only. `options` may be the mapping stored in one: pretrained weights are then not
    downloaded, since the checkpoint's are loaded afterwards. Raises `UsageError` on a backbone unknown to timm, on
    pretrained weights that cannot be downloaded, and on data that it cannot be trained on.
    """

    def __init__(self, options: ModelOptions | Mapping[str, Any] = ModelOptions()) -> None:  # noqa: B008 (frozen)
        super().__init__()
        fetch = isinstance(options, ModelOptions) and options.pretrained
        self.options = options if isinstance(options, ModelOptions) else ModelOptions(**options)
        self.save_hyperparameters({"options": {**asdict(self.options), "classes": list(self.options.classes)}})
        self.backbone = Backbone(self.options, fetch=fetch)
        self._decaying_names = decaying_parameters(
            self, {f"backbone.{name}" for name in self.backbone.no_weight_decay()}
        )
        self.scores: EvalMetrics | None = None
        self._eval_metrics = EvalMetrics(self.options.classes)
        self._total_steps = math.inf
        self._first_batch_checked = False

    def forward(self, images: Tensor) -> Tensor:
        """Returns logits (N, classes); with the loss "bce" (N, 1), of class 1 against class 0."""
        logits: Tensor = self.backbone(images)
        return logits

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Stores how pixels are normalised: another version of timm may know other pretrained weights by the name."""
        mean, std = self.backbone.normalisation
        checkpoint[PIXEL_NORMALISATION] = {"mean": mean, "std": std}

    def on_load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Normalises pixels as a checkpoint says that does. Raises `UsageError` on what is no mean and deviation."""
        if (stored := checkpoint.get(PIXEL_NORMALISATION)) is None:
            return
        try:
            self.backbone.normalise_by(stored["mean"], stored["std"])
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise UsageError(
                f"checkpoint: {PIXEL_NORMALISATION}={stored!r}: must be mean and std, three numbers each"
            ) from error

    # ---- training

    def setup(self, stage: str) -> None:
        """Raises `UsageError` on classes or an image size that would fail in the first batch."""
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
        """Reads the number of steps; any earlier, Lightning would start the epoch before restoring a checkpoint.

        Raises `UsageError` on loaders whose batches would be learned or measured wrongly.
        """
        options, self._first_batch_checked = self.options, False
        check_labels(self.trainer.train_dataloader, options.classes, is_training=True)
        self._check_evaluation_loaders()
        self.realign_schedule()
        if options.schedule != "constant" and (math.isinf(self._total_steps) or self._total_steps < 0):
            raise UsageError(
                f"schedule={options.schedule!r}: falls until the last step, and this run has none; give the Trainer "
                "max_epochs or max_steps, or take schedule='constant'"
            )
        if options.warmup_steps >= self._total_steps > 0:
            warn(
                f"warmup_steps={options.warmup_steps}: the whole run has {self._total_steps:.0f} optimizer steps, so "
                f"the learning rate never comes to {options.learning_rate:g}; take fewer"
            )

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Validates the first batch of a fit: on a device, a label out of range is only an opaque indexing error."""
        if not self._first_batch_checked:
            _check_batch(_columns(batch), self.options.classes)
            self._first_batch_checked = True

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Returns the mean loss of a batch, and logs it."""
        columns = _columns(batch)
        value = self._loss(self(columns["image"]), columns["label"])
        self.log("train/loss", value.detach(), prog_bar=True, batch_size=len(columns["label"]))
        return value

    def configure_optimizers(self) -> Any:
        """Returns AdamW over the trainable parameters, and its schedule."""
        options = self.options
        groups = decay_groups(self, options.weight_decay, self._decaying_names)
        if not groups:
            raise UsageError("every parameter is frozen: nothing is left to train; freeze fewer")
        optimizer = torch.optim.AdamW(groups, lr=options.learning_rate)

        def lr_lambda(step: int) -> float:
            return learning_rate_factor(
                step, warmup_steps=options.warmup_steps, total_steps=self._total_steps, kind=options.schedule
            )

        schedule = LambdaLR(optimizer, lr_lambda)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def realign_schedule(self) -> None:
        """Reads the number of steps and, after a resume with another global batch size, moves the schedule, once.

        That is to the step at the same image of a run that had the new batch size from its start. The schedule saves
        its step count in checkpoints, so later resumes start from there. Where `max_steps` ends the run before
        `max_epochs` does, the schedule goes by the steps done, of whatever size, so that it ends with the run. A
        callback that saves at the start of training, before `on_train_start`, calls this first.
        """
        trainer, data = self.trainer, self.trainer.datamodule
        self._total_steps = trainer.estimated_stepping_batches
        has_own_loader = isinstance(data, FaceDataModule) and data.loads_training
        if not has_own_loader or math.isinf(trainer.num_training_batches):  # of a loader within one without a length
            return
        ends_by_steps = final_step(trainer, *data.position) == trainer.max_steps != -1
        if ends_by_steps:
            self._total_steps = trainer.max_steps
        elif trainer.max_epochs != -1:
            self._total_steps = optimizer_steps_at(trainer, trainer.max_epochs, 0)
        schedule = self.lr_schedulers()
        if data.resumed_at and isinstance(schedule, LambdaLR):
            steps_done = trainer.global_step if ends_by_steps else optimizer_steps_at(trainer, *data.resumed_at)
            schedule.last_epoch = steps_done - 1
            schedule.step()
            data.resumed_at = None

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        options = self.options
        return classification_loss(
            logits, labels, kind=options.loss, label_smoothing=options.label_smoothing, focal_gamma=options.focal_gamma
        )

    # ---- validation and test

    def on_validation_start(self) -> None:
        """Raises `UsageError` on a loader whose batches would be measured wrongly."""
        self._check_evaluation_loaders()

    on_test_start = on_validation_start

    def _check_evaluation_loaders(self) -> None:
        for loader in evaluation_loaders(self.trainer):
            check_labels(loader, self.options.classes, is_training=self.trainer.state.fn == "fit")
            check_videos(loader)

    def on_validation_epoch_start(self) -> None:
        """Resets the metrics."""
        self._eval_metrics = EvalMetrics(self.options.classes)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Adds the predictions for a batch to the metrics."""
        columns = _columns(batch)
        self._eval_metrics.add(
            self(columns["image"]), columns["label"], _video_names(columns), columns.get("method"),
            rows=columns.get("row"),
        )  # fmt: skip

    def on_validation_epoch_end(self) -> None:
        """Logs metrics and plots."""
        if not self.trainer.sanity_checking:
            self._log_metrics("val")

    on_test_epoch_start = on_validation_epoch_start
    test_step = validation_step

    def on_test_epoch_end(self) -> None:
        """Logs metrics and plots."""
        self._log_metrics("test")

    def _log_metrics(self, stage: str) -> None:
        self.scores = scores = self._eval_metrics.gathered()
        self._eval_metrics = EvalMetrics(self.options.classes)
        faces = scores.faces
        if not len(faces):
            warn(f"{stage}: no face has a known label, so there is nothing to measure")
            return
        if note := scores.nan_note():
            warn(f"{stage}: {note}")
        log_p = torch.from_numpy(faces.log_p)
        logits = log_p[:, 1:] - log_p[:, :1] if self.options.loss == "bce" else log_p
        metrics = {"loss": float(self._loss(logits, torch.from_numpy(faces.labels))), **scores.result()}
        # Identical on all ranks already; without sync_dist Lightning warns that it may not be.
        self.log_dict(
            {f"{stage}/{name}": value for name, value in metrics.items()}, sync_dist=self.trainer.world_size > 1
        )
        if self.trainer.is_global_zero and self.trainer.loggers:
            from ..metrics.plots import log_plots  # noqa: PLC0415 (matplotlib: half a second)

            log_plots(self.trainer.loggers, scores, stage, logged_step(self.trainer))


def validation_metrics(dataset: FaceDataset) -> list[str]:
    """Returns the names of the metrics that a `FaceClassifier` logs in a validation on all faces of `dataset`."""
    names = defined_metrics(dataset)
    return [f"val/{name}" for name in ("loss", *names)] if names else []


def _columns(batch: Any) -> Mapping[str, Any]:
    """Returns a batch as a mapping of column names."""
    if isinstance(batch, Mapping) and {"image", "label"} <= batch.keys():
        _refuse_clips(batch["image"])
        return batch
    if isinstance(batch, (tuple, list)) and batch and isinstance(batch[0], Tensor):
        _refuse_clips(batch[0])
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return {"image": batch[0], "label": batch[1]}
    raise UsageError(
        f"a batch is {type(batch).__name__}: must be (images, labels), or a dict with 'image' and 'label'; with "
        "FaceDataLoader leave fields out, or name both in it"
    )


def _video_names(columns: Mapping[str, Any]) -> list[str | None] | None:
    """Returns a name for the video of each face, unique also over the datasets of a mixture; None without names."""
    names, datasets = columns.get("video_id"), columns.get(DATASET_COLUMN)
    if names is None or datasets is None:
        return names
    return [
        None if name is None else f"{dataset}/{name}"
        for dataset, name in zip(torch.as_tensor(datasets).tolist(), names, strict=True)
    ]


def _refuse_clips(images: Tensor) -> None:
    if images.ndim == 5:
        raise UsageError(
            f"images are {tuple(images.shape)}: FaceClassifier classifies single images, not clips; leave clip= out, "
            "or train a model of your own as docs/guides/clips.md shows"
        )


def _check_batch(columns: Mapping[str, Any], classes: tuple[str, ...]) -> None:
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
