"""`ModelOptions` and `DataOptions`: frozen dataclasses, validated on construction, light to import."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Literal, get_args

from ...loaders.real_numbers import as_float
from ...loaders.sampling.balance_names import BalanceName
from ...loaders.whole_numbers import require_int
from ...pipeline.errors import UsageError

if TYPE_CHECKING:
    from ...pipeline.dataset.stores.opening import StoreOptions

Loss = Literal["bce", "ce", "focal"]
Schedule = Literal["constant", "cosine", "linear"]
_OPTIONAL = ("frames_per_video", "num_workers", "cache_bytes")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of a `FaceClassifier`: network, loss, optimizer and schedule. Stored as plain types, for checkpoints.

    Args:
        backbone: name of a timm model.
        pretrained: start from timm's weights.
        classes: class names, indexed by label.
        loss: "ce", cross entropy; "bce", binary cross entropy on one logit, for two classes; "focal", cross entropy
            weighted by (1 - p)^`focal_gamma`.
        label_smoothing: fraction of a label that is spread evenly over all classes.
        focal_gamma: exponent of the focal loss.
        learning_rate: of AdamW.
        weight_decay: of AdamW; norms and biases do not decay.
        warmup_steps: optimizer steps in which the learning rate rises linearly to `learning_rate`.
        schedule: from there to the last step: "constant", or a fall to 0 along half a "cosine" or a straight line
            ("linear").
        drop_rate: dropout before the head, 0 to 1.

    Raises:
        UsageError: a value is out of range.

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
        converted = {
            "backbone": str(self.backbone),
            "loss": _as_choice("loss", self.loss, get_args(Loss)),
            "schedule": _as_choice("schedule", self.schedule, get_args(Schedule)),
            "classes": _classes(self.classes),
            "label_smoothing": _as_fraction("label_smoothing", self.label_smoothing, example=0.1),
            "drop_rate": _as_fraction("drop_rate", self.drop_rate, example=0.2),
            "focal_gamma": _as_float("focal_gamma", self.focal_gamma, example=2.0),
            "weight_decay": _as_float("weight_decay", self.weight_decay, example=0.05),
            "learning_rate": _as_float("learning_rate", self.learning_rate, example=1e-3),
            "warmup_steps": require_int("warmup_steps", self.warmup_steps, minimum=0, example=100),
        }
        for name, value in converted.items():
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
    """Options of a `FaceDataModule`. Stored as plain types, for checkpoints.

    Args:
        batch_size: images per rank and step.
        image_size: side of the images, px.
        crop: crop protocol as `FaceDataset` takes it: "deepfakebench", "ffpp", "sbi", or a mapping such as
            {"margin": 0.3, "size": 299, "align": "arcface"}; None: the stored crop.
        transform: path of an Albumentations pipeline, as `A.save` writes it and `facefeed augment` shows it, or the
            name of one that comes with facefeed, as "self_blend.yaml"; for training only.
        eval_transform: the same for validation and test, for experiments that change what the classifier sees at all.
        balance: "none", every face once an epoch; "classes", equally many of each in every batch; "pairs", each fake
            after its original; "blend_pairs", real faces alone, each followed by the fake that `SelfBlend` in the
            transform makes of it. Of training; validation and test have every face once.
        frames_per_video: number of evenly spaced frames of each video, in all splits; None: all.
        num_workers: loader processes; None: one per usable core.
        cache: of a dataset at an address: the folder of a local disk that keeps what is read; None: `~/.cache`.
        cache_bytes: most that it takes; None: half of what its disk has free.
        seed: of order and augmentations.

    Raises:
        UsageError: a value is out of range.

    """

    batch_size: int = 64
    image_size: int = 224
    crop: Mapping[str, Any] | str | None = None
    transform: str | None = None
    eval_transform: str | None = None
    balance: BalanceName = "classes"
    frames_per_video: int | None = None
    num_workers: int | None = None
    cache: str | None = None
    cache_bytes: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "balance", _as_choice("balance", self.balance, get_args(BalanceName)))
        rules = {
            "batch_size": (1, 64), "image_size": (1, 224), "seed": (0, 0), "frames_per_video": (1, 32),
            "num_workers": (0, 2), "cache_bytes": (1, 200 << 30),
        }  # fmt: skip
        for name, (minimum, example) in rules.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                object.__setattr__(self, name, require_int(name, value, minimum=minimum, example=example))
        if self.crop is not None:
            object.__setattr__(self, "crop", _as_crop(self.crop))
        texts = {
            "transform": "the path of a pipeline's file", "eval_transform": "the path of a pipeline's file",
            "cache": "a folder of a local disk",
        }  # fmt: skip
        for name, rule in texts.items():
            if (text := getattr(self, name)) is not None:
                if not (isinstance(text, str) and text):
                    raise UsageError(f"{name}={text!r}: must be {rule}, or None")
                object.__setattr__(self, name, str(text))

    @property
    def store(self) -> StoreOptions:
        """How a dataset at an address is read."""
        from ...pipeline.dataset.stores.opening import StoreOptions  # noqa: PLC0415 (imports pyarrow)

        return StoreOptions.of(cache=self.cache, cache_bytes=self.cache_bytes, storage_options=None)


def _classes(classes: Any) -> tuple[str, ...]:
    names = () if isinstance(classes, str) or not isinstance(classes, Collection) else tuple(classes)
    if len(names) < 2 or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise UsageError(f"classes={classes!r}: must be two or more names, each another; try ('real', 'fake')")
    return tuple(map(str, names))


def _as_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise UsageError(f"{name}={value!r}: must be one of {', '.join(choices)}")
    return str(value)


def _as_crop(crop: Any) -> str | dict[str, Any]:
    """Returns the name or mapping of a crop protocol as plain types; raises `UsageError` if it is none."""
    from ...pipeline.dataset.crops import CropProtocol, crop_protocol  # noqa: PLC0415 (imports pyarrow)

    if isinstance(crop, CropProtocol):
        raise UsageError(
            f"crop={crop!r}: is an object, which a checkpoint cannot hold; give the name of a protocol, as 'ffpp', or "
            'a mapping like {"margin": 0.3, "size": 299}'
        )
    crop_protocol(crop)
    if isinstance(crop, str):
        return str(crop)
    return {name: kind(crop[name]) for name, kind in (("margin", float), ("size", int), ("align", str)) if name in crop}


def _as_float(name: str, value: Any, *, example: float) -> float:
    number = as_float(value)
    if not 0 <= number < inf:
        raise UsageError(f"{name}={value!r}: must be a number of at least 0; try {example:g}")
    return number


def _as_fraction(name: str, value: Any, *, example: float) -> float:
    if (number := _as_float(name, value, example=example)) >= 1:
        raise UsageError(f"{name}={value!r}: must be a share, from 0 to less than 1; try {example:g}")
    return number
