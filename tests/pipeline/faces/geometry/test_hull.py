"""Hull and regions enclose the face, whatever its pose."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from assets_annotated import annotated_faces
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces.geometry.hull import TEMPLATE5, template_hull, yaw_radians
from facefeed.pipeline.faces.geometry.regions import REGIONS, region_boxes, sharpness
from numpy.typing import NDArray

Points = NDArray[np.float64]
MEAN_FACE = np.array(list(TEMPLATE5.values()))
BELOW_BROWS = [name for name in TEMPLATE5 if not name.endswith(("hairline", "forehead", "temple"))]


def seen(points: Points, turn: float, tilt: float) -> Points:
    """Project points (N, 3) of a head turned by `turn` and tilted by `tilt` (radians): (N, 2)."""
    flat = np.column_stack([points[:, 0] * np.cos(turn) + points[:, 2] * np.sin(turn), points[:, 1]])
    c, s = np.cos(tilt), np.sin(tilt)
    return 40 * flat @ np.array([[c, s], [-s, c]]) + (100, 120)


def area(hull: NDArray[np.floating]) -> float:
    return float(cv2.contourArea(hull.astype(np.float32)))


def depth(hull: NDArray[np.floating], points: NDArray[np.floating]) -> Points:
    """Distance of each point to the hull's edge, px, positive inside."""
    polygon = hull.astype(np.float32)
    return np.array([cv2.pointPolygonTest(polygon, (float(x), float(y)), True) for x, y in points])


def test_the_hull_covers_annotated_faces() -> None:
    covered, within = [], []
    for points, five in annotated_faces():
        truth, hull = cv2.convexHull(points.astype(np.float32))[:, 0], template_hull(five)
        covered.append(cv2.intersectConvexConvex(hull, truth)[0] / area(truth))
        within.append(np.mean(depth(hull, points) >= -0.05 * np.ptp(points[:17, 0])))
    # Measured on 21 faces, 10 of them turned by 20 to 50 degrees: .927 and .949 (.831 and .901 unturned).
    assert np.mean(covered) >= 0.91
    assert min(covered) >= 0.80
    assert np.mean(within) >= 0.93


def test_below_the_brows_the_hull_is_the_annotated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # The 68 points have no forehead, so that the template goes without its own here.
    outline = np.array([TEMPLATE5[name] for name in BELOW_BROWS])
    monkeypatch.setattr("facefeed.pipeline.faces.geometry.hull._OUTLINE", outline)
    overlaps = []
    for points, five in annotated_faces():
        truth, hull = cv2.convexHull(points.astype(np.float32))[:, 0], template_hull(five)
        common = cv2.intersectConvexConvex(hull, truth)[0]
        overlaps.append(common / (area(hull) + area(truth) - common))
    assert np.mean(overlaps) >= 0.87  # measured: .884; a template that cannot turn: .689
    assert min(overlaps) >= 0.75


@pytest.mark.parametrize("tilt", [-2.0, -0.5, 0.0, 0.5, 3.1])
@pytest.mark.parametrize("turn", [-60, -30, 0, 30, 60])
def test_the_hull_follows_a_head_that_turns_and_tilts(turn: int, tilt: float) -> None:
    landmarks = seen(MEAN_FACE[:5], np.deg2rad(turn), tilt)
    assert np.rad2deg(yaw_radians(landmarks)) == pytest.approx(turn, abs=1.5)
    hull = template_hull(landmarks)
    assert depth(hull, seen(MEAN_FACE, np.deg2rad(turn), tilt)).min() > -1.5
    assert cv2.isContourConvex(hull)


def test_the_hull_holds_the_landmarks_of_any_five_points() -> None:
    rng = np.random.default_rng(0)
    for landmarks in rng.normal(100, 30, (200, 5, 2)):
        hull = template_hull(landmarks)
        assert hull.dtype == np.float32
        assert len(hull) >= 3
        assert depth(hull, landmarks).min() > -1e-2


def test_moving_and_scaling_a_face_moves_and_scales_its_hull() -> None:
    landmarks = seen(MEAN_FACE[:5], 0.3, 0.2)
    np.testing.assert_allclose(template_hull(landmarks * 2 + 50), template_hull(landmarks) * 2 + 50, atol=0.01)


@pytest.mark.parametrize("landmarks", [np.zeros((5, 2)), np.full((5, 2), 7.5), np.full((5, 2), np.nan)])
def test_landmarks_without_a_face_are_refused(landmarks: Points) -> None:
    with pytest.raises(UsageError, match="no face can be laid"):
        template_hull(landmarks)


@pytest.mark.parametrize("turn", [-60, -30, 0, 30, 60])
@pytest.mark.parametrize("tilt", [-0.6, 0.0, 0.6])
def test_each_region_holds_its_part(turn: int, tilt: float) -> None:
    landmarks = seen(MEAN_FACE[:5], np.deg2rad(turn), tilt)
    hull = template_hull(landmarks)
    boxes = region_boxes(landmarks, hull)
    assert tuple(boxes) == REGIONS
    parts = {"left_eye": [0], "right_eye": [1], "nose": [2], "mouth": [3, 4], "face": [0, 1, 2, 3, 4]}
    for part, box in boxes.items():
        assert box.dtype == np.float32
        if part.endswith("brow"):
            continue
        for point in landmarks[parts[part]]:
            assert (box[:2] < point).all(), part
            assert (point < box[2:]).all(), part
    assert boxes["face"].tolist() == [*hull.min(axis=0).tolist(), *hull.max(axis=0).tolist()]


def test_the_eyes_keep_their_size_in_profile() -> None:
    def eye_width(turn: float) -> float:
        landmarks = seen(MEAN_FACE[:5], turn, 0.0)
        box = region_boxes(landmarks, template_hull(landmarks))["left_eye"]
        return float(box[2] - box[0])

    assert eye_width(1.2) == pytest.approx(eye_width(0.0), rel=0.05)


def test_regions_of_coinciding_landmarks_are_finite() -> None:
    boxes = region_boxes(np.full((5, 2), 3.0), np.zeros((4, 2)))
    assert np.isfinite(list(boxes.values())).all()


def test_blur_lowers_sharpness_and_flat_is_zero() -> None:
    crop = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    assert sharpness(crop) > 10 * sharpness(cv2.GaussianBlur(crop, (9, 9), 3)) > 0
    assert sharpness(np.full((1, 1, 3), 9, np.uint8)) == 0.0
