"""In-plane rotation (roll) of a face, by which its crop square is rotated so that the face is upright."""

from __future__ import annotations

import math
from typing import Final

from numpy.typing import ArrayLike

from ...errors import UsageError
from .hull import TEMPLATE5, fit_similarity

_TEMPLATE_LANDMARKS: Final = tuple(
    TEMPLATE5[name][:2] for name in ("left_eye", "right_eye", "nose_tip", "left_mouth", "right_mouth")
)


def tilt_degrees(landmarks5: ArrayLike) -> float:
    """Return the roll of a face with landmarks (5, 2), clockwise as seen, in degrees: -180 to 180, 0 is upright.

    It is the rotation of the least-squares similarity that maps the mean face (`hull.TEMPLATE5`) to the landmarks. All
    five landmarks count, so one misplaced eye changes it little. Yaw changes it by at most one degree, since only the
    nose lies out of the plane of the others, and at their mean height.
    Returns 0 if the landmarks coincide or are not finite.
    """
    try:
        matrix = fit_similarity(_TEMPLATE_LANDMARKS, landmarks5)
    except UsageError:
        return 0.0
    return math.degrees(math.atan2(matrix[1, 0], matrix[0, 0]))
