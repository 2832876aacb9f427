"""Whether the comparison of face engines tells the truth: two engines that differ must never look alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.faces_agreement import agree, five_points, mean_error, pair_off, truth_errors, unconfirmed
from benchmarks.faces_figures import goals, ratios, speed, totals, tracking
from facefeed.pipeline.faces import Faces

FACE = np.array([[30, 40], [70, 40], [50, 60], [35, 80], [65, 80]], np.float32)
"""Five points of a face in a box of 100 px; its eyes are 40 px apart."""


def faces(*lefts: float, scores: tuple[float, ...] = (), down: float = 0) -> Faces:
    """Faces of 100 px beside each other, `lefts` px from the left border; scores of .99 if none are named."""
    corners = [[left, down, left + 100, down + 100] for left in lefts]
    points = [FACE + np.float32([left, down]) for left in lefts]
    return Faces(
        np.array(corners, np.float32).reshape(-1, 4),
        np.array(scores or [0.99] * len(lefts), np.float32),
        np.array(points, np.float32).reshape(-1, 5, 2),
    )


def test_the_same_faces_agree_whatever_their_order() -> None:
    figures = agree([faces(0, 300), faces(0)], [faces(300, 0), faces(0)])
    assert (figures["recall"], figures["reverse"], figures["same_count"]) == (1, 1, 1)
    assert (figures["landmarks_mean"], figures["landmarks_worst"], figures["box_px"], figures["score"]) == (0, 0, 0, 0)
    assert figures["strong_faces"] == [3, 3]


def test_a_shift_is_measured_in_px_and_as_a_share_of_the_eyes_distance() -> None:
    figures = agree([faces(0), faces(0)], [faces(0), faces(0, down=4)])
    assert figures["landmarks_mean"] == pytest.approx(4 / 40 / 2)
    assert figures["landmarks_worst"] == pytest.approx(4 / 40)
    assert figures["box_px"] == 4
    assert figures["recall"] == 1


def test_a_face_that_one_engine_lacks_lowers_recall_on_its_side_alone() -> None:
    figures = agree([faces(0, 300)], [faces(0)])
    assert (figures["recall"], figures["reverse"], figures["same_count"]) == (0.5, 1, 0)
    figures = agree([faces(0)], [faces(0, 300)])
    assert (figures["recall"], figures["reverse"], figures["same_count"]) == (1, 0.5, 0)


def test_a_weak_face_that_is_missed_changes_the_count_and_no_recall() -> None:
    figures = agree([faces(0, 300, scores=(0.99, 0.9))], [faces(0)])
    assert (figures["recall"], figures["reverse"], figures["same_count"]) == (1, 1, 0)


def test_a_strong_face_that_the_other_holds_for_a_weak_one_is_found() -> None:
    figures = agree([faces(0)], [faces(0, scores=(0.8,))])
    assert (figures["recall"], figures["reverse"]) == (1, None)
    assert figures["score"] == pytest.approx(0.19)


def test_one_face_never_stands_for_two() -> None:
    figures = agree([faces(0, 4)], [faces(0)])
    assert figures["recall"] == 0.5
    assert figures["box_px"] == 0


@pytest.mark.parametrize(("shift", "recall"), [(24, 1), (26, 0)])  # an IoU of .613 and .587
def test_boxes_that_overlap_too_little_are_different_faces(shift: float, recall: float) -> None:
    assert agree([faces(0)], [faces(shift)])["recall"] == recall


def test_frames_without_faces_agree_and_say_nothing_of_recall() -> None:
    figures = agree([Faces.empty()], [Faces.empty()])
    assert figures["same_count"] == 1
    assert figures["recall"] is figures["reverse"] is figures["landmarks_mean"] is figures["box_px"] is None


def test_the_closest_are_paired_first() -> None:
    assert pair_off(np.array([[0.2, 0.1], [0.3, 0.25]]), below=0.4) == [(0, 1), (1, 0)]
    assert pair_off(np.array([[0.2, 0.1], [0.4, 0.25]]), below=0.4) == [(0, 1)]


def test_five_points_are_the_middles_of_the_eyes_the_nose_tip_and_the_mouth_corners() -> None:
    points = np.full((68, 2), np.nan)
    points[36:42], points[42:48] = [30, 40], [70, 40]
    points[36, 0], points[39, 0] = 20, 40
    points[30], points[48], points[54] = [50, 60], [35, 80], [65, 80]
    np.testing.assert_allclose(five_points(points), FACE)


def test_an_annotated_face_is_found_where_the_points_are_near_and_by_one_face_alone() -> None:
    near, far = faces(0, down=9), faces(0, down=11)  # a quarter of the eyes' distance is 10 px
    assert truth_errors(FACE[None], near) == [pytest.approx(9 / 40)]
    assert truth_errors(FACE[None], far) == [None]
    assert truth_errors(FACE[None], Faces.empty()) == [None]
    assert truth_errors(np.stack([FACE + 2, FACE]), faces(0)) == [None, 0]
    assert mean_error([None, 0.1, 0.3]) == pytest.approx(0.2)
    assert mean_error([None]) is None


def test_ratios_are_taken_within_a_repeat_and_totals_over_sums() -> None:
    slow = {"seconds": {"facenet": [3.0, 8.0, 30.0], "ours": [1.0, 2.0, 6.0]}, "frames": 2}
    quick = {"seconds": {"facenet": [1.0, 1.0, 1.0], "ours": [1.0, 1.0, 1.0]}, "frames": 2}
    assert ratios(slow["seconds"]) == {"facenet": 4}
    summed = totals({"slow": slow, "quick": quick}, {})
    assert summed["seconds"] == {"facenet": [4, 9, 31], "ours": [2, 3, 7]}
    assert summed["ratio"] == {"facenet": 3}
    assert summed["worst"] == {"facenet": (1, "quick")}


def test_the_share_of_decoding_is_ours_over_the_decoders_rate() -> None:
    clip = {"seconds": {"ours": [0.5, 1.0, 4.0]}, "frames": 20, "decoding": {"every_10": [40.0], "every_1": [200.0]}}
    speeds = speed(clip)
    assert speeds["share_of_decoding"] == {"every_10": 0.5, "every_1": 0.1}
    assert speeds["ms_a_frame"] == {"ours": [25, 50, 200]}


def test_a_goal_is_missed_by_too_little_and_by_nothing_measured() -> None:
    ours: dict[str, Any] = {"recall": 0.9989, "reverse": None, "landmarks_mean": 0.005}
    total = {"ratio": {"facenet": 3.0}, "worst": {"facenet": (2.4, "crowd")}, "agreement": {"ours": ours}}
    assert [is_met for *_, is_met in goals({"total": total})] == [True, False, False, False, True]


@pytest.mark.parametrize(("recall", "error", "met"), [(0.8, 0.1, [True, True]), (0.79, 0.1002, [False, False])])
def test_ground_truth_is_held_against_facenets_own(recall: float, error: float, met: list[bool]) -> None:
    facenet = {"recall": 0.8, "error_where_both": 0.1}
    checked_goals = goals({"truth": {"facenet": facenet, "ours": {"recall": recall, "error_where_both": error}}})
    assert [is_met for *_, is_met in checked_goals] == met


def test_a_followed_face_counts_as_confirmed_only_where_a_full_search_has_it_within_two_frames() -> None:
    full = [faces(0), faces(), faces(), faces(), faces(300)]
    assert unconfirmed(full, [faces(0)] * 5, every=1) == (2, 5)
    assert unconfirmed(full, [faces(0)] * 5, every=10) == (4, 5)
    assert unconfirmed([faces()], [faces()], every=1) == (0, 0)


def test_tracking_is_summed_over_clips_and_held_against_its_goals() -> None:
    def clip(track_seconds: float, detected: list[Faces]) -> dict[str, Any]:
        full = [faces(0), faces(0)]
        clip_figures = {
            "frames": 2,
            "seconds": {"facenet": [30.0, 30.0], "ours": [6.0, 6.0], "track": [track_seconds] * 2},
            "decoding": {"every_1": [4.0], "every_10": [4.0]},
            "agreement": {"track": agree(full, detected)},
            "unconfirmed": {"track": unconfirmed(full, detected, 1)},
        }
        return {"every_1": clip_figures, "every_10": clip_figures}

    total = tracking({"fast": clip(1.0, [faces(0), faces(0)]), "slow": clip(5.0, [faces(0), faces(300)])})
    assert total["every_1"]["ratio"] == pytest.approx(60 / 6)
    assert total["every_1"]["ratio_of_clip"] == {"fast": 30.0, "slow": 6.0}
    assert total["every_1"]["share_of_decoding"] == pytest.approx(1.0 / 6)
    assert (total["every_1"]["recall"], total["every_1"]["unconfirmed"]) == (0.75, 0.25)
    met = {goal: is_met for goal, _, _, is_met in goals({"track": {"total": total}})}
    assert not met["track, every_1: times as fast as facenet, in total"]
    assert met["track, every_10: times as fast as facenet, in total"]
    assert not met["track, every_1: times as fast as facenet, worst clip (slow)"]
    assert not met["track, every_1: recall of facenet's strong faces, worst clip (slow)"]
    assert not met["track, every_1: share that no full search confirms"]
    assert met["track, every_1: landmarks, mean over eyes' distance"]
