"""Checks that batches of a `FaceDataLoader` mean the same to a classifier as to the loader."""

from __future__ import annotations

from typing import Any

from ...loaders import FaceDataLoader
from ...loaders.mixture.mixed_index import as_mixed
from ...pipeline.dataset.reserved_names import DATASET_COLUMN
from ...pipeline.errors import UsageError


def check_videos(loader: Any) -> None:
    """Raises `UsageError` on a mixture whose batches name videos and not their datasets; accepts other loaders.

    `video_id` is the dataset's own there, and two datasets may use one name for two videos.
    """
    if not isinstance(loader, FaceDataLoader) or as_mixed(loader.dataset.index) is None:
        return
    fields = loader.fields or ()
    if "video_id" in fields and DATASET_COLUMN not in fields:
        raise UsageError(
            f"fields={tuple(fields)}: videos of equal names in different datasets of the mixture would be measured as "
            f"one; add {DATASET_COLUMN!r} to fields, or leave 'video_id' out"
        )
