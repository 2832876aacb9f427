"""What a classifier and its data are: two frozen values, light to import, checked when they are made."""

from __future__ import annotations

import operator
from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import Any, Literal, get_args

from ...pipeline.errors import UsageError

Loss = Literal["bce", "ce", "focal"]
Schedule = Literal["constant", "cosine", "linear"]
BalanceName = Literal["none", "classes", "pairs"]
_MAY_BE_NONE = ("frames_per_video", "num_workers")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """A `FaceClassifier`: its network, its loss, and how it is trained.

    backbone: any name of timm's. pretrained: begin with the weights that timm has for it. classes: their names; the
    place is the label's number. drop_rate: dropout before the last layer, 0 to 1.

    loss: "ce", cross entropy; "bce", binary cross entropy on one logit, for two classes; "focal", cross entropy in
    which a face that is right already counts for less, by (1 - p)^`focal_gamma`. label_smoothing: 0 to 1, the share of
    a label that is spread evenly over all classes.

    learning_rate, weight_decay: AdamW's; no decay on norms and biases. warmup_steps: optimizer steps in which the rate
    rises evenly to `learning_rate`. schedule: what it does then, until the last step: stays, or falls to 0 along half
    a cosine or a straight line.

    Raises `UsageError` on a value that cannot be meant. Values are kept as plain ones, which checkpoints may hold.
    """

    backbone: str = "resnet18"
    pretrained: bool = False
    classes: tuple[str, ...] = ("real", "fake")
    loss: Loss = "ce"
    label_smoothing: float = 0.0
    focal_gamma: float = 2.0
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    warmup_steps: int = 0
    schedule: Schedule = "cosine"
    drop_rate: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.backbone, str) or not self.backbone:
            raise UsageError(f"backbone={self.backbone!r}: must be a name of timm's; try 'resnet18'")
        if not isinstance(self.pretrained, bool):
            raise UsageError(f"pretrained={self.pretrained!r}: must be True or False")
        _word("loss", self.loss, get_args(Loss))
        _word("schedule", self.schedule, get_args(Schedule))
        plain = {
            "classes": _classes(self.classes),
            "label_smoothing": _share("label_smoothing", self.label_smoothing, such_as=0.1),
            "drop_rate": _share("drop_rate", self.drop_rate, such_as=0.2),
            "focal_gamma": _number("focal_gamma", self.focal_gamma, such_as=2.0),
            "weight_decay": _number("weight_decay", self.weight_decay, such_as=0.05),
            "learning_rate": _number("learning_rate", self.learning_rate, such_as=1e-3),
            "warmup_steps": _whole("warmup_steps", self.warmup_steps, least=0, such_as=100),
        }
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        if not self.learning_rate:
            raise UsageError("learning_rate=0: must be above 0, else nothing is learned; try 0.001")
        if self.loss == "bce" and len(self.classes) != 2:
            raise UsageError(
                f"loss='bce': has one logit, for two classes, and there are {len(self.classes)}: "
                f"{', '.join(self.classes)}; take loss='ce'"
            )


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """What a `FaceDataModule` makes of a dataset.

    batch_size: images a rank and step. image_size: px, the side that crops are brought to. transform: the path of an
    Albumentations pipeline, as `A.save` writes it and `facefeed augment` shows it; for training alone. balance: "none",
    every face once an epoch; "classes", as many of each in every batch; "pairs", each fake after its original.
    frames_per_video: of each video so many frames, evenly spaced, in all splits; None: all. num_workers: processes that
    make batches; None: one a usable core. seed: of order and augmentations.

    Raises `UsageError` on a value that cannot be meant.
    """

    batch_size: int = 64
    image_size: int = 224
    transform: str | None = None
    balance: BalanceName = "classes"
    frames_per_video: int | None = None
    num_workers: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _word("balance", self.balance, get_args(BalanceName))
        rules: dict[str, tuple[int | None, int]] = {
            "batch_size": (1, 64), "image_size": (1, 224), "seed": (None, 0), "frames_per_video": (1, 32),
            "num_workers": (0, 2),
        }  # fmt: skip
        for name, (least, such_as) in rules.items():
            value = getattr(self, name)
            if value is not None or name not in _MAY_BE_NONE:
                object.__setattr__(self, name, _whole(name, value, least=least, such_as=such_as))
        if self.transform is not None and not (isinstance(self.transform, str) and self.transform):
            raise UsageError(f"transform={self.transform!r}: must be the path of a pipeline's file, or None")


def _classes(classes: Any) -> tuple[str, ...]:
    names = () if isinstance(classes, str) or not isinstance(classes, Collection) else tuple(classes)
    if len(names) < 2 or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise UsageError(f"classes={classes!r}: must be two or more names, each another; try ('real', 'fake')")
    return tuple(map(str, names))


def _word(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{name}={value!r}: must be one of {', '.join(known)}")


def _whole(name: str, value: Any, *, least: int | None, such_as: int) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        rule = "a whole number" if number is None else f"at least {least}"
        raise UsageError(f"{name}={value!r}: must be {rule}; try {such_as}")
    return number


def _number(name: str, value: Any, *, such_as: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < inf:
        raise UsageError(f"{name}={value!r}: must be a number of at least 0; try {such_as:g}")
    return float(value)


def _share(name: str, value: Any, *, such_as: float) -> float:
    if (number := _number(name, value, such_as=such_as)) >= 1:
        raise UsageError(f"{name}={value!r}: must be a share, from 0 to less than 1; try {such_as:g}")
    return number
