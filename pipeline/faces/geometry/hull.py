"""Convex hull of a face, forehead to chin, from five landmarks: a mean face is fitted to them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import UsageError

# The left half of the outline as the viewer sees it; the right half is its mirror image.
_LEFT_HALF: Final = {
    "jaw_0": (-1.17, 0.01, -1.00),
    "jaw_1": (-1.16, 0.32, -1.00),
    "jaw_2": (-1.13, 0.64, -0.97),
    "jaw_3": (-1.07, 0.94, -0.90),
    "jaw_4": (-0.95, 1.23, -0.78),
    "jaw_5": (-0.76, 1.48, -0.59),
    "jaw_6": (-0.54, 1.70, -0.38),
    "jaw_7": (-0.29, 1.87, -0.17),
    "cheek": (-0.70, 0.55, 0.25),
    "brow_middle": (-0.55, -0.36, 0.20),
    "brow_outer": (-0.92, -0.22, -0.50),
    "temple": (-0.95, -0.60, -0.60),
    "forehead": (-0.52, -1.05, -0.20),
}

TEMPLATE5: Final = MappingProxyType(
    {
        "left_eye": (-0.50, 0.00, 0.00),
        "right_eye": (0.50, 0.00, 0.00),
        "nose_tip": (0.00, 0.59, 0.60),
        "left_mouth": (-0.45, 1.09, 0.00),
        "right_mouth": (0.45, 1.09, 0.00),
        "chin": (0.00, 1.92, 0.10),
        "hairline": (0.00, -1.20, 0.00),
        **{f"left_{name}": point for name, point in _LEFT_HALF.items()},
        **{f"right_{name}": (-x, y, z) for name, (x, y, z) in _LEFT_HALF.items()},
    }
)
"""A mean face by named points (x right, y down, z towards the viewer); the origin lies between the eyes,
which are 1 apart.

x and y of eyes, nose tip, mouth, jaw, chin and brows: the mean of the 68-point landmarks over Labeled
Faces in the Wild as OpenFace publishes it (Amos, Ludwiczuk & Satyanarayanan 2016, CMU-CS-16-118;
`align_dlib.py`, Apache-2.0), here in other units, symmetric and rounded; an eye is the mean of six points.
The rest is our own. Depths and cheeks: rough anatomy (nose tip 4 cm before, ear 6 cm behind the eyes' plane),
adjusted on 21 public photos with 68 annotated points. Hairline, forehead and temples: the neoclassical canon
(Farkas et al. 1985) makes the upper third as high as the middle one, 1.1, and so ends at -1.4; on real
faces that reaches into the hair, so this outline ends lower.
"""

_POINTS: Final = np.array(list(TEMPLATE5.values()))
_LANDMARKS: Final = _POINTS[:5]
_OUTLINE: Final = _POINTS[5:]
# Beyond 75 degrees one eye and one mouth corner are hidden, and MTCNN's landmarks for them are guesses.
_YAWS_RADIANS: Final = np.deg2rad(np.arange(-75, 76))


def _project_at_yaw(points: NDArray[np.float64], angle_radians: float) -> NDArray[np.float64]:
    x, y, z = points.T
    return np.column_stack([x * np.cos(angle_radians) + z * np.sin(angle_radians), y])


def _landmarks_by_yaw() -> NDArray[np.complex128]:
    landmarks = np.stack([_project_at_yaw(_LANDMARKS, angle_radians) for angle_radians in _YAWS_RADIANS]) @ (1, 1j)
    landmarks -= landmarks.mean(axis=1, keepdims=True)
    unit: NDArray[np.complex128] = landmarks / np.linalg.norm(landmarks, axis=1, keepdims=True)
    return unit


# (yaws, 5) complex: centred and of unit length, so that an inner product with them is a correlation.
_LANDMARKS_BY_YAW: Final = _landmarks_by_yaw()


def fit_similarity(source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
    """Return the (2, 3) matrix of the least-squares similarity that maps `source` (N, 2) to `target` (N, 2).

    Umeyama 1991, "Least-Squares Estimation of Transformation Parameters Between Two Point Patterns", in the
    closed form for two dimensions: with points as complex numbers it is one linear regression, and a reflection
    cannot arise. Raises `UsageError` if a point is not finite or if all points of one set coincide.
    """
    points = np.asarray([source, target], np.float64)
    if not np.isfinite(points).all():
        raise UsageError(f"points={points.tolist()}: must be finite; no face can be laid over them")
    means = points.mean(axis=1, keepdims=True)
    z, w = (points - means) @ (1, 1j)
    spreads = np.abs(z).max(), np.abs(w).max()
    factor = np.vdot(z, w) / np.vdot(z, z) if min(spreads) > 0 else 0j
    if abs(factor) * spreads[0] <= 1e-6 * max(spreads[1], 1e-6):
        raise UsageError(f"points={points[1].tolist()}: must not coincide; no face can be laid over them")
    linear = np.array([[factor.real, -factor.imag], [factor.imag, factor.real]])
    return np.column_stack([linear, means[1, 0] - linear @ means[0, 0]])


def template_hull(landmarks5: ArrayLike) -> NDArray[np.float32]:
    """Return the convex hull of a face with landmarks (5, 2), as (M, 2) float32 in the same frame.

    `TEMPLATE5` is rotated about its vertical axis by `yaw_radians` and fitted to the landmarks by `fit_similarity`:
    a scaled orthographic pose (DeMenthon & Davis 1995) restricted to five unknowns, since an affine fit to five
    points squeezes profiles. The result is the hull of its outline and of the landmarks, so these lie inside.
    Vertices are in order around the face. Raises `UsageError`, a ValueError, if landmarks are not finite or coincide.
    """
    landmarks = np.asarray(landmarks5, np.float64)
    angle_radians = yaw_radians(landmarks)
    matrix = fit_similarity(_project_at_yaw(_LANDMARKS, angle_radians), landmarks)
    outline = _project_at_yaw(_OUTLINE, angle_radians) @ matrix[:, :2].T + matrix[:, 2]
    points = np.concatenate([outline, landmarks]).astype(np.float32)
    hull: NDArray[np.float32] = cv2.convexHull(points)[:, 0]
    return hull


def yaw_radians(landmarks5: ArrayLike) -> float:
    """Return the yaw of a face with landmarks (5, 2), in radians within 75 degrees of 0.

    Positive: the nose points to the right of the image. It is the angle, to one degree, at which the rotated
    template fits the landmarks with the least squared error after a similarity.
    """
    target = np.asarray(landmarks5, np.float64) @ (1, 1j)
    # The residual of the best similarity is 1 - |correlation|^2 (see `fit_similarity`).
    correlation = np.abs(_LANDMARKS_BY_YAW.conj() @ (target - target.mean()))
    return float(_YAWS_RADIANS[np.argmax(correlation)])
