"""Faces as a page shows them: a small picture, what is drawn over it, and what is known of it."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, field
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from ...dataset.image_codec import ImageEncoder, decode_rgb
from ...dataset.index import Index
from ...dataset.schema import REGION_NAMES
from ...errors import CorruptDataError
from ...faces.geometry.crop import CropSquare
from ...manipulation.mask import decode_mask
from ..formatting import clock, short
from ..statistics.columns import FACE, SCORE, SHARPNESS
from ..statistics.videos import label_names

_SMALL: Final = ImageEncoder(format="jpeg", quality=80)
_TINT_BGRA: Final = (32, 32, 230, 150)

Points = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What is drawn over a picture, all in `crop` px of the stored crop. Points are (n, 2); regions are xyxy."""

    box: Points
    landmarks: Points
    hull: Points
    regions: dict[str, Points]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One face. `uri`: a data URI, None where the stored image is damaged; width, height: of the stored crop in px.

    `facts`: all that is known of it, a line each. `values`: by `Measure.key`. `mask_uri`: a picture to lay over it, of
    what a fake changed.
    """

    row: int
    uri: str | None
    width: int
    height: int
    label: str
    video_id: str
    frame: str
    facts: str
    values: dict[str, str]
    outline: Outline | None = None
    mask_uri: str | None = None


@dataclass
class Pictures:
    """Makes pictures of rows; reads the bytes of those rows and of nothing else.

    `shown`: rows that were asked for. `unreadable`: those whose image or mask is not the one that was written, each
    with what is wrong. `missing`: those of them whose file is not there.
    """

    index: Index
    shown: set[int] = field(default_factory=set)
    unreadable: dict[int, str] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._labels = label_names(self.index)

    def picture(self, row: int, side_px: int, *, outline: bool = False, mask: bool = False) -> Picture:
        """The face of one row, its picture at most `side_px` wide and high."""
        self.shown.add(row)
        value = self.index.value
        width, height = value("width", row), value("height", row)
        return Picture(
            row=row,
            uri=self._uri(row, side_px),
            width=width,
            height=height,
            label=self._labels[value("label", row)],
            video_id=value("video_id", row),
            frame=f"frame {value('frame_index', row):,} · {clock(value('pts_seconds', row))}",
            facts=self._facts(row),
            values=self._values(row),
            outline=self._outline(row) if outline else None,
            mask_uri=self._mask_uri(row, side_px) if mask else None,
        )

    def _values(self, row: int) -> dict[str, str]:
        value = self.index.value
        left, top, right, bottom = value("box_xyxy", row)
        return {
            FACE.key: f"{right - left:.0f} x {bottom - top:.0f} px",
            SCORE.key: short(value("score", row)),
            SHARPNESS.key: short(value("sharpness", row)),
        }

    def _facts(self, row: int) -> str:
        value, values = self.index.value, self._values(row)
        facts = [
            value("video_id", row),
            f"{value('split', row)}, {self._labels[value('label', row)]}",
            f"frame {value('frame_index', row):,} at {clock(value('pts_seconds', row))}",
            f"track {value('track_id', row)}",
            f"face {values[FACE.key]}, crop {value('width', row)} px",
            f"score {values[SCORE.key]}, sharpness {values[SHARPNESS.key]}",
        ]
        facts += [f"{name} {found}" for name in ("method", "compression", "identity") if (found := value(name, row))]
        return "\n".join(facts)

    def _uri(self, row: int, side_px: int) -> str | None:
        try:
            data = self._stored("image", row)
            if zlib.crc32(data) != self.index.value("image_crc32", row):
                raise CorruptDataError("its bytes are not those that were written")
            return _data_uri("jpeg", _SMALL(_shrunk(decode_rgb(data), side_px)))
        except (CorruptDataError, OSError) as error:
            self._note(row, error)
            return None

    def _note(self, row: int, error: CorruptDataError | OSError) -> None:
        self.unreadable[row] = str(error)
        if isinstance(error, FileNotFoundError):
            self.missing.add(row)

    def _stored(self, column: str, row: int) -> bytes:
        """The bytes of one cell; none where it is null."""
        value = self.index.value
        with (self.index.out / value("file", row)).open("rb") as file:
            file.seek(value(f"{column}_offset", row))
            data: bytes = file.read(value(f"{column}_bytes", row))
        return data

    def _outline(self, row: int) -> Outline:
        value = self.index.value
        left, top, right, bottom = value("box_xyxy", row)
        x0, y0, x1, _ = (round(edge) for edge in value("crop_xyxy", row))
        square = CropSquare(x0, y0, x1 - x0, value("crop_degrees", row))
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        return Outline(
            box=square.to_crop(corners, value("width", row) / square.side),
            landmarks=self.index.points("landmarks", row),
            hull=self.index.points("hull", row),
            regions={name: self.index.regions(row)[name] for name in REGION_NAMES},
        )

    def _mask_uri(self, row: int, side_px: int) -> str | None:
        """The stored mask in colour, None where there is none or it is damaged."""
        try:
            data = self._stored("mask", row)
            mask = decode_mask(data) if data else None
        except (CorruptDataError, OSError) as error:
            self._note(row, error)
            return None
        if mask is None:
            return None
        tinted = np.zeros((*mask.shape, 4), np.uint8)
        tinted[mask] = _TINT_BGRA
        done, png = cv2.imencode(".png", _shrunk(tinted, side_px))
        return _data_uri("png", png.tobytes()) if done else None


def _shrunk(pixels: NDArray[np.uint8], side_px: int) -> NDArray[np.uint8]:
    """At most `side_px` wide and high; never enlarged."""
    height, width = pixels.shape[:2]
    scale = side_px / max(height, width)
    if scale >= 1:
        return pixels
    sides = max(1, round(width * scale)), max(1, round(height * scale))
    small: NDArray[Any] = cv2.resize(pixels, sides, interpolation=cv2.INTER_AREA)
    return small


def _data_uri(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
