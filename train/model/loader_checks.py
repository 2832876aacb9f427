"""Checks that batches of a `FaceDataLoader` mean the same to a classifier as to the loader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...loaders import FaceDataLoader
from ...loaders.batching.batch_dataset import BatchDataset
from ...loaders.mixture.mixed_index import as_mixed
from ...pipeline.dataset.reserved_names import DATASET_COLUMN
from ...pipeline.dataset.schema import real_class
from ...pipeline.dataset.stores.address import without_credentials
from ...pipeline.errors import UsageError


def check_labels(loader: Any, classes: Sequence[str], *, is_training: bool) -> None:
    """Raises `UsageError` where a label in a loader's rows is the number of another class; accepts other loaders.

    Names that the classes do not have fit any of them, but the real class. A `collate_fn` may renumber labels, so
    loaders with one are accepted.
    """
    dataset = _face_dataset(loader)
    if dataset is None or dataset.collate_fn is not None:
        return
    labels, known = tuple(dataset.labels), tuple(classes)
    if labels == known[: len(labels)]:
        return
    places = {name: place for place, name in enumerate(known)}
    if (real := real_class(labels)) is not None and (known_real := real_class(known)) is not None:
        places[labels[real]] = known_real
    present = np.unique(dataset.index.numbers("label", dataset.rows)).tolist()
    if any(places.get(labels[label], label) != label for label in present if label >= 0):
        remedy = "renumber the labels in a collate_fn, or measure by `facefeed evaluate`, which matches names"
        if is_training:
            remedy = f"make the classifier with classes={labels}, or renumber the labels in a collate_fn"
        raise UsageError(
            f"classes={known}: the labels of {without_credentials(dataset.out)} are {labels}, and a label is a place "
            f"among them, so faces would count as another class; {remedy}"
        )


def check_videos(loader: Any) -> None:
    """Raises `UsageError` on a mixture whose batches name videos and not their datasets; accepts other loaders.

    `video_id` is the dataset's own there: only where two datasets use one name for two videos.
    """
    dataset = _face_dataset(loader)
    mixed = None if dataset is None else as_mixed(dataset.index)
    fields = loader.fields or () if mixed is not None else ()
    if mixed is None or "video_id" not in fields or DATASET_COLUMN in fields:
        return
    names = [{*index.categories("video_id")} for index in mixed.indexes]
    if sum(map(len, names)) > len(set[str]().union(*names)):
        raise UsageError(
            f"fields={tuple(fields)}: videos of equal names in different datasets of the mixture would be measured as "
            f"one; add {DATASET_COLUMN!r} to fields, or leave 'video_id' out"
        )


def _face_dataset(loader: Any) -> BatchDataset | None:
    """Returns the dataset of a `FaceDataLoader`; None of another loader."""
    dataset = loader.dataset if isinstance(loader, FaceDataLoader) else None
    return dataset if isinstance(dataset, BatchDataset) else None
