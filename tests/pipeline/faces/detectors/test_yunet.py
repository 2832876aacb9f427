"""YuNet: faces where the network detects them, for any frame, and a job that runs with it."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
from assets_layouts import Footage
from assets_paths import MEDIA
from assets_yunet import BOX_PX, POINTS_PX, blue_pixels, write_stand_in
from click.testing import CliRunner, Result
from facefeed.data.portraits import PortraitName, load_portrait
from facefeed.pipeline.baselines.onthefly import OnTheFlyFaces
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces import FaceDetector, FaceFilter, Faces
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.faces.detectors.yunet import YuNetDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.planning.validation import prepare_job
from numpy.typing import NDArray


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stand_in(tmp_path_factory.mktemp("yunet") / "stand-in.onnx")


@pytest.fixture(scope="module")
def real() -> Path:
    """YuNet's own model file: the one that FACEFEED_YUNET names, or one among the real media."""
    named = os.environ.get("FACEFEED_YUNET")
    path = Path(named) if named else next(MEDIA.glob("**/face_detection_yunet*.onnx"), None)
    if path is None:
        pytest.skip("no model file of YuNet's is here; FACEFEED_YUNET names one")
    return path


@pytest.fixture(params=["stand_in", "real"])
def model(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def unshrunk(model: Path, min_score: float = 0.7) -> YuNetDetector:
    """A detector that shows YuNet the frames as they are."""
    return YuNetDetector(model, min_face_px=24, min_score=min_score)


def noise(height: int, width: int) -> NDArray[np.uint8]:
    return np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, 3), np.uint8)


def rgb_of(portrait: PortraitName) -> NDArray[np.uint8]:
    return np.ascontiguousarray(load_portrait(portrait).image[..., ::-1])


def assert_same(some: Sequence[Faces], others: Sequence[Faces]) -> None:
    for actual, expected in zip(some, others, strict=True):
        np.testing.assert_array_equal(actual.boxes_xyxy, expected.boxes_xyxy)
        np.testing.assert_array_equal(actual.scores, expected.scores)
        np.testing.assert_array_equal(actual.landmarks, expected.landmarks)


# --- what is found


def test_a_face_lies_where_the_network_says_as_corners_and_not_as_a_corner_and_a_size(stand_in: Path) -> None:
    (faces,) = unshrunk(stand_in).detect([blue_pixels(160, 120, (64, 40, 255))])
    width, height = BOX_PX
    middle_x, middle_y = 64 + 4, 40 + 4
    corners = [middle_x - width / 2, middle_y - height / 2, middle_x + width / 2, middle_y + height / 2]
    np.testing.assert_allclose(faces.boxes_xyxy, [corners], atol=1e-4)
    assert faces.scores.tolist() == [1.0]


def test_the_points_come_as_the_viewer_sees_them_the_left_eye_first(stand_in: Path) -> None:
    (faces,) = unshrunk(stand_in).detect([blue_pixels(160, 120, (64, 40, 255))])
    np.testing.assert_allclose(faces.landmarks, [np.add(POINTS_PX, (64, 40))], atol=1e-4)
    left_eye, right_eye, nose, left_corner, right_corner = faces.landmarks[0]
    assert left_eye[0] < nose[0] < right_eye[0]
    assert left_corner[0] < nose[0] < right_corner[0]
    assert max(left_eye[1], right_eye[1]) < nose[1] < min(left_corner[1], right_corner[1])


def test_the_surest_face_comes_first(stand_in: Path) -> None:
    blues = {16: 200, 64: 250, 112: 225}
    (faces,) = unshrunk(stand_in).detect([blue_pixels(160, 120, *((x, 40, blue) for x, blue in blues.items()))])
    np.testing.assert_allclose(faces.scores, np.array([250, 225, 200]) / 255, atol=1e-5)
    np.testing.assert_allclose(faces.boxes_xyxy[:, 0] + BOX_PX[0] / 2 - 4, [64, 112, 16], atol=1e-4)


def test_overlapping_detections_of_one_face_are_suppressed(stand_in: Path) -> None:
    (faces,) = unshrunk(stand_in).detect([blue_pixels(160, 120, (64, 40, 240), (72, 40, 255), (64, 48, 230))])
    assert faces.scores.tolist() == [1.0]


def test_faces_below_min_score_are_dropped(stand_in: Path) -> None:
    rgb = blue_pixels(160, 120, (64, 40, 204))  # a score of 0.8
    counts = [len(unshrunk(stand_in, min_score=score).detect([rgb])[0]) for score in (0.0, 0.79, 0.81, 1.0)]
    assert counts[1:] == [1, 0, 0]
    assert counts[0] >= 1


def test_colours_reach_the_network_in_the_order_it_was_trained_on(stand_in: Path) -> None:
    blue = blue_pixels(160, 120, (64, 40, 255))
    counts = [len(faces) for faces in unshrunk(stand_in).detect([blue, blue[..., ::-1], np.roll(blue, 1, axis=2)])]
    assert counts == [1, 0, 0], "blue, red, green"


def test_detections_that_are_not_finite_are_dropped(tmp_path: Path) -> None:
    for odd in (float("nan"), float("inf")):
        broken = unshrunk(write_stand_in(tmp_path / "broken.onnx", dx=odd))
        assert len(broken.detect([blue_pixels(160, 120, (64, 40, 255))])[0]) == 0


# --- sizes


def test_a_large_min_face_px_shrinks_the_frame_and_boxes_are_in_frame_pixels(stand_in: Path) -> None:
    rgb = np.zeros((67, 101, 3), np.uint8)
    rgb[12:20, 28:38] = (0, 0, 255)  # the pixel at (16, 8) of a frame half as large, and some round it
    (faces,) = YuNetDetector(stand_in, min_face_px=48).detect([rgb])
    px = np.array([101 / 50, 67 / 34])
    half, middle = np.array(BOX_PX) / 2, np.array([16 + 4, 8 + 4])
    np.testing.assert_allclose(faces.boxes_xyxy, [[*(middle - half) * px, *(middle + half) * px]], rtol=1e-5)
    np.testing.assert_allclose(faces.landmarks, [np.add(POINTS_PX, (16, 8)) * px], rtol=1e-5)


def test_a_small_min_face_px_never_enlarges_the_frame(stand_in: Path) -> None:
    rgb = blue_pixels(160, 120, (64, 40, 255))
    assert_same(YuNetDetector(stand_in, min_face_px=10).detect([rgb]), unshrunk(stand_in).detect([rgb]))


@pytest.mark.parametrize("least", [10, 40, 500])
def test_no_size_of_frame_is_too_odd(model: Path, least: int) -> None:
    sizes = [(1, 1), (1, 300), (300, 1), (2, 3), (7, 33), (31, 32), (33, 31), (64, 64), (127, 255)]
    frames = [make(*size) for size in sizes for make in (noise, lambda *of: np.zeros((*of, 3), np.uint8))]
    detector: FaceDetector = YuNetDetector(model, min_face_px=least, min_score=0.3)
    detected = detector.detect(frames)
    assert len(detected) == len(frames)
    assert all(isinstance(faces, Faces) for faces in detected)
    assert detector.detect([]) == []


def test_frames_of_several_sizes_give_what_each_gives_alone_whatever_came_before(model: Path) -> None:
    frames = [rgb_of("astronaut"), noise(48, 160), blue_pixels(160, 120, (64, 40, 255)), noise(90, 33)]
    detector = YuNetDetector(model)
    together = detector.detect(frames)
    assert sum(map(len, together)) > 0
    assert_same(together, [YuNetDetector(model).detect([rgb])[0] for rgb in frames])
    assert_same(together[::-1], detector.detect(frames[::-1]))


def test_a_view_of_a_frame_is_as_good_as_a_copy(model: Path) -> None:
    rgb = rgb_of("astronaut")
    view = np.asfortranarray(rgb)[::-1, ::-1]
    assert not view.flags.c_contiguous
    detector = YuNetDetector(model, min_score=0.3)
    assert_same(detector.detect([view]), detector.detect([view.copy(order="C")]))


# --- the real network


@pytest.mark.parametrize("name", ["astronaut", "hopper"])
@pytest.mark.parametrize("times", [0.5, 1.0, 2.0])
def test_a_portrait_is_found_with_its_parts_in_place(real: Path, name: PortraitName, times: float) -> None:
    rgb = np.asarray(cv2.resize(rgb_of(name), None, fx=times, fy=times, interpolation=cv2.INTER_AREA), np.uint8)
    detected = FaceFilter(max_faces=1, min_score=0.7)(YuNetDetector(real).detect([rgb])[0]).scaled(1 / times)
    (face,) = load_portrait(name).faces
    assert len(detected) == 1
    assert np.hypot(*(detected.landmarks[0] - face.landmarks).T).max() < 0.25 * face.eye_distance


# --- the model travels


def test_a_pickled_detector_finds_the_same_without_the_file(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here.onnx"
    here.write_bytes(model.read_bytes())
    detector = YuNetDetector(here, min_face_px=30, min_score=0.4)
    sent = pickle.dumps(detector)
    assert len(sent) < here.stat().st_size + 1000
    here.unlink()
    copy: YuNetDetector = pickle.loads(sent)
    rgb = rgb_of("hopper")
    assert_same(copy.detect([rgb]), detector.detect([rgb]))
    assert copy.fingerprint == detector.fingerprint
    assert capfd.readouterr().err == "", "OpenCV has nothing to say of that"


def test_the_fingerprint_follows_what_the_result_depends_on(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = tmp_path / "renamed.onnx"
    renamed.write_bytes(stand_in.read_bytes())
    fingerprint = YuNetDetector(stand_in).fingerprint
    assert fingerprint.startswith(f"yunet-{cv2.__version__}-")
    assert YuNetDetector(str(renamed), min_face_px=40).fingerprint == fingerprint
    assert YuNetDetector(stand_in, min_score=1).fingerprint == YuNetDetector(stand_in, min_score=1.0).fingerprint
    others = [
        YuNetDetector(stand_in, min_face_px=41),
        YuNetDetector(stand_in, min_score=0.71),
        YuNetDetector(write_stand_in(tmp_path / "other.onnx", dx=0.4)),
    ]
    assert len({fingerprint, *(other.fingerprint for other in others)}) == 4
    monkeypatch.setattr(cv2, "__version__", "4.9.0")
    assert YuNetDetector(stand_in).fingerprint not in {fingerprint, *(other.fingerprint for other in others)}


# --- what is refused


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory; name YuNet's model file"),
        (b"", "cannot run it as YuNet; use a file face_detection_yunet_*.onnx of 2023mar or later"),
        (b"version https://git-lfs.github.com/spec/v1\nsize 232589\n", "cannot run it as YuNet"),
        ("another network", "cannot run it as YuNet"),
    ],
)
def test_a_file_that_is_no_yunet_is_refused_in_one_line_before_anything_is_written(
    content: bytes | str | None, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.onnx"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content:
        write_stand_in(file, kinds=("loc", "conf"))
    with pytest.raises(UsageError) as caught:
        YuNetDetector(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)
    result = CliRunner().invoke(
        main, ["precompute", str(tmp_path), str(tmp_path / "out"), "--detector", f"yunet:{file}"]
    )
    assert result.exit_code == 2
    assert result.stderr == f"facefeed: {caught.value}\n"
    assert not (tmp_path / "out").exists()
    assert capfd.readouterr().err == "", "OpenCV keeps its own words to itself"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_face_px": 9}, "min_face_px=9: must be at least 10 px; YuNet finds no smaller faces; try 40"),
        ({"min_score": 1.5}, "min_score=1.5: must lie in 0..1; try 0.7"),
        ({"min_score": float("nan")}, "min_score=nan: must lie in 0..1"),
    ],
)
def test_invalid_settings_are_refused(stand_in: Path, settings: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        YuNetDetector(stand_in, **settings)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize("given", ["yolo", "yunet", "yunet:", "mtcnn:file.onnx", ""])
def test_an_unknown_detector_is_refused_with_the_known_ones(given: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["precompute", str(tmp_path), str(tmp_path / "out"), "--detector", given])
    assert result.exit_code == 2
    assert f"detector={given!r}: must be mtcnn, track, yunet:FILE.onnx" in result.stderr


# --- a job


def test_the_job_passes_min_face_and_min_score_to_the_detector(
    stand_in: Path, footage: Footage, tmp_path: Path
) -> None:
    src = footage.lay(tmp_path / "src", real=["real/a.mp4"])
    for least_px, shown in ((64, 64), (0, 10)):
        options = Options(keep=FaceFilter(min_face_px=least_px, min_score=0.6))
        job, _, config = prepare_job(src, tmp_path / "out", options=options, detector=f"yunet:{stand_in}")
        assert job.detector == YuNetDetector(stand_in, min_face_px=shown, min_score=0.6)
        assert config["detector"] == job.detector.fingerprint


def test_videos_are_precomputed_with_it_and_the_manifest_says_so(
    stand_in: Path, footage: Footage, tmp_path: Path, cluster_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    src = footage.lay(tmp_path / "src", real=["real/a.mp4"], fake=["fake/b.mp4"])
    out = tmp_path / "out"
    monkeypatch.chdir(stand_in.parent)  # where the workers are not

    def run(*more: str) -> Result:
        chosen = ["--frames", "3", "--faces", "2", "--min-score", "0.5", "--scheduler", cluster_address, "--json"]
        return CliRunner().invoke(main, ["precompute", str(src), str(out), *chosen, *more])

    dry_result = run("--detector", f"yunet:{stand_in.name}", "--dry-run")
    assert dry_result.exit_code == 0, dry_result.stderr
    result = run("--detector", f"yunet:{stand_in.name}")
    assert result.exit_code == 0, result.stderr
    figures = json.loads(result.stdout.splitlines()[-1])
    assert figures["inputs"]["ok"] == 2
    assert figures["rows"] > 0
    fingerprint = YuNetDetector(stand_in, min_score=0.5).fingerprint
    assert Manifest.read(out).config["detector"] == fingerprint
    assert "the dry run, with 2 workers, predicted" in result.stderr

    before = {path.name: path.stat().st_mtime_ns for path in OutPaths(out).receipts.iterdir()}
    assert run("--detector", f"yunet:{stand_in}").exit_code == 0
    assert {path.name: path.stat().st_mtime_ns for path in OutPaths(out).receipts.iterdir()} == before
    other = run()
    assert other.exit_code == 2
    assert f"was made with other settings (detector: {fingerprint} there, mtcnn-" in other.stderr

    for command in (["verify", str(out)], ["inspect", str(out), "--page", str(out.parent / "page.html")]):
        checked = CliRunner().invoke(main, command)
        assert checked.exit_code == 0, checked.output
    naive = OnTheFlyFaces(src, out, split=None, image_size=32, detector=YuNetDetector(stand_in, min_score=0.5))
    assert [tuple(naive[position][0].shape) for position in range(len(naive))] == [(3, 32, 32)] * figures["rows"]
    with pytest.raises(UsageError, match=f"Its faces were found by {fingerprint}: give that detector"):
        OnTheFlyFaces(src, out, split=None, detector=FixedBoxDetector(()))[0]
