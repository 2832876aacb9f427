"""Tracking finds every face of every frame, though few frames are searched completely."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from facefeed.pipeline.faces import Faces
from facefeed.pipeline.faces.detectors.cascade.rois import Rois
from facefeed.pipeline.faces.detectors.fixed import landmarks_in_box
from facefeed.pipeline.faces.detectors.keyframe_propagation import detect_with_propagation
from numpy.typing import NDArray

Rgb = NDArray[np.uint8]
Truth = Callable[[int], list[tuple[float, float]]]
"""Centres of the faces in a frame, by frame index."""
SIDE = 40
ROOM, STREET = (np.random.default_rng(seed).integers(0, 255, (120, 400, 3), np.uint8) for seed in (1, 2))


def boxes(centres: Sequence[tuple[float, float]]) -> NDArray[np.float32]:
    centre = np.array(centres, np.float32).reshape(-1, 2)
    return np.concatenate([centre - SIDE / 2, centre + SIDE / 2], axis=1)


class FakeSearch:
    """Detects the true faces: all of them in a full search, and in a ROI those less than half a face away."""

    def __init__(self, truth: Truth, *, score: float = 0.99, blind: range = range(0)) -> None:
        self.truth, self.score, self.blind = truth, score, blind
        self.keyframes: list[int] = []
        self.num_rois = 0

    def detect_full(self, frame_indices: Sequence[int]) -> list[Faces]:
        self.keyframes += frame_indices
        return [self.faces(boxes(self.truth(frame_index))) for frame_index in frame_indices]

    def detect_in_rois(self, rois: Rois) -> dict[int, Faces]:
        self.num_rois += len(rois)
        detected = {}
        for frame_index in np.unique(rois.frame_indices).tolist():
            true_boxes = boxes(self.truth(frame_index))
            roi_boxes = rois.boxes[rois.frame_indices == frame_index]
            distances = np.abs(true_boxes[:, None] - roi_boxes).max(axis=2).min(axis=1)
            detected[frame_index] = self.faces(true_boxes[(distances < SIDE / 2) & (frame_index not in self.blind)])
        return detected

    def faces(self, true_boxes: NDArray[np.float32]) -> Faces:
        return Faces(true_boxes, np.full(len(true_boxes), self.score, np.float32), landmarks_in_box(true_boxes))


def assert_all_detected(faces: Sequence[Faces], truth: Truth) -> None:
    for frame_index, detected in enumerate(faces):
        true_boxes = boxes(truth(frame_index))
        assert sorted(map(tuple, detected.boxes_xyxy)) == sorted(map(tuple, true_boxes)), f"frame {frame_index}"


def test_faces_in_uniform_motion_are_detected_in_every_frame_with_one_keyframe_in_sixteen() -> None:
    def truth(frame_index: int) -> list[tuple[float, float]]:
        return [(50 + 2 * frame_index, 60), (350 - 3 * frame_index, 60)]

    search = FakeSearch(truth)
    assert_all_detected(detect_with_propagation([ROOM] * 33, search), truth)
    assert sorted(search.keyframes) == [0, 16, 32]


def test_a_head_that_turns_back_half_way_is_not_lost() -> None:
    def truth(frame_index: int) -> list[tuple[float, float]]:
        return [(60 + 6 * min(frame_index, 16 - frame_index), 60)]

    search = FakeSearch(truth)
    assert_all_detected(detect_with_propagation([ROOM] * 17, search), truth)
    assert 8 in search.keyframes


@pytest.mark.parametrize("first", range(1, 17))
def test_a_face_that_appears_is_detected_from_its_first_frame_on(first: int) -> None:
    def truth(frame_index: int) -> list[tuple[float, float]]:
        return [(50, 60)] + [(200, 60)] * (frame_index >= first)

    search = FakeSearch(truth)
    assert_all_detected(detect_with_propagation([ROOM] * 17, search), truth)
    assert len(search.keyframes) <= 4


@pytest.mark.parametrize("last", range(16))
def test_a_face_that_disappears_is_detected_up_to_its_last_frame_only(last: int) -> None:
    def truth(frame_index: int) -> list[tuple[float, float]]:
        return [(50, 60)] * (frame_index <= last)

    assert_all_detected(detect_with_propagation([ROOM] * 17, FakeSearch(truth)), truth)


@pytest.mark.parametrize("cut", [1, 2, 7, 16])
def test_both_sides_of_a_cut_are_searched(cut: int) -> None:
    def truth(frame_index: int) -> list[tuple[float, float]]:
        return [(50, 60)] if frame_index < cut else [(58, 60), (300, 60)]

    search = FakeSearch(truth)
    frames = [ROOM if frame_index < cut else STREET for frame_index in range(17)]
    assert_all_detected(detect_with_propagation(frames, search), truth)
    assert {cut - 1, cut} <= set(search.keyframes)


def test_frames_of_another_size_are_another_shot() -> None:
    search = FakeSearch(lambda _: [(50, 60)])
    detect_with_propagation([ROOM] * 5 + [ROOM[:, :200]] * 5, search)
    assert {0, 4, 5, 9} <= set(search.keyframes)


def test_a_segment_that_misses_a_certain_face_is_split() -> None:
    def truth(_: int) -> list[tuple[float, float]]:
        return [(50, 60)]

    search = FakeSearch(truth, blind=range(6, 9))
    faces = detect_with_propagation([ROOM] * 17, search)
    assert sorted(search.keyframes) == [0, 4, 8, 16]
    assert [len(detected) for detected in faces] == [1] * 6 + [0, 0] + [1] * 9  # 6 and 7 lie between searches


def test_an_uncertain_face_adds_no_keyframe() -> None:
    def truth(frame_index: int) -> list[tuple[float, float]]:
        return [(50, 60)] * (frame_index < 3)

    search = FakeSearch(truth, score=0.8)
    assert_all_detected(detect_with_propagation([ROOM] * 17, search), truth)
    assert sorted(search.keyframes) == [0, 16]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_few_frames_are_enough(count: int) -> None:
    assert_all_detected(detect_with_propagation([ROOM] * count, FakeSearch(lambda _: [(50, 60)])), lambda _: [(50, 60)])
