"""Which frames are searched as a whole, and where faces are looked for in the frames between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from ..detection import Faces
from ..identity.tracker import box_affinity, greedy_match
from .cascade.rois import Places

Rgb = NDArray[np.uint8]
Boxes = NDArray[np.float32]

_LONGEST: Final = 21
"""Frames from one search of the whole frame to the next, at most."""
_SHORTEST: Final = 5
"""So far apart they may stay, whatever happens between."""
_MOST_CHANGE: Final = 2.0
"""Nor may more happen between: 1 less the correlation of each frame with the one before, added up."""
_SURE: Final = 0.95
"""A face with such a score is there, and is not lost without a closer look."""
_SAME_SHOT: Final = 0.4
"""Least correlation of two frames without a cut between them: real cuts have .25 and less, fast pans .54 and more."""
_SAME_PICTURE: Final = 0.2
"""Least response of a phase correlation that is believed."""
_THUMB: Final = (64, 48)
_WINDOW: Final = cv2.createHanningWindow(_THUMB, cv2.CV_32F)
_THUMB_NOISE: Final = 2.0
"""Grey levels of a thumb that mean nothing: frames of one colour are all the same shot."""
_SAME_FACE_IOU: Final = 0.4


class Search(Protocol):
    """Finds faces in the frames at hand, which are known by their numbers."""

    def everywhere(self, numbers: Sequence[int]) -> list[Faces]:
        """The faces of whole frames."""
        ...

    def near(self, places: Places) -> dict[int, Faces]:
        """The faces near places, of each frame that has some."""
        ...


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The frames between two that were searched as a whole."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    def inside(self) -> range:
        return range(self.first + 1, self.last)

    def halves(self) -> list[_Stretch]:
        middle = (self.first + self.last) // 2
        return [_Stretch(self.first, middle), _Stretch(middle, self.last)]


def followed(frames: Sequence[Rgb], search: Search) -> list[Faces]:
    """The faces of each of some frames of one video, one after the other."""
    camera = _Camera(frames)
    stretches = [stretch for shot in camera.shots() for stretch in camera.parts(shot)]
    numbers = sorted({number for stretch in stretches for number in (stretch.first, stretch.last)})
    known = dict(zip(numbers, search.everywhere(numbers), strict=True))
    stretches = [stretch for stretch in stretches if len(stretch) > 1]
    long: list[_Stretch] = []
    while stretches:
        found, unsure = _between(stretches, known, camera, search)
        known |= found
        long += [stretch for stretch in stretches if len(stretch) > _SHORTEST and stretch not in unsure]
        middles = [(stretch.first + stretch.last) // 2 for stretch in unsure]
        known |= dict(zip(middles, search.everywhere(middles), strict=True))
        stretches = [half for stretch in unsure for half in stretch.halves() if len(half) > 1]
    _align({number for stretch in long for number in (stretch.first, stretch.last)}, known, search)
    return [known[number] for number in range(len(frames))]


def _align(searched: set[int], known: dict[int, Faces], search: Search) -> None:
    """Has the sure faces of searched frames found near their places as well: else boxes would jump there and back."""
    sure = {number: known[number].boxes_xyxy[known[number].scores > _SURE] for number in sorted(searched)}
    places = [(np.full(len(boxes), number), boxes, np.ones(len(boxes), bool)) for number, boxes in sure.items()]
    for number, faces in _near(search, places).items():
        known[number] = _joined(faces, known[number])


class _Camera:
    """What small pictures of the frames tell: where the camera cuts, how it moves, and how much changes."""

    def __init__(self, frames: Sequence[Rgb]) -> None:
        self._shapes = [rgb.shape for rgb in frames]
        self._thumbs = [_thumb(rgb) for rgb in frames]
        self._alike = np.array([1.0, *(self._correlation(number) for number in range(1, len(frames)))])

    def shots(self) -> list[_Stretch]:
        """From one cut, or change of size, to the next: first and last frame."""
        cuts = np.flatnonzero(self._alike < _SAME_SHOT).tolist()
        return [_Stretch(first, end - 1) for first, end in pairwise([0, *cuts, len(self._thumbs)])]

    def parts(self, shot: _Stretch) -> list[_Stretch]:
        """A shot in equal parts, in none of which lie too many frames or too much happens."""
        change = float((1 - self._alike[shot.first + 1 : shot.last + 1]).sum())
        count = max(1, min(len(shot), math.ceil(max(len(shot) / _LONGEST, change / _MOST_CHANGE))))
        edges = [shot.first + round(len(shot) * number / count) for number in range(count + 1)]
        return [_Stretch(first, last) for first, last in pairwise(edges)]

    def moved(self, stretch: _Stretch) -> Boxes:
        """By how much of the frame's px the picture as a whole moved: x, y, x, y; 0 where that cannot be told."""
        one, other = self._thumbs[stretch.first], self._thumbs[stretch.last]
        shift, response = cv2.phaseCorrelate(one, other, _WINDOW)
        if response < _SAME_PICTURE:
            return np.zeros(4, np.float32)
        height, width, _ = self._shapes[stretch.first]
        return np.array(shift * 2, np.float32) * np.tile([width / _THUMB[0], height / _THUMB[1]], 2).astype(np.float32)

    def _correlation(self, number: int) -> float:
        """Of a frame with the one before."""
        if self._shapes[number] != self._shapes[number - 1]:
            return -1.0
        one, other = self._thumbs[number - 1], self._thumbs[number]
        noise = one.size * _THUMB_NOISE**2
        return float(((one * other).sum() + noise) / (np.linalg.norm(one) * np.linalg.norm(other) + noise))


def _thumb(rgb: Rgb) -> NDArray[np.float32]:
    """What is left of a frame's grey (its green, which makes most of it) at a few hundred pixels, less its mean."""
    step = max(1, min(rgb.shape[:2]) // (2 * min(_THUMB)))
    thinned = np.ascontiguousarray(rgb[::step, ::step, 1])
    thumb: NDArray[np.float32] = cv2.resize(thinned, _THUMB, interpolation=cv2.INTER_AREA).astype(np.float32)
    return thumb - np.float32(thumb.mean())


@dataclass(frozen=True, slots=True)
class _Expected:
    """Where faces are looked for in a stretch.

    `frames` (M,), `boxes` (M, 4): places; `sure` (M,): a face has to be there. `chases`: sure faces that come or go.
    """

    frames: NDArray[np.int64]
    boxes: Boxes
    sure: NDArray[np.bool_]
    chases: list[_Chase]


@dataclass(frozen=True, slots=True)
class _Chase:
    """A face that is followed from frame to frame, forwards or back (`step`), up to but not into the frame `end`."""

    frame: int
    step: int
    end: int
    box: Boxes
    moved: Boxes

    def on(self, box: Boxes) -> _Chase:
        """To the next frame, as fast as it has come into this one."""
        moved = box - (self.box - self.moved)
        return _Chase(self.frame + self.step, self.step, self.end, box + moved, moved)


def _between(
    stretches: Sequence[_Stretch], known: dict[int, Faces], camera: _Camera, search: Search
) -> tuple[dict[int, Faces], list[_Stretch]]:
    """The faces of the frames inside of the stretches, and those stretches that want another search half-way."""
    asked, unsure = dict[_Stretch, _Expected](), list[_Stretch]()
    for stretch in stretches:
        expected = _expected(stretch, known[stretch.first], known[stretch.last], camera.moved(stretch))
        if expected is None:
            unsure.append(stretch)
        else:
            asked[stretch] = expected
    near = _near(search, [(one.frames, one.boxes, one.sure) for one in asked.values()])
    found, chases = dict[int, Faces](), list[_Chase]()
    for stretch, one in asked.items():
        seen = {frame: near.get(frame, Faces.empty()) for frame in stretch.inside()}
        if len(stretch) > _SHORTEST and any(
            _misses(faces, one.boxes[one.sure & (one.frames == frame)]) for frame, faces in seen.items()
        ):
            unsure.append(stretch)
        else:
            found |= seen
            chases += one.chases
    _chase(chases, found, search)
    return found, unsure


def _expected(stretch: _Stretch, first: Faces, last: Faces, moved: Boxes) -> _Expected | None:
    """On the straight line between where a face was and where it will be.

    A face that comes or goes is chased, or, where nobody is sure of it, looked for where it moves with the picture,
    which as a whole `moved` (4,). None where a sure one comes or goes and the stretch is long enough to search
    half-way.
    """
    pairs = _pairs(first.boxes_xyxy + moved, last.boxes_xyxy)
    to, of = np.array(list(pairs), np.intp), np.array(list(pairs.values()), np.intp)
    goes, comes = (np.setdiff1d(np.arange(len(faces)), paired) for faces, paired in ((first, of), (last, to)))
    went, came = (faces.select(one) for faces, one in ((first, goes), (last, comes)))
    each = (moved / len(stretch)).astype(np.float32)
    chases = [
        _Chase(start + step, step, end, box + step * each, step * each)
        for faces, start, end, step in ((went, stretch.first, stretch.last, 1), (came, stretch.last, stretch.first, -1))
        for box in faces.boxes_xyxy[faces.scores > _SURE]
    ]
    if chases and len(stretch) > _SHORTEST:
        return None
    fades, dawns = (faces.boxes_xyxy[faces.scores <= _SURE] for faces in (went, came))
    start = np.concatenate([first.boxes_xyxy[of], fades, dawns - moved])
    end = np.concatenate([last.boxes_xyxy[to], fades + moved, dawns])
    sure = np.zeros(len(start), bool)
    sure[: len(of)] = np.minimum(first.scores[of], last.scores[to]) > _SURE
    inside = np.array(stretch.inside())
    share = ((inside - stretch.first) / len(stretch)).astype(np.float32)[:, None, None]
    boxes = (1 - share) * start + share * end
    return _Expected(inside.repeat(len(start)), boxes.reshape(-1, 4), np.tile(sure, len(inside)), chases)


def _chase(chases: list[_Chase], found: dict[int, Faces], search: Search) -> None:
    """Adds to what was found what the chases find; one that loses its face for a moment goes on."""
    while chases:
        frames, boxes = np.array([one.frame for one in chases]), np.array([one.box for one in chases])
        near = _near(search, [(frames, boxes, np.ones(len(chases), bool))])
        going = []
        for chase in chases:
            faces = near[chase.frame]
            found[chase.frame] = _joined(found[chase.frame], faces)
            pairs = _pairs(chase.box[None], faces.boxes_xyxy)
            going.append(chase.on(faces.boxes_xyxy[next(iter(pairs))] if pairs else chase.box))
        chases = [one for one in going if one.frame != one.end]


def _near(search: Search, places: list[tuple[NDArray[np.int64], Boxes, NDArray[np.bool_]]]) -> dict[int, Faces]:
    if not sum(len(frames) for frames, *_ in places):
        return {}
    return search.near(Places(*(np.concatenate(one) for one in zip(*places, strict=True))))


def _misses(found: Faces, boxes: Boxes) -> bool:
    """Whether at one of the places (M, 4) no face is."""
    places = Places(np.zeros(len(boxes), np.int64), boxes, np.ones(len(boxes), bool))
    which = np.repeat(np.arange(len(boxes)), len(found))
    there = places.are_at(which, np.tile(found.boxes_xyxy, (len(boxes), 1))).reshape(len(boxes), len(found))
    return not bool(there.any(axis=1).all())


def _pairs(one: Boxes, other: Boxes) -> dict[int, int]:
    """Which of the others (keys) is which of these."""
    return greedy_match(box_affinity(one.astype(np.float64), other.astype(np.float64)))


def _joined(faces: Faces, more: Faces) -> Faces:
    """Both, but for those of the second that the first has too; by falling score."""
    overlap = box_affinity(more.boxes_xyxy.astype(np.float64), faces.boxes_xyxy.astype(np.float64)) - 1
    new = more.select(overlap.max(axis=1, initial=0) < _SAME_FACE_IOU)
    boxes, scores, landmarks = (
        np.concatenate([getattr(one, name) for one in (faces, new)]) for name in ("boxes_xyxy", "scores", "landmarks")
    )
    order = np.argsort(-scores, kind="stable")
    return Faces(boxes[order], scores[order], landmarks[order])
