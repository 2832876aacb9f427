"""Best checkpoint and early stopping by a logged metric."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import callbacks
from lightning.pytorch.callbacks import Callback

from .lever import Lever, LeverError, require_int, require_name

_LOWER_IS_BETTER = (
    "loss", "error", "perplexity", "nll", "ce", "bce", "brier", "ece", "mae", "mse", "rmse", "mape", "wer",
    "eer", "hter", "acer", "apcer", "bpcer", "far", "frr", "fpr", "fnr",
)  # fmt: skip
_HELD_RATE = re.compile(
    r"(?:@|[_-]at[_-])(?:[\d.]+(?:e-?\d+)?%?|[^_-]*)(?:[_-](?:far|frr|fpr|fnr|apcer|bpcer)(?![a-z]))?"
    r"|(?<=(?<![a-z])(?:tpr|tar|tnr))[_-](?:(?:0?\.[0-4]\d*|[\d.]+e-\d+)[_-])?(?:far|frr|fpr|fnr|apcer|bpcer)(?![a-z])"
)
"""What the value is measured at, no word for the value itself: tpr_at_fpr, tpr_at_0.01_fpr, tpr_fpr_0.01.

A large number is what was reached, and what follows the value: tpr_0.95_fpr."""
_OF_DISTANCES = {"recall", "precision", "ap", "map", "auc", "f1", "iou"}  # beside which "far" is no rate


@dataclass(frozen=True)
class Best(Lever, name="best", form="best:METRIC"):
    """Keeps the checkpoint with the best value of a metric that the module logs in validation, as `best.ckpt`.

    Lower is better for names with one of these words in them: loss, error, perplexity, nll, ce, bce, brier, ece, mae,
    mse, rmse, mape, wer, eer, hter, acer, apcer, bpcer, far, frr, fpr, fnr. Higher is better for all others, whatever
    they are measured at (`tpr_at_fpr`), and for accuracies, whatever the class or method is called.
    A validation in which the metric is NaN is never the best.
    Gives: the weights before they overfit (a BERT's accuracy, with determinism: 91.43 -> 92.0 %);
    `trainer.test(ckpt_path="best")` tests them. Costs: the time to write a checkpoint at each improvement.
    """

    metric: str

    def __post_init__(self) -> None:
        require_name(self, "metric")

    def arguments(self) -> dict[str, Any]:
        """Returns a ModelCheckpoint, in the logger's folder."""
        checkpoint_callback = ModelCheckpoint(
            monitor=self.metric, mode=mode(self.metric), filename="best", enable_version_counter=False
        )
        return {"callbacks": [RequireMetric(str(self), self.metric), checkpoint_callback]}


@dataclass(frozen=True)
class EarlyStop(Lever, name="early_stop", form="early_stop:METRIC[:patience]"):
    """Stops when a logged metric has not improved for `patience` validations, or is not finite.

    Whether lower or higher is better: as in `Best`. Gives: the time of epochs without improvement. Costs: nothing; a
    small patience may stop at a plateau before the end.
    """

    metric: str
    patience: int = 3

    def __post_init__(self) -> None:
        require_name(self, "metric")
        require_int(self, "patience")

    def arguments(self) -> dict[str, Any]:
        """Returns an EarlyStopping."""
        of_training = self.metric.startswith("train")  # which a validation that a resumed run repeats does not have
        early_stopping = EarlyStopping(
            of_training=of_training, monitor=self.metric, mode=mode(self.metric), patience=self.patience
        )
        return {"callbacks": [RequireMetric(str(self), self.metric, of_training=of_training), early_stopping]}


def mode(metric: str) -> str:
    """Returns "min" if a lower value of a metric is better, else "max", by the words of its name."""
    parts = metric.lower().split("/")  # the name of a method may have slashes
    if parts[-1].startswith("accuracy") or any(part.startswith("accuracy_method_") for part in parts):
        return "max"  # the other words are of a class or a method: accuracy_method_mae
    named = [_HELD_RATE.sub("", part) for part in parts]
    words = re.split("[_-]", "_".join(named))
    if not _OF_DISTANCES.isdisjoint(words):
        words = [word for word in words if word != "far"]  # recall_far
    return "min" if any(word in _LOWER_IS_BETTER or word.endswith("loss") for word in words) else "max"


class ModelCheckpoint(callbacks.ModelCheckpoint):  # type: ignore[misc]  # Lightning is not followed
    """Lightning's ModelCheckpoint, which would keep a first validation with NaN as the best until there is a better.

    The name is the same, since checkpoints have its state by it.
    """

    def check_monitor_top_k(self, trainer: Any, current: torch.Tensor | None = None) -> bool:
        """Whether a value of the metric is the best so far, on all ranks alike; a collective call.

        Of several ranks each may have its own value, and all of them save or none.
        """
        is_best: bool = super().check_monitor_top_k(trainer, current)
        is_best = is_best and current is not None and not bool(torch.isnan(current))
        return bool(trainer.strategy.reduce_boolean_decision(is_best))


class EarlyStopping(callbacks.EarlyStopping):  # type: ignore[misc]
    """Lightning's EarlyStopping, checked after each validation; after each epoch if there is none, or `of_training`.

    Lightning's own is checked at the end of an epoch, which a validation that a resumed run repeats does not reach. The
    name is the same, since checkpoints have its state by it.
    """

    def __init__(self, *, of_training: bool, **settings: Any) -> None:
        super().__init__(**settings, check_on_train_epoch_end=False)
        self._of_training = of_training

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Checks a metric that no validation logs."""
        if self._of_training or not _validates(trainer):
            super().on_validation_end(trainer, pl_module)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Checks a metric of the validation."""
        if not self._of_training:
            super().on_validation_end(trainer, pl_module)


class RequireMetric(Callback):  # type: ignore[misc]
    """Raises `LeverError` if a metric was not logged by the end of a validation (of an epoch, if there is none).

    lever: that needs the metric, for the message. of_training: the metric is not needed before the end of an epoch.
    """

    def __init__(self, lever: str, metric: str, *, of_training: bool = False) -> None:
        self._lever = lever
        self._metric = metric
        self._of_training = of_training

    @property
    def state_key(self) -> str:
        """Unique for each lever, of which there may be several."""
        return self._generate_state_key(lever=self._lever)  # type: ignore[no-any-return]

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Checks a metric that no validation logs."""
        if self._of_training or not _validates(trainer):
            self._check(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Checks the metric, before the monitoring callback would raise Lightning's own error."""
        if not self._of_training and not trainer.sanity_checking:
            self._check(trainer)

    def _check(self, trainer: Any) -> None:
        if self._metric in trainer.callback_metrics:
            return
        logged = ", ".join(sorted(map(str, trainer.callback_metrics))) or "nothing"
        raise LeverError(f"{self._lever}: nobody logs {self._metric!r}; what is logged: {logged}")


def _validates(trainer: Any) -> bool:
    """Whether a fit has a validation with batches."""
    is_empty = trainer.val_dataloaders is not None and not sum(trainer.num_val_batches)
    return trainer.enable_validation and not is_empty
