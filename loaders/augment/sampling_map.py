"""Inverts a map by which an image is warped: where a point of the input lies in the output."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_GRID_STEP_PX: Final = 8
_MISSED_BY_PX: Final = 0.5  # a larger error, and the search started in a fold, or in the wrong part of the map
_MAX_NEWTON_STEPS: Final = 10
_TOLERANCE_PX: Final = 0.01
_MIN_DETERMINANT: Final = 0.05  # a map that shrinks areas more than twentyfold is treated as this steep


def invert_map(
    points: NDArray[np.float32], map_x: NDArray[np.floating[Any]], map_y: NDArray[np.floating[Any]]
) -> NDArray[np.float32]:
    """Positions of points (N, 2 or more) in an image drawn by `out[q] = in[map(q)]`: the q with map(q) = point.

    Newton's method from the nearest node of a coarse grid; where that misses the point, as beside a fold of the map,
    from the nearest pixel. The iterate with the smallest error is returned. Outside the frame the map is extrapolated
    from its edge.
    """
    sampling_map = np.dstack([map_x, map_y]).astype(np.float32)
    result = points.copy()
    result[:, :2], error = _search(sampling_map, points[:, :2], _nearest_node(sampling_map, points, _GRID_STEP_PX))
    for missed in np.flatnonzero(error > _MISSED_BY_PX):  # one by one: each compares all pixels
        point = points[missed : missed + 1, :2]
        found, smaller = _search(sampling_map, point, _nearest_node(sampling_map, point, 1))
        if smaller[0] < error[missed]:
            result[missed, :2] = found[0]
    return result


def _nearest_node(sampling_map: NDArray[np.float32], points: NDArray[np.float32], step_px: int) -> NDArray[np.float32]:
    """The nodes of a grid, x and y of (N, 2), that the map takes from nearest to the points."""
    nodes = sampling_map[::step_px, ::step_px]
    nearest = ((points[:, None, :2] - nodes.reshape(-1, 2)) ** 2).sum(axis=2).argmin(axis=1)
    rows, columns = np.divmod(nearest, nodes.shape[1])
    return (step_px * np.column_stack([columns, rows])).astype(np.float32)


def _search(
    sampling_map: NDArray[np.float32], targets: NDArray[np.float32], at: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Newton's method from `at`, (N, 2): the best iterates, and by how many px each misses its target, (N,)."""
    best, best_error = at, np.full(len(at), np.inf, np.float32)
    for _ in range(_MAX_NEWTON_STEPS):
        residual = _interpolate(sampling_map, at) - targets
        error = np.hypot(*residual.T)
        improved = error < best_error
        best, best_error = np.where(improved[:, None], at, best), np.where(improved, error, best_error)
        if best_error.max() < _TOLERANCE_PX:
            break
        at = at - _newton_step(sampling_map, at, residual)
    return best, best_error


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
