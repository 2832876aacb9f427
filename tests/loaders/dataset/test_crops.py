"""What a user sees of `crop=`: the images of the published code from one wide crop, and everything that goes along."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import assets_dataset
import cv2
import numpy as np
import pytest
from assets_dataset import Clip, finish_dataset, make_dataset
from assets_rows import make_small, stored_rows
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.loaders.dataset.crop_mappings import ProtocolCrop, WholeCrop
from facefeed.loaders.dataset.decode import decode_rgb
from facefeed.loaders.dataset.jpeg_rows import rows_of_jpeg
from facefeed.loaders.face import Face
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.crops import FaceGeometry, coverage, crop_protocol
from facefeed.pipeline.dataset.crops.geometry import apply, compose, inverse
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces import FaceFilter, Faces
from facefeed.pipeline.faces.detectors.by_name import whole_frame_detector
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
from facefeed.pipeline.faces.geometry.crop import CropSquare
from facefeed.pipeline.planning.options import JobSpec, Options, hash_config
from facefeed.pipeline.planning.plan import Plan, PlanPart, Unit
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.video import MediaReader, Sampling
from numpy.typing import NDArray
from PIL import Image
from skimage.transform import SimilarityTransform
from torch.utils.data import DataLoader

Pixels = NDArray[np.uint8]
SIZES = {"deepfakebench": 256, "ffpp": 299, "sbi": 380}
CLIPS = ("3DDFA/demo@obama/obama.mp4", "roop/.github/examples/target.mp4", "sample-videos/asl_gestures/again.mkv")
ARCHIVE = Options(sampling=Sampling(frames=3), keep=FaceFilter(min_face_px=60, max_faces=1), margin=0.8, size_px=512)


# ---- the published steps, on the frame itself


def published_deepfakebench(frame: Pixels, box: NDArray[np.float64], landmarks: NDArray[np.float64]) -> Pixels:
    """DeepfakeBench: ArcFace's template at 256 px, moved by its margin and made smaller by it; then one warp."""
    target = np.array(
        [[30.2946, 51.6963], [65.5318, 51.5014], [48.0252, 71.7366], [33.5493, 92.3655], [62.7299, 92.2041]]
    )
    target[:, 0] += 8
    target = (target * 256 / 112 + 256 * 0.3 / 2) * 256 / (256 + 256 * 0.3)
    transform = SimilarityTransform.from_estimate(landmarks - 0.5, target)  # its landmarks count from pixel centres
    return cv2.warpAffine(frame, transform.params[:2], (256, 256))  # type: ignore[return-value]


def published_ffpp(frame: Pixels, box: NDArray[np.float64], landmarks: NDArray[np.float64]) -> Pixels:
    """FaceForensics++: a square in whole px, cut at the frame; then torchvision's resize of a PIL image."""
    (x1, y1, x2, y2), (height, width) = (int(value) for value in box), frame.shape[:2]
    size = int(max(x2 - x1, y2 - y1) * 1.3)
    left = max((x1 + x2) // 2 - size // 2, 0)
    top = max((y1 + y2) // 2 - size // 2, 0)
    size = min(width - left, size)
    size = min(height - top, size)
    square = Image.fromarray(frame[top : top + size, left : left + size])
    return np.asarray(square.resize((299, 299), Image.Resampling.BILINEAR))


def published_sbi(frame: Pixels, box: NDArray[np.float64], landmarks: NDArray[np.float64]) -> Pixels:
    """SelfBlendedImages, evaluation: half of a quarter of the box on each side, cut at the frame, stretched."""
    (x0, y0, x1, y1), (height, width) = box, frame.shape[:2]
    across, down = (x1 - x0) / 4 * 0.5, (y1 - y0) / 4 * 0.5
    top, bottom = max(0, int(y0 - down)), min(height, int(y1 + down) + 1)
    left, right = max(0, int(x0 - across)), min(width, int(x1 + across) + 1)
    return cv2.resize(frame[top:bottom, left:right], (380, 380))  # type: ignore[return-value]


PUBLISHED = {"deepfakebench": published_deepfakebench, "ffpp": published_ffpp, "sbi": published_sbi}


@pytest.fixture(scope="module")
def archive(media: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three frames of each of three real clips in the archive form: a margin of 0.8, 512 px."""
    if missing := [name for name in CLIPS if not (media / name).exists()]:
        pytest.skip(f"no {missing[0]} beside the checkout")
    out = tmp_path_factory.mktemp("archive") / "out"
    detector = MTCNNDetector()
    config = ARCHIVE.to_config(detector, ("real", "fake"))
    job = JobSpec(
        root=media.resolve(),
        out=out,
        options=ARCHIVE,
        detector=detector,
        labels=("real", "fake"),
        config_hash=hash_config(config),
    )
    make_folders(OutPaths(out))
    entries = [Entry(video_id=name, size_bytes=(media / name).stat().st_size, label=0) for name in CLIPS]
    unit = Unit.make(entries, "test", config_hash=job.config_hash, salt="")
    plan = Plan()
    plan.append(OutPaths(out), PlanPart(config=config, units=(unit,)))
    worker = UnitWorker(job)
    receipt = worker.run(unit)
    worker.pipeline.close()
    assert [outcome.outcome for outcome in receipt.inputs] == ["ok"] * len(CLIPS)
    finish_dataset(out)
    return out


@pytest.mark.parametrize("crop", PUBLISHED)
def test_a_crop_has_the_pixels_that_the_published_code_cuts_from_the_frame(
    crop: str, archive: Path, media: Path
) -> None:
    faces = FaceDataset(archive, split="test", crop=crop)
    rows = stored_rows(archive)
    assert len(rows) >= 6
    with MediaReader() as reader:
        frames = {
            (name, frame.frame_index): frame.rgb
            for name in CLIPS
            for frame in reader.frames(media / name, ARCHIVE.sampling)
        }
    for position, row in enumerate(rows):
        scale = row["width"] / (row["crop_xyxy"][2] - row["crop_xyxy"][0])
        landmarks = np.array(row["landmarks"]) / scale + row["crop_xyxy"][:2]
        box = np.array(row["box_xyxy"])
        expected = PUBLISHED[crop](frames[row["video_id"], row["frame_index"]], box, landmarks)
        face = faces.load_resized(int(faces.rows[position]))
        assert face.image.shape == expected.shape == (SIZES[crop], SIZES[crop], 3)
        in_face = cv2.fillConvexPoly(np.zeros(expected.shape[:2], np.uint8), np.rint(face.hull).astype(np.int32), 1) > 0
        difference = np.abs(face.image.astype(int) - expected)[in_face].mean()
        assert in_face.mean() > 0.1
        assert difference <= 2, f"{row['face_id']}: {difference:.2f} grey levels"


# ---- geometry


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Crops with a margin of 1.5, which reach far beyond the frame; its boxes are taller than wide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assets_dataset, "_FRAME", (240, 320))
        return make_small(tmp_path_factory.mktemp("wide") / "out", size_px=200, margin=1.5)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Crops with the default margin, 0.3."""
    return make_small(tmp_path_factory.mktemp("narrow") / "out")


@pytest.mark.parametrize("degrees", [0.0, 17.0, -130.0])
def test_points_lie_in_the_stored_crop_where_it_was_cut(wide: Path, degrees: float, tmp_path: Path) -> None:
    """The map from the frame to the stored crop is that of the square that was cut, turned ones too."""
    square = CropSquare(-7, 12, 80, degrees)
    points = np.random.default_rng(0).uniform(-50, 150, (20, 2))
    index = _OneRow(crop_xyxy=square.xyxy, crop_degrees=square.degrees, width=64)
    mapped = apply(FaceGeometry.of_rows(index, [0]).to_stored, points)[0]  # type: ignore[arg-type]
    np.testing.assert_allclose(mapped, square.to_crop(points, 64 / 80), atol=1e-4)


class _OneRow:
    """The cells of one row that its geometry reads."""

    def __init__(self, **cells: Any) -> None:
        self._cells = {"frame_width": 320, "frame_height": 240, "box_xyxy": (10, 20, 50, 80), **cells}

    def numbers(self, name: str, rows: Any) -> NDArray[Any]:
        return np.array([self._cells[name]])

    def boxes(self, name: str, rows: Any) -> NDArray[np.float32]:
        return np.array([self._cells[name]], np.float32)

    def landmarks(self, rows: Any) -> NDArray[np.float32]:
        return np.zeros((1, 5, 2), np.float32) + np.arange(5)[:, None]


def test_maps_compose_and_invert() -> None:
    first, second = np.random.default_rng(1).normal(size=(2, 4, 2, 3))
    points = np.random.default_rng(2).normal(size=(4, 7, 2))
    np.testing.assert_allclose(apply(compose(second, first), points), apply(second, apply(first, points)))
    np.testing.assert_allclose(apply(inverse(first), apply(first, points)), points, atol=1e-6)


def test_the_stored_crop_is_cut_as_it_is(wide: Path) -> None:
    """A square crop of the stored margin and size is the stored crop, but for rounding to whole px of the frame."""
    stored = FaceDataset(wide, split=None, image_size=200)
    cut = FaceDataset(wide, split=None, crop={"margin": 1.5, "size": 200})
    for row in range(0, len(cut), 10):
        face, whole = cut.load_resized(row), stored.load_resized(row)
        assert np.abs(face.landmarks - whole.landmarks).max() < 0.5
        assert np.abs(face.hull - whole.hull).max() < 0.5
        assert np.abs(face.image.astype(int) - whole.image).mean() < 3


def test_landmarks_of_an_aligned_crop_fit_the_template_best(wide: Path) -> None:
    faces = FaceDataset(wide, crop={"margin": 0.0, "size": 112, "align": "arcface"})
    template = np.array([[38.29, 51.70], [73.53, 51.50], [56.03, 71.74], [41.55, 92.37], [70.73, 92.20]]) + 0.5
    for position in range(0, len(faces), 20):
        face = faces.load_resized(int(faces.rows[position]))
        best = SimilarityTransform.from_estimate(face.landmarks.astype(float), template)
        np.testing.assert_allclose(best.params, np.eye(3), atol=2e-2)


def test_a_face_whose_landmarks_coincide_is_cut_around_its_box() -> None:
    """A detector that finds boxes alone may give such landmarks; rounding parts them by less than a thousandth px."""
    point = np.array([30.3, 50.7]) + np.random.default_rng(3).normal(scale=1e-5, size=(1, 5, 2))
    box = np.array([[10.0, 20.0, 50.0, 80.0]])
    faces = FaceGeometry(
        boxes_xyxy=box, landmarks=point, frame_sizes=np.array([[320.0, 240.0]]), crop_sides=np.array([156.0]),
        to_stored=np.array([[[1.0, 0.0, 48.0], [0.0, 1.0, 28.0]]]),
    )  # fmt: skip
    protocol = crop_protocol("deepfakebench")
    corners = apply(protocol.from_frame(faces), box.reshape(1, 2, 2))[0]
    np.testing.assert_allclose(corners[:, 1], 256 * np.array([0.15, 1.15]) / 1.3)
    margins, is_too_narrow = coverage.needed_margins(protocol, faces)
    assert margins[0] == pytest.approx(0.15)
    assert not is_too_narrow[0]


@pytest.mark.parametrize("crop", SIZES)
def test_points_and_mask_move_with_the_pixels(wide: Path, crop: str) -> None:
    faces = FaceDataset(wide, crop=crop)
    with_mask = [row for row in range(len(faces)) if faces.face(row).mask is not None]
    assert with_mask
    for position in with_mask[::7]:
        row, stored = int(faces.rows[position]), faces.face(position)
        cut = faces._crop_mappings(row)
        assert isinstance(cut, ProtocolCrop)
        assert stored.mask is not None
        face = faces.load_resized(row)
        moved = replace(cut, stored_px=stored.image.shape[0])
        as_image = moved.image(np.repeat(stored.mask[..., None] * np.uint8(255), 3, axis=2), None)[..., 0] > 127
        mask = cut.mask(stored.mask)
        assert mask.shape == face.image.shape[:2]
        assert (mask == as_image).mean() > 0.98
        marked = np.zeros_like(stored.image)
        for x, y in stored.landmarks:
            cv2.circle(marked, (round(float(x) - 0.5), round(float(y) - 0.5)), 3, (255, 255, 255), -1)
        shown = moved.image(marked, None)[..., 0]
        for x, y in face.landmarks:
            assert shown[int(np.clip(y, 0, shown.shape[0] - 1)), int(np.clip(x, 0, shown.shape[1] - 1))] > 127
        eye = face.regions["left_eye"]
        assert eye[0] <= face.landmarks[0][0] <= eye[2]
        assert eye[1] <= face.landmarks[0][1] <= eye[3]


def test_a_face_at_the_border_of_its_frame_is_black_beyond_it_as_published(wide: Path) -> None:
    """What no frame has is no lack of the stored crop: the frame is 320 x 240 px, this crop 3.4 boxes wide."""
    faces = FaceDataset(wide, crop={"margin": 1.2, "size": 100})
    image = faces.load_resized(int(faces.rows[0])).image
    assert image[50, 50].any()
    assert not image[:3].any()
    assert not image[-3:].any()


# ---- refusals


def test_too_narrow_crops_are_refused_with_a_margin_that_is_wide_enough(narrow: Path, tmp_path: Path) -> None:
    crop = {"margin": 0.55, "size": 64}
    with pytest.raises(UsageError, match=r"107 of 107 faces need more than is stored.*--margin 0\.6 "):
        FaceDataset(narrow, crop=crop)
    FaceDataset(make_small(tmp_path / "out", margin=0.6), crop=crop)


class _OneWiderFace:
    """A fixed box; the landmarks of the first frame alone lie `spread` times as far apart as those of all others."""

    fingerprint = "one-wider-face"
    frames_at_once = 1

    def __init__(self, spread: float) -> None:
        self._spread = spread

    def detect(self, frames: Sequence[Pixels]) -> list[Faces]:
        (faces,) = FixedBoxDetector(((0.4, 0.35, 0.6, 0.65),)).detect(frames)
        centre = faces.landmarks.mean(axis=1, keepdims=True)
        spread, self._spread = self._spread, 1.0
        return [Faces(faces.boxes_xyxy, faces.scores, centre + (faces.landmarks - centre) * np.float32(spread))]


@pytest.mark.parametrize("spread", [1.4, 1.6])
def test_where_one_of_few_faces_needs_more_the_margin_that_is_named_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: float
) -> None:
    """One of twenty is over 1 %; between it and the others, no margin would do."""
    monkeypatch.setattr(assets_dataset, "_FRAME", (240, 320))

    def faces(name: str, margin: float) -> FaceDataset:
        monkeypatch.setattr(assets_dataset, "_MIDDLE", _OneWiderFace(spread))
        units = (("train", (Clip("real/anna.mp4", 20),)),)
        make_dataset(tmp_path / name, units, size_px=400, margin=margin)
        return FaceDataset(tmp_path / name, crop={"margin": 0.3, "size": 200, "align": "arcface"})

    with pytest.raises(UsageError, match=r"1 of 20 faces needs more than is stored around it;.* --margin") as error:
        faces("narrow", 0.8)
    named = float(str(error.value).partition("--margin ")[2].split()[0])
    assert named > 0.8
    assert len(faces("wide", named)) == 20


def test_the_margin_that_is_named_is_wider_than_the_stored_one_where_little_more_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Smoothed crops may be narrower than the margin says, which is a share of a box that no row has."""
    out = make_small(tmp_path / "out", margin=0.6)
    monkeypatch.setattr(
        coverage, "needed_margins", lambda _, faces: (np.full(len(faces), 0.59), np.ones(len(faces), bool))
    )
    with pytest.raises(UsageError, match=r"107 of 107 faces need .*--margin 0\.7 "):
        FaceDataset(out, crop={"margin": 0.3, "size": 64})


@pytest.mark.parametrize("margin", [0.35, 0.6, 1.0, 2.0, 6.0])
def test_a_crop_that_reaches_past_the_frame_on_all_sides_needs_all_of_it(narrow: Path, margin: float) -> None:
    """The frame is 64 x 48 px around a face of 26 x 24 px; stored are 41 x 41 px of it."""
    with pytest.raises(UsageError, match="107 of 107 faces need more than is stored"):
        FaceDataset(narrow, crop={"margin": margin, "size": 64})


def test_few_narrow_crops_are_a_warning_with_their_number(
    narrow: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("facefeed.pipeline.dataset.crops.coverage.ALLOWED_FRACTION", 1.0)
    with caplog.at_level(logging.WARNING, "facefeed.loaders"):
        FaceDataset(narrow, crop={"margin": 0.5, "size": 64})
    assert "crop={'margin': 0.5, 'size': 64}: 107 of 107 faces need more" in caplog.text
    caplog.clear()
    FaceDataset(narrow, crop={"margin": 0.1, "size": 64})
    assert not caplog.text


@pytest.mark.parametrize("margin", [0.0, 0.8])
@pytest.mark.parametrize("crop", ["deepfakebench", {"margin": 0.3, "size": 64}])
def test_a_crop_that_shows_more_than_media_that_was_cropped_before_is_refused_whatever_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, margin: float, crop: Any
) -> None:
    """Over half of its image would be black. Crops within the frame, and the padding of the stored image, stay."""
    monkeypatch.setattr(assets_dataset, "_MIDDLE", whole_frame_detector())
    out = make_small(tmp_path / "out", margin=margin)
    with pytest.raises(UsageError, match=r"107 of 107 faces fill their frames.*on the media that they were cut from"):
        FaceDataset(out, crop=crop)
    for within in ("ffpp", "sbi", {"margin": 0.0, "size": 64}):
        assert len(FaceDataset(out, crop=within)) == 107


@pytest.mark.parametrize("number", [np.float32, np.float64, np.int64])
def test_margin_and_size_of_a_crop_may_be_numbers_of_numpy(number: Any) -> None:
    assert crop_protocol({"margin": number(1), "size": np.int64(64)}) == crop_protocol({"margin": 1.0, "size": 64})


@pytest.mark.parametrize(
    ("crop", "message"),
    [
        ("ff++", "crop='ff\\+\\+': must be 'deepfakebench', 'ffpp', 'sbi', or like"),
        ({"margin": 0.3}, "must be 'deepfakebench'"),
        ({"margin": 0.3, "size": 64, "scale": 2}, "must be 'deepfakebench'"),
        ({"margin": -1, "size": 64}, "margin=-1: must be from 0 to 8"),
        ({"margin": "much", "size": 64}, "margin='much': must be"),
        ({"margin": 0.3, "size": 7}, "size=7: must be a whole number from 8"),
        ({"margin": 0.3, "size": 64.0}, "size=64.0: must be a whole number"),
        ({"margin": 0.3, "size": 64, "align": "dlib"}, "align='dlib': must be one of none, arcface"),
    ],
)
def test_a_crop_that_is_none_is_refused_with_those_there_are(narrow: Path, crop: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FaceDataset(narrow, crop=crop)


def test_the_images_have_the_size_of_the_crop_unless_another_is_given(narrow: Path) -> None:
    crop = {"margin": 0.1, "size": 40}
    assert FaceDataset(narrow, crop=crop).image_size == 40
    assert FaceDataset(narrow).image_size == 224
    small = FaceDataset(narrow, crop=crop, image_size=20)
    face = small.load_resized(int(small.rows[0]))
    large = FaceDataset(narrow, crop=crop)
    assert face.image.shape == (20, 20, 3)
    np.testing.assert_allclose(face.landmarks * 2, large.load_resized(int(large.rows[0])).landmarks, atol=1e-3)
    with pytest.raises(UsageError, match=r"image_size=None: needs a transform .* and no crop"):
        FaceDataset(narrow, crop=crop, image_size=None, transform=_Same())


class _Same:
    def __call__(self, image: Pixels) -> dict[str, Pixels]:
        return {"image": image}


# ---- in batches


def test_batches_have_the_cut_images_and_points_also_from_workers(wide: Path) -> None:
    options: dict[str, Any] = {
        "split": "val", "shuffle": False, "batch_size": 4, "dtype": "uint8", "crop": "ffpp", "image_size": 64,
        "fields": ("image", "landmarks", "row"),
    }  # fmt: skip
    faces = FaceDataset(wide, split="val", crop="ffpp", image_size=64)
    for num_workers in (0, 1):
        for batch in FaceDataLoader(wide, num_workers=num_workers, **options):
            for image, landmarks, row in zip(batch["image"], batch["landmarks"], batch["row"], strict=True):
                face = faces.load_resized(int(row))
                assert (image.permute(1, 2, 0).numpy() == face.image).all()
                np.testing.assert_array_equal(landmarks, face.landmarks)


def test_torchs_own_loader_gives_the_same_images(wide: Path) -> None:
    faces = FaceDataset(wide, split="val", crop="ffpp", image_size=64)
    batches = DataLoader(faces, batch_size=4)
    for position, (image, label) in enumerate(pair for batch in batches for pair in zip(*batch, strict=True)):
        expected, expected_label = faces[position]
        assert (image == expected).all()
        assert label == expected_label


def test_pixels_alone_are_those_that_come_with_points(wide: Path) -> None:
    faces = pickle.loads(pickle.dumps(FaceDataset(wide, crop="sbi", image_size=90)))
    for row in faces.rows[::20].tolist():
        buffer = np.zeros((90, 90, 3), np.uint8)
        pixels = faces.load_pixels(row, into=buffer)
        assert (pixels == faces.load_resized(row).image).all()
        assert (buffer == pixels).all()


@pytest.mark.parametrize("crop", [*SIZES, {"margin": 0.3, "size": 120, "align": "arcface"}], ids=str)
def test_images_are_cut_from_the_rows_that_they_show_as_from_all_rows(wide: Path, crop: Any) -> None:
    faces = FaceDataset(wide, crop=crop)
    num_decoded = 0
    for row in faces.rows[::5].tolist():
        cut, jpeg = faces._crop_mappings(row), bytes(faces._read_image(row))
        crop_of_all_rows = decode_rgb(jpeg, min_side_px=cut.min_side_px)
        np.testing.assert_array_equal(faces.load_pixels(row), cut.image(crop_of_all_rows, None))
        part = rows_of_jpeg(jpeg, *cut.needed_rows) if cut.needed_rows else None
        num_decoded += part is not None
    assert num_decoded, "of some a part is decoded"


def test_a_large_crop_that_shrinks_is_not_aliased() -> None:
    """A pattern of single pixels becomes its mean, as with any good resize, also where the map shrinks and turns."""
    pattern = np.zeros((256, 256, 3), np.uint8)
    pattern[::2, ::2] = 255
    pattern[1::2, 1::2] = 255
    turned = np.array([[0.2, -0.05, 10.0], [0.05, 0.2, 2.0]])
    image = ProtocolCrop(turned, 256, 48).image(pattern, None)
    inner = image[20:40, 20:40].astype(int)
    assert abs(inner.mean() - 127.5) < 3
    assert inner.std() < 8


def test_a_whole_crop_keeps_points_where_nothing_is_resized() -> None:
    face = Face.from_image(np.zeros((8, 8, 3), np.uint8))
    assert WholeCrop(8, 8).points(face) is face
    assert WholeCrop(8, 8, 8).points(face) is face
