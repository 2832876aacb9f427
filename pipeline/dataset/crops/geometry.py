"""`FaceGeometry`: where the faces of some rows lie in their frames, and where their stored crops were cut.

All points are counted from the corner of the first pixel, x right, y down. An affine map is float64 (2, 3) and maps the
column (x, y, 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..index_like import IndexLike

Affine = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FaceGeometry:
    """Faces of N rows.

    boxes_xyxy: float64 (N, 4), frame px. landmarks: float64 (N, 5, 2), frame px. frame_sizes: float64 (N, 2), width
    and height of the frame, px. crop_sides: float64 (N,), frame px, of the square that was stored. to_stored: float64
    (N, 2, 3), from frame px to stored crop px.
    """

    boxes_xyxy: NDArray[np.float64]
    landmarks: NDArray[np.float64]
    frame_sizes: NDArray[np.float64]
    crop_sides: NDArray[np.float64]
    to_stored: Affine

    @classmethod
    def of_rows(cls, index: IndexLike, rows: ArrayLike) -> Self:
        """Geometry of `rows` (N,) of the index."""
        crops = index.boxes("crop_xyxy", rows).astype(np.float64)
        sides = crops[:, 2] - crops[:, 0]
        scales = index.numbers("width", rows) / sides
        to_stored = _to_stored(crops[:, :2], sides, np.radians(index.numbers("crop_degrees", rows)), scales)
        landmarks = index.landmarks(rows).astype(np.float64)
        sizes = [index.numbers(f"frame_{name}", rows) for name in ("width", "height")]
        return cls(
            boxes_xyxy=index.boxes("box_xyxy", rows).astype(np.float64), landmarks=apply(inverse(to_stored), landmarks),
            frame_sizes=np.stack(sizes, axis=1).astype(np.float64), crop_sides=sides, to_stored=to_stored,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.boxes_xyxy)


def _to_stored(
    corners: NDArray[np.float64], sides: NDArray[np.float64], radians: NDArray[np.float64], scales: NDArray[np.float64]
) -> Affine:
    """From frame px to stored crop px: rotated back about the centre of the square, then scaled."""
    cosine, sine = np.cos(radians), np.sin(radians)
    rotation = np.stack([np.stack([cosine, sine], axis=-1), np.stack([-sine, cosine], axis=-1)], axis=-2)
    half = np.repeat(sides[:, None] / 2, 2, axis=1)
    shift = half - np.einsum("nij,nj->ni", rotation, corners + half)
    to_stored: Affine = scales[:, None, None] * np.concatenate([rotation, shift[:, :, None]], axis=2)
    return to_stored


def apply(maps: Affine, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Maps points (N, M, 2) by affine maps (N, 2, 3), or all by one (2, 3)."""
    return points @ np.swapaxes(maps[..., :2], -1, -2) + maps[..., None, :, 2]


def compose(second: Affine, first: Affine) -> Affine:
    """The map that applies `first`, then `second`; both (..., 2, 3)."""
    linear = second[..., :2] @ first[..., :2]
    shift = second[..., :2] @ first[..., 2:] + second[..., 2:]
    return np.concatenate([linear, shift], axis=-1)


def inverse(maps: Affine) -> Affine:
    """The inverse of each map (..., 2, 3)."""
    linear = np.linalg.inv(maps[..., :2])
    return np.concatenate([linear, -linear @ maps[..., 2:]], axis=-1)


def between_pixel_centres(maps: Affine) -> Affine:
    """Maps (..., 2, 3) from pixel centres to pixel centres, as OpenCV counts, of ones from corners to corners."""
    linear, half = maps[..., :2], np.full((2, 1), 0.5)
    return np.concatenate([linear, linear @ half + maps[..., 2:] - half], axis=-1)
