"""Columns of the index as arrays of all rows, one at a time: ten million numbers take 40 MB, and no loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...dataset.index import Index
from ...dataset.schema import SPLITS
from ..formatting import short

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Measure:
    """Something that is measured of every face. `column`: of the index; `of`: its values from the column's cells.

    Shares are kept as 0 to 1; `unit` is what people read.
    """

    key: str
    name: str
    unit: str
    about: str
    column: str
    of: Callable[[pa.Array], Floats]

    @property
    def title(self) -> str:
        """Its name with the unit."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def scale(self) -> int:
        """What a value is multiplied by to be in the unit."""
        return 100 if self.unit == "%" else 1

    def told(self, value: float) -> str:
        """One value in the unit, but without it."""
        return short(self.scale * value)

    def values(self, index: Index) -> Floats:
        """Float32 (rows,), NaN where it is not known."""
        return _joined(index, self.column, self.of, np.float32)


def _floats(cells: pa.Array) -> Floats:
    return np.from_dlpack(cells.fill_null(np.nan)).astype(np.float32, copy=False)


def _integers(cells: pa.Array) -> NDArray[Any]:
    return np.from_dlpack(cells)


def _shorter_side(cells: pa.Array) -> Floats:
    boxes_xyxy = np.from_dlpack(cells.flatten()).astype(np.float32, copy=False).reshape(-1, 4)
    side: Floats = (boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]).min(axis=1)
    return side


FACE: Final = Measure("face_px", "face size", "px", "shorter side of the detector's box in the frame", "box_xyxy",
                      _shorter_side)  # fmt: skip
CROP: Final = Measure("crop_px", "crop size", "px", "side of the stored crop", "width",
                      lambda cells: _integers(cells).astype(np.float32))  # fmt: skip
SCORE: Final = Measure("score", "score", "", "the detector's confidence, 0 to 1", "score", _floats)
SHARPNESS: Final = Measure("sharpness", "sharpness", "", "variance of the Laplacian; compare crops of one size only",
                           "sharpness", _floats)  # fmt: skip
MANIPULATED: Final = Measure("manipulated", "manipulated", "%", "share of the crop that differs from the source's same "
                             "frame", "manipulated", _floats)  # fmt: skip
MEASURES: Final = (FACE, CROP, SCORE, SHARPNESS, MANIPULATED)


def numbers(index: Index, name: str) -> NDArray[Any]:
    """A column of integers, (rows,)."""
    return _joined(index, name, _integers, np.int64)


def codes(index: Index, name: str) -> NDArray[np.int32]:
    """A column of strings as positions in `index.names(name)`: int32 (rows,), -1 where null."""
    return _joined(index, name, lambda cells: np.from_dlpack(cells.indices.fill_null(-1)), np.int32)


def _joined(index: Index, name: str, view: Callable[[pa.Array], NDArray[Any]], kind: Any) -> NDArray[Any]:
    parts = [view(batch.column(0)) for batch in index.batches([name])]
    return np.concatenate(parts) if parts else np.empty(0, kind)


def split_codes(index: Index) -> NDArray[np.int8]:
    """Each row's split as a position in `SPLITS`: int8 (rows,)."""
    places = np.array([SPLITS.index(name) for name in index.names("split")], np.int8)
    found: NDArray[np.int8] = places[codes(index, "split")] if len(places) else np.empty(0, np.int8)
    return found
