"""What a fake changed: its crop against the same square of the same frame of the video it was made from.

Both went through a lossy encoder on their own, so that hardly any pixel is equal. What an encoder does to a pixel is
small and, over a neighbourhood, evens out; what a manipulation does is neither.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .errors import CorruptDataError, UsageError

CHANGED: Final = 3.0
"""Least difference of a changed pixel, in steps of L*a*b* on OpenCV's scale of 0 to 255, once smoothed."""
CERTAIN: Final = 8.0
"""What a changed area must reach somewhere. Encoding a face anew does not, until its features blur or move (x264: at
crf 33 and more, of small faces)."""
METHOD: Final = f"lab-{CHANGED:g}-{CERTAIN:g}"
"""Names how masks are made; goes into a job's config, since masks of two methods must not be mixed."""

_SMOOTHING: Final = 5 / 256  # sigma, as a share of the crop's side
_SPECK: Final = 1 / 40  # likewise
_SMEAR: Final = 0.25  # of the strongest difference within 1.5 sigma: what is weaker was only smoothed over the edge


@dataclass(frozen=True, slots=True)
class Difference:
    """`mask`: bool (s, s), crop px, True where the fake differs; `share`: how much of the crop that is, 0..1."""

    mask: NDArray[np.bool_]
    share: float


def difference(fake: NDArray[np.uint8], source: NDArray[np.uint8]) -> Difference:
    """Compares two crops (s, s, 3) uint8 RGB of one square, cut from the fake's and the source's same frame.

    The difference in L*a*b* is smoothed, which takes an encoder's noise away and leaves what covers an area. Changed
    are the areas in which any channel differs by `CHANGED` or more, and somewhere by `CERTAIN` (the two thresholds
    of Canny 1986); specks are dropped and pinholes filled. Raises `UsageError` where the two are not of one shape.
    """
    if fake.shape != source.shape:
        raise UsageError(f"fake={fake.shape}, source={source.shape}: must be crops of one square and size")
    side = fake.shape[0]
    sigma = max(1.0, _SMOOTHING * side)
    apart = cv2.cvtColor(fake, cv2.COLOR_RGB2LAB).astype(np.float32)
    apart -= cv2.cvtColor(source, cv2.COLOR_RGB2LAB)
    strength = np.abs(cv2.GaussianBlur(apart, (0, 0), sigma)).max(axis=2)
    strength[strength < _SMEAR * cv2.dilate(strength, _disc(1.5 * sigma))] = 0
    speck = _disc(_SPECK * side / 2)
    areas = cv2.morphologyEx(_certain_areas(strength), cv2.MORPH_OPEN, speck)
    mask = cv2.morphologyEx(areas, cv2.MORPH_CLOSE, speck) > 0
    return Difference(mask, float(mask.mean()))


def _certain_areas(strength: NDArray[np.float32]) -> NDArray[np.uint8]:
    """1 in every connected area of at least `CHANGED` that reaches `CERTAIN`."""
    _, areas = cv2.connectedComponents((strength >= CHANGED).astype(np.uint8))
    return np.isin(areas, np.unique(areas[strength >= CERTAIN])).astype(np.uint8)


def _disc(radius: float) -> NDArray[np.uint8]:
    disc: NDArray[np.uint8] = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * max(1, round(radius)) + 1,) * 2)
    return disc


def encode_mask(mask: NDArray[np.bool_]) -> bytes:
    """A mask (H, W) as PNG of one bit a pixel."""
    buffer = io.BytesIO()
    Image.fromarray(mask).save(buffer, "PNG", optimize=False)
    return buffer.getvalue()


def decode_mask(data: bytes) -> NDArray[np.bool_]:
    """The inverse of `encode_mask`; raises `CorruptDataError` where the bytes are no such PNG."""
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            return np.asarray(image.convert("1"), np.bool_)
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise CorruptDataError(f"mask of {len(data)} bytes does not decode: {error}") from error
