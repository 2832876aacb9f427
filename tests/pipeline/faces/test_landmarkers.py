"""Landmarkers outline every face; the mesh's points lie where people put them, and it knows what is no face."""

from __future__ import annotations

import pickle

import cv2
import numpy as np
import pytest
from assets_annotated import annotated_photos, five_of_68
from assets_mesh import mesh_landmarker
from facefeed.data.portraits import load_portrait
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces import Faces
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.faces.geometry.regions import REGIONS, mouth_openness, region_boxes_68
from facefeed.pipeline.faces.landmarks import FaceShape, Landmarker
from facefeed.pipeline.faces.landmarks.by_name import make_landmarker
from facefeed.pipeline.faces.landmarks.mesh.landmarker import MeshLandmarker
from facefeed.pipeline.faces.landmarks.template import TemplateLandmarker
from numpy.typing import NDArray

Rgb = NDArray[np.uint8]
EYES = [slice(36, 42), slice(42, 48)]


@pytest.fixture(scope="module")
def mesh() -> MeshLandmarker:
    return mesh_landmarker()


@pytest.fixture(scope="module")
def astronaut() -> Rgb:
    return np.ascontiguousarray(load_portrait("astronaut").image[..., ::-1])


ASTRONAUT = np.array([(205.4, 101.5), (246.9, 103.1), (225.1, 129.2), (201.2, 139.6), (245.1, 141.1)], np.float32)
"""Her five landmarks, px of her portrait of 512 x 512."""


def faces_at(*landmarks5: NDArray[np.floating]) -> Faces:
    points = np.stack(landmarks5).astype(np.float32)
    boxes = np.concatenate([points.min(axis=1) - 25, points.max(axis=1) + 25], axis=1)
    return Faces(boxes, np.ones(len(points), np.float32), points)


def shape_of(mesh: MeshLandmarker, rgb: Rgb, landmarks5: NDArray[np.floating]) -> FaceShape:
    ((shape,),) = mesh.locate([rgb], [faces_at(landmarks5)])
    return shape


def area(hull: NDArray[np.floating]) -> float:
    return float(cv2.contourArea(hull.astype(np.float32)))


def overlap(points: NDArray[np.floating], others: NDArray[np.floating]) -> float:
    """Intersection over union of the convex hulls of two sets of points."""
    first, second = (cv2.convexHull(each.astype(np.float32))[:, 0] for each in (points, others))
    common = cv2.intersectConvexConvex(first, second)[0]
    return common / (area(first) + area(second) - common)


# --- the template


def test_the_template_outlines_every_face_even_without_landmarks() -> None:
    landmarker: Landmarker = TemplateLandmarker()
    rgb = np.zeros((100, 200, 3), np.uint8)
    good = FixedBoxDetector([(0.1, 0.2, 0.4, 0.9), (0.6, 0.2, 0.9, 0.9)]).detect([rgb])[0]
    boxes = np.concatenate([good.boxes_xyxy, np.full((1, 4), 9, np.float32)])
    flat = np.zeros((2, 5, 2), np.float32)  # nothing but coinciding points, once in a box without area
    faces = Faces(boxes, np.ones(3, np.float32), np.concatenate([good.landmarks[:1], flat]))
    shapes, nothing = landmarker.locate([rgb, rgb], [faces, Faces.empty()])
    assert nothing == []
    assert [shape.method for shape in shapes] == ["template5"] * 3
    assert all(shape.hull.shape[1] == 2 and area(shape.hull) > 0 for shape in shapes)
    assert [shape.hull[:, 0].mean() // 100 for shape in shapes] == [0, 1, 0]
    assert all(shape.score is shape.dense is shape.points_68 is shape.pose_degrees is None for shape in shapes)


def test_an_unknown_landmarker_is_refused_with_the_names_there_are() -> None:
    assert isinstance(make_landmarker("template5"), TemplateLandmarker)
    with pytest.raises(UsageError, match="must be template5, mesh"):
        make_landmarker("dlib")


# --- the mesh


def test_the_mesh_lies_where_people_annotated_68_points(mesh: MeshLandmarker) -> None:
    inner_errors, overlaps = [], []
    for path, faces in annotated_photos():
        rgb = np.ascontiguousarray(cv2.imread(str(path))[..., ::-1])
        for points in faces:
            between_eyes_px = np.linalg.norm(points[36] - points[45])
            if between_eyes_px < 25 or path.stem == "breakingbad":  # smaller than a crop of 64 px; in half profile
                continue
            shape = shape_of(mesh, rgb, five_of_68(points))
            assert shape.points_68 is not None
            inner_errors.append(np.linalg.norm(shape.points_68 - points, axis=1)[17:].mean() / between_eyes_px)
            overlaps.append(overlap(shape.points_68, points))
    # Measured: .037 of the distance between the eyes' outer corners, and .93.
    assert len(overlaps) == 8
    assert np.mean(inner_errors) <= 0.045
    assert np.mean(overlaps) >= 0.92


def test_the_mesh_scores_what_is_no_face_low_and_outlines_it_by_the_template(mesh: MeshLandmarker) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (512, 512, 3), np.uint8)
    flag = np.ascontiguousarray(load_portrait("astronaut").image[:, :, ::-1][::-1])  # she stands on her head
    for rgb in (noise, np.zeros((512, 512, 3), np.uint8), flag):
        shape = shape_of(mesh, rgb, ASTRONAUT)
        assert shape.score is not None
        assert shape.score < 0.5
        assert shape.method == "template5"
        assert shape.dense is shape.points_68 is shape.pose_degrees is None
        expected = TemplateLandmarker().locate([rgb], [faces_at(ASTRONAUT)])[0][0].hull
        assert shape.hull.tolist() == expected.tolist()


def test_the_mesh_finds_a_face_again_from_rough_landmarks(mesh: MeshLandmarker, astronaut: Rgb) -> None:
    exact = shape_of(mesh, astronaut, ASTRONAUT)
    assert exact.dense is not None
    for scale, shift in ((1.4, 0), (0.75, 0), (1.0, 12)):
        rough = (ASTRONAUT - ASTRONAUT.mean(axis=0)) * scale + ASTRONAUT.mean(axis=0) + shift
        shape = shape_of(mesh, astronaut, rough)
        assert shape.dense is not None
        assert np.abs(shape.dense[:, :2] - exact.dense[:, :2]).mean() < 2.5, "px, of 43 between her eyes"


@pytest.mark.parametrize("degrees", [-50, 25, 170])
def test_points_and_roll_follow_a_turned_picture(mesh: MeshLandmarker, astronaut: Rgb, degrees: int) -> None:
    upright = shape_of(mesh, astronaut, ASTRONAUT)
    turn = cv2.getRotationMatrix2D(
        (255.5, 255.5), -degrees, 1
    )  # OpenCV counts against the clock, and from pixel centres

    def moved(points: NDArray[np.floating]) -> NDArray[np.floating]:
        return (points - 0.5) @ turn[:, :2].T + turn[:, 2] + 0.5

    turned = shape_of(mesh, np.asarray(cv2.warpAffine(astronaut, turn, (512, 512)), np.uint8), moved(ASTRONAUT))
    assert upright.dense is not None
    assert turned.dense is not None
    assert np.abs(turned.dense[:, :2] - moved(upright.dense[:, :2])).mean() < 0.5
    assert upright.pose_degrees is not None
    assert turned.pose_degrees is not None
    change = turned.pose_degrees - upright.pose_degrees
    assert (change[2] - degrees + 180) % 360 - 180 == pytest.approx(0, abs=4)
    assert np.abs(change[:2]).max() < 4, "yaw and pitch are the head's own"


def test_a_mirrored_face_looks_the_other_way(mesh: MeshLandmarker, astronaut: Rgb) -> None:
    squeezed = cv2.resize(astronaut, (512, 512))[:, :, :]
    mirrored = np.ascontiguousarray(squeezed[:, ::-1])
    own, other = (
        shape_of(mesh, rgb, points)
        for rgb, points in (
            (squeezed, ASTRONAUT),
            (mirrored, ((512, 0) + ASTRONAUT * (-1, 1))[[1, 0, 2, 4, 3]]),
        )
    )
    assert own.pose_degrees is not None
    assert other.pose_degrees is not None
    np.testing.assert_allclose(other.pose_degrees * (-1, 1, -1), own.pose_degrees, atol=3)


def test_a_nose_to_the_right_is_a_positive_yaw_and_one_that_points_up_a_positive_pitch() -> None:
    from facefeed.pipeline.faces.landmarks.mesh.topology import pose_degrees  # noqa: PLC0415

    rng = np.random.default_rng(0)
    head = np.column_stack([rng.normal(0, 1, (468, 2)), rng.normal(0, 0.1, 468)])
    for left, right, x, y in (
        (234, 454, 1.0, 0.1), (127, 356, 1.0, 0.0), (93, 323, 1.0, 0.3), (33, 263, 0.6, 0.0), (133, 362, 0.2, 0.0),
        (61, 291, 0.4, 0.9), (70, 300, 0.7, -0.3), (50, 280, 0.6, 0.5), (172, 397, 0.8, 1.1),
    ):  # fmt: skip
        head[left], head[right] = (-x, y, 0), (x, y, 0)
    head[10], head[152] = (0, -1.2, 0), (0, 1.6, 0)
    nose = np.array([0, 0, -1.0])  # away from the face, towards the viewer
    for yaw, pitch, roll in ((30, 0, 0), (0, 20, 0), (0, 0, 15), (-40, 25, -10)):
        y, p, r = np.deg2rad([yaw, pitch, roll])
        turn_y = np.array([[np.cos(y), 0, -np.sin(y)], [0, 1, 0], [np.sin(y), 0, np.cos(y)]])
        turn_p = np.array([[1, 0, 0], [0, np.cos(p), np.sin(p)], [0, -np.sin(p), np.cos(p)]])
        turn_r = np.array([[np.cos(r), -np.sin(r), 0], [np.sin(r), np.cos(r), 0], [0, 0, 1]])
        turn = turn_r @ turn_y @ turn_p
        before_roll = turn_y @ turn_p @ nose
        assert np.sign(before_roll[0]) == np.sign(yaw)
        assert np.sign(before_roll[1]) == -np.sign(pitch)
        np.testing.assert_allclose(pose_degrees((head @ turn.T).astype(np.float32)), (yaw, pitch, roll), atol=0.01)


def test_a_face_has_the_same_points_whatever_comes_with_it(mesh: MeshLandmarker, astronaut: Rgb) -> None:
    alone = shape_of(mesh, astronaut, ASTRONAUT)
    others = faces_at(ASTRONAUT + 100, ASTRONAUT, ASTRONAUT * 0 + 5)
    nothing, (_, again, _) = pickle.loads(pickle.dumps(mesh)).locate([astronaut, astronaut], [Faces.empty(), others])
    assert nothing == []
    assert alone.dense is not None
    assert again.dense is not None
    assert again.dense.tolist() == alone.dense.tolist()


def test_any_landmarks_get_a_shape(mesh: MeshLandmarker) -> None:
    rng = np.random.default_rng(0)
    for rgb in (np.zeros((1, 1, 3), np.uint8), rng.integers(0, 256, (40, 900, 3), np.uint8)):
        strange = [rng.normal(0, 10**power, (5, 2)) for power in range(-3, 5)] + [np.full((5, 2), 1e5)]
        (shapes,) = mesh.locate([rgb], [faces_at(*strange)])
        assert len(shapes) == len(strange)
        assert all(np.isfinite(shape.hull).all() and area(shape.hull) > 0 for shape in shapes)


def test_regions_of_68_points_hold_their_parts(mesh: MeshLandmarker, astronaut: Rgb) -> None:
    shape = shape_of(mesh, astronaut, ASTRONAUT)
    points = shape.points_68
    assert points is not None
    boxes = region_boxes_68(points, shape.hull)
    assert tuple(boxes) == REGIONS
    parts = {"left_brow": points[17:22], "right_brow": points[22:27], "nose": points[27:36], "left_eye": points[36:42],
             "right_eye": points[42:48], "mouth": points[48:], "face": shape.hull}  # fmt: skip
    for name, part in parts.items():
        assert (boxes[name][:2] <= part.min(axis=0)).all(), name
        assert (part.max(axis=0) <= boxes[name][2:]).all(), name
    np.testing.assert_allclose(ASTRONAUT[:2], [points[eye].mean(axis=0) for eye in EYES], atol=3)
    assert boxes["left_brow"][3] < ASTRONAUT[0, 1] < boxes["left_eye"][3] < boxes["mouth"][1]
    assert boxes["left_brow"][2] < boxes["right_brow"][0]


def test_a_mouth_that_opens_is_more_open() -> None:
    points = np.zeros((68, 2))
    points[60], points[64] = (0, 0), (40, 0)
    points[[61, 62, 63]] = points[[67, 66, 65]] = [(10, 0), (20, 0), (30, 0)]
    assert mouth_openness(points) == 0
    points[[67, 66, 65], 1] = 20
    assert mouth_openness(points) == pytest.approx(0.5)
    assert mouth_openness(np.zeros((68, 2))) == 0
