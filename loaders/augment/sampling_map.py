"""Inverts a map by which an image is warped: where a point of the input lies in the output."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_GRID_STEP_PX: Final = 8
_MAX_NEWTON_STEPS: Final = 10
_TOLERANCE_PX: Final = 0.01
_MIN_DETERMINANT: Final = 0.05  # a map that shrinks areas more than twentyfold is treated as this steep


def invert_map(
    points: NDArray[np.float32], map_x: NDArray[np.floating[Any]], map_y: NDArray[np.floating[Any]]
) -> NDArray[np.float32]:
    """Positions of points (N, 2 or more) in an image drawn by `out[q] = in[map(q)]`: the q with map(q) = point.

    Newton's method from the nearest node of a coarse grid; the iterate with the smallest error is returned, so a fold
    in the map does no harm. Outside the frame the map is extrapolated from its edge.
    """
    sampling_map = np.dstack([map_x, map_y]).astype(np.float32)
    height, width = sampling_map.shape[:2]
    targets = points[:, :2]
    rows, columns = np.arange(0, height, _GRID_STEP_PX), np.arange(0, width, _GRID_STEP_PX)
    coarse = sampling_map[::_GRID_STEP_PX, ::_GRID_STEP_PX].reshape(-1, 2)
    nearest = ((targets[:, None] - coarse) ** 2).sum(axis=2).argmin(axis=1)
    at = np.column_stack([columns[nearest % len(columns)], rows[nearest // len(columns)]]).astype(np.float32)
    best, best_error = at, np.full(len(at), np.inf, np.float32)
    for _ in range(_MAX_NEWTON_STEPS):
        residual = _interpolate(sampling_map, at) - targets
        error = np.hypot(*residual.T)
        improved = error < best_error
        best, best_error = np.where(improved[:, None], at, best), np.where(improved, error, best_error)
        if best_error.max() < _TOLERANCE_PX:
            break
        at = at - _newton_step(sampling_map, at, residual)
    result = points.copy()
    result[:, :2] = best
    return result


def _newton_step(
    sampling_map: NDArray[np.float32], at: NDArray[np.float32], residual: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The Newton step (N, 2), px, from central differences; each component at most one grid step."""
    half_x, half_y = np.eye(2) / 2
    d_dx = _interpolate(sampling_map, at + half_x) - _interpolate(sampling_map, at - half_x)
    d_dy = _interpolate(sampling_map, at + half_y) - _interpolate(sampling_map, at - half_y)
    determinant = d_dx[:, 0] * d_dy[:, 1] - d_dx[:, 1] * d_dy[:, 0]
    determinant = np.where(np.abs(determinant) < _MIN_DETERMINANT, _MIN_DETERMINANT, determinant)
    x = (residual[:, 0] * d_dy[:, 1] - residual[:, 1] * d_dy[:, 0]) / determinant
    y = (residual[:, 1] * d_dx[:, 0] - residual[:, 0] * d_dx[:, 1]) / determinant
    step: NDArray[np.float32] = np.clip(np.column_stack([x, y]), -_GRID_STEP_PX, _GRID_STEP_PX).astype(np.float32)
    return step


def _interpolate(sampling_map: NDArray[np.float32], at: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """The map (H, W, 2) at positions (N, 2): bilinear inside, extrapolated with slope 1 outside."""
    inside = np.clip(at, 0, (sampling_map.shape[1] - 1, sampling_map.shape[0] - 1)).astype(np.float32)
    low = np.minimum(inside.astype(np.intp), (sampling_map.shape[1] - 2, sampling_map.shape[0] - 2))
    x, y = low.T
    u, v = (inside - low).astype(np.float32).T[..., None]
    above = sampling_map[y, x] * (1 - u) + sampling_map[y, x + 1] * u
    below = sampling_map[y + 1, x] * (1 - u) + sampling_map[y + 1, x + 1] * u
    value: NDArray[np.float32] = above * (1 - v) + below * v + (at - inside)
    return value
