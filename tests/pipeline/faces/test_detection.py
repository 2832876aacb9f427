"""`Faces`, `FaceFilter` and `FixedBoxDetector`."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces import FaceDetector, FaceFilter, Faces
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector


def faces(scores: list[float], sides: list[float] | None = None) -> Faces:
    count = len(scores)
    boxes = np.zeros((count, 4), np.float32)
    boxes[:, 2] = 200
    boxes[:, 3] = 100 if sides is None else sides
    return Faces(boxes, np.array(scores, np.float32), np.zeros((count, 5, 2), np.float32))


def test_printing_faces_shows_shapes_not_data() -> None:
    assert repr(faces([1.0, 0.9])) == "Faces(boxes_xyxy=(2, 4), scores=(2,), landmarks=(2, 5, 2))"
    assert len(Faces.empty()) == 0


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("boxes_xyxy", np.zeros((2, 4), np.float64), "float64"),
        ("boxes_xyxy", np.zeros((3, 4), np.float32), r"\(3, 4\)"),
        ("boxes_xyxy", np.full((2, 4), np.nan, np.float32), "finite"),
        ("boxes_xyxy", np.array([[10, 10, 5, 5]] * 2, np.float32), "xywh"),
        ("scores", np.array([0.5, 1.5], np.float32), "0..1"),
        ("landmarks", np.zeros((2, 10), np.float32), r"\(2, 10\)"),
    ],
)
def test_faces_that_break_the_contract_are_refused(field: str, value: object, message: str) -> None:
    whole = {name: getattr(faces([1.0, 0.9]), name) for name in ("boxes_xyxy", "scores", "landmarks")}
    with pytest.raises(UsageError, match=message):
        Faces(**{**whole, field: value})


def test_faces_are_selected_by_mask_and_by_index() -> None:
    three = faces([1.0, 0.9, 0.8])
    assert three.select(np.array([True, False, True])).scores.tolist() == pytest.approx([1.0, 0.8])
    assert three.select(np.array([2, 0])).scores.tolist() == pytest.approx([0.8, 1.0])
    assert len(Faces.empty().select(np.zeros(0, bool))) == 0


def test_the_filter_drops_small_and_doubtful_faces() -> None:
    kept = FaceFilter(min_face_px=40, min_score=0.9)(faces([1.0, 0.99, 0.5, 0.9], [39, 40, 100, 100]))
    assert kept.scores.tolist() == pytest.approx([0.99, 0.9])  # a score of just 0.9 stays
    assert kept.boxes_xyxy[:, 3].tolist() == [40, 100]  # the shorter side counts


def test_the_filter_keeps_the_k_most_confident_in_their_order() -> None:
    kept = FaceFilter(max_faces=2)(faces([0.91, 0.99, 0.95, 0.99]))
    assert kept.scores.tolist() == pytest.approx([0.99, 0.99])
    kept = FaceFilter(max_faces=3)(faces([0.91, 0.95, 0.95, 0.99, 0.95]))
    assert kept.scores.tolist() == pytest.approx([0.95, 0.95, 0.99])
    assert len(FaceFilter(max_faces=2)(Faces.empty())) == 0


@pytest.mark.parametrize("options", [{"max_faces": 0}, {"min_face_px": -1}, {"min_score": 1.1}])
def test_an_invalid_filter_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        FaceFilter(**options)  # type: ignore[arg-type]


def test_the_fake_scales_its_box_with_the_frame() -> None:
    detector: FaceDetector = FixedBoxDetector([(0.25, 0.25, 0.75, 0.75)])
    (detected,) = detector.detect([np.zeros((200, 100, 3), np.uint8)])
    assert detected.boxes_xyxy.tolist() == [[25, 50, 75, 150]]
    left_eye, right_eye, nose, left_mouth, right_mouth = detected.landmarks[0]
    assert left_eye[0] < nose[0] < right_eye[0]
    assert left_mouth[0] < right_mouth[0]
    assert left_eye[1] < nose[1] < left_mouth[1]


def test_the_fake_works_at_any_size_and_with_no_box() -> None:
    frames = [np.zeros(shape, np.uint8) for shape in [(1, 1, 3), (2, 500, 3)]]
    assert [len(detected) for detected in FixedBoxDetector().detect(frames)] == [1, 1]
    assert [len(detected) for detected in FixedBoxDetector([]).detect(frames)] == [0, 0]
    assert FixedBoxDetector().detect([]) == []


def test_the_fakes_fingerprint_follows_its_boxes() -> None:
    default, other = FixedBoxDetector(), FixedBoxDetector([(0.0, 0.0, 1.0, 1.0)])
    assert default.fingerprint == FixedBoxDetector().fingerprint != other.fingerprint
    assert pickle.loads(pickle.dumps(other)) == other


def test_a_fake_with_an_impossible_box_is_refused() -> None:
    with pytest.raises(UsageError, match="xywh"):
        FixedBoxDetector([(0.5, 0.5, 0.2, 0.2)])


def test_importing_the_room_and_asking_for_a_fingerprint_loads_no_model_library() -> None:
    code = (
        "import sys; from facefeed.pipeline.faces import Faces; "
        "from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector; "
        "from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector; print(MTCNNDetector().fingerprint); "
        "sys.exit(bool({'torch', 'cv2', 'facenet_pytorch', 'dask'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("mtcnn-")
