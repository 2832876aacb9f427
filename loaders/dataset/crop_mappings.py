"""Images from stored crops: the whole crop resized, or the image of a crop protocol, cut in one warp.

Both convert pixels, points and mask of a row from px of the stored crop to px of the image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.crops import CropProtocol, FaceGeometry
from ...pipeline.dataset.crops.geometry import Affine, between_pixel_centres
from ...pipeline.dataset.index_like import IndexLike
from ..face import BOX_CORNERS, Face, resize_image, resize_mask
from .decode import filled_px

_MIN_WARP_SCALE = 0.5  # bilinear interpolation skips pixels below


class CropMapping(Protocol):
    """Conversion of the stored crop of one row to its image."""

    @property
    def min_side_px(self) -> int | None:
        """The smallest side at which the crop may be decoded, px; None: its full size only."""

    @property
    def needed_rows(self) -> tuple[int, int] | None:
        """Start and end of the px rows of the stored crop that its image shows; None: all."""

    @property
    def to_image(self) -> Affine | None:
        """Maps px of the stored crop to px of its image, float64 (2, 3); None: the whole crop, resized."""

    def image(self, crop: NDArray[np.uint8], into: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
        """The image, uint8 (H, W, 3), of a decoded crop; in `into` if it fits."""

    def points(self, face: Face) -> Face:
        """The face, whose points are in px of the stored crop, with points in px of its image."""

    def mask(self, mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The mask, uint8 (H, W) of 0 and 1, of the image."""


class CropMappings(Protocol):
    """The crop mappings of a dataset's rows."""

    def __call__(self, row: int) -> CropMapping:
        """The crop mapping of a row of the index."""

    def prepare(self, rows: Sequence[int]) -> None:
        """Computes those of a batch in one vectorised call and keeps them until the next call."""


def crop_mappings_of(index: IndexLike, protocol: CropProtocol | None, image_size: int | None) -> CropMappings:
    """The crop mappings of all rows: of the whole crop if `protocol` is None, else of the protocol's image.

    `image_size`: side of the images, px; None: that of the crop, or of the protocol.
    """
    if protocol is None:
        return _WholeCrops(index, image_size)
    return _ProtocolCrops(index, protocol, image_size or protocol.size_px)


@dataclass(frozen=True, slots=True)
class _WholeCrops:
    index: IndexLike
    side_px: int | None

    def __call__(self, row: int) -> CropMapping:
        return WholeCrop(int(self.index.number("width", row)), int(self.index.number("height", row)), self.side_px)

    def prepare(self, rows: Sequence[int]) -> None:
        """See `CropMappings`: there is nothing to compute."""


@dataclass(slots=True)
class _ProtocolCrops:
    index: IndexLike
    protocol: CropProtocol
    side_px: int
    _prepared: dict[int, CropMapping] = field(default_factory=dict)

    def __call__(self, row: int) -> CropMapping:
        return self._prepared.get(row) or self._compute([row])[row]

    def prepare(self, rows: Sequence[int]) -> None:
        """See `CropMappings`."""
        self._prepared = self._compute(rows)

    def _compute(self, rows: Sequence[int]) -> dict[int, CropMapping]:
        to_images = self.protocol.from_stored(FaceGeometry.of_rows(self.index, rows))
        to_images *= self.side_px / self.protocol.size_px
        widths = self.index.numbers("width", rows).tolist()
        crops = [ProtocolCrop(*parts, self.side_px) for parts in zip(to_images, widths, strict=True)]
        return dict(zip(rows, crops, strict=True))


@dataclass(frozen=True, slots=True)
class WholeCrop:
    """A whole stored crop, `width_px` x `height_px`, resized to `side_px`; None: not resized."""

    width_px: int
    height_px: int
    side_px: int | None = None

    @property
    def min_side_px(self) -> int | None:
        """See `CropMapping`."""
        return self.side_px

    @property
    def needed_rows(self) -> None:
        """See `CropMapping`."""
        return

    @property
    def to_image(self) -> None:
        """See `CropMapping`."""
        return

    def image(self, crop: NDArray[np.uint8], into: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
        """See `CropMapping`. Bilinear; area averaging where it shrinks to less than half."""
        if self.side_px is None:
            return crop
        if filled_px(self.width_px, crop.shape[1]) == crop.shape[1]:
            return resize_image(crop, self.side_px, into)
        to_image = np.array([[self.side_px / self.width_px, 0, 0], [0, self.side_px / self.height_px, 0]])
        return ProtocolCrop(to_image, self.width_px, self.side_px).image(crop, into)

    def points(self, face: Face) -> Face:
        """See `CropMapping`."""
        is_resized = self.side_px is not None and (self.height_px, self.width_px) != (self.side_px, self.side_px)
        return face.scaled_from(self.width_px, self.height_px) if is_resized else face

    def mask(self, mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """See `CropMapping`. Nearest neighbour."""
        size = (self.height_px, self.width_px) if self.side_px is None else (self.side_px, self.side_px)
        return mask if mask.shape == size else resize_mask(mask, size)


@dataclass(frozen=True, slots=True, eq=False)
class ProtocolCrop:
    """The image of a crop protocol: `to_image`, float64 (2, 3), maps px of a stored crop of `stored_px` to its px.

    What lies beyond the stored crop is black.
    """

    to_image: Affine
    stored_px: int
    side_px: int

    @property
    def min_side_px(self) -> int | None:
        """See `CropMapping`."""
        return max(1, math.ceil(_scale_of(self.to_image) * self.stored_px))

    @property
    def needed_rows(self) -> tuple[int, int] | None:
        """See `CropMapping`. All of a crop that is averaged by area."""
        if _scale_of(self.to_image) < _MIN_WARP_SCALE:
            return None
        rows, _ = self._needed_part((self.stored_px, self.stored_px), self.to_image)
        return rows.start, rows.stop

    def image(self, crop: NDArray[np.uint8], into: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
        """See `CropMapping`. Bilinear; a crop that shrinks to less than half is averaged by area first."""
        filled = filled_px(self.stored_px, crop.shape[0])
        to_image = self._from(filled)
        if (scale := _scale_of(to_image)) < _MIN_WARP_SCALE:
            side = max(1, round(crop.shape[0] * scale))
            to_image = self._from(filled * side / crop.shape[0])
            crop = cv2.resize(crop, (side, side), interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False)
        rows, columns = self._needed_part(crop.shape[:2], to_image)
        (a, b, across), (c, d, down) = to_image.tolist()
        x, y = columns.start + 0.5, rows.start + 0.5  # OpenCV counts from pixel centres
        moved = np.array([[a, b, a * x + b * y + across - 0.5], [c, d, c * x + d * y + down - 0.5]])
        size = (self.side_px, self.side_px)
        target = into if into is not None and into.shape == (*size, 3) else None
        # OpenCV warps four channels in less than half of the time of three.
        warped = cv2.warpAffine(cv2.cvtColor(crop[rows, columns], cv2.COLOR_RGB2RGBA), moved, size)
        image: NDArray[np.uint8] = cv2.cvtColor(warped, cv2.COLOR_RGBA2RGB, dst=target)
        return image

    def _needed_part(self, size: tuple[int, int], to_image: Affine) -> tuple[slice, slice]:
        """The px rows and columns of a crop of `size` (height, width) that its image shows, at least 1 x 1 px."""
        (a, b, across), (c, d, down) = to_image.tolist()
        area = (a * d - b * c) or math.inf
        ends = [(x - across, y - down) for x in (0, self.side_px) for y in (0, self.side_px)]
        xs = [(d * x - b * y) / area for x, y in ends]
        ys = [(a * y - c * x) / area for x, y in ends]
        height, width = size
        return _clipped(min(ys), max(ys), height), _clipped(min(xs), max(xs), width)

    def points(self, face: Face) -> Face:
        """See `CropMapping`. A region becomes the bounding box of its moved corners."""
        boxes = np.array([*face.regions.values()], np.float32).reshape(-1, 4)
        parts = [face.landmarks, boxes[:, BOX_CORNERS].reshape(-1, 2), face.hull, face.landmarks_68]
        moved = (np.concatenate(parts) @ self.to_image[:, :2].T + self.to_image[:, 2]).astype(np.float32)
        landmarks, corners, hull, landmarks_68 = np.split(moved, np.cumsum([len(part) for part in parts[:3]]))
        corners = corners.reshape(-1, 4, 2)
        boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
        regions = dict(zip(face.regions, boxes, strict=True))
        return replace(face, landmarks=landmarks, hull=hull, regions=regions, landmarks_68=landmarks_68)

    def mask(self, mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """See `CropMapping`. Nearest neighbour; 0 beyond the stored crop."""
        to_image = between_pixel_centres(self._from(mask.shape[0]))
        size = (self.side_px, self.side_px)
        return cv2.warpAffine(mask, to_image, size, flags=cv2.INTER_NEAREST)  # type: ignore[no-any-return]

    def _from(self, side_px: float) -> Affine:
        """The map to the image from the stored crop, resized to `side_px`."""
        if side_px == self.stored_px:
            return self.to_image
        return np.column_stack([self.to_image[:, :2] * (self.stored_px / side_px), self.to_image[:, 2]])


def _clipped(first: float, last: float, length: int) -> slice:
    """The px from `first` to `last`, and a border for interpolation, within 0 .. `length`."""
    start = min(max(math.floor(first) - 2, 0), length - 1)
    return slice(start, max(min(math.ceil(last) + 2, length), start + 1))


def _scale_of(to_image: Affine) -> float:
    """Image px per crop px: the square root of the determinant of the map."""
    (a, b, _), (c, d, _) = to_image.tolist()
    return math.sqrt(abs(a * d - b * c))
