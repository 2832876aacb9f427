"""The outline of a face from five points: a mean face is laid over them, forehead to chin."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, Protocol

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import UsageError
from ..detection import Faces
from ..detectors.fixed import landmarks_in_box

# The left half of the outline, as the viewer sees it; the right half is its mirror image.
_HALF: Final = {
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
        **{f"left_{name}": point for name, point in _HALF.items()},
        **{f"right_{name}": (-x, y, z) for name, (x, y, z) in _HALF.items()},
    }
)
"""A mean face by named points (x right, y down, z towards the viewer): between the eyes lies the origin,
the eyes are 1 apart.

x and y of eyes, nose tip, mouth, jaw, chin and brows: the mean of the 68-point landmarks over Labeled
Faces in the Wild as OpenFace publishes it (Amos, Ludwiczuk & Satyanarayanan 2016, CMU-CS-16-118;
`align_dlib.py`, Apache-2.0), here in other units, symmetric and rounded; an eye is the mean of six points.
The rest is ours. Depths and cheeks: rough anatomy (nose tip 4 cm before, ear 6 cm behind the eyes' plane),
settled on 21 public photos with 68 annotated points. Hairline, forehead and temples: the neoclassical canon
(Farkas et al. 1985) makes the upper third as high as the middle one, 1.1, and so ends at -1.4; over real
faces that reaches into the hair, so the outline stops short of it.
"""

_POINTS: Final = np.array(list(TEMPLATE5.values()))
_ANCHORS: Final = _POINTS[:5]
_OUTLINE: Final = _POINTS[5:]
# Past 75 degrees one eye and one mouth corner are out of sight, and MTCNN places them by guess.
_YAWS: Final = np.deg2rad(np.arange(-75, 76))


def _turned(points: NDArray[np.float64], angle: float) -> NDArray[np.float64]:
    x, y, z = points.T
    return np.column_stack([x * np.cos(angle) + z * np.sin(angle), y])


def _anchors_by_yaw() -> NDArray[np.complex128]:
    anchors = np.stack([_turned(_ANCHORS, angle) for angle in _YAWS]) @ (1, 1j)
    anchors -= anchors.mean(axis=1, keepdims=True)
    unit: NDArray[np.complex128] = anchors / np.linalg.norm(anchors, axis=1, keepdims=True)
    return unit


# (yaws, 5) complex: centred and of unit length, so that a product with them is a correlation.
_ANCHORS_BY_YAW: Final = _anchors_by_yaw()


def fit_similarity(source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
    """Return the (2, 3) matrix of the least-squares similarity that takes `source` (N, 2) to `target`.

    Umeyama 1991, "Least-Squares Estimation of Transformation Parameters Between Two Point Patterns", in the
    closed form that two dimensions allow: with points as complex numbers it is one linear regression, and
    a reflection cannot arise. Raises `UsageError` if a point is not finite or all points of a side agree.
    """
    points = np.asarray([source, target], np.float64)
    if not np.isfinite(points).all():
        raise UsageError(f"points={points.tolist()}: must be finite; no face can be laid over them")
    means = points.mean(axis=1, keepdims=True)
    z, w = (points - means) @ (1, 1j)
    spreads = np.abs(z).max(), np.abs(w).max()
    turn = np.vdot(z, w) / np.vdot(z, z) if min(spreads) > 0 else 0j
    if abs(turn) * spreads[0] <= 1e-6 * max(spreads[1], 1e-6):
        raise UsageError(f"points={points[1].tolist()}: must not coincide; no face can be laid over them")
    linear = np.array([[turn.real, -turn.imag], [turn.imag, turn.real]])
    return np.column_stack([linear, means[1, 0] - linear @ means[0, 0]])


def template_hull(landmarks5: ArrayLike) -> NDArray[np.float32]:
    """Return the convex hull of a face with landmarks (5, 2), as (M, 2) float32 in the same frame.

    `TEMPLATE5` is turned about its vertical axis by `yaw` and fitted to the landmarks by `fit_similarity`:
    a scaled orthographic pose (DeMenthon & Davis 1995) held to five unknowns, since an affine fit to five
    points squeezes profiles. The hull of its outline and of the landmarks is taken, so these lie inside.
    Vertices in order round the face. Raises `UsageError`, a ValueError, on landmarks that are not finite
    or coincide.
    """
    landmarks = np.asarray(landmarks5, np.float64)
    angle = yaw(landmarks)
    matrix = fit_similarity(_turned(_ANCHORS, angle), landmarks)
    outline = _turned(_OUTLINE, angle) @ matrix[:, :2].T + matrix[:, 2]
    points = np.concatenate([outline, landmarks]).astype(np.float32)
    hull: NDArray[np.float32] = cv2.convexHull(points)[:, 0]
    return hull


def yaw(landmarks5: ArrayLike) -> float:
    """Return how far a face with landmarks (5, 2) is turned, in radians within 75 degrees of 0.

    Positive: the nose points to the right of the image. It is the angle, to one degree, at which the
    turned template fits the landmarks with the least squared error once a similarity is allowed.
    """
    target = np.asarray(landmarks5, np.float64) @ (1, 1j)
    # The error that the best similarity leaves is 1 - |correlation|^2 (see `fit_similarity`).
    correlation = np.abs(_ANCHORS_BY_YAW.conj() @ (target - target.mean()))
    return float(_YAWS[np.argmax(correlation)])


class Landmarker(Protocol):
    """Outlines the faces of a frame; the seam for a dense landmarker that the user brings.

    An implementer promises: deterministic, picklable, one hull for every face in the order given, and no
    exception for any `Faces`.
    """

    @property
    def name(self) -> str:
        """What stands in the column `hull_method`; another model or setting has another name."""
        ...

    def __call__(self, rgb: NDArray[np.uint8], faces: Faces) -> list[NDArray[np.float32]]:
        """Return a convex hull (M, 2) float32, M >= 3, `frame` px, for each face of a frame (H, W, 3)."""
        ...


class TemplateLandmarker:
    """The shipped default: `template_hull` of the five landmarks, without a look at the pixels.

    Deterministic, picklable, thread-safe. Where landmarks coincide, the box's typical ones stand in.
    """

    name = "template5"

    def __call__(self, rgb: NDArray[np.uint8], faces: Faces) -> list[NDArray[np.float32]]:  # noqa: ARG002
        """Return a hull (M, 2) float32, `frame` px, for each face."""
        typical = landmarks_in_box(faces.boxes_xyxy)
        return [_hull_or(given, usual) for given, usual in zip(faces.landmarks, typical, strict=True)]


def _hull_or(landmarks: NDArray[np.float32], typical: NDArray[np.float32]) -> NDArray[np.float32]:
    try:
        return template_hull(landmarks)
    except UsageError:
        pass
    try:
        return template_hull(typical)
    except UsageError:  # a box without area: one pixel is the least that has an inside
        pixel: NDArray[np.float32] = typical[:1] + np.array([(0, 0), (1, 0), (1, 1), (0, 1)], np.float32)
        return pixel
