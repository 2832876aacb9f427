"""A fake's mask is the one that its set publishes, cropped as its image is; where that cannot be used, a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest
from assets_video import spoil, write_video
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.image_codec import decode_mask
from facefeed.pipeline.dataset.manifest import InputOutcome
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces import FaceFilter, Faces
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.faces.geometry.crop import CropSquare
from facefeed.pipeline.manipulation.own_masks import THRESHOLD, OwnMaskFrames, crop_own_mask
from facefeed.pipeline.planning.options import JobSpec, Options, hash_config
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.sources import Entry, list_source
from facefeed.pipeline.video import Frame, Sampling
from numpy.typing import NDArray

SIZE = (120, 160)
FRAMES = 24
ORIGINAL = "original_sequences/youtube/c23/videos/033.mp4"
FAKE = "manipulated_sequences/Deepfakes/c23/videos/033_097.mp4"
MASK = "manipulated_sequences/Deepfakes/masks/videos/033_097.mp4"
UNCHANGED = 0.01
PUBLISHED = {"crf": "23"}

Rgb = NDArray[np.uint8]


def scene(number: int) -> Rgb:
    """(120, 160, 3): a texture that moves by a pixel a frame."""
    coarse = np.random.default_rng(5).integers(0, 256, (8, 16, 3), np.uint8)
    wide = cv2.resize(coarse, (SIZE[1] + FRAMES, SIZE[0]), interpolation=cv2.INTER_CUBIC)
    return np.ascontiguousarray(wide[:, number : number + SIZE[1]]).astype(np.uint8)


def marked(number: int, scale: float = 1.0) -> Rgb:
    """White over black, at most half of the face's box: a square that moves two pixels a frame to the right."""
    mask = np.zeros((round(SIZE[0] * scale), round(SIZE[1] * scale), 3), np.uint8)
    left, top, right, bottom = (round(value * scale) for value in (30 + 2 * number, 34, 70 + 2 * number, 74))
    mask[top:bottom, left:right] = 255
    return mask


def film(root: Path, *names: str, masks: Sequence[Rgb] | None = None) -> None:
    """Videos of `scene`; of names in a folder of masks, `masks`, by default a square for each of their frames."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        is_mask = "masks" in name
        pictures = map(marked, range(FRAMES)) if masks is None else masks
        write_video(root / name, pictures if is_mask else map(scene, range(FRAMES)), options=PUBLISHED)


@pytest.fixture
def ffpp(tmp_path: Path) -> Path:
    """An original, a fake that differs from it nowhere, and a mask that says otherwise."""
    film(tmp_path / "set", ORIGINAL, FAKE, MASK)
    return tmp_path / "set"


class Tilted(FixedBoxDetector):
    """Says of each face that it is tilted by 30 degrees."""

    def detect(self, frames: Sequence[Rgb]) -> list[Faces]:
        turn = np.array([[0.866, -0.5], [0.5, 0.866]])
        return [
            replace(faces, landmarks=(80 + (faces.landmarks - 80) @ turn.T).astype(np.float32))
            for faces in super().detect(frames)
        ]


def run(
    root: Path, *entries: Entry, detector: FixedBoxDetector | None = None, **options: Any
) -> tuple[dict[str, InputOutcome], dict[str, list[dict[str, Any]]]]:
    """The outcomes and rows of one unit, by video."""
    detector = detector or FixedBoxDetector(((0.2, 0.2, 0.8, 0.8),))
    chosen = Options(**{"sampling": Sampling(every=5), "keep": FaceFilter(min_face_px=8), "size_px": 96, **options})
    config_hash = hash_config(chosen.to_config(detector, ("real", "fake"), has_own_masks=True))
    job = JobSpec(root=root, out=root.parent / "out", options=chosen, detector=detector, labels=("real", "fake"),
                  config_hash=config_hash)  # fmt: skip
    make_folders(job.paths)
    worker = UnitWorker(job)
    receipt = worker.run(Unit.make(entries, "train", config_hash=config_hash, salt="0"))
    worker.close()
    rows = pq.read_table(job.out / str(receipt.file)).to_pylist()
    by_video = {entry.video_id: [row for row in rows if row["video_id"] == entry.video_id] for entry in entries}
    return {outcome.video_id: outcome for outcome in receipt.inputs}, by_video


def listed(root: Path) -> list[Entry]:
    """The entries as a plan orders them: the original first."""
    return sorted(list_source(root).entries, key=lambda entry: entry.source_id is not None)


def agreement(row: dict[str, Any], truth: Rgb) -> float:
    """IoU of a row's mask and the true mask of its frame, cropped as the row's image is."""
    x0, y0, x1, _ = (round(value) for value in row["crop_xyxy"])
    crop, _ = CropSquare(x0, y0, x1 - x0, row["crop_degrees"]).crop(truth, row["width"])
    mask, expected = decode_mask(row["mask"]), crop[..., 0] > 127
    assert mask.shape == (row["height"], row["width"])
    assert row["manipulated"] == pytest.approx(mask.mean(), abs=1e-6)
    return float((mask & expected).sum() / (mask | expected).sum())


@pytest.mark.parametrize("size_px", [40, 96])
@pytest.mark.parametrize("align", [False, True], ids=["upright", "aligned"])
@pytest.mark.parametrize("sampling", [Sampling(every=5), Sampling(frames=4), Sampling(keyframes=True)], ids=str)
def test_the_mask_is_the_published_one_cropped_like_the_image(
    ffpp: Path, sampling: Sampling, align: bool, size_px: int
) -> None:
    detector = Tilted(((0.2, 0.2, 0.8, 0.8),))
    outcomes, rows = run(ffpp, *listed(ffpp), detector=detector, sampling=sampling, align=align, size_px=size_px)
    assert rows[FAKE]
    for row in rows[FAKE]:
        assert (row["crop_degrees"] > 20) == align
        assert agreement(row, marked(row["frame_index"])) > 0.93
    assert {row["mask"] for row in rows[ORIGINAL]} == {None}
    outcome = outcomes[FAKE]
    assert (outcome.faces_with_own_mask, outcome.faces_without_mask) == (outcome.faces, 0)
    assert outcome.own_mask_problem is None


def test_own_masks_are_preferred_to_the_comparison(ffpp: Path) -> None:
    """The fake shows what its original shows: compared, nothing differs."""
    _, own = run(ffpp, *listed(ffpp))
    _, compared = run(ffpp, *(entry.without_mask() for entry in listed(ffpp)))
    assert min(row["manipulated"] for row in own[FAKE]) > 0.05
    assert max(row["manipulated"] for row in compared[FAKE]) < UNCHANGED
    of_masks = ("mask", "manipulated")
    for row in (*own[FAKE], *compared[FAKE]):
        for name in of_masks:
            del row[name]
    assert own == compared, "nothing else depends on the mask"


def test_with_boxes_source_the_faces_are_the_original_s_and_the_mask_is_the_set_s(ffpp: Path) -> None:
    _, rows = run(ffpp, *listed(ffpp), boxes="source")
    assert all(agreement(row, marked(row["frame_index"])) > 0.93 for row in rows[FAKE])


def test_one_mask_serves_every_compression(ffpp: Path) -> None:
    grades = [FAKE.replace("c23", grade) for grade in ("c23", "c40", "raw")]
    film(ffpp, *grades[1:])
    outcomes, rows = run(ffpp, *listed(ffpp))
    assert [[row["mask"] for row in rows[name]] for name in grades[1:]] == [[row["mask"] for row in rows[FAKE]]] * 2
    assert {outcomes[name].faces_with_own_mask for name in grades} == {len(rows[FAKE])}


def test_where_the_original_is_not_there_the_own_mask_is(ffpp: Path) -> None:
    (ffpp / ORIGINAL).unlink()
    outcomes, rows = run(ffpp, *listed(ffpp))
    assert all(agreement(row, marked(row["frame_index"])) > 0.93 for row in rows[FAKE])
    assert outcomes[FAKE].faces_without_mask == 0


@pytest.mark.parametrize("scale", [0.5, 1.5])
def test_a_mask_of_another_size_is_resized(ffpp: Path, scale: float) -> None:
    film(ffpp, MASK, masks=[marked(number, scale) for number in range(FRAMES)])
    _, rows = run(ffpp, *listed(ffpp))
    assert all(agreement(row, marked(row["frame_index"])) > 0.9 for row in rows[FAKE])


def test_a_mask_of_another_frame_rate_is_matched_by_time(ffpp: Path) -> None:
    halved = range(0, FRAMES, 2)
    write_video(ffpp / MASK, map(marked, halved), times=[40 * number for number in halved], options=PUBLISHED)
    outcomes, rows = run(ffpp, *listed(ffpp), sampling=Sampling(every=4))
    assert all(agreement(row, marked(row["frame_index"])) > 0.93 for row in rows[FAKE])
    assert outcomes[FAKE].faces_with_own_mask == len(rows[FAKE])


def test_a_face_model_rendered_in_grey_is_marked_with_its_shadows(ffpp: Path) -> None:
    shades = np.tile(np.linspace(40, 250, 8).astype(np.uint8).repeat(5), (40, 1))
    masks = [marked(number) for number in range(FRAMES)]
    for number, mask in enumerate(masks):
        mask[34:74, 30 + 2 * number : 70 + 2 * number] = shades[..., None]
    film(ffpp, MASK, masks=masks)
    _, rows = run(ffpp, *listed(ffpp))
    assert all(agreement(row, marked(row["frame_index"])) > 0.93 for row in rows[FAKE])


def test_a_face_beyond_the_mask_is_not_manipulated(ffpp: Path) -> None:
    film(ffpp, MASK, masks=[marked(0)] * FRAMES)
    _, rows = run(ffpp, *listed(ffpp), detector=FixedBoxDetector(((0.6, 0.3, 0.9, 0.7),)), margin=0.0)
    assert {row["manipulated"] for row in rows[FAKE]} == {0.0}
    assert not any(decode_mask(row["mask"]).any() for row in rows[FAKE])


def shorten(path: Path) -> None:
    write_video(path, map(marked, range(FRAMES // 2)), options=PUBLISHED)


def widen(path: Path) -> None:
    write_video(path, [np.hstack([marked(number)] * 2) for number in range(FRAMES)], options=PUBLISHED)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:900])


def damage(path: Path) -> None:
    source = path.rename(path.with_suffix(".sound"))
    write_video(source, map(marked, range(FRAMES)), options={**PUBLISHED, "g": "1"}, file_format="mp4")
    spoil(path, source, range(10, 11))


def link_outside(path: Path) -> None:
    outside = path.rename(path.parents[6] / "outside.mp4")
    path.symlink_to(outside)


@pytest.mark.parametrize("is_original_there", [True, False], ids=["compared", "alone"])
@pytest.mark.parametrize(
    ("spoiled", "reason"),
    [
        (shorten, "other_length"),
        (widen, "other_shape"),
        (truncate, "truncated"),
        (damage, "decode_error"),
        (lambda path: path.write_text("not a video"), "not_video"),
        (lambda path: path.write_bytes(b""), "empty"),
        (Path.unlink, "unreadable"),
        (link_outside, "outside_root"),
    ],
)
def test_a_fake_whose_own_mask_cannot_be_used_is_compared_and_does_not_fail(
    ffpp: Path, spoiled: Callable[[Path], object], reason: str, is_original_there: bool
) -> None:
    film(ffpp, sibling := FAKE.replace("Deepfakes", "FaceShifter"))
    entries = listed(ffpp)
    spoiled(ffpp / MASK)
    if not is_original_there:
        (ffpp / ORIGINAL).unlink()
        entries = [entry for entry in entries if entry.label]
    outcomes, rows = run(ffpp, *entries)
    outcome = outcomes[FAKE]
    assert outcome.outcome == "ok"
    assert outcome.own_mask_problem is not None
    assert outcome.own_mask_problem.partition(":")[0] == reason
    assert (outcome.faces_with_own_mask, outcome.faces_without_mask) == (0, 0 if is_original_there else outcome.faces)
    for name in (FAKE, sibling):
        shares = [row["manipulated"] for row in rows[name]]
        assert shares
        assert all(share is not None and share < UNCHANGED for share in shares) == is_original_there
        assert (set(shares) == {None}) != is_original_there


def test_an_image_may_have_an_image_as_its_mask(tmp_path: Path) -> None:
    for name, picture in (("swap.png", scene(0)), ("mask.png", marked(0))):
        cv2.imwrite(str(tmp_path / name), picture)
    (tmp_path / "list.csv").write_text("path,label,mask\nswap.png,fake,mask.png\n")
    _, rows = run(tmp_path, *list_source(tmp_path / "list.csv").entries)
    assert [agreement(row, marked(0)) for row in rows["swap.png"]] == [1.0]


def test_a_rotated_crop_holds_the_mask_where_it_holds_the_pixels(tmp_path: Path) -> None:
    corners = np.array([[50, 40], [110, 50], [100, 90], [45, 80]])
    mask = np.zeros((*SIZE, 3), np.uint8)
    cv2.fillConvexPoly(mask, corners.astype(np.int32), (255, 255, 255))
    square = CropSquare(30, 10, 100, -40.0)
    frames = OwnMaskFrames(tmp_path, {7: 3})
    frames.add(Frame(3, 0.12, mask))
    own = frames.for_frame(Frame(7, 0.28, np.zeros_like(mask)))
    assert own is not None
    crop = crop_own_mask(own, square, size_px=50)
    expected = np.zeros((50, 50), np.uint8)
    cv2.fillConvexPoly(expected, np.rint(square.to_crop(corners, 0.5)).astype(np.int32), 1)
    assert (crop.mask & (expected > 0)).sum() / (crop.mask | (expected > 0)).sum() > 0.93
    assert frames.for_frame(Frame(8, 0.32, mask)) is None, "there is none of that frame"
    assert frames.for_frame(Frame(7, 0.28, np.zeros((120, 120, 3), np.uint8))) is None, "nor one of that shape"
    frames.discard()


@pytest.mark.parametrize("channel", [0, 1, 2])
def test_a_colour_marks_as_white_does(tmp_path: Path, channel: int) -> None:
    """Pure blue is almost black in grey."""
    picture = np.zeros((8, 8, 3), np.uint8)
    picture[:, :4, channel] = THRESHOLD
    picture[:, 4:, channel] = THRESHOLD - 1
    frames = OwnMaskFrames(tmp_path, {0: 0})
    frames.add(Frame(0, 0.0, picture))
    own = frames.for_frame(Frame(0, 0.0, picture))
    frames.discard()
    assert own is not None
    assert (own[:, :4] == 255).all()
    assert not own[:, 4:].any()
