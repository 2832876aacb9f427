"""`--detector track`: MTCNN's faces in far less time, and none that is not there."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Sequence
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from assets_in_process import in_process
from assets_paths import MEDIA
from assets_video import write_video
from facefeed.data.portraits import load_portrait
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces import Faces
from facefeed.pipeline.faces.detectors.keyframe_detector import TrackingDetector
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.video import Sampling
from numpy.typing import NDArray

Rgb = NDArray[np.uint8]
CLIPS = {
    "talking head": "LivePortrait/assets/examples/driving/d9.mp4",
    "two people": "AniPortrait/asset/zl.mp4",
    "cuts": "face_recognition/examples/short_hamilton_clip.mp4",
}


@pytest.fixture(scope="module")
def tracking() -> TrackingDetector:
    return TrackingDetector(device="cpu").load()


@pytest.fixture(scope="module")
def exact() -> MTCNNDetector:
    return MTCNNDetector(device="cpu").load()


def head(side: int) -> Rgb:
    rgb = load_portrait("astronaut").image[20:280, 95:355, ::-1]
    return np.asarray(cv2.resize(rgb, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


def walk(count: int, step_px: float, *, first: int = 0, last: int = 10_000) -> list[Rgb]:
    """Someone who walks across a room from left to right, in the picture from frame `first` to `last`."""
    room = cv2.resize(np.random.default_rng(3).integers(60, 180, (4, 6, 3), np.uint8), (480, 240))
    person, frames = head(140), []
    for number in range(count):
        rgb = np.asarray(room, np.uint8).copy()
        if first <= number <= last:
            left = round(20 + step_px * number)
            rgb[60:200, left : left + 140] = person[:, : max(0, 480 - left)]
        frames.append(rgb)
    return frames


def assert_the_same(actual: Sequence[Faces], expected: Sequence[Faces]) -> None:
    """Every sure face, where it is; and no others."""
    for number, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        assert len(ours) == len(theirs), f"frame {number}"
        np.testing.assert_allclose(ours.boxes_xyxy, theirs.boxes_xyxy, atol=8)
        if len(ours):
            eyes = np.linalg.norm(theirs.landmarks[:, 0] - theirs.landmarks[:, 1], axis=-1)
            off = np.linalg.norm(ours.landmarks - theirs.landmarks, axis=-1).mean(axis=-1)
            assert (off < 0.1 * eyes).all(), f"frame {number}"


@pytest.mark.parametrize("step_px", [0.0, 3.0, 20.0])
def test_moving_faces_are_detected_in_every_frame_as_by_mtcnn(
    step_px: float, tracking: TrackingDetector, exact: MTCNNDetector
) -> None:
    frames = walk(14, step_px)
    assert_the_same(tracking.detect(frames), exact.detect(frames))


def test_a_face_that_comes_and_goes_between_keyframes_is_detected_in_all_its_frames(
    tracking: TrackingDetector, exact: MTCNNDetector
) -> None:
    frames = walk(40, 4.0, first=7, last=29)
    right = exact.detect(frames)
    assert [number for number, faces in enumerate(right) if len(faces)] == list(range(7, 30))
    assert_the_same(tracking.detect(frames), right)


@pytest.mark.parametrize("name", CLIPS)
def test_on_real_clips_mtcnns_certain_faces_are_found_and_no_others(
    name: str, tracking: TrackingDetector, exact: MTCNNDetector
) -> None:
    path = MEDIA / CLIPS[name]
    if not path.exists():
        pytest.skip(f"test media are not here: {path}")
    with av.open(str(path)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in itertools.islice(container.decode(video=0), 48)]
    actual, expected = tracking.detect(frames), exact.detect(frames)
    sure = missed = 0
    for number, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        strong = theirs.select(theirs.scores > 0.95)
        sure += len(strong)
        missed += sum(not overlaps(box, ours.boxes_xyxy) for box in strong.boxes_xyxy)
        around = np.concatenate([faces.boxes_xyxy for faces in expected[max(number - 2, 0) : number + 3]])
        assert all(overlaps(box, around) for box in ours.boxes_xyxy), f"frame {number}"
    assert sure > 40
    assert missed <= 0.05 * sure


def overlaps(box: NDArray[np.float32], others: NDArray[np.float32]) -> bool:
    """Whether any of them covers it by more than half of both."""
    shared = (np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])).clip(0).prod(axis=1)
    both = (box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(axis=1) - shared
    return bool((shared > 0.5 * both).any())


def test_pictures_of_all_sizes_may_come_together(tracking: TrackingDetector, exact: MTCNNDetector) -> None:
    large = walk(4, 5.0)
    frames = [*large, np.zeros((1, 1, 3), np.uint8), head(140), head(140), *(rgb[::2, ::2] for rgb in large)]
    assert_the_same(tracking.detect(frames), exact.detect(frames))
    assert tracking.detect([]) == []


def test_a_single_frame_is_searched_completely(tracking: TrackingDetector, exact: MTCNNDetector) -> None:
    (actual,), (expected,) = (detector.detect(walk(1, 0)) for detector in (tracking, exact))
    np.testing.assert_array_equal(actual.boxes_xyxy, expected.boxes_xyxy)


def test_the_same_frames_give_the_same_faces_whatever_came_before(tracking: TrackingDetector) -> None:
    frames = walk(20, 4.0)
    before = tracking.detect(frames)
    tracking.detect(walk(9, 11.0, first=3))
    for earlier, later in zip(before, tracking.detect(frames), strict=True):
        np.testing.assert_allclose(earlier.boxes_xyxy, later.boxes_xyxy, atol=1e-2)


def test_the_fingerprint_differs_from_mtcnns_and_it_can_be_pickled(tracking: TrackingDetector) -> None:
    assert tracking.fingerprint != MTCNNDetector(device="cpu").fingerprint
    assert tracking.fingerprint != TrackingDetector(min_face_px=20).fingerprint
    assert pickle.loads(pickle.dumps(tracking)).fingerprint == tracking.fingerprint
    with pytest.raises(UsageError, match="min_face_px=11"):
        TrackingDetector(min_face_px=11)


def test_precompute_takes_it_by_name(tmp_path: Path) -> None:
    """Its units are processed here: workers on a cluster would spend the time on imports."""
    (tmp_path / "src" / "real").mkdir(parents=True)
    write_video(tmp_path / "src" / "real" / "walk.mp4", walk(40, 4.0, first=7, last=29))
    rows = {}
    for name in ("mtcnn", "track"):
        options = Options(sampling=Sampling(every=1))
        with in_process():
            manifest = precompute(tmp_path / "src", tmp_path / name, options=options, detector=name).manifest
        rows[name] = manifest.rows
        assert str(manifest.config["detector"]).startswith(name)
    assert rows["track"] == rows["mtcnn"] == 23
