"""What a user notices of pairs: where a fake differs from its original, and whose faces it takes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest
from assets_pairs import Truth, entry_of, film, pairs_of_sample
from assets_video import write_video
from facefeed.data.recipe import Clip
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.image_codec import ImageEncoder, decode_mask, decode_rgb_strictly
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces import FaceFilter, Faces
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.faces.geometry.crop import CropSquare
from facefeed.pipeline.manipulation.mask import FrameComparison, ManipulationMask
from facefeed.pipeline.manipulation.source_frames import AlignedSourceFrames, SourceFrameCache, TrackedFaces
from facefeed.pipeline.planning.options import JobSpec, Options, hash_config
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.video import Frame, MediaReader, Sampling
from numpy.typing import NDArray

EVERY = 12
UNCHANGED = 0.01
"""Below this share a face counts as not manipulated; the guide says so."""


FACE = np.float32([[30, 30, 94, 94]])
"""A box in the middle of the pictures."""


def picture(seed: int, side: int = 128) -> NDArray[np.uint8]:
    """Something with edges and areas."""
    coarse = np.random.default_rng(seed).integers(0, 256, (side // 16, side // 16, 3), np.uint8)
    return cv2.resize(coarse, (side, side), interpolation=cv2.INTER_CUBIC).astype(np.uint8)


def recompressed(rgb: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    return decode_rgb_strictly(ImageEncoder(quality=quality)(rgb))


# --- two crops


def compared(fake: NDArray[np.uint8], source: NDArray[np.uint8]) -> ManipulationMask:
    """All of two pictures."""
    result = FrameComparison(fake, source, FACE).mask(CropSquare(0, 0, len(fake)), box_xyxy=FACE[0], size_px=256)
    assert result is not None
    return result


def test_equal_crops_differ_nowhere() -> None:
    result = compared(picture(0), picture(0))
    assert not result.mask.any()
    assert result.changed_fraction == 0.0


@pytest.mark.parametrize("quality", [95, 75, 50])
def test_compressing_again_is_no_manipulation(quality: int) -> None:
    assert compared(recompressed(picture(1), quality), recompressed(picture(1), 90)).changed_fraction < UNCHANGED


def test_a_changed_area_is_found_where_it_is() -> None:
    source = picture(2)
    fake, truth = source.copy(), np.zeros(source.shape[:2], np.bool_)
    truth[40:90, 30:80] = True
    fake[truth] = picture(3)[truth]
    result = compared(recompressed(fake, 75), recompressed(source, 75))
    assert iou(result.mask, truth) > 0.8
    assert result.changed_fraction == pytest.approx(result.mask.mean())


@pytest.mark.parametrize("qualities", [(95, 95), (90, 60), (60, 90)], ids=str)
def test_no_painted_pixel_is_missed_and_the_mask_is_as_much_larger_as_the_guide_says(
    qualities: tuple[int, int],
) -> None:
    source, truth = picture(6), np.zeros((128, 128), np.uint8)
    cv2.ellipse(truth, (62, 62), (16, 16), 0, 0, 360, 1, -1)
    painted = np.clip(source + truth[..., None] * np.array([60, -60, 30]), 0, 255).astype(np.uint8)
    result = compared(recompressed(painted, qualities[0]), recompressed(source, qualities[1]))
    assert not (cv2.erode(truth, np.ones((3, 3), np.uint8)) & ~result.mask).any()
    assert 1.2 < result.mask.sum() / truth.sum() < 1.6


@pytest.mark.parametrize(
    "square",
    [
        CropSquare(30, 20, 64),
        CropSquare(30, 20, 65),
        CropSquare(-20, 80, 90),
        CropSquare(20, 20, 80, 30.0),
        CropSquare(40, 40, 1),
    ],
    ids=str,
)
def test_a_mask_is_as_large_as_its_crop_and_lies_where_the_crop_does(square: CropSquare) -> None:
    source, truth = picture(2), np.zeros((128, 128), np.uint8)
    cv2.circle(truth, (62, 52), 16, 255, -1)
    fake = np.where(truth[..., None] > 0, 255 - source, source).astype(np.uint8)
    for size_px in (256, 40):
        result = FrameComparison(fake, source, FACE).mask(square, box_xyxy=FACE[0], size_px=size_px)
        assert result is not None
        crop, _ = square.crop(np.dstack([truth] * 3), size_px)
        assert result.mask.shape == crop.shape[:2]
        inside = crop[..., 0] > 127
        if inside.mean() > 0.1 and square.side > 1:
            assert iou(result.mask, inside) > 0.75


@pytest.mark.parametrize("margin", [0.0, 0.1, 0.8, 1.3, 4.0])
def test_what_counts_as_changed_does_not_depend_on_the_margin_of_the_crop(margin: float) -> None:
    """A fine change, which smoothing by the length of a wide crop would remove."""
    source, truth = picture(5, 512), np.zeros((512, 512), np.uint8)
    cv2.ellipse(truth, (256, 290), (22, 9), 0, 0, 360, 255, -1)  # as large as the face's mouth
    fake = np.where(truth[..., None] > 0, cv2.add(source, np.full_like(source, 16)), source).astype(np.uint8)
    box = np.float32([206, 196, 306, 326])
    fake, source = recompressed(fake, 85), recompressed(source, 85)

    def changed(margin: float) -> NDArray[np.uint8]:
        square = CropSquare.around(box, margin)
        result = FrameComparison(fake, source, box[None]).mask(square, box_xyxy=box, size_px=512)
        assert result is not None
        in_frame = cv2.resize(result.mask.astype(np.uint8), (square.side, square.side), interpolation=cv2.INTER_NEAREST)
        middle = slice(square.side // 2 - 50, square.side // 2 + 50)
        return in_frame[middle, middle]  # inside of the smallest crop

    expected = changed(0.3) > 0
    assert iou(expected, truth[261 - 50 : 261 + 50, 206:306] > 0) > 0.6
    assert iou(changed(margin) > 0, expected) > 0.9


def test_pictures_of_two_scenes_cannot_be_compared() -> None:
    """As where the clocks of a fake and its original go apart: the whole square would count as manipulated."""
    assert (
        FrameComparison(picture(4), picture(5), FACE).mask(CropSquare(20, 20, 80), box_xyxy=FACE[0], size_px=256)
        is None
    )


def cropped_already(fake: NDArray[np.uint8], source: NDArray[np.uint8]) -> ManipulationMask | None:
    """All of two pictures, of which each is one face."""
    height, width = fake.shape[:2]
    box = np.float32([0, 0, width, height])
    square = CropSquare.around(box, 0.0)
    return FrameComparison(fake, source, box[None]).mask(square, box_xyxy=box, size_px=256)


@pytest.mark.parametrize("shape", [(128, 128), (128, 96)])
def test_crops_that_were_cut_in_different_places_cannot_be_compared(shape: tuple[int, int]) -> None:
    footage = picture(7, 256)
    crop = footage[60:, 60:][: shape[0], : shape[1]]
    for other in (footage[:, 20:], picture(8)):
        assert cropped_already(np.ascontiguousarray(other[: shape[0], : shape[1]]), np.ascontiguousarray(crop)) is None


@pytest.mark.parametrize("qualities", [(90, 90), (25, 90)])
def test_crops_that_are_changed_nearly_everywhere_have_their_mask(qualities: tuple[int, int]) -> None:
    source, truth = picture(6), np.zeros((128, 128), np.uint8)
    cv2.ellipse(truth, (64, 64), (56, 62), 0, 0, 360, 1, -1)
    fake = np.where(truth[..., None] > 0, picture(9), source)
    result = cropped_already(recompressed(fake, qualities[0]), recompressed(source, qualities[1]))
    assert result is not None
    assert iou(result.mask, truth > 0) > 0.85


def test_black_crops_are_equal() -> None:
    result = cropped_already(np.zeros((64, 64, 3), np.uint8), np.zeros((64, 64, 3), np.uint8))
    assert result is not None
    assert result.changed_fraction == 0


def test_frames_of_two_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="frames of one size"):
        FrameComparison(picture(0, 64), picture(0, 128), FACE).mask(CropSquare(0, 0, 64), box_xyxy=FACE[0], size_px=256)


# --- the frames of an original


def frame(number: int, rgb: NDArray[np.uint8]) -> Frame:
    return Frame(number, number / 25, rgb)


def test_an_original_of_another_size_is_brought_to_the_fake_s(tmp_path: Path) -> None:
    faces = FixedBoxDetector(((0.25, 0.25, 0.75, 0.75),)).detect([picture(0, 64)])[0]
    cache = SourceFrameCache("a.mp4", tmp_path, {"fake.mp4": {0: 0}})
    cache.add(frame(0, picture(0, 64)), TrackedFaces(faces, np.array([7], np.int32), faces.boxes_xyxy))
    aligned = AlignedSourceFrames(cache, "fake.mp4").for_frame(frame(0, picture(9, 128)))
    assert aligned is not None
    assert aligned.rgb.shape == (128, 128, 3)
    assert aligned.tracked is not None
    assert aligned.tracked.faces.boxes_xyxy.tolist() == [[32, 32, 96, 96]]
    assert aligned.tracked.track_ids.tolist() == [7]
    cache.discard()


def test_another_frame_and_another_shape_have_no_source_frame(tmp_path: Path) -> None:
    cache = SourceFrameCache("a.mp4", tmp_path, {"fake.mp4": {0: 0}})
    cache.add(frame(0, picture(0)), None)
    aligned = AlignedSourceFrames(cache, "fake.mp4")
    assert aligned.for_frame(frame(1, picture(0))) is None
    assert aligned.for_frame(frame(0, picture(0)[:96])) is None
    assert aligned.for_frame(frame(0, picture(0))) is not None
    assert AlignedSourceFrames(cache, "other.mp4").for_frame(frame(0, picture(0))) is None
    cache.discard()
    assert aligned.for_frame(frame(0, picture(0))) is None


def test_a_picture_too_long_for_the_cache_has_no_source_frame_and_does_no_harm(tmp_path: Path) -> None:
    cache = SourceFrameCache("a.png", tmp_path, {"fake.png": {0: 0, 1: 1}})
    aligned, long = AlignedSourceFrames(cache, "fake.png"), np.zeros((2, 70_000, 3), np.uint8)
    cache.add(frame(0, long), None)
    assert aligned.for_frame(frame(0, long)) is None
    cache.add(frame(1, picture(0)), None)
    assert aligned.for_frame(frame(1, picture(0))) is not None
    cache.discard()


# --- whole units of the sample


@dataclass
class Counting:
    """A detector that says how many frames it has seen."""

    inner: FixedBoxDetector
    seen: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    frames_at_once = 1

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        self.seen += [rgb.shape for rgb in frames]
        return self.inner.detect(frames)


@pytest.fixture(scope="module")
def pair() -> tuple[Clip, Clip]:
    """640 x 360, one person."""
    return pairs_of_sample()[0]


@pytest.fixture(scope="module")
def two_people() -> tuple[Clip, Clip]:
    """Two people, of whom the fake changes the first."""
    return next((original, fake) for original, fake in pairs_of_sample() if len(fake.people) == 2)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory, pair: tuple[Clip, Clip], two_people: tuple[Clip, Clip]) -> Path:
    folder = tmp_path_factory.mktemp("films")
    film(folder, *pair, *two_people)
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


MIDDLE = ((0.3, 0.1, 0.7, 0.9),)
HALVES = ((0.1, 0.2, 0.42, 0.8), (0.58, 0.2, 0.9, 0.8))


def worker(root: Path, out: Path, faces: Any = MIDDLE, **options: Any) -> tuple[UnitWorker, Counting]:
    """A worker on a new OUT whose detector says the same boxes in every frame."""
    detector = Counting(FixedBoxDetector(faces))
    chosen = Options(**{"sampling": Sampling(every=EVERY), "keep": FaceFilter(min_face_px=16), **options})
    config_hash = hash_config(chosen.to_config(detector, ("real", "fake")))
    job = JobSpec(
        root=root, out=out, options=chosen, detector=detector, labels=("real", "fake"), config_hash=config_hash
    )
    make_folders(job.paths)
    return UnitWorker(job), detector


def rows_of(unit_worker: UnitWorker, *entries: Entry) -> dict[str, list[dict[str, Any]]]:
    """The rows of one unit by video."""
    unit = Unit.make(entries, "train", config_hash=unit_worker.job.config_hash, salt="0")
    receipt = unit_worker.run(unit)
    assert all(outcome.outcome != "failed" or outcome.reason == "truncated" for outcome in receipt.inputs), receipt
    rows = pq.read_table(unit_worker.job.out / receipt.file).to_pylist() if receipt.file else []
    unit_worker.close()
    return {entry.video_id: [row for row in rows if row["video_id"] == entry.video_id] for entry in entries}


def iou(mask: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    return float((mask & truth).sum() / (mask | truth).sum())


def truth_of(fake: Clip, row: dict[str, Any]) -> NDArray[np.bool_]:
    """Where the generator may have changed the crop of a row."""
    x0, y0, x1, _ = (round(value) for value in row["crop_xyxy"])
    hull, _ = CropSquare(x0, y0, x1 - x0).crop(Truth(fake).frame(row["frame_index"]), row["width"])
    return hull[..., 0] > 127


def test_the_mask_of_a_fake_is_where_the_generator_changed_it(films: Path, out: Path, pair: tuple[Clip, Clip]) -> None:
    original, fake = pair
    unit_worker, _ = worker(films, out)
    rows = rows_of(unit_worker, entry_of(films, original), entry_of(films, fake))
    assert rows[fake.name]
    for row in rows[fake.name]:
        mask = decode_mask(row["mask"])
        assert mask.shape == (row["height"], row["width"])
        assert iou(mask, truth_of(fake, row)) > 0.6
        assert row["manipulated"] == pytest.approx(mask.mean(), abs=1e-6)


def test_real_videos_have_no_mask(films: Path, out: Path, pair: tuple[Clip, Clip]) -> None:
    original, _ = pair
    unit_worker, _ = worker(films, out)
    rows = rows_of(unit_worker, entry_of(films, original))[original.name]
    assert {(row["manipulated"], row["mask"]) for row in rows} == {(None, None)}


def test_an_unchanged_face_of_a_fake_can_be_distinguished(
    films: Path, out: Path, two_people: tuple[Clip, Clip]
) -> None:
    original, fake = two_people
    unit_worker, _ = worker(films, out, HALVES)
    rows = rows_of(unit_worker, entry_of(films, original), entry_of(films, fake))[fake.name]
    changed = [[row["manipulated"] for row in rows if row["track_id"] == track] for track in (0, 1)]
    by_share = sorted(changed, key=max)
    assert max(by_share[0]) < UNCHANGED, "the other person is as in the original"
    assert min(by_share[1]) > 0.05


def test_an_original_that_is_in_no_unit_is_looked_up_in_the_source(
    films: Path, out: Path, tmp_path: Path, pair: tuple[Clip, Clip]
) -> None:
    original, fake = pair
    together, _ = worker(films, out)
    alone, detector = worker(films, tmp_path / "alone")
    expected = rows_of(together, entry_of(films, original), entry_of(films, fake))[fake.name]
    rows = rows_of(alone, entry_of(films, fake))[fake.name]
    assert rows == expected
    assert len(detector.seen) == len(rows), "its faces are not looked for"


def test_a_fake_whose_original_is_missing_has_no_mask(films: Path, out: Path, pair: tuple[Clip, Clip]) -> None:
    _, fake = pair
    unit_worker, _ = worker(films, out)
    entry = replace(entry_of(films, fake), source_id="never/downloaded.mp4")
    rows = rows_of(unit_worker, entry)[fake.name]
    assert rows
    assert {(row["manipulated"], row["mask"]) for row in rows} == {(None, None)}


def test_an_original_that_breaks_off_is_compared_with_nothing(
    out: Path, tmp_path: Path, films: Path, pair: tuple[Clip, Clip]
) -> None:
    original, fake = pair
    root = tmp_path / "src"
    root.mkdir()
    shutil.copyfile(films / fake.name, root / fake.name)
    data = (films / original.name).read_bytes()
    (root / original.name).write_bytes(data[: len(data) // 2])
    for entries in ([original, fake], [fake]):
        unit_worker, _ = worker(root, out / str(len(entries)))
        rows = rows_of(unit_worker, *(entry_of(root, clip) for clip in entries))[fake.name]
        assert rows
        assert {row["mask"] for row in rows} == {None}


def test_a_source_outside_the_root_is_never_opened(
    films: Path, out: Path, tmp_path: Path, pair: tuple[Clip, Clip]
) -> None:
    original, fake = pair
    root = tmp_path / "src"
    root.mkdir()
    shutil.copyfile(films / fake.name, root / fake.name)
    shutil.copyfile(films / original.name, tmp_path / original.name)
    unit_worker, _ = worker(root, out)
    rows = rows_of(unit_worker, replace(entry_of(root, fake), source_id=f"../{original.name}"))[fake.name]
    assert {row["mask"] for row in rows} == {None}


# --- --boxes source


def test_with_boxes_source_faces_are_looked_for_in_the_original_alone(
    films: Path, out: Path, pair: tuple[Clip, Clip]
) -> None:
    original, fake = pair
    unit_worker, detector = worker(films, out)
    plain = rows_of(unit_worker, entry_of(films, original), entry_of(films, fake))
    assert len(detector.seen) == len(plain[original.name]) + len(plain[fake.name])

    sourced, detector = worker(films, out.with_name("sourced"), boxes="source")
    rows = rows_of(sourced, entry_of(films, original), entry_of(films, fake))
    assert len(detector.seen) == len(rows[original.name])
    for column in ("box_xyxy", "landmarks", "track_id", "score"):
        assert [row[column] for row in rows[fake.name]] == [row[column] for row in rows[original.name]]
    assert [row["image"] for row in rows[fake.name]] == [row["image"] for row in plain[fake.name]]


def test_with_boxes_source_a_fake_without_its_original_has_its_own(
    films: Path, out: Path, pair: tuple[Clip, Clip]
) -> None:
    _, fake = pair
    unit_worker, detector = worker(films, out, boxes="source")
    rows = rows_of(unit_worker, replace(entry_of(films, fake), source_id="never/downloaded.mp4"))[fake.name]
    assert len(detector.seen) == len(rows) > 0


def test_boxes_are_own_or_source_and_part_of_the_config() -> None:
    detector = FixedBoxDetector()
    with pytest.raises(UsageError, match="boxes='both': must be own or source"):
        Options(boxes="both")  # type: ignore[arg-type]
    configs = [Options(boxes=boxes).to_config(detector, ("real", "fake")) for boxes in ("own", "source")]  # type: ignore[arg-type]
    assert hash_config(configs[0]) != hash_config(configs[1])


def test_with_boxes_source_a_smaller_fake_has_no_faces_below_the_smallest(
    films: Path, out: Path, tmp_path: Path, pair: tuple[Clip, Clip]
) -> None:
    original, fake = pair  # the face is .4 x 640 px wide
    root = tmp_path / "src"
    root.mkdir()
    shutil.copyfile(films / original.name, root / original.name)
    with MediaReader() as reader:
        frames = [frame.rgb for frame in reader.frames(films / fake.name, Sampling(every=1))]
    small = [cv2.resize(rgb, (rgb.shape[1] // 4, rgb.shape[0] // 4), interpolation=cv2.INTER_AREA) for rgb in frames]
    write_video(root / "small.mp4", small, rate=30)
    tiny = Entry(video_id="small.mp4", size_bytes=1, mtime_ns=1, label=1, source_id=original.name)
    for smallest, faces in ((60, True), (70, False)):
        unit_worker, _ = worker(root, out / str(smallest), boxes="source", keep=FaceFilter(min_face_px=smallest))
        rows = rows_of(unit_worker, entry_of(root, original), tiny)["small.mp4"]
        assert bool(rows) == faces, smallest


# --- odd families


def test_a_fake_of_a_fake_is_compared_and_so_is_the_one_between(
    films: Path, out: Path, tmp_path: Path, pair: tuple[Clip, Clip]
) -> None:
    original, fake = pair
    root = tmp_path / "src"
    root.mkdir()
    for clip in pair:
        shutil.copyfile(films / clip.name, root / clip.name)
    shutil.copyfile(films / original.name, root / "last.mp4")
    last = replace(entry_of(root, fake), video_id="last.mp4", source_id=fake.name)
    unit_worker, _ = worker(root, out)
    rows = rows_of(unit_worker, entry_of(root, original), entry_of(root, fake), last)
    for name in (fake.name, "last.mp4"):
        assert all(row["manipulated"] > 0.02 for row in rows[name]), name


def test_a_video_that_is_called_its_own_source_is_compared_with_nothing(
    films: Path, out: Path, pair: tuple[Clip, Clip]
) -> None:
    original, _ = pair
    unit_worker, _ = worker(films, out)
    rows = rows_of(unit_worker, replace(entry_of(films, original), source_id=original.name))[original.name]
    assert {row["mask"] for row in rows} == {None}


@pytest.mark.parametrize("source", ["x" * 300, "a\0b", "folder/" * 50 + "a.mp4"])
def test_a_source_whose_name_no_file_can_have_is_missing(
    films: Path, out: Path, pair: tuple[Clip, Clip], source: str
) -> None:
    _, fake = pair
    unit_worker, _ = worker(films, out)
    rows = rows_of(unit_worker, replace(entry_of(films, fake), source_id=source))[fake.name]
    assert {row["mask"] for row in rows} == {None}


def test_an_absolute_source_outside_the_root_is_not_opened(
    films: Path, out: Path, tmp_path: Path, pair: tuple[Clip, Clip]
) -> None:
    original, fake = pair
    root = tmp_path / "src"
    root.mkdir()
    shutil.copyfile(films / fake.name, root / fake.name)
    unit_worker, _ = worker(root, out)
    rows = rows_of(unit_worker, replace(entry_of(root, fake), source_id=str(films / original.name)))[fake.name]
    assert {row["mask"] for row in rows} == {None}
