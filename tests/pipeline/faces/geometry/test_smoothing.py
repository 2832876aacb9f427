"""--smooth: crops are still where heads are, and follow them where they move."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from assets_random import examples
from facefeed.pipeline.faces.geometry.crop import CropSquare
from facefeed.pipeline.faces.geometry.smoothing import FrameBoxes, smooth_boxes
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

MARGIN = 0.3
RATE = 25


def framing(
    number: int, *faces: tuple[int, float, float, float], degrees: float = 0.0, rate: float = RATE
) -> FrameBoxes:
    """Faces as (track, centre x, centre y, side)."""
    boxes = [(x - side / 2, y - side / 2, x + side / 2, y + side / 2) for _, x, y, side in faces]
    return FrameBoxes(
        number / rate,
        np.array([track for track, *_ in faces], np.int32),
        np.array(boxes, np.float64).reshape(-1, 4),
        np.full(len(faces), degrees),
    )


def smooth(framings: Iterable[FrameBoxes], margin: float = MARGIN) -> list[FrameBoxes]:
    return [framing for _, framing in smooth_boxes(((None, frame_boxes) for frame_boxes in framings), margin)]


def placed(framings: Iterable[FrameBoxes], face: int = 0) -> NDArray[np.float64]:
    """(frames, 3): centre x, centre y, side of one face."""
    boxes = np.array([frame_boxes.boxes_xyxy[face] for frame_boxes in framings])
    low, high = boxes[:, :2], boxes[:, 2:]
    return np.column_stack([(low + high) / 2, (high - low).max(axis=1)])


def shaken(frames: int, rate: float = RATE, moving: float = 0.0) -> list[FrameBoxes]:
    """A head of 100 px that moves `moving` px a frame to the right, as a detector sees it: 2 px to and fro."""
    noise = np.random.default_rng(0).normal(0, 2, (frames, 3))
    centres = np.array([200, 150, 100]) + noise + np.outer(np.arange(frames) * moving, [1, 0, 0])
    return [framing(number, (0, *centre), rate=rate) for number, centre in enumerate(centres.tolist())]


def test_a_still_head_gets_a_still_crop() -> None:
    shaky = shaken(100)
    before, after = placed(shaky).std(axis=0), placed(smooth(shaky)).std(axis=0)
    assert (after < 0.5 * before).all()


def test_a_head_that_moves_steadily_is_followed_without_lag() -> None:
    steady = [framing(number, (0, 100 + 7.0 * number, 150 - 3.0 * number, 80 + 0.5 * number)) for number in range(60)]
    inner = slice(6, -6)  # at its ends a track has neighbours on one side alone
    np.testing.assert_allclose(placed(smooth(steady))[inner], placed(steady)[inner], atol=1e-9)


def test_the_detectors_own_boxes_stay_what_they_are() -> None:
    shaky = shaken(30)
    kept = [frame_boxes.boxes_xyxy.copy() for frame_boxes in shaky]
    smooth(shaky)
    for frame_boxes, boxes in zip(shaky, kept, strict=True):
        np.testing.assert_array_equal(frame_boxes.boxes_xyxy, boxes)


@examples(60)
@given(
    st.lists(st.tuples(st.floats(0, 900), st.floats(0, 900), st.floats(20, 400)), min_size=1, max_size=25),
    st.sampled_from([0.0, 0.1, 0.3, 1.0]),
)
def test_half_of_the_margin_is_kept_however_a_head_jumps(
    heads: list[tuple[float, float, float]], margin: float
) -> None:
    seen = [framing(number, (0, *head)) for number, head in enumerate(heads)]
    for own, after in zip(placed(seen), smooth(seen, margin), strict=True):
        left, top, right, bottom = CropSquare.around(after.boxes_xyxy[0], margin).xyxy
        needed = own[2] * (1 + margin) / 2 - 1.01  # a square is cut along whole pixels
        assert min(own[0] - left, right - own[0], own[1] - top, bottom - own[1]) >= needed


def test_each_face_follows_its_own_track() -> None:
    two = [
        framing(number, (5, 100.0, 100.0, 60.0), (2, 400.0, 120.0, 90.0))
        if number % 2
        else framing(number, (2, 400.0, 120.0, 90.0), (5, 100.0, 100.0, 60.0))
        for number in range(20)
    ]
    for own, after in zip(two, smooth(two), strict=True):
        np.testing.assert_allclose(after.boxes_xyxy, own.boxes_xyxy)
        assert after.track_ids.tolist() == own.track_ids.tolist()


def test_frames_far_apart_are_left_as_they_are() -> None:
    sparse = shaken(20, rate=2.5)
    np.testing.assert_allclose(placed(smooth(sparse)), placed(sparse))


def test_a_face_seen_once_among_others_stays_where_it_is() -> None:
    seen = shaken(20)
    seen[10] = framing(10, (0, 200, 150, 100), (1, 500, 60, 40))
    once = smooth(seen)[10]
    np.testing.assert_allclose(placed([once], face=1), [[500, 60, 40]])


def test_frames_without_faces_come_through() -> None:
    seen = [framing(0), framing(1, (0, 50, 50, 20)), framing(2)]
    assert [len(frame_boxes.boxes_xyxy) for frame_boxes in smooth(seen)] == [0, 1, 0]


def test_a_tilt_is_smoothed_the_short_way_round() -> None:
    tilts = [179.0, -179.0] * 10
    after = smooth(framing(number, (0, 50, 50, 20), degrees=tilt) for number, tilt in enumerate(tilts))
    assert all(abs(frame_boxes.degrees[0]) > 179 for frame_boxes in after)


@pytest.mark.parametrize("rate", [2.5, 25, 240])
def test_every_frame_is_yielded_in_order_with_its_payload_and_few_are_buffered(rate: float) -> None:
    taken = 0

    def frames() -> Iterator[tuple[int, FrameBoxes]]:
        nonlocal taken
        for number in range(40):
            taken += 1
            yield number, framing(number, (0, 100, 100, 50), rate=rate)

    given = 0
    for number, frame_boxes in smooth_boxes(frames(), MARGIN):
        assert number == given
        assert frame_boxes.pts_seconds == number / rate
        given += 1
        assert taken - given <= 7
    assert given == 40


def test_time_that_jumps_back_does_no_harm() -> None:
    times = [0.0, 0.04, 0.08, 6.5, 0.0, 0.04]
    seen = [FrameBoxes(time, np.zeros(1, np.int32), np.array([[0.0, 0, 50, 50]]), np.zeros(1)) for time in times]
    after = smooth(seen)
    assert [frame_boxes.pts_seconds for frame_boxes in after] == times
    np.testing.assert_allclose([frame_boxes.boxes_xyxy[0] for frame_boxes in after], [[0, 0, 50, 50]] * 6)
