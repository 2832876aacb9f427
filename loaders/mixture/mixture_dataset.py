"""`MixtureDataset`: several precomputed datasets as one `FaceDataset`."""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonpath
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from ...pipeline.dataset.index import Selection
from ...pipeline.dataset.manifest import Manifest
from ...pipeline.dataset.stores.address import is_address, without_credentials
from ...pipeline.dataset.stores.opening import StoreOptions
from ...pipeline.errors import UsageError
from ..dataset.face_dataset import FaceDataset, Transform
from ..dataset.selected_rows import Crop, SelectedRows
from ..dataset.selection import Filters, Rows
from ..dataset.store_datasets import StoreDatasets
from .mixed_index import MixedIndex
from .names import Rename

_log = logging.getLogger("facefeed.loaders")

_FRAMING = ("margin", "align")  # settings of precompute: how large a face is in its crop, and how it is turned

_Result = TypeVar("_Result")


class MixtureDataset(FaceDataset):
    """The faces of several datasets, those of the first one first; split, filters and all else are applied to each.

    `index` is a `MixedIndex`, `out` the folder that they all lie in.

    Args:
        outs: the folders, or addresses, by name.
        rename: see `names.Rename`.
        split: as for `FaceDataset`, like all others.

    Raises:
        UsageError: as `FaceDataset`, with the name of the dataset, and where labels or names cannot be mapped.
        CorruptDataError: as `FaceDataset`.

    """

    def __init__(  # not super().__init__, which opens one dataset
        self, outs: Mapping[str, str | Path], *, rename: Rename | None, split: str | None,
        image_size: int | Literal["auto"] | None, crop: Crop | None,
        face_transform: Transform | Sequence[Any] | None, transform: Transform | None, filters: Filters | None,
        frames_per_video: int | None, cache: str | Path | None, cache_bytes: int | None,
        storage_options: Mapping[str, Any] | None,
    ) -> None:  # fmt: skip
        self._init_options(
            split=split, image_size=image_size, crop=crop, face_transform=face_transform, transform=transform,
            filters=filters, frames_per_video=frames_per_video,
        )  # fmt: skip
        options = {"split": split, "crop": crop, "filters": filters, "frames_per_video": self.frames_per_video}
        store = StoreOptions.of(cache=cache, cache_bytes=cache_bytes, storage_options=storage_options)
        has_addresses = any(is_address(out) for out in outs.values())
        parts = [
            _open(name, out, **options, store=StoreOptions() if has_addresses and not is_address(out) else store)
            for name, out in outs.items()
        ]
        mixed = MixedIndex({name: part.index for name, part in zip(outs, parts, strict=True)}, rename)
        _check_filters(mixed, filters)
        images = [part.images for part in parts]
        self._init_rows(
            out=Path(commonpath([part.out for part in parts])), index=mixed,
            rows=_joined([part.rows for part in parts], mixed.offsets),
            select=_JoinedRows([part.select for part in parts], mixed.offsets),
            read_image=_ByDataset([each.image for each in images], mixed.offsets),
            read_mask=_ByDataset([each.mask for each in images], mixed.offsets),
            without_landmarks_68=[part.index.where for part in parts if not part.has_landmarks_68],
            stores=StoreDatasets.of(mixed.indexes, images),
        )  # fmt: skip
        if crop is None:
            _warn_of_framing(mixed)
        for label in mixed.labels:
            if lacking := mixed.datasets_without(label):
                _log.warning("label %r: %s has none; the same under another name? see rename=", label, lacking)


def _check_filters(index: MixedIndex, filters: Filters | None) -> None:
    """Raises `UsageError` on filters of a column that a dataset numbers or names in another way than the mixture."""
    for column, name in index.changed_columns().items():
        if filters is not None and re.search(rf"\b{column}\b", str(filters)):
            raise UsageError(
                f"filters={filters}: {column} has other {'numbers' if column == 'label' else 'names'} in {name} than "
                "in the mixture, and filters read those of each dataset; select by balance=Quotas, which goes by the "
                "mixture's names"
            )


def _warn_of_framing(index: MixedIndex) -> None:
    """Logs a warning where the crops of the datasets show faces differently, so that they can be told apart."""
    configs = [Manifest.read(out).config for out in index.outs]
    for setting in _FRAMING:
        values = [config.get(setting) for config in configs]
        if any(value != values[0] for value in values):
            _log.warning(
                "crops were stored with different --%s (%s): a network may learn the dataset by it; give crop=",
                setting, ", ".join(f"{name}: {value}" for name, value in zip(index.names, values, strict=True)),
            )  # fmt: skip


def _open(name: str, out: str | Path, **options: Any) -> SelectedRows:
    try:
        return SelectedRows.open(out, **options)
    except UsageError as error:
        raise UsageError(f"{name} ({without_credentials(out)}): {error}") from error


@dataclass(frozen=True)
class _ByDataset(Generic[_Result]):
    """A function of a row of the mixture that calls that of its dataset with its row there."""

    functions: Sequence[Callable[[int], _Result]]
    offsets: Sequence[int]

    def __call__(self, row: int) -> _Result:
        dataset = bisect_right(self.offsets, row) - 1
        return self.functions[dataset](row - self.offsets[dataset])


@dataclass(frozen=True)
class _JoinedRows:
    """Selects the rows of all datasets anew, in a process that needs them."""

    select: Sequence[Callable[[int | None], Selection]]
    offsets: Sequence[int]

    def __call__(self, frames_per_video: int | None) -> Rows:
        return _joined([select(frames_per_video) for select in self.select], self.offsets)


def _joined(parts: Sequence[Selection], offsets: Sequence[int]) -> Rows:
    return np.concatenate([np.asarray(rows) + np.uint32(offset) for rows, offset in zip(parts, offsets, strict=False)])
