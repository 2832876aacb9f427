"""--boxes source: the faces of a fake are where its original's are, and those of the original where they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facefeed.data.portraits import load_portrait
from facefeed.pipeline.faces import FaceFilter, Faces
from facefeed.pipeline.faces.landmarks import FaceShape
from facefeed.pipeline.faces.landmarks.template import TemplateLandmarker
from facefeed.pipeline.manipulation.source_frames import SourceFrameCache
from facefeed.pipeline.planning.options import JobSpec, Options
from facefeed.pipeline.rows.row_builder import RowBuilder
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.video import Frame
from numpy.typing import NDArray

COVERED = 100
"""Added to the last pixel of a frame whose face the landmarker does not see."""
Rgb = NDArray[np.uint8]
Row = dict[str, Any]
X, Y = 225.0, 123.0
"""The middle of the astronaut's face."""


def faces_at(*centres: tuple[float, float]) -> Faces:
    """Faces of 100 px."""
    boxes = np.array([(x - 50, y - 50, x + 50, y + 50) for x, y in centres], np.float32).reshape(-1, 4)
    landmarks = np.array([(-20, -15), (20, -15), (0, 0), (-15, 20), (15, 20)], np.float32)
    points = boxes.reshape(-1, 2, 2).mean(axis=1)[:, None] + landmarks
    return Faces(boxes, np.ones(len(boxes), np.float32), points.astype(np.float32))


@dataclass
class Scripted:
    """A detector that gives the faces of each frame by the value of its last pixel."""

    faces: Sequence[Faces]
    frames_at_once: int = 2
    calls: list[list[int]] = field(default_factory=list)
    fingerprint = "scripted"

    def detect(self, frames: Sequence[Rgb]) -> list[Faces]:
        self.calls.append([int(rgb[-1, -1, 0]) for rgb in frames])
        return [self.faces[number] for number in self.calls[-1]]


class Following(Scripted):
    """As `--detector track`: what it finds in a frame depends on the others of its batch."""

    def detect(self, frames: Sequence[Rgb]) -> list[Faces]:
        return [faces.scaled(1 + len(frames) / 100) for faces in super().detect(frames)]


@dataclass(frozen=True)
class Scoring:
    """A dense landmarker that is sure of all faces but those of covered frames."""

    fingerprint = "scoring"
    is_dense = True

    def locate(self, frames: Sequence[Rgb], faces: Sequence[Faces]) -> list[list[FaceShape]]:
        shapes = TemplateLandmarker().locate(frames, faces)
        return [
            [replace(shape, method="scoring", score=float(rgb[-1, -1, 0] < COVERED)) for shape in in_frame]
            for rgb, in_frame in zip(frames, shapes, strict=True)
        ]


def video(numbers: Sequence[int], *, cut_at: int = 1000) -> list[Frame]:
    """The astronaut, 120 px further right from frame `cut_at` on; the last pixel is the frame's number."""
    portrait = np.ascontiguousarray(load_portrait("astronaut").image[..., ::-1])
    frames = []
    for number in numbers:
        rgb = np.roll(portrait, 120 * (number >= cut_at), axis=1)
        rgb[-1, -1] = number
        frames.append(Frame(number, number / 25, rgb))
    return frames


def pair_rows(
    tmp_path: Path,
    detector: Scripted,
    original: Sequence[Frame],
    fake: Sequence[Frame],
    *,
    extra: Sequence[int] = (),
    matched: Sequence[int] | None = None,
    sibling: Sequence[int] = (),
    landmarker: Any = None,
    is_apart: bool = False,
    **options: Any,
) -> tuple[list[Row], list[Row]]:
    """The rows of an original and of a fake whose frames are those of the original by number.

    `matched`: numbers of the fake's frames that have one of the original; None: all. `sibling`: those of another fake,
    which has no rows here. `is_apart`: the original is in another unit, and has no rows here.
    """
    options = {"boxes": "source", "keep": FaceFilter(min_face_px=8), **options}
    builder = RowBuilder(JobSpec(
        root=tmp_path, out=tmp_path, options=Options(**options), detector=detector, labels=("real", "fake"),
        landmarker=landmarker or TemplateLandmarker(), config_hash="",
    ))  # fmt: skip
    numbers = [frame.frame_index for frame in fake] if matched is None else matched
    matches = {
        "fake.mp4": {number: number for number in numbers},
        "sibling.mp4": {number: number for number in sibling},
    }
    cache = SourceFrameCache("real.mp4", tmp_path, matches, frozenset(extra))
    entries = Entry(video_id="real.mp4", label=0), Entry(video_id="fake.mp4", label=1, source_id="real.mp4")
    real_rows: list[Row] = []
    if is_apart:
        builder.fill_cache(cache, iter(original))
    else:
        real = builder.batches(entries[0], "train", original, own_cache=cache)
        real_rows = [row for batch in real for row in batch.to_pylist()]
    made = builder.batches(entries[1], "train", fake, source_cache=cache)
    fake_rows = [row for batch in made for row in batch.to_pylist()]
    builder.close()
    cache.discard()
    return real_rows, fake_rows


def test_smoothing_stops_at_a_cut_in_the_original_and_in_the_fake(tmp_path: Path) -> None:
    """The tracks go on, since the person is the same; only her place is another one."""
    shaking = np.random.default_rng(0).normal(0, 2, (12, 2))
    faces = [faces_at((X + 120 * (number >= 6) + x, Y + y)) for number, (x, y) in enumerate(shaking.tolist())]
    frames = video(range(12), cut_at=6)
    shots = [pair_rows(tmp_path, Scripted(faces), shot, [], smooth=True)[0] for shot in (frames[:6], frames[6:])]
    for rows in pair_rows(tmp_path, Scripted(faces), frames, frames, smooth=True):
        assert [row["track_id"] for row in rows] == [0] * 12
        assert [row["crop_xyxy"] for row in rows] == [row["crop_xyxy"] for shot in shots for row in shot]


def test_a_minimum_landmark_score_drops_faces_of_a_fake_too(tmp_path: Path) -> None:
    original, fake = video(range(4)), video(range(4))
    fake[2].rgb[-1, -1] += COVERED
    detector = Scripted([faces_at((X, Y), (X + 150, Y + 200))] * 4)
    real_rows, fake_rows = pair_rows(tmp_path, detector, original, fake, landmarker=Scoring(), min_landmark_score=0.5)
    assert [row["frame_index"] for row in real_rows] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [row["frame_index"] for row in fake_rows] == [0, 0, 1, 1, 3, 3]
    assert [row["track_id"] for row in fake_rows] == [0, 1] * 3
    everything = pair_rows(tmp_path, detector, original, fake, landmarker=Scoring())[1]
    assert [row["frame_index"] for row in everything] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("boxes", ["own", "source"])
@pytest.mark.parametrize(
    "keep",
    [FaceFilter(max_faces=1, min_score=0.0), FaceFilter(min_face_px=80, min_score=0.0), FaceFilter(min_face_px=8)],
    ids=["faces", "min face", "min score"],
)
def test_the_mask_of_a_face_does_not_depend_on_which_other_faces_are_kept(
    tmp_path: Path, keep: FaceFilter, boxes: str
) -> None:
    """The other face is changed, too: taken for surroundings, it would count as encoding noise."""
    pair = faces_at((X, Y), (X + 115, Y))
    pair.boxes_xyxy[1] += np.float32([15, 15, -15, -15])
    pair.scores[1] = 0.5
    original, fake = video(range(3)), video(range(3))
    for frame in fake:
        for x in (int(X), int(X) + 115):
            frame.rgb[int(Y) - 25 : int(Y) + 25, x - 25 : x + 25] ^= 64
    every = FaceFilter(min_face_px=8, min_score=0.0)
    rows = {
        name: pair_rows(tmp_path, Scripted([pair] * 3), original, fake, extra=[1], boxes=boxes, keep=chosen)[1]
        for name, chosen in (("all", every), ("some", keep))
    }
    assert [row["track_id"] for row in rows["all"]] == [0, 1] * 3
    assert rows["some"] == rows["all"][::2]
    assert all(row["manipulated"] > 0.05 for row in rows["some"])


@pytest.mark.parametrize("extra", [[], [1, 2, 5], [2, 9, 10]], ids=["none", "between", "to the end"])
def test_the_rows_of_an_original_are_the_same_whichever_fakes_come_with_it(tmp_path: Path, extra: list[int]) -> None:
    """The fakes need further frames of it: there, somebody appears who is in none of its own."""
    anna, ben, carl = (X, Y), (60.0, 440.0), (400.0, 300.0)
    faces = [faces_at(anna, ben) if number % 4 else faces_at(*[anna, carl][: 1 + number // 4]) for number in range(11)]
    original, fake = video(sorted({0, 4, 8, *extra})), video(range(11))
    real_rows, fake_rows = pair_rows(tmp_path, Scripted(faces), original, fake, extra=extra)
    alone, _ = pair_rows(tmp_path, Scripted(faces), video([0, 4, 8]), video([]))
    assert real_rows == alone
    assert [row["track_id"] for row in real_rows] == [0, 0, 1, 0, 1]
    place_of = {(row["track_id"], row["box_xyxy"][0]) for row in fake_rows if row["frame_index"] in {0, 4, 8, *extra}}
    assert place_of == {(0, X - 50), (1, carl[0] - 50), *([(2, ben[0] - 50)] if extra else [])}
    assert fake_rows == pair_rows(tmp_path, Scripted(faces), original, fake, extra=extra, is_apart=True)[1]


@pytest.mark.parametrize("sibling", [[0, 4, 8], [1, 2], [0, 1, 3, 6, 9]], ids=["own", "before", "around"])
@pytest.mark.parametrize("is_apart", [False, True], ids=["beside", "apart"])
def test_the_rows_of_a_fake_are_the_same_whichever_other_fakes_come_with_it(
    tmp_path: Path, sibling: list[int], *, is_apart: bool
) -> None:
    """The others need frames of the original in which there are people whom this one never shows."""
    anna, ben, carl, dave = (X, Y), (60.0, 440.0), (400.0, 300.0), (400.0, 60.0)
    own, matched, unmatched = [4, 8], [5, 6, 7], [10, 11]
    faces = [faces_at(), faces_at(dave), faces_at(dave, ben), faces_at(dave), faces_at(anna), faces_at(anna),
             faces_at(anna, carl), faces_at(anna), faces_at(anna, ben), faces_at(dave), faces_at(anna),
             faces_at(anna, (60.0, 60.0))]  # fmt: skip
    fake = video(sorted([*matched, *unmatched]))

    def rows(others: list[int]) -> list[Row]:
        extra = sorted({*matched, *others} - {*own})
        original = video(sorted({*own, *extra}))
        return pair_rows(tmp_path, Scripted(faces), original, fake, extra=extra, matched=matched, sibling=others,
                         is_apart=is_apart)[1]  # fmt: skip

    assert rows(sibling) == rows([])
    assert [(row["frame_index"], row["track_id"]) for row in rows([])] == [
        (5, 0), (6, 0), (6, 2), (7, 0), (10, 0), (11, 0), (11, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("matched", [[*range(0, 84, 12)], [5, 36, 48, 60, 72]], ids=["regular", "few"])
@pytest.mark.parametrize("sibling", [[], [24], [22, 26, 34]], ids=["alone", "between", "around"])
def test_a_face_that_stands_still_in_a_fake_keeps_its_track_id(
    tmp_path: Path, matched: list[int], sibling: list[int]
) -> None:
    """The person steps aside from frame 20 to 30: too far for one track in the original's own frames alone."""
    faces = [faces_at((X + 17 * min(max(number - 20, 0), 10), Y)) for number in range(84)]
    own, extra = range(0, 84, 10), sorted({number for number in (*matched, *sibling) if number % 10})
    real_rows, fake_rows = pair_rows(
        tmp_path, Scripted(faces), video(sorted({*own, *extra})), video(matched), extra=extra, sibling=sibling
    )
    assert [row["track_id"] for row in real_rows] == [0, 0, 0, *[1] * 6]
    assert [(row["frame_index"], row["track_id"]) for row in fake_rows] == [
        (number, int(number >= 30)) for number in matched
    ]


@pytest.mark.parametrize("is_apart", [False, True], ids=["beside", "apart"])
def test_the_boxes_of_a_fake_are_the_same_whichever_other_fakes_come_with_it(tmp_path: Path, *, is_apart: bool) -> None:
    def rows(sibling: list[int]) -> list[Row]:
        matched, extra = [0, 1, 2, 4], {1, 2, *sibling}
        detector = Following([faces_at((X, Y))] * 9, frames_at_once=4)
        return pair_rows(tmp_path, detector, video(sorted({0, 4, 8, *extra})), video(matched), extra=sorted(extra),
                         sibling=sibling, is_apart=is_apart)[1]  # fmt: skip

    assert len(rows([])) == 4
    assert rows([3, 5, 6]) == rows([])


@pytest.mark.parametrize("boxes", ["own", "source"])
def test_the_detector_gets_the_frames_of_an_original_in_the_same_batches_whichever_fakes_come_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boxes: str
) -> None:
    """As `--detector track` needs: what it finds in a frame depends on the others of its batch."""
    monkeypatch.setattr("facefeed.pipeline.rows.frame_batches.MAX_BATCH_PIXELS", 5 * 512 * 512)
    faces = [faces_at((X, Y))] * 40
    own = range(0, 40, 3)
    calls = {}
    for name, extra in (("with", [number for number in range(40) if number % 3]), ("without", [])):
        detector = Scripted(faces, frames_at_once=4)
        pair_rows(tmp_path, detector, video(sorted([*own, *extra])), video([]), extra=extra, boxes=boxes)
        calls[name] = [call for call in detector.calls if set(call) <= set(own)]
        assert sorted(number for call in calls[name] for number in call) == [*own]
    assert calls["with"] == calls["without"]
