"""`defined_metrics`: which metrics the faces of a dataset have, from its index alone."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ...loaders import FaceDataset
from .eval_metrics import EvalMetrics


def defined_metrics(dataset: FaceDataset) -> list[str]:
    """Returns the names that `EvalMetrics.result` would have for all faces of `dataset`; empty without known labels."""
    index, rows = dataset.index, dataset.rows
    columns = index.numbers("label", rows), index.codes("video_id", rows), index.codes("method", rows)
    labels, videos, methods = np.unique(np.stack(columns).astype(np.int64), axis=1)  # as of one face each
    metrics = EvalMetrics(dataset.labels)
    metrics.add(
        torch.zeros(len(labels), len(dataset.labels)), torch.from_numpy(labels),
        _names(index.categories("video_id"), videos), _names(index.categories("method"), methods),
    )  # fmt: skip
    return list(metrics.result())


def _names(categories: list[str], codes: NDArray[np.int64]) -> list[str | None]:
    return [None if code < 0 else categories[code] for code in codes]
