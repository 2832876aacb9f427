"""Applies one transform of Albumentations to a face's points: keeps all of them, in order, also outside the frame.

Albumentations (its source at `albumentations_internals.VERSION`) drops, multiplies or distorts points in these cases,
which are corrected here:

- `Affine`, `Rotate`, `Pad` and crops that pad, with a reflecting border, return every mirror image of a point, and drop
  some: here each point moves as the image itself does.
- `ElasticTransform`, `GridDistortion` and similar ones draw points as pixels and search for them in the result, or clip
  points to the frame: here their map is inverted with subpixel precision.
- `GridElasticDeform` clips points to the frame, `RandomGridShuffle` warns of those outside: these stay unchanged.
- Resizing multiplies points by the scale alone, which is correct only for coordinates from the first pixel's corner:
  here they are converted to these before and back after. `RandomScale`, `LongestMaxSize` and `SmallestMaxSize`
  bring the image's sides, and not its points, to whole px.
- Dropouts remove points in holes if the user's `keypoint_params` say so: never a face's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...pipeline.errors import UsageError
from .albumentations_internals import FRAME_ONLY_PARAMS, preserving_all_points, scales_about_corner, size_correction
from .points import HALF_PX
from .sampling_map import invert_map


def transform_points(transform: Any, points: NDArray[np.float32], /, **params: Any) -> NDArray[np.float32]:
    """Applies a transform of Albumentations to points (N, 5), in place of its `apply_to_keypoints`.

    `params` are the parameters that the image is transformed with. Raises `UsageError` where the transform does not
    return one point for each.
    """
    if "map_x" in params:
        return invert_map(points, params["map_x"], params["map_y"])
    in_frame = None
    if any(name in params for name in FRAME_ONLY_PARAMS):
        height, width = params["shape"][:2]
        in_frame = ((points[:, :2] >= 0) & (points[:, :2] < (width, height))).all(axis=1)
        if not in_frame.any():
            return points
    transform = preserving_all_points(transform)
    source = points if in_frame is None else points[in_frame]
    corner_offset = HALF_PX * scales_about_corner(transform)
    moved = np.asarray(transform.apply_to_keypoints(_shifted(source, corner_offset), **params), np.float32)
    if moved.shape != source.shape:
        raise UsageError(
            f"{type(transform).__name__}: makes {len(moved)} points of {len(source)}, so a face cannot follow it; "
            "leave it out of FaceCompose, or apply it after, to the image alone"
        )
    if (correction := size_correction(transform, params)) != (1.0, 1.0):
        moved[:, :2] *= correction
    moved = _shifted(moved, -corner_offset)
    if in_frame is None:
        return moved
    result = points.copy()
    result[in_frame] = moved
    return result


def _shifted(points: NDArray[np.float32], offset_px: np.float32) -> NDArray[np.float32]:
    if not offset_px:
        return points
    moved = points.copy()
    moved[:, :2] += offset_px
    return moved
