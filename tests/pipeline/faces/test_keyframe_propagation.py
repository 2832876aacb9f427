"""What a user notices of following: every face of every frame, though few frames are searched as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from facefeed.pipeline.faces import Faces
from facefeed.pipeline.faces.detectors.cascade.rois import Places
from facefeed.pipeline.faces.detectors.fixed import landmarks_in_box
from facefeed.pipeline.faces.detectors.keyframe_propagation import followed
from numpy.typing import NDArray

Rgb = NDArray[np.uint8]
Truth = Callable[[int], list[tuple[float, float]]]
"""The middles of the faces that are in a frame."""
SIDE = 40
ROOM, STREET = (np.random.default_rng(seed).integers(0, 255, (120, 400, 3), np.uint8) for seed in (1, 2))


def boxes(middles: Sequence[tuple[float, float]]) -> NDArray[np.float32]:
    middle = np.array(middles, np.float32).reshape(-1, 2)
    return np.concatenate([middle - SIDE / 2, middle + SIDE / 2], axis=1)


class Seen:
    """Sees what is there: in whole frames all, near a place whatever is less than half a face away."""

    def __init__(self, truth: Truth, *, score: float = 0.99, blind: range = range(0)) -> None:
        self.truth, self.score, self.blind = truth, score, blind
        self.searched: list[int] = []
        self.looks = 0

    def everywhere(self, numbers: Sequence[int]) -> list[Faces]:
        self.searched += numbers
        return [self.faces(boxes(self.truth(number))) for number in numbers]

    def near(self, places: Places) -> dict[int, Faces]:
        self.looks += len(places)
        found = {}
        for frame in np.unique(places.frames).tolist():
            there = boxes(self.truth(frame))
            around = places.boxes[places.frames == frame]
            apart = np.abs(there[:, None] - around).max(axis=2).min(axis=1)
            found[frame] = self.faces(there[(apart < SIDE / 2) & (frame not in self.blind)])
        return found

    def faces(self, there: NDArray[np.float32]) -> Faces:
        return Faces(there, np.full(len(there), self.score, np.float32), landmarks_in_box(there))


def assert_all_found(faces: Sequence[Faces], truth: Truth) -> None:
    for number, found in enumerate(faces):
        there = boxes(truth(number))
        assert sorted(map(tuple, found.boxes_xyxy)) == sorted(map(tuple, there)), f"frame {number}"


def test_faces_that_move_evenly_are_found_in_every_frame_with_one_search_in_sixteen() -> None:
    def truth(number: int) -> list[tuple[float, float]]:
        return [(50 + 2 * number, 60), (350 - 3 * number, 60)]

    seen = Seen(truth)
    assert_all_found(followed([ROOM] * 33, seen), truth)
    assert sorted(seen.searched) == [0, 16, 32]


def test_a_head_that_turns_back_half_way_is_not_lost() -> None:
    def truth(number: int) -> list[tuple[float, float]]:
        return [(60 + 6 * min(number, 16 - number), 60)]

    seen = Seen(truth)
    assert_all_found(followed([ROOM] * 17, seen), truth)
    assert 8 in seen.searched


@pytest.mark.parametrize("first", range(1, 17))
def test_a_face_that_comes_is_found_from_its_first_frame_on(first: int) -> None:
    def truth(number: int) -> list[tuple[float, float]]:
        return [(50, 60)] + [(200, 60)] * (number >= first)

    seen = Seen(truth)
    assert_all_found(followed([ROOM] * 17, seen), truth)
    assert len(seen.searched) <= 4


@pytest.mark.parametrize("last", range(16))
def test_a_face_that_goes_is_found_to_its_last_frame_and_not_made_up_after(last: int) -> None:
    def truth(number: int) -> list[tuple[float, float]]:
        return [(50, 60)] * (number <= last)

    assert_all_found(followed([ROOM] * 17, Seen(truth)), truth)


@pytest.mark.parametrize("cut", [1, 2, 7, 16])
def test_both_sides_of_a_cut_are_searched(cut: int) -> None:
    def truth(number: int) -> list[tuple[float, float]]:
        return [(50, 60)] if number < cut else [(58, 60), (300, 60)]

    seen = Seen(truth)
    frames = [ROOM if number < cut else STREET for number in range(17)]
    assert_all_found(followed(frames, seen), truth)
    assert {cut - 1, cut} <= set(seen.searched)


def test_frames_of_another_size_are_another_shot() -> None:
    seen = Seen(lambda _: [(50, 60)])
    followed([ROOM] * 5 + [ROOM[:, :200]] * 5, seen)
    assert {0, 4, 5, 9} <= set(seen.searched)


def test_where_a_sure_face_is_not_followed_the_whole_frame_is_searched_more_often() -> None:
    def truth(_: int) -> list[tuple[float, float]]:
        return [(50, 60)]

    seen = Seen(truth, blind=range(6, 9))
    faces = followed([ROOM] * 17, seen)
    assert sorted(seen.searched) == [0, 4, 8, 16]
    assert [len(found) for found in faces] == [1] * 6 + [0, 0] + [1] * 9  # 6 and 7 lie between searches


def test_a_face_that_nobody_is_sure_of_costs_no_search() -> None:
    def truth(number: int) -> list[tuple[float, float]]:
        return [(50, 60)] * (number < 3)

    seen = Seen(truth, score=0.8)
    assert_all_found(followed([ROOM] * 17, seen), truth)
    assert sorted(seen.searched) == [0, 16]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_few_frames_are_enough(count: int) -> None:
    assert_all_found(followed([ROOM] * count, Seen(lambda _: [(50, 60)])), lambda _: [(50, 60)])
