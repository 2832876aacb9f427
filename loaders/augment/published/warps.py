"""Transforms that move the whole face by a similarity: `LandmarkJitter`, `MouthCrop`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from ....pipeline.errors import UsageError
from ..base import GeometricTransform, Matrix, require_at_least
from ..points import FacePoints
from ..similarity import fit_similarity

_DEFAULT_NOISE: Final = 0.04
_DEFAULT_SIZE_PX: Final = 96

STANDARD_SIDE_PX: Final = 256
"""Side of the frame to which LipForensics warps faces before it cuts the mouth out."""

STABLE_POINTS: Final = (33, 36, 39, 42, 45)
"""Of the 68 points those that LipForensics aligns by: below the nose, and the corners of the eyes."""

MEAN_FACE: Final = np.array([(128.87, 137.30), (92.52, 94.37), (112.77, 94.94), (145.53, 94.53), (166.68, 93.57)])
"""`STABLE_POINTS` of LRW's mean face, px of the standard frame."""

_MEAN_LANDMARKS: Final = np.array(
    [(102.07, 94.27), (156.36, 93.58), (128.27, 127.70), (107.17, 157.20), (152.19, 156.99)]
)
_MEAN_MOUTH: Final = np.array([129.31, 157.82])
_MOUTH_POINTS: Final = slice(48, 68)


class Warp(GeometricTransform):
    """Base class: moves image, mask and points by the `matrix` that a subclass returns.

    `_border`: OpenCV's mode for what lies outside the image.
    """

    reads_mask = False
    allowed_in_clips = True
    _border: int = cv2.BORDER_CONSTANT

    def get_params_dependent_on_data(self, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
        """`matrix` (2, 3) from the image's pixel centres to those of an image of `size` (H, W); None: no change."""
        height, width = params["shape"][:2]
        matrix, size = self.matrix(self.face(data), (height, width))
        return {"matrix": matrix, "size": size}

    @abstractmethod
    def matrix(self, face: FacePoints, size: tuple[int, int]) -> tuple[Matrix | None, tuple[int, int]]:
        """The matrix for an image of `size` (H, W), or None, and the size of the result."""

    def apply(
        self,
        img: NDArray[np.uint8],
        matrix: Matrix | None,
        size: tuple[int, int],
        interpolation: int = cv2.INTER_LINEAR,
        **params: Any,  # noqa: ARG002
    ) -> NDArray[np.uint8]:
        """The warped image."""
        if matrix is None:
            return img
        warped: NDArray[np.uint8] = cv2.warpAffine(
            img, matrix, size[::-1], flags=interpolation, borderMode=self._border
        )
        return warped

    def apply_to_mask(
        self,
        mask: NDArray[np.uint8],
        matrix: Matrix | None,
        size: tuple[int, int],
        **params: Any,  # noqa: ARG002
    ) -> NDArray[np.uint8]:
        """The warped mask; a binary one by nearest-neighbour interpolation, so it stays binary."""
        return self.apply(mask, matrix, size, cv2.INTER_NEAREST if mask.dtype == np.uint8 else cv2.INTER_LINEAR)


class LandmarkJitter(Warp):
    """Aligns the face as if its five landmarks had been detected with errors: a small similarity of everything.

    Each landmark is displaced by Gaussian noise; image, mask and points are warped by the similarity transform that
    maps the displaced landmarks to the true ones. What lies outside the image is mirrored. `noise`: the standard
    deviation of each coordinate, as a fraction of the distance between the eyes; detectors err by about 0.04.
    """

    _border = cv2.BORDER_REFLECT_101

    def __init__(self, noise: float = _DEFAULT_NOISE, p: float = 0.5) -> None:
        super().__init__(p=p)
        self.noise = require_at_least(0, "noise", noise, suggestion=_DEFAULT_NOISE)

    def matrix(self, face: FacePoints, size: tuple[int, int]) -> tuple[Matrix | None, tuple[int, int]]:
        """The similarity from the displaced landmarks to the true ones; None where landmarks coincide."""
        landmarks = face.landmarks
        eye_distance = np.hypot(*(landmarks[1] - landmarks[0]))
        displaced = landmarks + self.random_generator.normal(0, 1, landmarks.shape) * (self.noise * eye_distance)
        return fit_similarity(displaced, landmarks), size


class MouthCrop(Warp):
    """The mouth of an aligned face, as LipForensics cuts it out.

    The face is warped to LRW's mean face in a frame of 256 px by the similarity of five stable points, the corners of
    the eyes and one below the nose; then a square of `size_px` around the mean of the mouth's points, moved into the
    frame, is cut out: one warp of the image. What the stored crop lacks is black.

    Needs `landmarks_68`, by `facefeed precompute --landmarks mesh` or `facefeed add OUT landmarks`. A face that has
    none, as its landmark score is too low, is aligned by its five landmarks.

    Source: Haliassos et al., "Lips Don't Lie" (CVPR 2021) and its code (github.com/ahaliassos/LipForensics), which
    averages the points over 12 frames of the video first; here each frame has its own.
    """

    needs_landmarks_68 = True

    def __init__(self, size_px: int = _DEFAULT_SIZE_PX, p: float = 1.0) -> None:
        super().__init__(p=p)
        self.size_px = int(require_at_least(2, "size_px", size_px, suggestion=_DEFAULT_SIZE_PX))
        if self.size_px != size_px or self.size_px > STANDARD_SIDE_PX:
            raise UsageError(f"size_px={size_px}: must be a whole number of at most {STANDARD_SIDE_PX}; try 96")

    def matrix(self, face: FacePoints, size: tuple[int, int]) -> tuple[Matrix | None, tuple[int, int]]:  # noqa: ARG002
        """The alignment with the mean face, moved so that the mouth is in the centre."""
        if not face.is_dense:
            raise self.missing_landmarks_68()
        points = face.landmarks_68
        matrix = (
            fit_similarity(points[list(STABLE_POINTS)], MEAN_FACE)
            if len(points)
            else fit_similarity(face.landmarks, _MEAN_LANDMARKS)
        )
        if matrix is None:  # landmarks that coincide: no face to align
            matrix = np.array([(1.0, 0, 0), (0, 1.0, 0)])
        mouth = points[_MOUTH_POINTS].mean(axis=0) @ matrix[:, :2].T + matrix[:, 2] if len(points) else _MEAN_MOUTH
        half = self.size_px // 2
        centre = np.rint(np.clip(mouth, half, STANDARD_SIDE_PX - half))
        matrix[:, 2] -= centre - half
        return matrix, (self.size_px, self.size_px)
