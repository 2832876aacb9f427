"""What somebody sees of decoding: the stored pixels, small ones that look like the large, errors for no image."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as its own documentation writes it)
import assets_dataset
import cv2
import numpy as np
import pytest
import simplejpeg
from assets_rows import make_small, shown, stored_pixels, stored_rows
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.loaders.dataset.crop_mappings import CropMapping, ProtocolCrop, WholeCrop
from facefeed.loaders.dataset.decode import decode_rgb
from facefeed.loaders.face import Face, resize_image
from facefeed.pipeline.dataset.image_codec import ImageEncoder
from facefeed.pipeline.errors import CorruptDataError
from PIL import Image

Pixels = np.ndarray[Any, Any]


def smooth(side: int) -> Pixels:
    """A picture with large and middling shapes, as faces have them: uint8 (side, side, 3)."""
    coarse = np.random.default_rng(side).integers(0, 256, (9, 9, 3), np.uint8)
    picture: Pixels = cv2.resize(coarse, (side, side), interpolation=cv2.INTER_CUBIC).astype(np.uint8)
    return picture


def jpeg(picture: Pixels) -> bytes:
    data: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(picture), quality=95, colorsubsampling="444")
    return data


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP"])
def test_an_image_has_the_pixels_that_another_decoder_finds(image_format: str) -> None:
    file = io.BytesIO()
    Image.fromarray(smooth(64)).save(file, image_format, **({"lossless": True} if image_format == "WEBP" else {}))
    expected = np.asarray(Image.open(io.BytesIO(file.getvalue())).convert("RGB")).astype(int)
    decoded = decode_rgb(file.getvalue())
    assert (decoded.shape, decoded.dtype) == ((64, 64, 3), np.uint8)
    assert abs(decoded - expected).max() <= (1 if image_format == "JPEG" else 0)


@pytest.mark.parametrize(
    ("mode", "image_format"), [("L", "JPEG"), ("L", "PNG"), ("RGBA", "PNG"), ("P", "PNG"), ("RGBA", "WEBP")]
)
def test_images_of_other_channels_come_as_rgb(mode: str, image_format: str) -> None:
    file = io.BytesIO()
    Image.fromarray(smooth(16)).convert(mode).save(file, image_format)
    assert decode_rgb(file.getvalue()).shape == (16, 16, 3)


@pytest.mark.parametrize(
    ("side", "target_side", "tolerance"),
    [(64, 32, 1), (96, 32, 2), (130, 32, 2), (255, 32, 1), (256, 32, 1), (300, 112, 1), (512, 224, 1), (512, 256, 1)],
)
def test_a_large_jpeg_is_decoded_small_and_looks_the_same(side: int, target_side: int, tolerance: int) -> None:
    data = jpeg(smooth(side))
    small = decode_rgb(data, min_side_px=target_side)
    assert target_side <= small.shape[0] <= side // 2 + 1
    resized = WholeCrop(side, side, target_side).image(small, None).astype(int)
    full = cv2.resize(decode_rgb(data), (target_side, target_side), interpolation=cv2.INTER_AREA).astype(int)
    assert resized.shape == (target_side, target_side, 3)
    assert abs(resized - full).mean() < tolerance


def centre_of(spot: Pixels) -> Pixels:
    light = spot[..., 0].astype(np.float64)
    height, width = light.shape
    return np.array([light.sum(0) @ (np.arange(width) + 0.5), light.sum(1) @ (np.arange(height) + 0.5)]) / light.sum()


@pytest.mark.parametrize(
    ("side", "target_side"), [(225, 112), (256, 112), (299, 112), (449, 112), (457, 56), (463, 57), (921, 56)]
)
def test_a_spot_is_where_its_point_is_whatever_the_stored_side(side: int, target_side: int) -> None:
    """Also where scaled decoding rounds the side up."""
    at, columns = np.array([side * 0.8, side * 0.85]), np.arange(side) + 0.5
    light = 250 * np.exp(-((columns - at[0]) ** 2 + (columns[:, None] - at[1]) ** 2) / (2 * (side / 30) ** 2))
    data = jpeg(np.repeat(np.rint(light).astype(np.uint8)[..., None], 3, axis=2))
    scale = np.array([[target_side / side, 0, 0], [0, target_side / side, 0]])
    mappings: list[CropMapping] = [WholeCrop(side, side, target_side), ProtocolCrop(scale, side, target_side)]
    for mapping in mappings:
        image = mapping.image(decode_rgb(data, min_side_px=mapping.min_side_px), None)
        face = replace(Face.from_image(image), hull=at[None].astype(np.float32))
        np.testing.assert_allclose(centre_of(image), mapping.points(face).hull[0], atol=0.1)


@pytest.mark.parametrize("side", [32, 33, 48, 63])
def test_a_jpeg_of_less_than_twice_the_size_is_decoded_whole(side: int) -> None:
    assert decode_rgb(jpeg(smooth(side)), min_side_px=32).shape == (side, side, 3)


def test_the_shorter_side_decides() -> None:
    wide = jpeg(np.ascontiguousarray(smooth(128)[:40]))
    assert decode_rgb(wide, min_side_px=32).shape == (40, 128, 3)


def test_pixels_are_put_where_they_are_wanted_if_they_fit_there() -> None:
    data, buffer = jpeg(smooth(32)), np.zeros((32, 32, 3), np.uint8)
    assert decode_rgb(data, into=buffer) is buffer or np.shares_memory(decode_rgb(data, into=buffer), buffer)
    assert (buffer == decode_rgb(data)).all()
    small_buffer = np.zeros((16, 16, 3), np.uint8)
    assert decode_rgb(data, into=small_buffer).shape == (32, 32, 3)
    assert not small_buffer.any()


@pytest.mark.parametrize("data", [b"", b"\xff\xd8", b"\xff\xd8 and no more", b"\x89PNG\r\n\x1a\n", b"RIFF", b"hello"])
def test_bytes_that_are_no_image_are_an_error_of_ours(data: bytes) -> None:
    with pytest.raises(CorruptDataError, match=f"image of {len(data)} bytes: cannot be decoded"):
        decode_rgb(data)


def test_a_jpeg_that_ends_early_is_an_error_and_not_half_a_picture() -> None:
    data = jpeg(smooth(64))
    for num_bytes in (len(data) // 4, len(data) // 2, len(data) - 20):
        with pytest.raises(CorruptDataError, match="cannot be decoded"):
            decode_rgb(data[:num_bytes])


# ---- resizing


@pytest.mark.parametrize("side", [8, 16, 31, 32, 40, 224])
def test_resizing_gives_a_square_and_leaves_what_is_one_alone(side: int) -> None:
    picture = smooth(32)
    resized = resize_image(picture, side)
    assert resized.shape == (side, side, 3)
    assert (resized is picture) == (side == 32)
    buffer = np.zeros((side, side, 3), np.uint8)
    assert (resize_image(picture, side, buffer) == resized).all()
    assert side == 32 or (buffer == resized).all()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Crops of 256 px."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assets_dataset, "_FRAME", (480, 640))
        return make_small(tmp_path_factory.mktemp("large") / "out", size_px=256)


@pytest.mark.parametrize("image_size", [16, 100, 128, 200])
def test_large_crops_come_small_through_the_loader_and_their_points_too(large: Path, image_size: int) -> None:
    faces = FaceDataset(large, split="val", image_size=image_size)
    rows = [row for row in stored_rows(large) if row["split"] == "val"]
    for position, row in list(enumerate(rows))[::3]:
        assert row["width"] == 256
        full = cv2.resize(stored_pixels(row), (image_size, image_size), interpolation=cv2.INTER_AREA).astype(int)
        face = faces.load_resized(int(faces.rows[position]))
        assert abs(face.image.astype(int) - full).mean() < 2
        assert (faces.load_pixels(int(faces.rows[position])) == face.image).all()
        scale = image_size / 256
        np.testing.assert_allclose(face.landmarks, np.array(row["landmarks"]) * scale, rtol=1e-4)
        np.testing.assert_allclose(face.hull, np.array(row["hull"]) * scale, rtol=1e-4)
        np.testing.assert_allclose(face.regions["mouth"], np.array(row["regions"]["mouth"]) * scale, rtol=1e-4)


@pytest.mark.parametrize("image_format", ["png", "webp"])
def test_png_and_webp_crops_go_through_the_loader_like_jpegs(tmp_path: Path, image_format: Any) -> None:
    make_small(tmp_path / "out", image=ImageEncoder(format=image_format))
    for dtype in ("float32", "uint8"):
        loader = FaceDataLoader(tmp_path / "out", 8, split="val", image_size=32, dtype=dtype, num_workers=0)
        plain = FaceDataset(tmp_path / "out", split="val", image_size=32)
        if dtype == "float32":
            assert shown(loader) == [plain[position][0].numpy().tobytes() for position in range(len(plain))]
        else:
            rows = [row for row in stored_rows(tmp_path / "out") if row["split"] == "val"]
            decoded = [image.permute(1, 2, 0).numpy() for images, _ in loader for image in images]
            assert all((pixels == stored_pixels(row)).all() for pixels, row in zip(decoded, rows, strict=True))
    flipped = FaceDataLoader(
        tmp_path / "out", 8, split="val", image_size=16, transform=A.Compose([A.HorizontalFlip(p=1.0)]), num_workers=0
    )
    assert sum(len(labels) for _, labels in flipped) == 15
