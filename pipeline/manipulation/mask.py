"""What a fake changed: a square of its frame against the same square of its source's same frame.

Both went through a lossy encoder on their own, at grades that may lie far apart, so that hardly any pixel is equal.
What encoders do evens out over a neighbourhood, up to a rest that depends on both grades and on how much there is to
see at the place: edges and texture suffer most. A manipulation is local: what the same two encoders did round the face
says how much of the difference in the face is theirs.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..errors import CorruptDataError, UsageError
from ..faces.geometry.crop import CropSquare

CHANGED: Final = 3.0
"""Least difference of a changed pixel, in steps of L*a*b* on OpenCV's scale of 0 to 255, once smoothed."""
CERTAIN: Final = 7.0
"""What a changed area must reach somewhere."""
CHANGED_TIMES: Final = 1.5
CERTAIN_TIMES: Final = 6.0
"""The same two as multiples of what encoding did to like places round the face; the larger of both counts."""
METHOD: Final = f"lab-{CHANGED:g}-{CERTAIN:g}-round-{CHANGED_TIMES:g}-{CERTAIN_TIMES:g}"
"""Names how masks are made; goes into a job's config, since masks of two methods must not be mixed."""

_WORK_PX: Final = 256  # what is looked at, square and surroundings together: finer than what smoothing leaves
_SMOOTHING: Final = 5 / 256  # sigma, as a share of the square's side
_LEAST_SMOOTHING_PX: Final = 2.0  # of the frame, where faces are small: encoders work on blocks of pixels, not of faces
_SPECK: Final = 1 / 40  # of the square's side
_SMEAR: Final = 0.25  # of the strongest difference within 1.5 sigma: what is weaker was only smoothed over the edge

_BEYOND_BOX: Final = 0.1  # of its sides: what is manipulated of a face reaches a little further than its box
_STEEPNESS: Final = np.array([0.5, 1, 1.5, 2.2, 3.2, 4.7, 7, 10], np.float32)  # classes of places: L* steps a pixel
_QUANTILE: Final = 0.9  # of the differences in a class, since some lie in what is manipulated beyond the face's box
_LEAST_SHARE: Final = 0.002  # of the pixels: a class of fewer is taken for the one below
_MOST_OF_ENCODING: Final = 9.0  # in one class; x264 at crf 40 comes to 7
_INCOMPARABLE: Final = 7.0  # if half of the square's places are beyond it, nothing can be told from encoding
_STEPS: Final = 4  # levels of a histogram for each step of L*a*b*


@dataclass(frozen=True, slots=True)
class Difference:
    """`mask`: bool (s, s), crop px, True where the fake differs; `share`: how much of the crop that is, 0..1."""

    mask: NDArray[np.bool_]
    share: float


def difference(
    fake: NDArray[np.uint8],
    source: NDArray[np.uint8],
    square: CropSquare,
    *,
    size_px: int,
    faces_xyxy: NDArray[np.float32],
) -> Difference | None:
    """Compares what `square` cuts of two frames (H, W, 3) uint8 RGB of one moment; s = min(side, `size_px`).

    The difference in L*a*b* is smoothed, which takes an encoder's noise away and leaves what covers an area. What is
    left of it round the face, in twice the square but outside of all faces, is the encoders' share, measured for places
    of like steepness. Changed are the areas in which any channel differs by `CHANGED` and `CHANGED_TIMES` that share,
    and somewhere by `CERTAIN` and `CERTAIN_TIMES` that share (the two thresholds of Canny 1986); specks are dropped and
    pinholes filled. None where the surroundings differ so strongly that nothing can be told of the face: one of the
    two is encoded beyond recognition, shows another moment, or was generated as a whole.

    Args:
        fake: the fake's frame.
        source: its source's frame, of the same size.
        square: what was cut round the face, `frame` px.
        size_px: largest side of a crop.
        faces_xyxy: (N, 4), `frame` px, all faces of the frame: each of them may be manipulated.

    Raises:
        UsageError: the frames are not of one size.

    """
    if fake.shape != source.shape:
        raise UsageError(f"fake={fake.shape}, source={source.shape}: must be frames of one size")
    pad = square.side // 2
    wide = CropSquare(square.x0 - pad, square.y0 - pad, square.side + 2 * pad, square.degrees)
    (ours, scale), (theirs, _) = wide.crop(fake, _WORK_PX), wide.crop(source, _WORK_PX)
    side, first = square.side * scale, pad * scale
    sigma = max(1.0, _SMOOTHING * side, _LEAST_SMOOTHING_PX * scale)
    lab, other = (cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB).astype(np.float32) for rgb in (ours, theirs))
    channels = cv2.split(np.abs(cv2.GaussianBlur(lab - other, (0, 0), sigma)))
    strength = np.maximum(np.maximum(*channels[:2]), channels[2])  # many times as fast as max(axis=2)
    steepness = np.maximum(_steepness(lab, sigma), _steepness(other, sigma))
    around = _without_faces(wide, scale, faces_xyxy) & ((lab[..., 0] > 0) | (other[..., 0] > 0))
    encoding = cv2.GaussianBlur(_encoders_share(strength, steepness, around), (0, 0), sigma)
    inner = slice(round(first), max(round(first + side), round(first) + 1))
    if np.median(encoding[inner, inner]) >= _INCOMPARABLE:
        return None
    size = min(square.side, size_px)
    areas = _as_crop(_certain_areas(strength, encoding, sigma), first, side / size, size)
    speck = _disc(_SPECK * size / 2)
    mask = cv2.morphologyEx(cv2.morphologyEx(areas, cv2.MORPH_OPEN, speck), cv2.MORPH_CLOSE, speck) > 0
    return Difference(mask, float(mask.mean()))


def _steepness(lab: NDArray[np.float32], sigma: float) -> NDArray[np.float32]:
    """How strongly lightness changes round each pixel, in steps a pixel."""
    across, down = (cv2.Sobel(lab[..., 0], cv2.CV_32F, *way, scale=1 / 8) for way in ((1, 0), (0, 1)))
    smooth: NDArray[np.float32] = cv2.GaussianBlur(np.hypot(across, down), (0, 0), sigma)
    return smooth


def _without_faces(wide: CropSquare, scale: float, faces_xyxy: NDArray[np.float32]) -> NDArray[np.bool_]:
    """True where there is no face, in what `wide` cuts."""
    size = round(wide.side * scale)
    outside = np.ones((size, size), np.uint8)
    for left, top, right, bottom in faces_xyxy:
        grown = np.array([[left, top], [right, top], [right, bottom], [left, bottom]], np.float64)
        grown += _BEYOND_BOX * (grown - grown.mean(axis=0))
        cv2.fillConvexPoly(outside, np.rint(wide.to_crop(grown, scale)).astype(np.int32), 0)
    return outside > 0


def _encoders_share(
    strength: NDArray[np.float32], steepness: NDArray[np.float32], around: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """For each pixel, the difference that most pixels `around` of like or less steepness stay below."""
    classes = np.digitize(steepness, _STEEPNESS)
    levels = round(_STEPS * _MOST_OF_ENCODING) + 1
    level = np.minimum(strength * _STEPS, levels - 1).astype(np.intp)
    counts = np.bincount((classes * levels + level)[around], minlength=(len(_STEEPNESS) + 1) * levels)
    cumulated = counts.reshape(-1, levels).cumsum(axis=1)
    numbers = cumulated[:, -1]
    found = (cumulated < _QUANTILE * numbers[:, None]).sum(axis=1) + 1
    known = np.where(numbers >= max(1, _LEAST_SHARE * strength.size), np.minimum(found, levels - 1) / _STEPS, 0)
    share: NDArray[np.float32] = np.maximum.accumulate(known).astype(np.float32)[classes]
    return share


def _certain_areas(strength: NDArray[np.float32], encoding: NDArray[np.float32], sigma: float) -> NDArray[np.uint8]:
    """1 in every connected area that is changed all over and certainly so somewhere."""
    sharp = strength >= _SMEAR * cv2.dilate(strength, _disc(1.5 * sigma))
    changed = sharp & (strength >= np.maximum(CHANGED, CHANGED_TIMES * encoding))
    count, areas = cv2.connectedComponents(changed.astype(np.uint8))
    certain = np.zeros(count, np.uint8)
    certain[areas[changed & (strength >= np.maximum(CERTAIN, CERTAIN_TIMES * encoding))]] = 1
    found: NDArray[np.uint8] = certain[areas]
    return found


def _as_crop(areas: NDArray[np.uint8], offset: float, step: float, size: int) -> NDArray[np.uint8]:
    """The middle of what was looked at, from `offset` on, at the crop's size, of which a pixel is `step` of these."""
    start = offset + step / 2 - 0.5
    moved = np.array([[step, 0, start], [0, step, start]])
    soft = cv2.warpAffine(areas.astype(np.float32), moved, (size, size), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
    crop: NDArray[np.uint8] = (soft > 0.5).astype(np.uint8)
    return crop


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
