"""--align: faces are upright, points stay on them, and a row stores the geometry of its crop."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from click.testing import CliRunner
from facefeed.data.portraits import load_portrait
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.image_codec import ImageEncoder
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces import FaceFilter, Faces
from facefeed.pipeline.faces.geometry.alignment import tilt_degrees
from facefeed.pipeline.faces.geometry.crop import CropSquare
from facefeed.pipeline.faces.geometry.hull import TEMPLATE5
from facefeed.pipeline.planning.options import JobSpec, Options
from facefeed.pipeline.rows.row_builder import RowBuilder
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.video import Frame
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

ANCHORS = np.array(list(TEMPLATE5.values()))[:5]
PNG = ImageEncoder(format="png")
KEEP = FaceFilter(min_face_px=8)
X, Y = 225, 123
"""The middle of the astronaut's face."""


def turning(degrees: float) -> NDArray[np.float64]:
    """Turns columns clockwise as seen: x is right, y is down."""
    angle = np.deg2rad(degrees)
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


@given(st.floats(-179, 179), st.floats(5, 500), st.floats(-1000, 3000), st.floats(-1000, 3000))
def test_the_tilt_of_a_face_is_found_whatever_its_size_and_place(
    degrees: float, eyes_px: float, x: float, y: float
) -> None:
    landmarks = eyes_px * ANCHORS[:, :2] @ turning(degrees).T + (x, y)
    assert tilt_degrees(landmarks) == pytest.approx(degrees, abs=1e-3)


@pytest.mark.parametrize("tilt", [-25, 0, 40])
@pytest.mark.parametrize("yaw", [-75, -40, 40, 75])
def test_a_head_that_looks_to_the_side_is_not_taken_for_a_tilted_one(yaw: float, tilt: float) -> None:
    angle = np.deg2rad(yaw)
    aside = np.column_stack([ANCHORS[:, 0] * np.cos(angle) + ANCHORS[:, 2] * np.sin(angle), ANCHORS[:, 1]])
    assert tilt_degrees(80 * aside @ turning(tilt).T) == pytest.approx(tilt, abs=1.0)


@pytest.mark.parametrize("landmarks", [np.full((5, 2), 7.0), np.full((5, 2), np.nan)])
def test_points_that_show_no_face_show_no_tilt(landmarks: NDArray[np.float64]) -> None:
    assert tilt_degrees(landmarks) == 0


@dataclass
class ScriptedDetector:
    """A detector that returns the given faces, frame by frame."""

    faces: Sequence[Faces]
    fingerprint: str = "told"
    frames_at_once: int = 2

    def __post_init__(self) -> None:
        self._next = iter(self.faces)

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        return [next(self._next) for _ in frames]


def rows_of(frames: Sequence[Frame], faces: Sequence[Faces], **options: Any) -> list[dict[str, Any]]:
    """The rows that precompute writes of these frames with these faces."""
    chosen = Options(keep=KEEP, **options)
    job = JobSpec(
        root=Path(),
        out=Path(),
        options=chosen,
        detector=ScriptedDetector(faces),
        labels=("real", "fake"),
        config_hash="",
    )
    batches = RowBuilder(job).batches(Entry(video_id="a.mp4"), "train", frames)
    return [row for batch in batches for row in batch.to_pylist()]


def astronaut() -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    portrait = load_portrait("astronaut")
    return np.ascontiguousarray(portrait.image[..., ::-1]), portrait.faces[0].landmarks


def face(landmarks: NDArray[np.float32], x: float = X, y: float = Y, width: float = 90, height: float = 110) -> Faces:
    """A box as a detector would give it: upright, whatever the face does."""
    box = np.array([[x - width / 2, y - height / 2, x + width / 2, y + height / 2]], np.float32)
    return Faces(box, np.ones(1, np.float32), landmarks[None])


def tilted(degrees: float) -> tuple[Frame, Faces]:
    """The astronaut, turned clockwise about the middle of her face."""
    rgb, landmarks = astronaut()
    matrix = cv2.getRotationMatrix2D((X - 0.5, Y - 0.5), -degrees, 1.0)
    turned = np.asarray(cv2.warpAffine(rgb, matrix, rgb.shape[1::-1], flags=cv2.INTER_CUBIC), np.uint8)
    moved = (landmarks - (X, Y)) @ turning(degrees).T + (X, Y)
    return Frame(0, 0.0, turned), face(moved.astype(np.float32))


def pixels(row: dict[str, Any]) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(row["image"])) as stored:
        return np.asarray(stored.convert("RGB"))


@pytest.mark.parametrize("degrees", [-60.0, -12.0, 35.0])
@pytest.mark.parametrize("size", [64, 256])
def test_a_tilted_face_is_stored_upright(degrees: float, size: int) -> None:
    frame, faces = tilted(degrees)
    straight, straight_faces = tilted(0.0)
    (row,) = rows_of([frame], [faces], align=True, size_px=size, image=PNG)
    (upright,) = rows_of([straight], [straight_faces], align=True, size_px=size, image=PNG)
    assert row["crop_degrees"] - upright["crop_degrees"] == pytest.approx(degrees, abs=0.1)
    left, right, *_ = np.array(row["landmarks"])
    assert abs(np.rad2deg(np.arctan2(*(right - left)[::-1]))) < 3  # five points decide, not the eyes alone
    np.testing.assert_allclose(row["landmarks"], upright["landmarks"], atol=0.01)
    for name, box in row["regions"].items():  # of which `face` is the hull's box
        np.testing.assert_allclose(box, upright["regions"][name], atol=0.01)
    middle = slice(len(pixels(row)) // 5, -(len(pixels(row)) // 5))
    assert np.abs(pixels(row).astype(int) - pixels(upright))[middle, middle].mean() < 3


def test_a_row_stores_the_exact_geometry_of_its_crop() -> None:
    frame, faces = tilted(23.0)
    (row,) = rows_of([frame], [faces], align=True, size_px=100, image=PNG)
    left, top, right, _ = (int(edge) for edge in row["crop_xyxy"])
    crop, scale = CropSquare(left, top, right - left, row["crop_degrees"]).crop(frame.rgb, 100)
    np.testing.assert_array_equal(crop, pixels(row))
    assert scale == 100 / 176  # (1 + 2 * 0.3) * 110: the margin is that of an upright square
    np.testing.assert_array_equal(row["box_xyxy"], faces.boxes_xyxy[0])


def test_points_stay_on_the_face_of_an_aligned_crop() -> None:
    frame, faces = tilted(-40.0)
    rgb = frame.rgb.copy()
    for x, y in faces.landmarks[0]:
        cv2.circle(rgb, (int(x), int(y)), 2, (0, 255, 0), -1)
    (row,) = rows_of([Frame(0, 0.0, rgb)], [faces], align=True, image=PNG)
    for x, y in row["landmarks"]:
        red, green, blue = pixels(row)[int(y), int(x)].astype(int)
        assert green - max(red, blue) > 100


def shaky(frames: int = 24) -> tuple[list[Frame], list[Faces]]:
    """A still picture, and a detector that does not keep still."""
    rgb, landmarks = astronaut()
    noise = np.random.default_rng(0).normal(0, 2, (frames, 2)).astype(np.float32)
    wide = np.random.default_rng(1).normal(90, 2, frames)
    faces = [face(landmarks + by, X + by[0], Y + by[1], w, w + 20) for by, w in zip(noise, wide, strict=True)]
    return [Frame(number, number / 25, rgb) for number in range(frames)], faces


def test_smoothed_rows_hold_the_detectors_boxes_and_a_steadier_square() -> None:
    frames, faces = shaky()
    plain, smooth = rows_of(frames, faces), rows_of(frames, faces, smooth=True)
    for name in ("face_id", "track_id", "box_xyxy", "pts_seconds", "score"):
        assert [row[name] for row in smooth] == [row[name] for row in plain]
    before, after = (np.array([row["crop_xyxy"] for row in rows]).std(axis=0) for rows in (plain, smooth))
    assert (after < 0.6 * before).all()
    for row, detection in zip(smooth, faces, strict=True):
        left, top, right, _ = row["crop_xyxy"]
        scale = row["width"] / (right - left)
        np.testing.assert_allclose(row["landmarks"], (detection.landmarks[0] - (left, top)) * scale, atol=1e-3)


@pytest.mark.parametrize("size", [64, 300])
@pytest.mark.parametrize("margin", [0.0, 0.3, 1.7])
def test_without_align_and_smooth_a_row_is_cut_as_plain_arithmetic_has_it(size: int, margin: float) -> None:
    rgb, landmarks = astronaut()
    boxes = np.array([[180.4, 60.7, 270.1, 190.2], [-30.5, 300.25, 60, 420], [400.5, 400.5, 520.5, 530.5]], np.float32)
    points = np.stack([landmarks, landmarks + 3, landmarks - 40])
    faces = Faces(boxes, np.array([1, 0.99, 0.95], np.float32), points)
    rows = rows_of([Frame(7, 0.28, rgb)], [faces], size_px=size, margin=margin)
    reach = 1000
    ground = np.pad(rgb, ((reach, reach), (reach, reach), (0, 0)))
    for row, box, known in zip(rows, boxes.astype(float), points.astype(float), strict=True):
        left, top, right, bottom = box
        side = int((1 + 2 * margin) * max(right - left, bottom - top) + 0.5)
        x0, y0 = (int((low + high - side) / 2 + 0.5 + reach) - reach for low, high in ((left, right), (top, bottom)))
        crop = ground[reach + y0 : reach + y0 + side, reach + x0 : reach + x0 + side]
        if side > size:
            crop = cv2.resize(crop, (size, size), interpolation=cv2.INTER_AREA)
        assert row["image"] == ImageEncoder()(np.ascontiguousarray(crop))
        assert row["crop_xyxy"] == [x0, y0, x0 + side, y0 + side]
        assert row["crop_degrees"] == 0
        in_crop = ((known - (x0, y0)) * (len(crop) / side)).astype(np.float32)
        np.testing.assert_array_equal(np.array(row["landmarks"], np.float32), in_crop)
        assert (row["height"], row["width"]) == crop.shape[:2]
        assert row["box_xyxy"] == box.tolist()


@pytest.mark.parametrize("flags", [[], ["--align"], ["--smooth"], ["--align", "--smooth"]])
def test_the_command_passes_its_flags_on(monkeypatch: pytest.MonkeyPatch, flags: list[str]) -> None:
    chosen: list[Options] = []

    def precompute(*_: Any, options: Options, **__: Any) -> None:
        chosen.append(options)
        raise UsageError("seen")

    monkeypatch.setattr("facefeed.pipeline.precompute.precompute", precompute)
    CliRunner().invoke(main, ["precompute", "src", "out", *flags])
    assert [(options.align, options.smooth) for options in chosen] == [("--align" in flags, "--smooth" in flags)]


def test_rows_of_either_setting_are_never_mixed_with_others() -> None:
    configs = [
        Options(align=align, smooth=smooth).to_config(ScriptedDetector([]), ("real",))
        for align in (False, True)
        for smooth in (False, True)
    ]
    assert all(config != other for place, config in enumerate(configs) for other in configs[:place])
