"""What a user notices of decoding a part of a JPEG: the same pixels, also of images that cannot be taken apart."""

from __future__ import annotations

import io
from typing import Any

import cv2
import numpy as np
import pytest
from facefeed.loaders.dataset.decode import decode_rgb
from facefeed.loaders.dataset.jpeg_rows import rows_of_jpeg
from facefeed.pipeline.dataset.image_codec import Chroma, ImageEncoder
from PIL import Image

Pixels = np.ndarray[Any, Any]


def picture(height: int, width: int) -> Pixels:
    """Large shapes under noise, so that every block differs: uint8 (height, width, 3)."""
    rng = np.random.default_rng(height)
    coarse = cv2.resize(rng.integers(0, 256, (9, 9, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
    noisy: Pixels = np.clip(coarse + rng.normal(0, 12, coarse.shape), 0, 255).astype(np.uint8)
    return noisy


def saved(**settings: Any) -> bytes:
    """A JPEG by Pillow."""
    file = io.BytesIO()
    Image.fromarray(picture(96, 80)).save(file, "JPEG", **settings)
    return file.getvalue()


@pytest.mark.parametrize("chroma", ["420", "444"])
@pytest.mark.parametrize("size", [(256, 256), (250, 131), (17, 40), (16, 16), (400, 24)], ids=str)
def test_rows_have_the_pixels_that_they_have_in_the_whole_image(size: tuple[int, int], chroma: Chroma) -> None:
    jpeg = ImageEncoder(chroma=chroma)(picture(*size))
    whole = decode_rgb(jpeg)
    for top in range(0, size[0], 7):
        for bottom in range(top + 1, size[0] + 1, 11):
            rows = decode_rgb(jpeg, rows=(top, bottom))
            assert rows.shape == whole.shape
            np.testing.assert_array_equal(rows[top:bottom], whole[top:bottom])


@pytest.mark.parametrize(("chroma", "block_px"), [("420", 16), ("444", 8)])
def test_no_rows_are_decoded_but_those_of_the_blocks_and_one_px_beside(chroma: Chroma, block_px: int) -> None:
    jpeg = ImageEncoder(chroma=chroma)(picture(128, 64))
    part = rows_of_jpeg(jpeg, 3 * block_px + 1, 5 * block_px - 1)
    assert part is not None
    assert (part.top, part.bottom) == (3 * block_px, 5 * block_px)
    assert decode_rgb(part.jpeg).shape == (2 * block_px, 64, 3)
    wider = rows_of_jpeg(jpeg, 3 * block_px, 5 * block_px)
    assert wider is not None
    assert (wider.top, wider.bottom) == (2 * block_px, 6 * block_px)


def test_a_crop_is_hardly_larger_with_its_markers() -> None:
    crop = picture(512, 512)
    encoded, without = cv2.imencode(".jpg", crop[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 95])
    assert encoded
    assert len(ImageEncoder()(crop)) <= 1.002 * len(without)


@pytest.mark.parametrize(
    "jpeg",
    [
        saved(),
        saved(progressive=True, restart_marker_rows=1),
        saved(restart_marker_rows=2),
        saved(restart_marker_blocks=2),
        ImageEncoder(format="png")(picture(96, 80)),
        ImageEncoder(format="webp")(picture(96, 80)),
    ],
    ids=["without markers", "progressive", "every second row", "within rows", "png", "webp"],
)
def test_what_cannot_be_taken_apart_is_decoded_whole(jpeg: bytes) -> None:
    np.testing.assert_array_equal(decode_rgb(jpeg, rows=(40, 56)), decode_rgb(jpeg))


def test_an_image_of_one_channel_is_decoded_whole() -> None:
    file = io.BytesIO()
    Image.fromarray(picture(96, 80)).convert("L").save(file, "JPEG", restart_marker_rows=1)
    np.testing.assert_array_equal(decode_rgb(file.getvalue(), rows=(40, 56)), decode_rgb(file.getvalue()))


def test_bytes_that_are_cut_short_or_changed_are_never_taken_apart_wrongly() -> None:
    jpeg = ImageEncoder()(picture(64, 48))
    header = jpeg.index(b"\xff\xda")
    for length in range(len(jpeg)):
        assert rows_of_jpeg(jpeg[:length], 20, 30) is None
    for at in range(2, header):
        for value in (0, 1, 0xFF):
            rows_of_jpeg(jpeg[:at] + bytes([value]) + jpeg[at + 1 :], 20, 30)  # without an exception
    without_a_marker = jpeg.replace(b"\xff\xd1", b"\xff\x00", 1)
    assert rows_of_jpeg(without_a_marker, 20, 30) is None
    assert rows_of_jpeg(jpeg, 70, 80) is None, "below its last row"
