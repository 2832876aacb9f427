"""How well a classifier does, by face and by video: what it said is kept, brought together over ranks, and measured."""

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

from ...pipeline.errors import UsageError

FIGURES = tuple(f"{of}{figure}" for of in ("", "video_") for figure in ("auc", "log_loss", "accuracy"))
"""What is said of faces, and of videos, whatever the classes and methods."""

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A ROC curve: false and true positive rates, float64 (points,), rising from 0 to 1."""

    fpr: Tensor
    tpr: Tensor

    @property
    def area(self) -> float:
        """0 to 1; .5 of what is guessed."""
        return float(torch.trapezoid(self.tpr, self.fpr))


@dataclass(frozen=True, kw_only=True)
class Said:
    """What was said of faces, or of videos: `log_p` float64 (N, classes), log-probabilities; `labels` int64 (N,)."""

    log_p: Floats
    labels: Numbers

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def log_loss(self) -> float:
        """Mean negative log-probability of the true class, in nats; NaN of nothing."""
        return float(-self.log_p[np.arange(len(self)), self.labels].mean()) if len(self) else math.nan

    @property
    def right(self) -> NDArray[np.bool_]:
        """(N,): where the most likely class, of equally likely ones the first, is the true one."""
        right: NDArray[np.bool_] = self.log_p.argmax(1) == self.labels
        return right

    @property
    def accuracy(self) -> float:
        """Share of those that are right, 0 to 1; NaN of nothing."""
        return float(self.right.mean()) if len(self) else math.nan

    @property
    def auc(self) -> float:
        """Area under the ROC curve: of class 1 with two classes; else the mean over those that have a curve, or NaN."""
        classes = self.log_p.shape[1]
        curves = [self.roc(number) for number in ([1] if classes == 2 else range(classes))]
        areas = [curve.area for curve in curves if curve is not None]
        return float(np.mean(areas)) if areas else math.nan

    def roc(self, number: int) -> Curve | None:
        """The ROC curve of one class against all others; None where there is only one of the two.

        Exact: a point at every distinct score, in the order of log-odds, which do not run together near 0 and 1 as
        probabilities do.
        """
        from torchmetrics.functional.classification import binary_roc  # noqa: PLC0415 (seconds)

        wanted = self.labels == number
        if wanted.all() or not wanted.any():
            return None
        others = np.logaddexp.reduce(np.delete(self.log_p, number, axis=1), axis=1)
        _, rank = np.unique(self.log_p[:, number] - others, return_inverse=True)
        score = torch.from_numpy(rank / max(rank.max(), 1))
        fpr, tpr, _ = binary_roc(score, torch.from_numpy(wanted.astype(np.int64)))
        return Curve(fpr=fpr.double(), tpr=tpr.double())

    @property
    def confusion(self) -> Numbers:
        """Counts (classes, classes): row the true class, column the one that was said."""
        classes = self.log_p.shape[1]
        pairs = self.labels * classes + self.log_p.argmax(1)
        return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)


class Scores:
    """Collects what a classifier said of faces and, from it, exact figures: of all faces, whatever the batches.

    classes: their names; a label is a place in them. Faces without a label are left out. A face that is known by its
    `row` counts once, however often it came: samplers repeat some to give every rank as many.
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)
        self._parts: list[tuple[Floats, Numbers, Numbers, Numbers, Numbers]] = []
        self._videos: dict[str, int] = {}
        self._methods: dict[str, int] = {}

    def add(
        self, logits: Tensor, labels: Tensor, video_ids: Sequence[str | None] | None = None,
        methods: Sequence[str | None] | None = None, *, rows: Tensor | None = None,
    ) -> None:  # fmt: skip
        """One batch: logits (N, classes), or (N, 1) of class 1 against class 0; integer labels (N,), below 0: unknown.

        video_ids, methods: N names, None where there is none. rows: (N,), a number that no other face has.
        Raises `UsageError` on a label that no class has.
        """
        values = _log_p(logits)
        wanted = labels.detach().cpu().numpy()
        count = len(wanted)
        if (wanted != wanted.astype(np.int64)).any():
            raise UsageError("labels are mixed: what lies between two classes cannot be scored; validate without mixup")
        if count and (wanted.max() >= len(self.classes) or values.shape[1] != len(self.classes)):
            raise UsageError(
                f"label {wanted.max()}, {values.shape[1]} logits: there are {len(self.classes)} classes, "
                f"{', '.join(self.classes)}, numbered from 0; make the classifier with the dataset's classes"
            )
        part = (
            values, wanted.astype(np.int64), _codes(self._videos, video_ids, count),
            _codes(self._methods, methods, count), np.full(count, -1) if rows is None else rows.cpu().numpy(),
        )  # fmt: skip
        kept = wanted >= 0
        self._parts.append(tuple(column[kept] for column in part))  # type: ignore[arg-type]
        self.__dict__.pop("_all", None)

    def gathered(self) -> Scores:
        """The scores of all ranks, the same on each; itself where there is one rank. All have to call it."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return self
        told: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(told, (self._joined(), list(self._videos), list(self._methods)))
        whole = Scores(self.classes)
        for (log_p, labels, videos, methods, rows), video_names, method_names in told:
            video = _renumbered(whole._videos, video_names)
            method = _renumbered(whole._methods, method_names)
            whole._parts.append((log_p, labels, video[videos], method[methods], rows))
        return whole

    def _joined(self) -> tuple[Floats, Numbers, Numbers, Numbers, Numbers]:
        none = np.empty(0, np.int64)
        empty = (np.empty((0, len(self.classes))), none, none, none, none)
        columns = zip(*self._parts, strict=True) if self._parts else ([one] for one in empty)
        return tuple(np.concatenate(column) for column in columns)  # type: ignore[return-value]

    @cached_property
    def _all(self) -> tuple[Floats, Numbers, Numbers, Numbers]:
        """Each face once: log-probabilities, labels, videos and methods."""
        *columns, rows = self._joined()
        _, first = np.unique(rows, return_index=True)
        kept = np.sort(np.concatenate([first[rows[first] >= 0], np.flatnonzero(rows < 0)]))
        return tuple(column[kept] for column in columns)

    @property
    def faces(self) -> Said:
        """What was said of every face."""
        return Said(log_p=self._all[0], labels=self._all[1])

    @property
    def videos(self) -> Said:
        """What was said of every video: the mean probability of its faces; faces without a video are left out.

        Where faces of one video have several labels, those of each count as a video of their own.
        """
        log_p, labels, video, _ = self._all
        classes, known = len(self.classes), video >= 0
        keys, of_video, faces = np.unique(
            video[known] * classes + labels[known], return_inverse=True, return_counts=True
        )
        # The logarithm of a mean of probabilities: by the largest of each video, so that none becomes 0.
        largest = np.full((len(keys), classes), -np.inf)
        np.maximum.at(largest, of_video, log_p[known])
        total = np.zeros((len(keys), classes))
        np.add.at(total, of_video, np.exp(log_p[known] - largest[of_video]))
        return Said(log_p=largest + np.log(total) - np.log(faces)[:, None], labels=keys % classes)

    def result(self) -> dict[str, float]:
        """Figures by name: auc, log_loss, accuracy of faces, the same of videos (video_auc, ...), and accuracies.

        accuracy_<class>: of faces of that class; accuracy_method_<method>: of faces that were made so. What nobody can
        say is left out: an AUC of one class, figures of videos where none is known, classes and methods without faces.
        """
        faces, videos, right = self.faces, self.videos, self.faces.right
        figures: dict[str, float] = {
            name: getattr(videos if name.startswith("video_") else faces, name.removeprefix("video_"))
            for name in FIGURES
        }
        for number, name in enumerate(self.classes):
            figures[f"accuracy_{name}"] = _mean(right[faces.labels == number])
        for name, number in sorted(self._methods.items()):
            figures[f"accuracy_method_{name}"] = _mean(right[self._all[3] == number])
        return {name: figure for name, figure in figures.items() if not math.isnan(figure)}


def _mean(values: NDArray[np.bool_]) -> float:
    return float(values.mean()) if len(values) else math.nan


def _log_p(logits: Tensor) -> Floats:
    """Log-probabilities float64 (N, classes)."""
    exact = logits.detach().cpu().double()
    if exact.shape[1] == 1:
        exact = torch.cat([torch.zeros_like(exact), exact], dim=1)
    values: Floats = torch.log_softmax(exact, dim=1).numpy()
    return values


def _codes(known: dict[str, int], names: Sequence[str | None] | None, count: int) -> Numbers:
    """Each name's number, -1 for None; new names are given the next."""
    if names is None:
        return np.full(count, -1)
    return np.array([-1 if name is None else known.setdefault(name, len(known)) for name in names], np.int64)


def _renumbered(known: dict[str, int], names: Sequence[str]) -> Numbers:
    """What each number of a rank is over all ranks; the last entry is for -1."""
    return np.append(_codes(known, names, len(names)), -1)
