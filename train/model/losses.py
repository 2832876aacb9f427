"""Three losses on logits, with soft labels, smoothing, and faces whose label nobody knows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ..config.options import Loss

_LEAST = 1e-6  # below it the slope of (1 - p)^gamma may be infinite, and infinite times 0 is not a number


def loss(
    logits: Tensor, labels: Tensor, *, kind: Loss, label_smoothing: float = 0.0, focal_gamma: float = 2.0
) -> Tensor:
    """The mean loss of the faces whose label is known, as a float32 scalar; 0 where none is.

    logits: (N, classes), or (N, 1) for "bce". labels: integers (N,), negative where unknown; or floats (N,) of two
    classes, each the probability of class 1, as `AlignedMixup` makes them. No value is read back from a device.

    "ce": cross entropy. "bce": binary cross entropy of sigmoid(logit). "focal": each class's term of the cross entropy
    weighed by (1 - p)^focal_gamma (Lin et al., Focal Loss for Dense Object Detection, ICCV 2017; without its alpha).
    `label_smoothing` s: a label becomes (1 - s) of itself and s / classes of every class (Szegedy et al., CVPR 2016).
    """
    logits, known = logits.float(), labels >= 0
    wanted = _wanted(labels, 2 if kind == "bce" else logits.shape[1], label_smoothing)
    if kind == "bce":
        each = functional.binary_cross_entropy_with_logits(logits[:, 0], wanted[:, 1], reduction="none")
    else:
        log_p = functional.log_softmax(logits, dim=1)
        weight = (1 - log_p.exp()).clamp(min=_LEAST) ** focal_gamma if kind == "focal" else 1.0
        each = -(wanted * weight * log_p).sum(1)
    return torch.where(known, each, 0.0).sum() / known.sum().clamp(min=1)


def _wanted(labels: Tensor, classes: int, label_smoothing: float) -> Tensor:
    """Labels as probabilities float32 (N, classes), smoothed; those of unknown ones stand for nothing."""
    if labels.is_floating_point():
        of_one = labels.float().clamp(min=0)
        hard = torch.stack([1 - of_one, of_one], dim=1)
    else:
        hard = functional.one_hot(labels.long().clamp(min=0), classes).float()
    return hard * (1 - label_smoothing) + label_smoothing / classes
