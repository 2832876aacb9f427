"""Coverage: whether the stored crops are wide enough for what a protocol cuts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..index import Selection
from ..index_like import IndexLike
from .geometry import FaceGeometry, apply, inverse
from .protocols import CropProtocol

ALLOWED_FRACTION = 0.01
"""Share of the faces that may need more than is stored: their landmarks or boxes are misplaced."""

_TOLERANCE_PX = 1.0  # of the stored crop or the frame: boxes and corners of squares are rounded to whole px
_ROWS_AT_ONCE = 1 << 15
_UNIT_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])


def check_coverage(
    protocol: CropProtocol, index: IndexLike, rows: Selection, *, setting: str, alternative: str
) -> NDArray[np.bool_]:
    """Checks that the stored crops of `rows` hold what the protocol cuts, but for what lies beyond the frame.

    A face that fills its frame was cropped before: what lies beyond that frame is missing too, and cannot be stored.

    Returns for each row whether a part is missing, bool (rows,); that part is black in its image. Raises `UsageError`
    with what to do where more than `ALLOWED_FRACTION` of the rows lack one. `setting`: what selects the protocol.
    `alternative`: what can be done without storing more. Both for the message.
    """
    if not len(rows):
        return np.zeros(0, np.bool_)
    parts = [rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE)]
    geometry = (FaceGeometry.of_rows(index, part) for part in parts)
    needed = [
        (*needed_margins(protocol, faces), stored_margins(faces), reaches_past_whole_frame(protocol, faces))
        for faces in geometry
    ]
    margins, is_too_narrow, stored, is_cropped_before = (np.concatenate(values) for values in zip(*needed, strict=True))
    allowed = ALLOWED_FRACTION * len(rows)
    if (count := int(is_cropped_before.sum())) > allowed:
        fill = "face fills its frame" if len(rows) == 1 else "faces fill their frames"
        raise UsageError(
            f"{setting}: {count:,} of {len(rows):,} {fill}, as in media that is cropped already, and the images would "
            "be black beyond them, whatever the margin; run `facefeed precompute` on the media that they were cut "
            f"from, or {alternative}"
        )
    if (count := int(is_too_narrow.sum())) > allowed:
        # Of a face, never between two: with a smaller margin, more than the allowed share would lack a part again.
        wanted = float(np.quantile(margins, 1 - ALLOWED_FRACTION, method="higher"))
        next_wider = math.floor(10 * float(np.median(stored)) + 1e-6) + 1
        margin = max(math.ceil(10 * wanted), next_wider) / 10
        raise UsageError(
            f"{setting}: {_need_more(count, len(rows))}; run `facefeed precompute` into another folder with "
            f"--margin {margin:g} and a larger --size (99 % of these faces need at most {wanted:.2f}), or {alternative}"
        )
    is_missing: NDArray[np.bool_] = is_too_narrow | is_cropped_before
    return is_missing


def black_parts(count: int, faces: int) -> str:
    """States that `count` of `faces` images lack a part that their protocol shows."""
    return f"{_need_more(count, faces)}: what is missing is black in their images"


def _need_more(count: int, faces: int) -> str:
    need = "face needs" if faces == 1 else "faces needs" if count == 1 else "faces need"
    return f"{count:,} of {faces:,} {need} more than is stored around {'it' if count == 1 else 'them'}"


def reaches_past_whole_frame(protocol: CropProtocol, faces: FaceGeometry) -> NDArray[np.bool_]:
    """Whether each face fills its frame and its image shows more than the square around that frame, bool (N,)."""
    boxes, sizes = faces.boxes_xyxy, faces.frame_sizes
    is_whole = (boxes[:, :2] <= _TOLERANCE_PX).all(axis=1) & (boxes[:, 2:] >= sizes - _TOLERANCE_PX).all(axis=1)
    corners = apply(inverse(protocol.from_frame(faces)), _UNIT_CORNERS * protocol.size_px)
    reach = np.abs(corners - sizes[:, None] / 2).max(axis=(1, 2))
    is_past: NDArray[np.bool_] = is_whole & (reach > sizes.max(axis=1) / 2 + _TOLERANCE_PX)
    return is_past


def needed_margins(protocol: CropProtocol, faces: FaceGeometry) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The margin that `precompute` must store for each face, float64 (N,), and whether less is stored, bool (N,).

    What lies beyond the frame need not be stored: of the part of the frame that the image shows, a polygon, the vertex
    that is farthest from the stored crop's centre decides.
    """
    points, is_vertex = _shown_vertices(protocol, faces)
    centres = _stored_centres(faces)
    reach = np.abs(apply(faces.to_stored, points) - centres[:, None]).max(axis=2)
    reach = np.where(is_vertex, reach, 0).max(axis=1)
    half_sides = centres[:, 0]
    boxes = faces.boxes_xyxy
    box_sides = np.maximum((boxes[:, 2:] - boxes[:, :2]).max(axis=1), 1)
    scales = 2 * half_sides / faces.crop_sides
    return (2 * reach / scales / box_sides - 1) / 2, reach > half_sides + _TOLERANCE_PX


def stored_margins(faces: FaceGeometry) -> NDArray[np.float64]:
    """The margin of each stored crop, float64 (N,); at least that of `precompute`, whose squares are of whole px."""
    boxes = faces.boxes_xyxy
    box_sides = np.maximum((boxes[:, 2:] - boxes[:, :2]).max(axis=1), 1)
    margins: NDArray[np.float64] = ((faces.crop_sides + 0.5) / box_sides - 1) / 2
    return margins


def _shown_vertices(protocol: CropProtocol, faces: FaceGeometry) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Vertices of the parts of the frames that the images show, frame px: (N, 12, 2); and which of them are some.

    The ends of the image's edges, cut at the frame (Liang and Barsky 1984), and the frame's corners within the image.
    """
    from_frame = protocol.from_frame(faces)
    starts = apply(inverse(from_frame), _UNIT_CORNERS * protocol.size_px)
    steps = np.roll(starts, -1, axis=1) - starts
    steps = np.where(steps == 0, 1e-9, steps)
    sizes = faces.frame_sizes[:, None]
    entering, leaving = -starts / steps, (sizes - starts) / steps
    first = np.minimum(entering, leaving).max(axis=2, keepdims=True).clip(min=0)
    last = np.maximum(entering, leaving).min(axis=2, keepdims=True).clip(max=1)
    is_cut = (first <= last)[..., 0]
    frame_corners = _UNIT_CORNERS * sizes
    in_image = apply(from_frame, frame_corners)
    is_inside = ((in_image >= 0) & (in_image <= protocol.size_px)).all(axis=2)
    points = np.concatenate([starts + first * steps, starts + last * steps, frame_corners], axis=1)
    return points, np.concatenate([is_cut, is_cut, is_inside], axis=1)


def _stored_centres(faces: FaceGeometry) -> NDArray[np.float64]:
    """Centres of the stored crops in their own px, (N, 2)."""
    scales = np.hypot(faces.to_stored[:, 0, 0], faces.to_stored[:, 1, 0])
    return np.repeat((scales * faces.crop_sides / 2)[:, None], 2, axis=1)
