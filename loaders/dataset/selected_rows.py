"""`SelectedRows`: the rows of one dataset that a loader reads, whose stored crops hold what its images show."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from ...pipeline.dataset.crops import black_parts, check_coverage, crop_protocol
from ...pipeline.dataset.index import Index, Selection
from ...pipeline.dataset.open_dataset import open_dataset
from ...pipeline.dataset.stored_images import StoredImages
from ...pipeline.dataset.stores.address import is_address
from ...pipeline.dataset.stores.opening import StoreOptions, open_store
from ...pipeline.errors import UsageError
from .. import validation
from .selection import Filters, classes_lost_to_nulls, select_rows

_log = logging.getLogger("facefeed.loaders")

Crop = str | Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SelectedRows:
    """Some rows of one dataset. out: its folder; of one in a store, that of its manifest and index in the cache. index:
    of all of its rows. images: theirs. rows: as `select` computes them from `frames_per_video`, which
    another process can do anew.
    """

    out: Path
    index: Index
    images: StoredImages
    rows: Selection
    select: Callable[[int | None], Selection]

    @classmethod
    def open(
        cls,
        out: Any,
        *,
        split: str | None,
        crop: Crop | None,
        filters: Filters | None,
        frames_per_video: int | None,
        store: StoreOptions,
    ) -> Self:
        """Opens a dataset and selects rows; the arguments, and what it raises, are those of `FaceDataset`.

        Logs a warning where a few of the rows lack a part of what the `crop` protocol shows, and where filters leave
        no row of a label since a column is null there.
        """
        path, index, images = _open(out, store)
        select = partial(select_rows, index, split, filters)
        rows = select(frames_per_video)
        for warning in classes_lost_to_nulls(index, split, filters, rows):
            _log.warning(warning)
        if crop is not None:
            is_missing = check_coverage(
                crop_protocol(crop), index, rows, setting=f"crop={crop!r}",
                alternative="give a crop with a smaller margin, or none",
            )  # fmt: skip
            if count := int(is_missing.sum()):
                _log.warning("crop=%r: %s", crop, black_parts(count, len(rows)))
        return cls(out=path, index=index, images=images, rows=rows, select=select)

    @property
    def has_landmarks_68(self) -> bool:
        """Whether the rows have `landmarks_68`."""
        return "landmarks_68" in self.index.schema.names


def _open(out: Any, store: StoreOptions) -> tuple[Path, Index, StoredImages]:
    """Opens a dataset in a folder, or at an address of a store."""
    if is_address(out):
        opened = open_store(out, store)
        return opened.folder, opened.index, StoredImages(opened.index, opened.reader)
    path = validation.require_dataset_folder(out).resolve()
    if store != StoreOptions():
        raise UsageError(
            f"dataset={str(out)!r}: is a folder, and cache, cache_bytes and storage_options are for addresses; leave "
            f"them out, or give 'file://{path}' to read the folder through a cache"
        )
    _, index = open_dataset(path)
    return path, index, StoredImages(index)
