"""The similarity transform between two sets of points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_MIN_SCALE = 1e-3


def fit_similarity(source: NDArray[Any], target: NDArray[Any]) -> NDArray[np.float64] | None:
    """The (2, 3) matrix that maps points (N, 2) to others (N, 2); None where either ones coincide or are not finite.

    Least-squares similarity over the points as complex numbers (Umeyama 1991): rotation, scale, translation, no
    reflection.
    """
    z, w = np.asarray(source, np.float64) @ (1, 1j), np.asarray(target, np.float64) @ (1, 1j)
    source_centre, target_centre = z.mean(), w.mean()
    z, w = z - source_centre, w - target_centre
    variance = np.vdot(z, z).real
    if not variance > 0 or not np.isfinite(variance):
        return None
    rotation = np.vdot(z, w) / variance  # scaled
    if not abs(rotation) > _MIN_SCALE or not np.isfinite(rotation):
        return None
    shift = target_centre - rotation * source_centre
    return np.array([(rotation.real, -rotation.imag, shift.real), (rotation.imag, rotation.real, shift.imag)])
