"""Exact classification metrics by face and by video, accumulated over batches and gathered over ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...pipeline.console import plural
from ...pipeline.dataset.schema import real_class
from ...pipeline.errors import UsageError

_ROUNDING = 1e-12
"""Log-odds closer than this, relative to values above 1, are equal: they go through some ten operations in float64."""
_METRIC_NAMES = tuple(f"{of}{name}" for of in ("", "video_") for name in ("auc", "log_loss", "accuracy"))
"""Names of the metrics that do not depend on the classes and methods of a dataset."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RocCurve:
    """A ROC curve: false and true positive rates, float64 (points,), rising from 0 to 1."""

    fpr: Tensor
    tpr: Tensor

    @property
    def area(self) -> float:
        """Area under the curve, 0 to 1; 0.5 for random guessing."""
        return float(torch.trapezoid(self.tpr, self.fpr))


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Predictions for N faces, or N videos: `log_p` float64 (N, classes), log-probabilities; `labels` int64 (N,).

    A metric is None where it is undefined, and NaN where a prediction is NaN.
    """

    log_p: Floats
    labels: Ints

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def is_nan(self) -> NDArray[np.bool_]:
        """Bool (N,): whether the prediction is NaN."""
        return np.asarray(np.isnan(self.log_p).any(axis=1))

    @property
    def log_loss(self) -> float | None:
        """Mean negative log-probability of the true class, in nats; None if N is 0."""
        return self._mean(-self.log_p[np.arange(len(self)), self.labels])

    @property
    def accuracy(self) -> float | None:
        """Fraction of correct predictions, 0 to 1; of equally likely classes the first is predicted. None if N is 0."""
        return self._mean(self.log_p.argmax(1) == self.labels)

    @property
    def auc(self) -> float | None:
        """Area under the ROC curve: of class 1 for two classes, else the mean over classes with a curve, if any."""
        classes = self.log_p.shape[1]
        labels = [label for label in ([1] if classes == 2 else range(classes)) if self._has_both_sides(label)]
        if labels and self.is_nan.any():
            return math.nan
        curves = [curve for curve in map(self.roc, labels) if curve is not None]
        return float(np.mean([curve.area for curve in curves])) if curves else None

    def roc(self, label: int) -> RocCurve | None:
        """Returns the ROC curve of class `label` against all others.

        None if only one of the two sides is present, or a prediction is NaN: it has no place in the order.

        Exact: one point for every distinct score. Scores are ordered by log-odds, which unlike probabilities do not
        saturate near 0 and 1; those that differ by rounding alone are equal.
        """
        from torchmetrics.functional.classification import binary_roc  # noqa: PLC0415 (seconds)

        if not self._has_both_sides(label) or self.is_nan.any():
            return None
        targets = self.labels == label
        others = np.logaddexp.reduce(np.delete(self.log_p, label, axis=1), axis=1)
        rank = _ranks(self.log_p[:, label] - others)
        score = torch.from_numpy(rank / max(rank.max(), 1))
        fpr, tpr, _ = binary_roc(score, torch.from_numpy(targets.astype(np.int64)))
        return RocCurve(fpr=fpr.double(), tpr=tpr.double())

    @property
    def confusion(self) -> Ints:
        """Counts int64 (classes, classes): rows are true classes, columns predicted ones; without NaN predictions."""
        classes = self.log_p.shape[1]
        pairs = (self.labels * classes + self.log_p.argmax(1))[~self.is_nan]
        return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)

    def of(self, kept: NDArray[np.bool_]) -> Predictions:
        """Returns the predictions for a part of the faces; `kept` bool (N,)."""
        return Predictions(log_p=self.log_p[kept], labels=self.labels[kept])

    def _mean(self, values: NDArray[Any]) -> float | None:
        if not len(self):
            return None
        return math.nan if self.is_nan.any() else float(values.mean())

    def _has_both_sides(self, label: int) -> bool:
        targets = self.labels == label
        return bool(targets.any() and not targets.all())


class EvalMetrics:
    """Accumulates predictions batch by batch and computes exact metrics over all faces.

    classes: class names; a label is an index into them. Faces without a label are dropped. A face with a `row` counts
    once however often it was added: distributed samplers repeat faces so that all ranks take as many steps.
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)
        self._columns_by_batch: list[tuple[Floats, Ints, Ints, Ints, Ints]] = []
        self._videos: dict[str, int] = {}
        self._methods: dict[str, int] = {}

    def add(
        self, logits: Tensor, labels: Tensor, video_ids: Sequence[str | None] | None = None,
        methods: Sequence[str | None] | None = None, *, rows: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Adds one batch.

        Args:
            logits: (N, classes), or (N, 1) of class 1 against class 0.
            labels: integers (N,); negative if unknown.
            video_ids: N names, each None if unknown.
            methods: N names of manipulation methods, each None if there is none.
            rows: (N,), a unique number of each face.

        Raises:
            UsageError: A label is not an index into the classes, or is a mixture of two of them.

        """
        values = _log_p(logits)
        targets = labels.detach().cpu().numpy()
        count = len(targets)
        if (targets != targets.astype(np.int64)).any():
            raise UsageError("labels are mixed: what lies between two classes cannot be scored; validate without mixup")
        if count and (targets.max() >= len(self.classes) or values.shape[1] != len(self.classes)):
            raise UsageError(
                f"label {targets.max()}, {values.shape[1]} logits: there are {len(self.classes)} classes, "
                f"{', '.join(self.classes)}, numbered from 0; make the classifier with the dataset's classes"
            )
        part = (
            values, targets.astype(np.int64), _codes(self._videos, video_ids, count),
            _codes(self._methods, methods, count), np.full(count, -1) if rows is None else rows.cpu().numpy(),
        )  # fmt: skip
        kept = targets >= 0
        self._columns_by_batch.append(tuple(column[kept] for column in part))  # type: ignore[arg-type]
        self.__dict__.pop("_unique_faces", None)

    def gathered(self) -> EvalMetrics:
        """Returns the metrics over all ranks, identical on each; `self` without ranks. A collective call."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return self
        by_rank: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(by_rank, (self._concatenated(), list(self._videos), list(self._methods)))
        merged = EvalMetrics(self.classes)
        for (log_p, labels, videos, methods, rows), video_names, method_names in by_rank:
            video = _renumbered(merged._videos, video_names)
            method = _renumbered(merged._methods, method_names)
            merged._columns_by_batch.append((log_p, labels, video[videos], method[methods], rows))
        return merged

    def _concatenated(self) -> tuple[Floats, Ints, Ints, Ints, Ints]:
        none = np.empty(0, np.int64)
        empty = (np.empty((0, len(self.classes))), none, none, none, none)
        columns = zip(*self._columns_by_batch, strict=True) if self._columns_by_batch else ([one] for one in empty)
        return tuple(np.concatenate(column) for column in columns)  # type: ignore[return-value]

    @cached_property
    def _unique_faces(self) -> tuple[Floats, Ints, Ints, Ints]:
        """Log-probabilities, labels, video codes and method codes, each face once."""
        *columns, rows = self._concatenated()
        _, first = np.unique(rows, return_index=True)
        kept = np.sort(np.concatenate([first[rows[first] >= 0], np.flatnonzero(rows < 0)]))
        return tuple(column[kept] for column in columns)

    @property
    def faces(self) -> Predictions:
        """Predictions for every face."""
        return Predictions(log_p=self._unique_faces[0], labels=self._unique_faces[1])

    @property
    def videos(self) -> Predictions:
        """Predictions for every video: the mean probability over its faces; faces without a video are dropped.

        If the faces of one video have several labels, the faces of each label count as a separate video.
        """
        log_p, labels, video, _ = self._unique_faces
        classes, known = len(self.classes), video >= 0
        keys, of_video, faces = np.unique(
            video[known] * classes + labels[known], return_inverse=True, return_counts=True
        )
        # log of a mean of probabilities (log-sum-exp): relative to the largest of each video, so that none underflows.
        largest = np.full((len(keys), classes), -np.inf)
        np.maximum.at(largest, of_video, log_p[known])
        largest[np.isneginf(largest)] = 0.0  # a class of probability 0 in all faces: the difference would be NaN
        total = np.zeros((len(keys), classes))
        np.add.at(total, of_video, np.exp(log_p[known] - largest[of_video]))
        with np.errstate(divide="ignore"):
            log_mean = np.log(total / faces[:, None])
        return Predictions(log_p=largest + log_mean, labels=keys % classes)

    @property
    def num_videos(self) -> int:
        """Number of known videos; `videos` has one that is fake in part once for each label."""
        video = self._unique_faces[2]
        return len(np.unique(video[video >= 0]))

    def result(self) -> dict[str, float]:
        """Computes the metrics by name: auc, log_loss and accuracy of faces, video_auc, ... of videos, and accuracies.

        accuracy_<class>: of the faces of that class; accuracy_method_<method>: of the faces made by that method, not of
        the real moments of its videos that are fake in part.
        Undefined metrics are left out: the AUC of a single class, video metrics without known videos, classes and
        methods without faces. A metric of faces of which a prediction is NaN is NaN.
        """
        faces, videos, methods = self.faces, self.videos, self._unique_faces[3]
        metrics = {
            name: getattr(videos if name.startswith("video_") else faces, name.removeprefix("video_"))
            for name in _METRIC_NAMES
        }
        for label, name in enumerate(self.classes):
            metrics[f"accuracy_{name}"] = faces.of(faces.labels == label).accuracy
        for name, label in sorted(self._methods.items()):
            metrics[f"accuracy_method_{name}"] = faces.of(self._is_made_by(methods == label)).accuracy
        return {name: value for name, value in metrics.items() if value is not None}

    def _is_made_by(self, of_method: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Returns which faces of a method are not real, as its real moments are; all where all of them are real."""
        not_real = of_method & (self.faces.labels != real_class(self.classes))
        return not_real if not_real.any() else of_method

    def nan_note(self) -> str | None:
        """Returns a note on the number of NaN predictions; None if there are none."""
        count, total = int(self.faces.is_nan.sum()), len(self.faces)
        if not count:
            return None
        return (
            f"the predictions for {count:,} of {plural(total, 'face')} are NaN, so metrics of these faces and of their "
            "videos are NaN; train with a lower learning rate, or look for NaN or infinite weights"
        )


def _log_p(logits: Tensor) -> Floats:
    """Returns log-probabilities float64 (N, classes)."""
    logits64 = logits.detach().cpu().double()
    if logits64.shape[1] == 1:
        logits64 = torch.cat([torch.zeros_like(logits64), logits64], dim=1)
    values: Floats = torch.log_softmax(logits64, dim=1).numpy()
    return values


def _ranks(log_odds: Floats) -> Ints:
    """Returns the rank of each value, int64 (N,): 0 for the least; values that differ by rounding alone share one.

    So predictions that tie stay tied where they were rounded differently: the means of videos of other numbers of
    faces, or the softmax of logits with another common offset.
    """
    order = np.argsort(log_odds)
    sorted_odds = np.clip(log_odds[order], -1e300, 1e300)  # infinite ones: their differences would be NaN
    tolerances = _ROUNDING * np.maximum(1.0, np.abs(sorted_odds[:-1]))
    ranks = np.empty(len(log_odds), np.int64)
    ranks[order] = np.concatenate([[0], np.cumsum(np.diff(sorted_odds) > tolerances)])
    return ranks


def _codes(known: dict[str, int], names: Sequence[str | None] | None, count: int) -> Ints:
    """Returns the code of each name, -1 for None; adds new names to `known` with the next code."""
    if names is None:
        return np.full(count, -1)
    return np.array([-1 if name is None else known.setdefault(name, len(known)) for name in names], np.int64)


def _renumbered(known: dict[str, int], names: Sequence[str]) -> Ints:
    """Returns the global code of each code of one rank; the last entry maps -1 to itself."""
    return np.append(_codes(known, names, len(names)), -1)
