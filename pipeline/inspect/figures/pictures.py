"""Pictures of faces for the page: a thumbnail, the geometry drawn over it, and texts about it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from ...dataset.byte_ranges import MissingFileError, RangeReader
from ...dataset.image_codec import ImageEncoder, decode_mask, decode_rgb_strictly
from ...dataset.index import Index
from ...dataset.stored_images import StoredImages
from ...errors import CorruptDataError
from ...faces.geometry.crop import CropSquare
from ..formatting import compact_number, timestamp
from ..statistics.columns import FACE_SIZE, LANDMARK_SCORE, SCORE, SHARPNESS
from ..statistics.videos import label_names

_THUMBNAIL_ENCODER: Final = ImageEncoder(format="jpeg", quality=80)
_MASK_COLOUR_BGRA: Final = (32, 32, 230, 150)

Points = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Outline:
    """The geometry of a face in px of the stored crop: points (n, 2), `box` its corners, `regions` by name, xyxy."""

    box: Points
    landmarks: Points
    hull: Points
    regions: dict[str, Points]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One face. `uri`: a data URI, None where the stored image is damaged; `width`, `height`: of the stored crop in px.

    `tooltip`: its columns as text, one per line. `measure_texts`: by `Measure.key`. `mask_uri`: a semi-transparent
    overlay of the pixels that a fake changed.
    """

    row: int
    uri: str | None
    width: int
    height: int
    label: str
    video_id: str
    frame: str
    tooltip: str
    measure_texts: dict[str, str]
    outline: Outline | None = None
    mask_uri: str | None = None


@dataclass
class PictureReader:
    """Reads rows as pictures; reads only the bytes of these rows.

    `ranges`: of a dataset in a store; None of one in a folder. `rows_read`: all rows so far. `unreadable`: of these,
    the rows whose image or mask cannot be read or is damaged, with the error. `missing_rows`: of these, the rows whose
    file does not exist.
    """

    index: Index
    ranges: RangeReader | None = None
    rows_read: set[int] = field(default_factory=set)
    unreadable: dict[int, str] = field(default_factory=dict)
    missing_rows: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._labels = label_names(self.index)
        self._has_landmark_scores = LANDMARK_SCORE.column in self.index.schema.names
        self._images = StoredImages(self.index, self.ranges)

    def read(self, row: int, side_px: int, *, outline: bool = False, mask: bool = False) -> Picture:
        """The face of one row, with a picture of at most `side_px` in width and height."""
        self.rows_read.add(row)
        value = self.index.value
        width, height = value("width", row), value("height", row)
        return Picture(
            row=row,
            uri=self._uri(row, side_px),
            width=width,
            height=height,
            label=self._labels[value("label", row)],
            video_id=value("video_id", row),
            frame=f"frame {value('frame_index', row):,} · {timestamp(value('pts_seconds', row))}",
            tooltip=self._tooltip(row),
            measure_texts=self._measure_texts(row),
            outline=self._outline(row) if outline else None,
            mask_uri=self._mask_uri(row, side_px) if mask else None,
        )

    def _measure_texts(self, row: int) -> dict[str, str]:
        value = self.index.value
        left, top, right, bottom = value("box_xyxy", row)
        return {
            FACE_SIZE.key: f"{right - left:.0f} x {bottom - top:.0f} px",
            SCORE.key: compact_number(value("score", row)),
            SHARPNESS.key: compact_number(value("sharpness", row)),
            **({LANDMARK_SCORE.key: self._landmark_score(row)} if self._has_landmark_scores else {}),
        }

    def _landmark_score(self, row: int) -> str:
        score = self.index.value(LANDMARK_SCORE.column, row)
        return "unknown" if score is None else f"{score:.2f}"

    def _tooltip(self, row: int) -> str:
        value, texts = self.index.value, self._measure_texts(row)
        lines = [
            value("video_id", row),
            f"{value('split', row)}, {self._labels[value('label', row)]}",
            f"frame {value('frame_index', row):,} at {timestamp(value('pts_seconds', row))}",
            f"track {value('track_id', row)}",
            f"face {texts[FACE_SIZE.key]}, crop {value('width', row)} px",
            f"score {texts[SCORE.key]}, sharpness {texts[SHARPNESS.key]}",
        ]
        if LANDMARK_SCORE.key in texts:
            lines.append(f"landmark score {texts[LANDMARK_SCORE.key]}")
        names = ("method", "compression", "identity")
        lines += [f"{name} {text}" for name in names if (text := value(name, row))]
        return "\n".join(lines)

    def _uri(self, row: int, side_px: int) -> str | None:
        try:
            rgb = decode_rgb_strictly(self._images.image(row))
        except CorruptDataError as error:
            self._record_error(row, error)
            return None
        return _data_uri("jpeg", _THUMBNAIL_ENCODER(_downscale(rgb, side_px)))

    def _record_error(self, row: int, error: CorruptDataError) -> None:
        self.unreadable[row] = str(error)
        if isinstance(error, MissingFileError):
            self.missing_rows.add(row)

    def _outline(self, row: int) -> Outline:
        value = self.index.value
        left, top, right, bottom = self.index.box("box_xyxy", row)
        x0, y0, x1, _ = self.index.box("crop_xyxy", row)
        square = CropSquare(round(x0), round(y0), round(x1 - x0), value("crop_degrees", row))
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        return Outline(
            box=square.to_crop(corners, value("width", row) / square.side),
            landmarks=self.index.points("landmarks", row),
            hull=self.index.points("hull", row),
            regions=self.index.regions(row),
        )

    def _mask_uri(self, row: int, side_px: int) -> str | None:
        """The stored mask as an overlay; None where there is none or it is damaged."""
        try:
            data = self._images.mask(row)
            mask = None if data is None else decode_mask(data)
        except CorruptDataError as error:
            self._record_error(row, error)
            return None
        if mask is None:
            return None
        overlay = np.zeros((*mask.shape, 4), np.uint8)
        overlay[mask] = _MASK_COLOUR_BGRA
        is_encoded, png = cv2.imencode(".png", _downscale(overlay, side_px))
        return _data_uri("png", png.tobytes()) if is_encoded else None


def _downscale(pixels: NDArray[np.uint8], side_px: int) -> NDArray[np.uint8]:
    """Scales to at most `side_px` in width and height; never enlarges."""
    height, width = pixels.shape[:2]
    scale = side_px / max(height, width)
    if scale >= 1:
        return pixels
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small: NDArray[Any] = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return small


def _data_uri(image_type: str, data: bytes) -> str:
    return f"data:image/{image_type};base64,{base64.b64encode(data).decode()}"
