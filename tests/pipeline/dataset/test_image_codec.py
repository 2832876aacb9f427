"""What a user notices of images and masks as they are stored: colours, loss, sizes, refusals, damage."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from facefeed.pipeline.dataset.image_codec import ImageEncoder, decode_mask, decode_rgb_strictly, encode_mask
from facefeed.pipeline.errors import CorruptDataError, UsageError
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from skimage import data

ENCODERS = [
    ImageEncoder(),
    ImageEncoder(chroma="444"),
    ImageEncoder(format="png"),
    ImageEncoder(format="webp"),
]


@pytest.fixture(scope="module")
def portrait() -> NDArray[np.uint8]:

    return np.ascontiguousarray(data.astronaut()[:256, 96:352])


def psnr(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> float:
    error = np.mean((a.astype(np.float64) - b) ** 2)
    return float(10 * np.log10(255**2 / error)) if error else float("inf")


@pytest.mark.parametrize(
    ("encoder", "least_db"),
    [
        (ImageEncoder(quality=95), 37),
        (ImageEncoder(quality=50), 31),
        (ImageEncoder(format="webp"), 37),
        (ImageEncoder(format="png"), float("inf")),
    ],
    ids=str,
)
def test_a_portrait_survives_the_round_trip(
    portrait: NDArray[np.uint8], encoder: ImageEncoder, least_db: float
) -> None:
    back = decode_rgb_strictly(encoder(portrait))
    assert back.shape == portrait.shape
    assert back.dtype == np.uint8
    assert psnr(portrait, back) >= least_db


@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
@pytest.mark.parametrize("colour", [(255, 0, 0), (0, 255, 0), (0, 0, 255)])
def test_red_stays_red(encoder: ImageEncoder, colour: tuple[int, int, int]) -> None:
    flat = np.full((32, 48, 3), colour, np.uint8)
    # Lossy WebP works in limited-range YUV and misses pure blue by up to 6 grey levels.
    assert np.abs(decode_rgb_strictly(encoder(flat)).astype(int) - colour).max() <= 6


def test_444_keeps_saturated_edges_that_420_smears() -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = (255, 0, 0)
    stripes[:, 1::2] = (0, 0, 255)
    half, full = (decode_rgb_strictly(ImageEncoder(chroma=c)(stripes)) for c in ("420", "444"))
    assert psnr(stripes, full) > psnr(stripes, half) + 10


@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
def test_the_same_pixels_give_the_same_bytes(encoder: ImageEncoder, portrait: NDArray[np.uint8]) -> None:
    sent_to_a_worker = pickle.loads(pickle.dumps(encoder))
    assert encoder(portrait) == encoder(portrait.copy()) == sent_to_a_worker(portrait)


@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (17, 31)])
def test_odd_and_tiny_sizes_keep_their_shape(encoder: ImageEncoder, shape: tuple[int, int]) -> None:
    image = np.full((*shape, 3), 128, np.uint8)
    assert decode_rgb_strictly(encoder(image)).shape == image.shape


@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
def test_a_view_encodes_like_its_copy(encoder: ImageEncoder, portrait: NDArray[np.uint8]) -> None:
    view = portrait[10:60:2, 100:20:-1]
    assert encoder(view) == encoder(view.copy())


def test_a_lower_quality_is_smaller(portrait: NDArray[np.uint8]) -> None:
    for name in ("jpeg", "webp"):
        sizes = [len(ImageEncoder(format=name, quality=q)(portrait)) for q in (50, 80, 95)]  # type: ignore[arg-type]
        assert sizes == sorted(set(sizes))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "gif"}, "format='gif'"),
        ({"quality": 0}, "quality=0"),
        ({"quality": 101}, "quality=101"),
        ({"chroma": "422"}, "chroma='422'"),
        ({"format": "webp", "chroma": "444"}, "webp"),
    ],
)
def test_what_a_format_does_not_have_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ImageEncoder(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("image", [np.zeros((4, 4, 3)), np.zeros((4, 4), np.uint8), np.zeros((0, 4, 3), np.uint8)])
def test_what_is_no_rgb_image_is_refused(image: NDArray[np.uint8]) -> None:
    with pytest.raises(UsageError, match="must be"):
        ImageEncoder()(image)


@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
@pytest.mark.parametrize("keep", [0.02, 0.5, 0.98])
def test_a_cut_image_is_reported_not_decoded(
    encoder: ImageEncoder, keep: float, portrait: NDArray[np.uint8], capfd: pytest.CaptureFixture[str]
) -> None:
    data = encoder(portrait)
    with pytest.raises(CorruptDataError):
        decode_rgb_strictly(data[: int(len(data) * keep)])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("data", [b"", b"\xff\xd8", b"hello", bytes(1000), b"\x89PNG\r\n\x1a\n"])
def test_bytes_that_are_no_image_are_reported(data: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CorruptDataError):
        decode_rgb_strictly(data)
    assert capfd.readouterr().err == ""


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_a_mask_comes_back_as_it_was(height: int, width: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random((height, width)) < 0.5
    data = encode_mask(mask)
    back = decode_mask(data)
    assert back.dtype == np.bool_
    assert (back.view(np.uint8) == mask).all()
    # The 25th byte of a PNG is its bit depth.
    assert data[24] == 1


def test_a_damaged_mask_is_an_error_of_ours() -> None:
    data = bytearray(encode_mask(np.random.default_rng(0).random((128, 128)) < 0.5))
    data[len(data) // 2] ^= 0x10
    with pytest.raises(CorruptDataError, match="mask of"):
        decode_mask(bytes(data))


def test_a_mask_that_is_larger_than_any_crop_is_refused_as_an_image_is() -> None:
    side = 4097
    with pytest.raises(CorruptDataError, match=f"{side} x {side} px, crops have at most"):
        decode_mask(encode_mask(np.zeros((side, side), np.bool_)))
