"""The columns of a batch besides its images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...pipeline.dataset.index_like import IndexLike
from ...pipeline.dataset.reserved_names import CLIP_COLUMNS, DATASET_COLUMN
from ...pipeline.dataset.schema import real_class
from ...pipeline.errors import UsageError
from ..face import Face

POINT_COLUMNS = ("landmarks", "hull", "regions", "landmarks_68")

_ROUNDING = 1e-3  # by which the values of a mask may be outside 0..1

_WHOSE_FIELD = {
    **dict.fromkeys(CLIP_COLUMNS, ", but a field of clips; give clip=Clip(frames=16)"),
    DATASET_COLUMN: ", but a field of several datasets, FaceDataLoader(['ffpp', 'dfdc'], ...)",
}
"""How messages end on fields that other loaders have."""


def check_fields(fields: tuple[str, ...], index: IndexLike, further: Sequence[str] = ()) -> None:
    """Raises `UsageError` where a name is no column and none of `further` ones, or "image" is missing."""
    known = ("image", "row", "mask", *further, *index.schema.names)
    if unknown := [name for name in fields if name not in known]:
        there = index.hints(unknown[0]) or _WHOSE_FIELD.get(unknown[0]) or f"; there are {', '.join(known)}"
        raise UsageError(f"fields: {unknown[0]!r} is no column{there}")
    if "image" not in fields:
        raise UsageError("fields: must name 'image'; for columns alone read OUT/faces with pyarrow")


def real_label(labels: Sequence[str]) -> int:
    """The number of the `real_class`; of labels without one, the first.

    >>> real_label(["swap", "Pristine"]), real_label(["bona fide", "attack"])
    (1, 0)
    """
    return real_class(labels) or 0


def collate_masks(
    faces: list[Face], labels: NDArray[np.int64], real: int | None, size: tuple[int, ...], mask_size: int | None = None
) -> Any:
    """Masks of a batch: float32 (N, H, W), 0..1; 0 for faces of the label `real` that have none, NaN for others.

    With a `mask_size`, (N, mask_size, mask_size): the mean of each cell's pixels, those that it shares by their share.

    `labels`: as stored. `size`: (H, W) of the images. Raises `UsageError` where a mask has another size or values that
    are no shares, or is smaller than `mask_size`.
    """
    if mask_size is not None and mask_size > min(size):
        raise UsageError(
            f"mask_size={mask_size}: the mask has {size[1]} x {size[0]} px, as its image, and cells would be parts of "
            f"pixels; give at most {min(size)}"
        )
    is_real = np.zeros(len(labels), np.bool_) if real is None else labels == real
    cells = size if mask_size is None else (mask_size, mask_size)
    masks = np.where(is_real, np.float32(0), np.float32(np.nan))[:, None, None] + np.zeros(cells, np.float32)
    for mask, face in zip(masks, faces, strict=True):
        if face.mask is None:
            continue
        if face.mask.shape != size:
            raise UsageError(
                f"fields: a mask is {face.mask.shape[1]} x {face.mask.shape[0]} px, its image {size[1]} x {size[0]}; "
                "give what moves pixels to face_transform, so that the mask follows"
            )
        low, high = face.mask.min(), face.mask.max()
        if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):
            raise UsageError(
                f"fields: a mask has values from {low:g} to {high:g} after the transforms: must be 0..1, the "
                "manipulated share of each pixel; change colours of the image alone, and return no mask of 0 and 255"
            )
        mask[:] = face.mask if mask_size is None else _cell_means(face.mask, mask_size)
    return masks


def _cell_means(mask: NDArray[Any], cells: int) -> NDArray[np.float32]:
    """The mean of each cell of a mask (H, W), float32 (cells, cells), 0..1."""
    means: NDArray[np.float32] = cv2.resize(mask.astype(np.float32), (cells, cells), interpolation=cv2.INTER_AREA)
    return means.clip(0, 1)  # rounding, which a loss may refuse


def collate_column(index: IndexLike, name: str, rows: list[int], faces: list[Face]) -> Any:
    """One column for all rows of a batch: numbers, lists of one length and points as arrays, strings as a list.

    Points are in pixels of the transformed images; NaN for `landmarks_68`, lists and floats that are null. `row` is the
    number of the row in the index.
    """
    if name in POINT_COLUMNS:
        return _collate_points(name, faces)
    if name == "row":
        return np.array(rows)
    kind = index.schema.field(name).type
    if pa.types.is_integer(kind):
        numbers = index.numbers(name, rows)
        return numbers if numbers.dtype == np.uint64 else numbers.astype(np.int64)
    if pa.types.is_floating(kind):
        return index.numbers(name, rows)
    if pa.types.is_fixed_size_list(kind):
        return index.vectors(name, rows)
    return [index.value(name, row) for row in rows]


def _collate_points(name: str, faces: list[Face]) -> Any:
    if name == "landmarks":
        return np.stack([face.landmarks for face in faces])
    if name == "landmarks_68":
        nothing = np.full((68, 2), np.nan, np.float32)
        return np.stack([face.landmarks_68 if len(face.landmarks_68) else nothing for face in faces])
    if name == "hull":
        return [face.hull.copy() for face in faces]
    return {part: np.stack([face.regions[part] for face in faces]) for part in faces[0].regions}


def by_clip(column: Any, frames: int) -> Any:
    """A column of N x T images as one of N clips: arrays (N, T, ...), lists of N lists of T."""
    if isinstance(column, dict):
        return {name: by_clip(values, frames) for name, values in column.items()}
    if isinstance(column, list):
        return [column[start : start + frames] for start in range(0, len(column), frames)]
    return column.reshape(-1, frames, *column.shape[1:])
