"""How a face's points follow one transform of Albumentations: all of them, in order, also out of the frame.

What would lose, multiply or bend points there (its source is that of `internals.VERSION`), and is corrected here:

- `Affine`, `Rotate`, `Pad` and crops that pad, with a reflecting border, hand back every mirror image of a point, and
  drop some: here the points go where the image itself goes.
- `ElasticTransform`, `GridDistortion` and their kin draw dots of whole pixels and look for them again, or clip points
  to the frame: here their map is inverted, to a fraction of a pixel.
- `GridElasticDeform` clips points to the frame, `RandomGridShuffle` warns of those outside: these stay as they are.
- What resizes multiplies points by the scale alone, which holds only from the first pixel's corner: here they are
  counted from there meanwhile.
- Dropouts remove points in holes where the user's own `keypoint_params` say so: not a face's.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...pipeline.errors import UsageError
from .albumentations_internals import WITHIN_FRAME, scales_about_corner, without_losses
from .points import HALF_PX

_COARSE_PX: Final = 8
_STEPS: Final = 10
_CLOSE_PX: Final = 0.01
_FLAT: Final = 0.05  # a map that shrinks areas more than twentyfold is taken for this steep


class Follower:
    """One transform, as the face's points see it: called as `transform.apply_to_keypoints`, (N, 5) in and out.

    Raises `UsageError` where the transform does not give one point for each.
    """

    def __init__(self, transform: Any) -> None:
        self._transform = transform

    def __call__(self, points: NDArray[np.float32], **params: Any) -> NDArray[np.float32]:
        """Where the points come to lie; `params` are those that the image is transformed by."""
        if "map_x" in params:
            return _through_map(points, params["map_x"], params["map_y"])
        within = None
        if any(name in params for name in WITHIN_FRAME):
            height, width = params["shape"][:2]
            within = ((points[:, :2] >= 0) & (points[:, :2] < (width, height))).all(axis=1)
            if not within.any():
                return points
        transform = without_losses(self._transform)
        given = points if within is None else points[within]
        corner = HALF_PX * scales_about_corner(transform)
        moved = np.asarray(transform.apply_to_keypoints(_shifted(given, corner), **params), np.float32)
        if moved.shape != given.shape:
            raise UsageError(
                f"{type(transform).__name__}: makes {len(moved)} points of {len(given)}, so a face cannot follow it; "
                "leave it out of FaceCompose, or apply it after, to the image alone"
            )
        moved = _shifted(moved, -corner)
        if within is None:
            return moved
        followed = points.copy()
        followed[within] = moved
        return followed


def _shifted(points: NDArray[np.float32], px: np.float32) -> NDArray[np.float32]:
    if not px:
        return points
    moved = points.copy()
    moved[:, :2] += px
    return moved


def _through_map(
    points: NDArray[np.float32], map_x: NDArray[np.floating[Any]], map_y: NDArray[np.floating[Any]]
) -> NDArray[np.float32]:
    """Where points (N, 5) come to lie in an image that is drawn by `out[q] = in[map(q)]`: q with map(q) = point.

    Newton's method from the nearest place of a coarse grid; the best of its steps is kept, so that a fold in the map
    does no harm. Beyond the frame the map goes on as at its edge.
    """
    grid = np.dstack([map_x, map_y]).astype(np.float32)
    height, width = grid.shape[:2]
    wanted = points[:, :2]
    rows, columns = np.arange(0, height, _COARSE_PX), np.arange(0, width, _COARSE_PX)
    coarse = grid[::_COARSE_PX, ::_COARSE_PX].reshape(-1, 2)
    nearest = ((wanted[:, None] - coarse) ** 2).sum(axis=2).argmin(axis=1)
    at = np.column_stack([columns[nearest % len(columns)], rows[nearest // len(columns)]]).astype(np.float32)
    best, least = at, np.full(len(at), np.inf, np.float32)
    for _ in range(_STEPS):
        error = _looked_up(grid, at) - wanted
        size = np.hypot(*error.T)
        better = size < least
        best, least = np.where(better[:, None], at, best), np.where(better, size, least)
        if least.max() < _CLOSE_PX:
            break
        at = at - _newton(grid, at, error)
    followed = points.copy()
    followed[:, :2] = best
    return followed


def _newton(grid: NDArray[np.float32], at: NDArray[np.float32], error: NDArray[np.float32]) -> NDArray[np.float32]:
    """The step (N, 2) that a linear map would need, at most a grid's cell long."""
    right, below = np.eye(2) / 2
    across = _looked_up(grid, at + right) - _looked_up(grid, at - right)
    down = _looked_up(grid, at + below) - _looked_up(grid, at - below)
    determinant = across[:, 0] * down[:, 1] - across[:, 1] * down[:, 0]
    determinant = np.where(np.abs(determinant) < _FLAT, _FLAT, determinant)
    x = (error[:, 0] * down[:, 1] - error[:, 1] * down[:, 0]) / determinant
    y = (error[:, 1] * across[:, 0] - error[:, 0] * across[:, 1]) / determinant
    step: NDArray[np.float32] = np.clip(np.column_stack([x, y]), -_COARSE_PX, _COARSE_PX).astype(np.float32)
    return step


def _looked_up(grid: NDArray[np.float32], at: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """The map (H, W, 2) at positions (N, 2), between pixels by bilinear interpolation, past the edge by shifting."""
    inside = np.clip(at, 0, (grid.shape[1] - 1, grid.shape[0] - 1)).astype(np.float32)
    low = np.minimum(inside.astype(np.intp), (grid.shape[1] - 2, grid.shape[0] - 2))
    x, y = low.T
    u, v = (inside - low).astype(np.float32).T[..., None]
    above = grid[y, x] * (1 - u) + grid[y, x + 1] * u
    below = grid[y + 1, x] * (1 - u) + grid[y + 1, x + 1] * u
    value: NDArray[np.float32] = above * (1 - v) + below * v + (at - inside)
    return value
