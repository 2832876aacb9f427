"""`Face`: the pixels and points of one row."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import cv2
import numpy as np
from numpy.typing import NDArray

BOX_CORNERS = np.array([0, 1, 2, 1, 2, 3, 0, 3])
"""Indices into a box xyxy: x, y of each corner, clockwise."""

_VISIBLE_SHARE = 1 / 255  # of a blending mask: less changes no pixel

_NO_PIXELS = np.empty((0, 0, 3), np.uint8)
_NO_POINTS = np.empty((0, 2), np.float32)


@dataclass(frozen=True, kw_only=True)
class Face:
    """One crop and its geometry, all in pixels of the crop: x right, y down, 0 at the corner of the first pixel.

    image: uint8 (H, W, 3), RGB. landmarks: float32 (5, 2), left and right eye, nose, left and right mouth corner, as
    the viewer sees them. hull: float32 (M, 2). regions: name -> float32 (4,), xyxy. mask: uint8 (H, W), 1 where a
    fake differs from its source; None where the row has none. landmarks_68: float32 (68, 2), or (0, 2) where the row
    has none. label: position in the dataset's labels, -1 unknown, a fraction after mixup; None where nobody gave one.
    jpeg: uint8 (size,), the image as it is stored, where a device decodes it and `image` shows nothing; else None.
    manipulated: the `manipulated_share` of the mask that `FaceXRay` turned into an X-ray; None where it did not.
    """

    image: NDArray[np.uint8]
    landmarks: NDArray[np.float32]
    hull: NDArray[np.float32]
    regions: dict[str, NDArray[np.float32]]
    mask: NDArray[np.uint8] | None = None
    landmarks_68: NDArray[np.float32] = field(default_factory=lambda: _NO_POINTS)
    label: float | None = None
    jpeg: NDArray[np.uint8] | None = None
    manipulated: float | None = None

    @classmethod
    def from_image(cls, image: NDArray[np.uint8]) -> Self:
        """A face of pixels alone, where the points are not needed."""
        return cls(image=image, landmarks=_NO_POINTS, hull=_NO_POINTS, regions={})

    @classmethod
    def from_jpeg(cls, jpeg: NDArray[np.uint8]) -> Self:
        """A face of a JPEG alone, where the points are not needed."""
        return cls(image=_NO_PIXELS, landmarks=_NO_POINTS, hull=_NO_POINTS, regions={}, jpeg=jpeg)

    def without_pixels(self) -> Self:
        """The face without its pixels, decoded or not, and mask."""
        return replace(self, image=_NO_PIXELS, mask=None, jpeg=None)

    def resized(self, side_px: int, *, into: NDArray[np.uint8] | None = None) -> Face:
        """The face resized to a square of `side_px`, its pixels in `into` if they fit; itself if it has that size."""
        height, width = self.image.shape[:2]
        size = (side_px, side_px)
        if (height, width) == size:
            return self
        mask = None if self.mask is None else resize_mask(self.mask, size)
        return replace(self, image=resize_image(self.image, side_px, into), mask=mask).scaled_from(width, height)

    def scaled_from(self, width_px: int, height_px: int) -> Face:
        """The face with points scaled from a crop of that width and height to the present image."""
        height, width = self.image.shape[:2]
        scale = np.array([width / width_px, height / height_px], np.float32)
        box_scale = np.tile(scale, 2)
        return replace(
            self,
            landmarks=self.landmarks * scale,
            hull=self.hull * scale,
            regions={name: box * box_scale for name, box in self.regions.items()},
            landmarks_68=self.landmarks_68 * scale,
        )

    def __repr__(self) -> str:
        """Shapes, not data."""
        mask = None if self.mask is None else self.mask.shape
        return f"Face(image={self.image.shape}, hull={self.hull.shape}, regions={sorted(self.regions)}, mask={mask})"


def resize_image(image: NDArray[np.uint8], side_px: int, into: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """Resizes RGB uint8 (H, W, 3) to (side_px, side_px, 3), in `into` if it fits; returns an image of that size as is.

    Bilinear; area averaging where it shrinks to less than half.
    """
    if image.shape[:2] == (side_px, side_px):
        return image
    interpolation = cv2.INTER_AREA if image.shape[0] > 2 * side_px else cv2.INTER_LINEAR
    target = into if into is not None and into.shape == (side_px, side_px, 3) else None
    result: NDArray[np.uint8] = cv2.resize(image, (side_px, side_px), dst=target, interpolation=interpolation)
    return result


def resize_mask(mask: NDArray[np.uint8], size: tuple[int, ...]) -> NDArray[np.uint8]:
    """Resizes a mask (H, W) of 0 and 1 to another (height, width), nearest neighbour.

    It stays where `resize_image` puts the image, but for a quarter of a pixel where the size is halved: the centre of
    a new pixel then lies between stored ones. OpenCV's plain INTER_NEAREST would move it by half a pixel.
    """
    scaled: NDArray[np.uint8] = cv2.resize(mask, (size[1], size[0]), interpolation=cv2.INTER_NEAREST_EXACT)
    return scaled


def manipulated_share(mask: NDArray[np.uint8] | NDArray[np.float32]) -> float:
    """Share of a face's pixels that its mask, of 0 and 1 or soft, says are changed: 0..1."""
    return float((mask >= _VISIBLE_SHARE).mean())


FACE_FIELDS = ("image", "landmarks", "hull", "regions", "mask")
"""What every face transform takes and returns; `landmarks_68` as well where the rows have them."""
