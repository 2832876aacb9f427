"""How far a face is tilted, so that its square can be turned until the face is upright."""

from __future__ import annotations

import math
from typing import Final

from numpy.typing import ArrayLike

from ...errors import UsageError
from .hull import TEMPLATE5, fit_similarity

_ANCHORS: Final = tuple(
    TEMPLATE5[name][:2] for name in ("left_eye", "right_eye", "nose_tip", "left_mouth", "right_mouth")
)


def tilt_degrees(landmarks5: ArrayLike) -> float:
    """Return by how many degrees a face with landmarks (5, 2) is tilted clockwise as seen: -180 to 180, 0 is upright.

    It is the turn in the least-squares similarity that takes the mean face (`hull.TEMPLATE5`) to the landmarks: all
    five count, so that one eye that lies wrong tilts the face by little. That a head looks to the side costs at most
    one degree, since of the five only the nose stands out, and it lies as high as the middle of them.
    Where the landmarks coincide or are not finite, no tilt is known, and it is 0.
    """
    try:
        matrix = fit_similarity(_ANCHORS, landmarks5)
    except UsageError:
        return 0.0
    return math.degrees(math.atan2(matrix[1, 0], matrix[0, 0]))
