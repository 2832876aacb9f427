"""Cross entropy, binary cross entropy and focal loss, with soft labels, label smoothing and unknown labels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ..config.options import Loss

_MIN_FOCAL_BASE = 1e-6  # below it the gradient of (1 - p)^gamma may be infinite, and infinity times 0 is NaN


def classification_loss(
    logits: Tensor, labels: Tensor, *, kind: Loss, label_smoothing: float = 0.0, focal_gamma: float = 2.0
) -> Tensor:
    """Computes the mean loss over faces with a known label, as a float32 scalar; 0 if there are none.

    logits: (N, classes), or (N, 1) for "bce". labels: integers (N,), negative where unknown; or floats (N,) of two
    classes, each the probability of class 1, as `AlignedMixup` returns them. Never synchronises with the device.

    "ce": cross entropy. "bce": binary cross entropy of sigmoid(logit). "focal": each class's term of the cross entropy
    weighed by (1 - p)^focal_gamma (Lin et al., Focal Loss for Dense Object Detection, ICCV 2017; without its alpha).
    `label_smoothing` s: a label becomes (1 - s) of itself and s / classes of every class (Szegedy et al., CVPR 2016).
    """
    logits, known = logits.float(), labels >= 0
    targets = _target_probabilities(labels, 2 if kind == "bce" else logits.shape[1], label_smoothing)
    if kind == "bce":
        losses = functional.binary_cross_entropy_with_logits(logits[:, 0], targets[:, 1], reduction="none")
    else:
        log_p = functional.log_softmax(logits, dim=1)
        weight = (1 - log_p.exp()).clamp(min=_MIN_FOCAL_BASE) ** focal_gamma if kind == "focal" else 1.0
        losses = -(targets * weight * log_p).sum(1)
    return torch.where(known, losses, 0.0).sum() / known.sum().clamp(min=1)


def _target_probabilities(labels: Tensor, classes: int, label_smoothing: float) -> Tensor:
    """Returns smoothed target probabilities float32 (N, classes); meaningless for unknown labels."""
    if labels.is_floating_point():
        probability = labels.float().clamp(min=0)
        unsmoothed = torch.stack([1 - probability, probability], dim=1)
    else:
        unsmoothed = functional.one_hot(labels.long().clamp(min=0), classes).float()
    return unsmoothed * (1 - label_smoothing) + label_smoothing / classes
