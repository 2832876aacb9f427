"""Own masks: what a set itself says was manipulated, as a video or images beside each fake, black where nothing was.

FaceForensics++ (Rössler et al. 2019) and DeepFakeDetection publish a mask video for each fake, once for all grades of
compression. What it shows depends on the method: a white rectangle (Deepfakes: all that Poisson editing touched), a
white quadrilateral or outline with soft edges (DeepFakeDetection), or the face model rendered in grey with its shading
(Face2Face, NeuralTextures). It is encoded lossily, so black is not quite black beside an edge.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from ..faces.geometry.crop import CropSquare
from ..video import Frame
from .mask import ManipulationMask
from .source_frames import has_same_aspect

THRESHOLD: Final = 24
"""Least value, 0 to 255, of the brightest channel of a manipulated pixel.

Above what H.264 leaves beside an edge, below the shadows of a rendered face: in the masks that FaceForensics++ shows as
examples, encoded at crf 0 to 28, it finds the pixels that were not black with an IoU of 1.000 (Deepfakes), 0.998
(NeuralTextures) and 0.936 (DeepFakeDetection, of whose soft edges it leaves out the darkest pixels).
"""
METHOD: Final = f"own-{THRESHOLD}"
"""Name of the method and its threshold, for a job's config."""

_MEMORY_BYTES: Final = 64 << 20
_COMPRESSION_LEVEL: Final = 1  # zlib; a mask is a few areas, any level makes it small


@dataclass(frozen=True, slots=True)
class _StoredMask:
    offset: int
    size_bytes: int
    height: int
    width: int


class OwnMaskFrames:
    """The mask frames of one input, one bit a pixel; beyond 64 MiB in an unnamed file in `folder`. Not thread-safe.

    `matches`: the index of the mask's frame for each of the input's frame indices; see `frame_matching.match_frames`.
    `brightest`: largest value of any channel so far, 0 to 255. `num_other_shape`: how many of the input's frames have a
    mask of another aspect ratio, of those that `for_frame` was asked for.
    """

    def __init__(self, folder: Path, matches: Mapping[int, int]) -> None:
        self._matches = matches
        self._needed_indices = frozenset(matches.values())
        self._file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES, dir=str(folder))  # noqa: SIM115 (`discard` closes it)
        self._stored: dict[int, _StoredMask] = {}
        self.brightest = self.num_other_shape = 0

    @property
    def needed_indices(self) -> list[int]:
        """Indices of the mask's frames that match a frame of the input, ascending."""
        return sorted(self._needed_indices)

    @property
    def num_absent(self) -> int:
        """Number of needed frames that were not added."""
        return len(self._needed_indices) - len(self._stored)

    def add(self, mask_frame: Frame) -> None:
        """Stores a frame of the mask if it is needed, reduced to manipulated or not."""
        if mask_frame.frame_index not in self._needed_indices:
            return
        brightness = _brightest_channel(mask_frame.rgb)
        self.brightest = max(self.brightest, int(brightness.max()))
        data = zlib.compress(np.packbits(brightness >= THRESHOLD).data, _COMPRESSION_LEVEL)
        offset = self._file.seek(0, 2)
        self._file.write(data)
        stored = _StoredMask(offset, len(data), mask_frame.height, mask_frame.width)
        self._stored[mask_frame.frame_index] = stored

    def for_frame(self, frame: Frame) -> NDArray[np.uint8] | None:
        """The mask of a frame of the input at its size: (H, W, 3) uint8, white where manipulated, else black.

        None where there is none, or one of another aspect ratio.
        """
        stored = self._stored.get(self._matches.get(frame.frame_index, -1))
        if stored is None:
            return None
        if not has_same_aspect((stored.height, stored.width), (frame.height, frame.width)):
            self.num_other_shape += 1
            return None
        self._file.seek(stored.offset)
        bits = np.frombuffer(zlib.decompress(self._file.read(stored.size_bytes)), np.uint8)
        flat = np.unpackbits(bits, count=stored.height * stored.width) * np.uint8(255)
        mask: NDArray[Any] = cv2.merge([flat.reshape(stored.height, stored.width)] * 3)
        if mask.shape != frame.rgb.shape:
            is_smaller = frame.width < stored.width
            interpolation = cv2.INTER_AREA if is_smaller else cv2.INTER_LINEAR
            mask = cv2.resize(mask, (frame.width, frame.height), interpolation=interpolation)
        return mask.astype(np.uint8, copy=False)

    def discard(self) -> None:
        """Frees memory and disk; there are no masks from now on."""
        self._stored.clear()
        self._file.close()


def crop_own_mask(mask: NDArray[np.uint8], square: CropSquare, *, size_px: int) -> ManipulationMask:
    """Crops a mask as its image is cropped: side min(square side, `size_px`), rotated alike, beyond the border False.

    Args:
        mask: (H, W, 3) uint8, of `OwnMaskFrames.for_frame`.
        square: the crop around the face, `frame` px.
        size_px: largest side of a crop.

    """
    crop, _ = square.crop(mask, size_px)
    is_manipulated = crop[..., 0] > 127  # most of the pixel's area
    return ManipulationMask(is_manipulated, float(is_manipulated.mean()))


def _brightest_channel(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    red, green, blue = cv2.split(rgb)  # many times faster than max(axis=2)
    brightest: NDArray[np.uint8] = np.maximum(np.maximum(red, green), blue)
    return brightest
