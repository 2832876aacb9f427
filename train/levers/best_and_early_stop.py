"""What is watched while it trains: the best weights, and when they no longer come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint

from .lever import Lever, LeverError, whole, word

_LOWER = ("loss", "error", "perplexity", "mae", "mse", "rmse", "wer", "eer")


@dataclass(frozen=True)
class Best(Lever):
    """Keeps the checkpoint at which a metric that the module logs in validation was best, as `best.ckpt`.

    The lowest counts as best of names with loss, error, perplexity, mae, mse, rmse, wer or eer in them, the highest of
    all others. Gives: the weights before they overfit (a BERT's accuracy, with determinism: 91.43 -> 92.0 %);
    `trainer.test(ckpt_path="best")` looks at them. Costs: a checkpoint's time to write, whenever it gets better.
    """

    name: ClassVar[str] = "best"
    kind: ClassVar[str] = "best"
    form: ClassVar[str] = "best:METRIC"

    metric: str

    def __post_init__(self) -> None:
        word(self, "metric")

    def arguments(self) -> dict[str, Any]:
        """Lightning's ModelCheckpoint, in the logger's folder."""
        saved = ModelCheckpoint(
            monitor=self.metric, mode=mode(self.metric), filename="best", enable_version_counter=False
        )
        return {"callbacks": [Logged(str(self), self.metric), saved]}


@dataclass(frozen=True)
class EarlyStop(Lever):
    """Stops when a metric that the module logs has not got better for `patience` validations, or is not finite.

    Which way is better: as in `Best`. Gives: the epochs that would have brought nothing. Costs: nothing; a patience too
    small stops before a plateau's end.
    """

    name: ClassVar[str] = "early_stop"
    kind: ClassVar[str] = "early_stop"
    form: ClassVar[str] = "early_stop:METRIC[:patience]"

    metric: str
    patience: int = 3

    def __post_init__(self) -> None:
        word(self, "metric")
        whole(self, "patience")

    def arguments(self) -> dict[str, Any]:
        """Lightning's EarlyStopping."""
        stops = EarlyStopping(monitor=self.metric, mode=mode(self.metric), patience=self.patience)
        return {"callbacks": [Logged(str(self), self.metric), stops]}


def mode(metric: str) -> str:
    """Whether lower ("min") or higher ("max") is better of a metric, by the words of its name."""
    words = metric.lower().replace("/", "_").replace("-", "_").split("_")
    return "min" if any(word in _LOWER or word.endswith("loss") for word in words) else "max"


class Logged(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Raises `LeverError` where a metric is watched that nobody logs: after a validation, without one after an epoch.

    lever: what watches it, for the message.
    """

    def __init__(self, lever: str, metric: str) -> None:
        self._lever = lever
        self._metric = metric

    @property
    def state_key(self) -> str:
        """There may be several."""
        return self._generate_state_key(lever=self._lever)  # type: ignore[no-any-return]

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """See `on_validation_end`."""
        if not trainer.enable_validation:
            self.on_validation_end(trainer, pl_module)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Comes before the callback that watches, which would raise an error of Lightning's."""
        if trainer.sanity_checking or self._metric in trainer.callback_metrics:
            return
        logged = ", ".join(sorted(map(str, trainer.callback_metrics))) or "nothing"
        raise LeverError(f"{self._lever}: nobody logs {self._metric!r}; what is logged: {logged}")
