"""The columns of a batch besides its images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...pipeline.dataset.index import Index
from ...pipeline.errors import UsageError
from ..face import Face

POINT_COLUMNS = ("landmarks", "hull", "regions", "landmarks_68")


def check_fields(fields: tuple[str, ...], index: Index) -> None:
    """Raises `UsageError` where a name is no column, or "image" is missing."""
    known = ("image", "row", *index.schema.names)
    if unknown := [name for name in fields if name not in known]:
        raise UsageError(f"fields: {unknown[0]!r} is no column; there are {', '.join(known)}")
    if "image" not in fields:
        raise UsageError("fields: must name 'image'; for columns alone read OUT/faces with pyarrow")


def collate_column(index: Index, name: str, rows: list[int], faces: list[Face]) -> Any:
    """One column for all rows of a batch: numbers, points and boxes as arrays, strings as a list.

    Points are in pixels of the transformed images; NaN for `landmarks_68` that are null. `row` is the number of the
    row in the index.
    """
    if name in POINT_COLUMNS:
        return _collate_points(name, faces)
    if name == "row":
        return np.array(rows)
    kind = index.schema.field(name).type
    if pa.types.is_integer(kind):
        return index.numbers(name, rows).astype(np.int64)
    if pa.types.is_floating(kind):
        return index.numbers(name, rows)
    values = [index.value(name, row) for row in rows]
    return np.array(values, np.float32) if pa.types.is_fixed_size_list(kind) else values


def _collate_points(name: str, faces: list[Face]) -> Any:
    if name == "landmarks":
        return np.stack([face.landmarks for face in faces])
    if name == "landmarks_68":
        nothing = np.full((68, 2), np.nan, np.float32)
        return np.stack([face.landmarks_68 if len(face.landmarks_68) else nothing for face in faces])
    if name == "hull":
        return [face.hull.copy() for face in faces]
    return {part: np.stack([face.regions[part] for face in faces]) for part in faces[0].regions}


def mixup_labels(labels: NDArray[np.int64], own_shares: list[float]) -> NDArray[np.float32]:
    """Soft labels, float32 (N,): `own_share * label + (1 - own_share) * label before it`."""
    share, soft = np.array(own_shares, np.float32), labels.astype(np.float32)
    return share * soft + (1 - share) * np.roll(soft, 1)
