"""The faces that a page shows, chosen and made into pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from ...dataset.index import Index
from ..formatting import clock
from ..statistics.columns import FACE, SCORE, SHARPNESS
from ..statistics.videos import Videos
from .pairs import Pair, find_pairs
from .pictures import Picture, Pictures
from .selection import Strip, of_each_class, strips, worst

_SIDE_PX: Final = 144
_STRIP_PX: Final = 56
_OF_CLASS, _IN_ALL = 24, 192
_WORST: Final = 8
_PAIRS: Final = 8
_STRIPS, _TRACKS, _FRAMES = 4, 5, 20


@dataclass(frozen=True)
class Worst:
    """Faces with the least of a measure, the least first."""

    key: str
    title: str
    pictures: list[Picture]


@dataclass(frozen=True)
class PairShown:
    """A fake and its source. `changed`: share of the crop that differs; None where it was not compared."""

    source: Picture
    fake: Picture
    changed: float | None


@dataclass(frozen=True)
class StripShown:
    """A video's tracks, each a row of pictures, None where a track has no face in a frame; `times` of the columns."""

    video_id: str
    times: list[str]
    tracks: dict[int, list[Picture | None]]
    left_out: int


@dataclass(frozen=True)
class Sheets:
    """All there is to look at. `fakes`, `compared`: see `Pairs`; `shown`: rows in all.

    `unreadable`, `missing`: see `Pictures`.
    """

    random: dict[str, list[Picture]]
    worst: list[Worst]
    changed: list[PairShown]
    unchanged: list[PairShown]
    fakes: int
    compared: int
    strips: list[StripShown]
    shown: int
    unreadable: dict[int, str]
    missing: set[int]

    @classmethod
    def of(cls, index: Index, videos: Videos) -> Self:
        """Chooses and reads; of one dataset always the same faces."""
        rng = np.random.default_rng(0)
        pictures = Pictures(index)
        random = {
            label: [pictures.picture(int(row), _SIDE_PX, outline=True) for row in rows]
            for label, rows in of_each_class(index, rng, _OF_CLASS, _IN_ALL).items()
        }
        pairs = find_pairs(index, videos, rng, _PAIRS)
        return cls(
            random=random,
            worst=_worst(index, videos, pictures),
            changed=[_pair(pair, pictures) for pair in pairs.changed],
            unchanged=[_pair(pair, pictures) for pair in pairs.unchanged],
            fakes=pairs.fakes,
            compared=pairs.compared,
            strips=[
                _strip(strip, videos, index, pictures)
                for strip in strips(index, videos, rng, count=_STRIPS, tracks=_TRACKS, frames=_FRAMES)
            ],
            shown=len(pictures.shown),
            unreadable=pictures.unreadable,
            missing=pictures.missing,
        )


def _worst(index: Index, videos: Videos, pictures: Pictures) -> list[Worst]:
    titles = {SHARPNESS: "Least sharp", SCORE: "Lowest score", FACE: "Smallest"}
    return [
        Worst(measure.key, title, [
            pictures.picture(int(row), _SIDE_PX, outline=True)
            for row in worst(measure.values(index), videos.of_row, _WORST)
        ])
        for measure, title in titles.items()
    ]  # fmt: skip


def _pair(pair: Pair, pictures: Pictures) -> PairShown:
    return PairShown(
        source=pictures.picture(pair.source, _SIDE_PX, outline=True),
        fake=pictures.picture(pair.fake, _SIDE_PX, outline=True, mask=True),
        changed=pair.manipulated,
    )


def _strip(strip: Strip, videos: Videos, index: Index, pictures: Pictures) -> StripShown:
    firsts = [int(rows[rows >= 0][0]) for rows in strip.cells.T]
    return StripShown(
        video_id=videos.names[strip.video],
        times=[clock(index.value("pts_seconds", row)) for row in firsts],
        tracks={
            track: [None if row < 0 else pictures.picture(int(row), _STRIP_PX) for row in rows]
            for track, rows in zip(strip.tracks, strip.cells, strict=True)
        },
        left_out=strip.left_out,
    )
