"""Contact sheets of the page: random faces, lowest values, fakes beside their sources, tracks over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from ...dataset.byte_ranges import RangeReader
from ...dataset.index import Index
from ..formatting import timestamp
from ..statistics.columns import FACE_SIZE, LANDMARK_SCORE, SCORE, SHARPNESS
from ..statistics.videos import VideoTable
from .pictures import Picture, PictureReader
from .selection import TrackStrip, lowest_rows, sample_per_class, track_strips
from .source_pairs import SourcePair, find_source_pairs

_SIDE_PX: Final = 144
_STRIP_SIDE_PX: Final = 56
_RANDOM_PER_CLASS, _RANDOM_IN_TOTAL = 24, 192
_NUM_LOWEST: Final = 8
_NUM_PAIRS: Final = 8
_NUM_STRIPS, _MAX_TRACKS, _MAX_FRAMES = 4, 5, 20


@dataclass(frozen=True)
class LowestFaces:
    """Faces with the lowest values of a measure, ascending. `key`: see `Measure`."""

    key: str
    title: str
    pictures: list[Picture]


@dataclass(frozen=True)
class PairPictures:
    """A fake and its source, if that has rows. `manipulated`: fraction of the crop in its mask; None without one."""

    source: Picture | None
    fake: Picture
    manipulated: float | None


@dataclass(frozen=True)
class StripPictures:
    """A video's tracks, each a row of pictures, None where a track has no face in a frame; `times` of the columns."""

    video_id: str
    times: list[str]
    tracks: dict[int, list[Picture | None]]
    num_more_tracks: int


@dataclass(frozen=True)
class ContactSheets:
    """All pictures of the page. `random`: by class. `num_fakes`, `num_with_mask`: see `SourcePairSamples`.

    `rows_read`, `unreadable`, `missing_rows`: see `PictureReader`.
    """

    random: dict[str, list[Picture]]
    lowest: list[LowestFaces]
    changed: list[PairPictures]
    unchanged: list[PairPictures]
    num_fakes: int
    num_with_mask: int
    strips: list[StripPictures]
    rows_read: set[int]
    unreadable: dict[int, str]
    missing_rows: set[int]

    @classmethod
    def of(cls, index: Index, videos: VideoTable, ranges: RangeReader | None = None) -> Self:
        """Selects and reads the pictures; the same faces each time for one dataset. `ranges`: see `PictureReader`."""
        rng = np.random.default_rng(0)
        reader = PictureReader(index, ranges)
        rows_of_class = sample_per_class(index, rng, per_class=_RANDOM_PER_CLASS, in_total=_RANDOM_IN_TOTAL)
        random = {
            label: [reader.read(int(row), _SIDE_PX, outline=True) for row in rows]
            for label, rows in rows_of_class.items()
        }
        pairs = find_source_pairs(index, rng, _NUM_PAIRS)
        return cls(
            random=random,
            lowest=_lowest(index, videos, reader),
            changed=[_pair_pictures(pair, reader) for pair in pairs.changed],
            unchanged=[_pair_pictures(pair, reader) for pair in pairs.unchanged],
            num_fakes=pairs.num_fakes,
            num_with_mask=pairs.num_with_mask,
            strips=[
                _strip_pictures(strip, videos, index, reader)
                for strip in track_strips(
                    index, videos, rng, count=_NUM_STRIPS, max_tracks=_MAX_TRACKS, max_frames=_MAX_FRAMES
                )
            ],
            rows_read=reader.rows_read,
            unreadable=reader.unreadable,
            missing_rows=reader.missing_rows,
        )


def _lowest(index: Index, videos: VideoTable, reader: PictureReader) -> list[LowestFaces]:
    titles = {
        SHARPNESS: "Least sharp", SCORE: "Lowest score", LANDMARK_SCORE: "Lowest landmark score", FACE_SIZE: "Smallest",
    }  # fmt: skip
    sheets = []
    for measure, title in titles.items():
        if measure.column not in index.schema.names:
            continue
        rows = lowest_rows(measure.values(index), videos.video_of_row, _NUM_LOWEST)
        pictures = [reader.read(int(row), _SIDE_PX, outline=True) for row in rows]
        sheets.append(LowestFaces(measure.key, title, pictures))
    return sheets


def _pair_pictures(pair: SourcePair, reader: PictureReader) -> PairPictures:
    return PairPictures(
        source=None if pair.source is None else reader.read(pair.source, _SIDE_PX, outline=True),
        fake=reader.read(pair.fake, _SIDE_PX, outline=True, mask=True),
        manipulated=pair.manipulated,
    )


def _strip_pictures(strip: TrackStrip, videos: VideoTable, index: Index, reader: PictureReader) -> StripPictures:
    first_row_of_frame = [int(rows[rows >= 0][0]) for rows in strip.rows.T]
    return StripPictures(
        video_id=videos.names[strip.video],
        times=[timestamp(index.value("pts_seconds", row)) for row in first_row_of_frame],
        tracks={
            track: [None if row < 0 else reader.read(int(row), _STRIP_SIDE_PX) for row in rows]
            for track, rows in zip(strip.tracks, strip.rows, strict=True)
        },
        num_more_tracks=strip.num_more_tracks,
    )
