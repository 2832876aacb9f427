"""Columns of the index as arrays over all rows, and the measures that are computed from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...dataset.index import Index
from ...dataset.schema import SPLITS, real_class
from ..formatting import compact_number

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Measure:
    """A quantity measured of every face. `column`: its column in the index, which may be missing there; `compute`: its
    values from the cells.

    Fractions have values from 0 to 1 and are displayed in the `unit` %.
    """

    key: str
    name: str
    unit: str
    description: str
    column: str
    compute: Callable[[pa.Array], Floats]

    @property
    def title(self) -> str:
        """The name with the unit."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def scale(self) -> int:
        """Factor that converts a value to the unit."""
        return 100 if self.unit == "%" else 1

    def format_value(self, value: float) -> str:
        """A value as text, in the unit but without its name."""
        return compact_number(self.scale * value)

    def batches(self, index: Index) -> Iterator[Floats]:
        """float32 (rows,), of added columns float64; NaN where unknown; batch by batch of the index."""
        if self.column in index.schema.names:
            return _batches(index, self.column, self.compute)
        return (np.full(len(labels), np.nan, np.float32) for labels in _batches(index, "label", _to_integers))

    def values(self, index: Index) -> Floats:
        """Those of all batches (rows,)."""
        return _joined(self.batches(index), np.float32)


def _to_floats(cells: pa.Array) -> Floats:
    return np.from_dlpack(cells.fill_null(np.nan)).astype(np.float32, copy=False)


def _to_doubles(cells: pa.Array) -> Floats:
    values = np.from_dlpack(cells.cast(pa.float64(), safe=False).fill_null(np.nan))
    # Quantiles and histograms are computed from differences, which are infinite between larger values.
    return np.where(np.abs(values) < np.finfo(np.float64).max / 2, values, np.nan)


def _to_integers(cells: pa.Array) -> NDArray[Any]:
    return np.from_dlpack(cells)


def _shorter_side(cells: pa.Array) -> Floats:
    boxes_xyxy = np.from_dlpack(cells.flatten()).astype(np.float32, copy=False).reshape(-1, 4)
    side: Floats = (boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]).min(axis=1)
    return side


def _yaw(cells: pa.Array) -> Floats:
    known = np.asarray(cells.is_valid())
    degrees = np.full(len(cells), np.nan, np.float32)
    degrees[known] = np.from_dlpack(cells.drop_null().flatten()).reshape(-1, 3)[:, 0]
    return degrees


FACE_SIZE: Final = Measure(
    "face_px", "face size", "px", "shorter side of the detector's box in the frame", "box_xyxy", _shorter_side
)
CROP_SIZE: Final = Measure(
    "crop_px",
    "crop size",
    "px",
    "side of the stored crop",
    "width",
    lambda cells: _to_integers(cells).astype(np.float32),
)
SCORE: Final = Measure("score", "score", "", "the detector's confidence, 0 to 1", "score", _to_floats)
SHARPNESS: Final = Measure(
    "sharpness", "sharpness", "", "variance of the Laplacian; compare crops of one size only", "sharpness", _to_floats
)
MANIPULATED: Final = Measure(
    "manipulated",
    "manipulated",
    "%",
    "share of the crop that differs from the source's same frame, or that the set's own mask marks",
    "manipulated",
    _to_floats,
)
LANDMARK_SCORE: Final = Measure(
    "landmark_score", "landmark score", "", "the dense landmarker's confidence, 0 to 1", "landmark_score", _to_floats
)
YAW: Final = Measure("yaw", "yaw", "°", "where the nose points: positive to the right of the image", "pose", _yaw)
MEASURES: Final = (FACE_SIZE, CROP_SIZE, SCORE, LANDMARK_SCORE, SHARPNESS, YAW, MANIPULATED)
"""Those whose column a dataset lacks have no values."""


def measures_of(index: Index) -> tuple[Measure, ...]:
    """`MEASURES`, and one for each other added column of numbers."""
    known, keys = {measure.column for measure in MEASURES}, {measure.key for measure in MEASURES}
    fields = [
        field
        for field in index.added_fields
        if field.name not in known and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
    ]
    names = [f"added:{field.name}" if field.name in keys else field.name for field in fields]
    return MEASURES + tuple(
        Measure(name, field.name, "", "an added column", field.name, _to_doubles)
        for name, field in zip(names, fields, strict=True)
    )


def integer_column(index: Index, name: str) -> NDArray[Any]:
    """A column of integers as an array (rows,)."""
    return _joined(_batches(index, name, _to_integers), np.int64)


def code_column(index: Index, name: str) -> NDArray[np.int32]:
    """A column of strings as indices into `index.categories(name)`: int32 (rows,), -1 where null."""
    return _joined(_batches(index, name, lambda cells: np.from_dlpack(cells.indices.fill_null(-1))), np.int32)


def _batches(index: Index, name: str, convert: Callable[[pa.Array], NDArray[Any]]) -> Iterator[NDArray[Any]]:
    return (convert(batch.column(0)) for batch in index.batches([name]))


def _joined(batches: Iterator[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    parts = list(batches)
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def has_segments(index: Index) -> Iterator[NDArray[np.bool_]]:
    """Whether each row is of a video that is fake in part, batch by batch: none where no video can be."""
    if "fake_segments" not in index.schema.names:
        return iter(())
    return _batches(index, "fake_segments", lambda cells: np.asarray(cells.is_valid(), np.bool_))


def real_faces(index: Index) -> NDArray[np.bool_]:
    """Whether each row has the label of the real class, also as a moment of a video that is fake in part: bool (rows,).

    Where no class is known to be real, no row has.
    """
    return _joined(real_face_batches(index), np.bool_)


def real_face_batches(index: Index) -> Iterator[NDArray[np.bool_]]:
    """`real_faces`, batch by batch."""
    real = real_class(index.labels)
    label = len(index.labels) if real is None else real
    return (labels == label for labels in _batches(index, "label", _to_integers))


def manipulation_of_fakes(index: Index) -> Floats:
    """`MANIPULATED` of each row, NaN for `real_faces`: nothing was to differ there."""
    return statistic_values(MANIPULATED, index)


def statistic_values(measure: Measure, index: Index) -> Floats:
    """`statistic_batches` of all rows."""
    return _joined(statistic_batches(measure, index), np.float32)


def statistic_batches(measure: Measure, index: Index) -> Iterator[Floats]:
    """The values of a measure that statistics are made of: of `MANIPULATED`, those of `manipulation_of_fakes`."""
    if measure is not MANIPULATED:
        return measure.batches(index)
    batches = zip(real_face_batches(index), measure.batches(index), strict=True)
    return (np.where(is_real, np.float32(np.nan), values) for is_real, values in batches)


def split_codes(index: Index, rows: NDArray[np.integer]) -> NDArray[np.int8]:
    """The split of each of these rows as an index into `SPLITS`: int8 (rows,)."""
    code_of_name = np.array([SPLITS.index(name) for name in index.categories("split")], np.int8)
    if not len(code_of_name):
        return np.empty(0, np.int8)
    splits: NDArray[np.int8] = code_of_name[index.codes("split", rows)]
    return splits
