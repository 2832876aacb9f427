"""Frames come upright, with square pixels and the right colours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest
from assets_video import mark_corner, with_mark, write_video
from facefeed.pipeline.video import MediaReader, Sampling
from PIL import Image

FIRST = Sampling(frames=1)
COLOURS = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0), (200, 120, 90), (30, 60, 200), (9, 9, 9)]
KR_KB = {1: (0.2126, 0.0722), 6: (0.299, 0.114), 9: (0.2627, 0.0593)}
"""ITU-T H.273, matrix coefficients: 1 is BT.709, 6 BT.601, 9 BT.2020."""
MAX_ERROR = 1
"""Of 255: studio range has 219 steps for 256 values, so an exact way there and back is off by up to one."""


@pytest.fixture(scope="module")
def reader() -> Iterator[MediaReader]:
    with MediaReader() as reader:
        yield reader


def first(reader: MediaReader, path: Path) -> npt.NDArray[np.uint8]:
    return next(iter(reader.frames(path, FIRST))).rgb


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_a_rotation_tag_is_obeyed(reader: MediaReader, tmp_path: Path, rotation: int) -> None:
    """The stored picture is turned away and tagged, as a phone does it; what comes is upright again."""
    stored = np.ascontiguousarray(np.rot90(with_mark(), -rotation // 90))
    path = write_video(tmp_path / "phone.mp4", [stored] * 3, rotation=rotation)
    rgb = first(reader, path)
    assert rgb.shape == with_mark().shape
    assert mark_corner(rgb) == "upper left"
    info = reader.probe(path)
    assert (info.height, info.width) == rgb.shape[:2]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_is_obeyed(reader: MediaReader, tmp_path: Path, orientation: int) -> None:
    undo = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: np.rot90,
        7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
        8: lambda a: np.rot90(a, -1),
    }
    path = tmp_path / "photo.jpg"
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(undo[orientation](with_mark()))).save(path, exif=exif)
    rgb = first(reader, path)
    assert rgb.shape == with_mark().shape
    assert mark_corner(rgb) == "upper left"
    info = reader.probe(path)
    assert (info.height, info.width, info.is_image) == (*rgb.shape[:2], True)


@pytest.mark.parametrize(
    ("ratio", "shape"), [(Fraction(2, 3), (96, 96)), (Fraction(2), (64, 192)), (Fraction(100), (64, 96))]
)
def test_pixels_that_are_not_square_are_made_so(
    reader: MediaReader, tmp_path: Path, ratio: Fraction, shape: tuple[int, int]
) -> None:
    """The shorter side is stretched; a ratio beyond 4 is a mistake in the header and ignored."""
    frames = [np.full((64, 96, 3), 90, np.uint8)]
    path = write_video(tmp_path / "wide.mp4", frames, sample_aspect_ratio=ratio)
    assert first(reader, path).shape[:2] == shape
    info = reader.probe(path)
    assert (info.height, info.width) == shape


def test_a_turned_video_with_oblong_pixels(reader: MediaReader, tmp_path: Path) -> None:
    path = write_video(
        tmp_path / "both.mp4",
        [np.full((64, 96, 3), 90, np.uint8)],
        sample_aspect_ratio=Fraction(2),
        rotation=90,
    )
    assert first(reader, path).shape == (192, 64, 3)


def to_yuv(rgb: tuple[int, int, int], matrix: int, *, full: bool, bits: int) -> tuple[float, float, float]:
    """ITU-T H.273, 8.3: quantised luma and chroma of an RGB colour."""
    kr, kb = KR_KB[matrix]
    red, green, blue = (value / 255 for value in rgb)
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    cb, cr = (blue - luma) / (2 * (1 - kb)), (red - luma) / (2 * (1 - kr))
    scale, top = 1 << (bits - 8), (1 << bits) - 1
    if full:
        return luma * top, cb * top + 128 * scale, cr * top + 128 * scale
    return (16 + 219 * luma) * scale, (128 + 224 * cb) * scale, (128 + 224 * cr) * scale


def write_colours(path: Path, pix_fmt: str, matrix: int, *, full: bool, tagged: bool, height: int = 64) -> Path:
    """Eight vertical stripes of known colours, without loss."""
    bits, width = 10 if "10" in pix_fmt else 8, 256
    frame: Any = av.VideoFrame(width, height, pix_fmt)
    stripes = [to_yuv(colour, matrix, full=full, bits=bits) for colour in COLOURS]
    dtype = np.uint16 if bits == 10 else np.uint8
    for number, plane in enumerate(frame.planes):
        row = np.repeat([stripe[number] for stripe in stripes], plane.width // len(stripes))
        samples = np.zeros((plane.height, plane.line_size // dtype().itemsize), dtype)
        samples[:, : plane.width] = np.clip(np.rint(row), 0, (1 << bits) - 1)
        plane.update(samples.tobytes())
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=25, options={"qp": "0"})
        stream.width, stream.height, stream.pix_fmt = width, height, pix_fmt
        if tagged:
            stream.codec_context.colorspace = frame.colorspace = matrix
            stream.codec_context.color_range = frame.color_range = 2 if full else 1
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def colour_error(rgb: npt.NDArray[np.uint8]) -> int:
    stripe = rgb.shape[1] // len(COLOURS)
    shown = rgb[rgb.shape[0] // 2, stripe // 2 :: stripe].astype(int)
    return int(np.abs(shown - np.array(COLOURS)).max())


@pytest.mark.parametrize(
    ("pix_fmt", "matrix", "full"),
    list(
        itertools.product(
            ["yuv420p", "yuv422p", "yuv444p", "yuv420p10le", "yuv422p10le", "yuv444p10le"],
            KR_KB,
            [False, True],
        )
    ),
)
def test_tagged_colours_come_out_as_they_went_in(
    reader: MediaReader, tmp_path: Path, pix_fmt: str, matrix: int, full: bool
) -> None:
    path = write_colours(tmp_path / "colours.mp4", pix_fmt, matrix, full=full, tagged=True)
    assert colour_error(first(reader, path)) <= MAX_ERROR


@pytest.mark.parametrize(("height", "matrix"), [(576, 6), (720, 1)])
def test_untagged_colours_are_taken_as_players_take_them(
    reader: MediaReader, tmp_path: Path, height: int, matrix: int
) -> None:
    path = write_colours(tmp_path / "untagged.mp4", "yuv420p", matrix, full=False, tagged=False, height=height)
    assert colour_error(first(reader, path)) <= MAX_ERROR


def test_black_and_white_video(reader: MediaReader, tmp_path: Path) -> None:
    ramp = np.repeat(np.arange(256, dtype=np.uint8)[None], 64, axis=0)
    path = write_video(tmp_path / "grey.mkv", [np.repeat(ramp[:, :, None], 3, axis=2)], codec="ffv1", pix_fmt="gray")
    rgb = first(reader, path).astype(int)
    assert np.abs(rgb - ramp[:, :, None]).max() <= MAX_ERROR


def test_alpha_is_ignored_and_the_stored_colour_counts(reader: MediaReader, tmp_path: Path) -> None:
    see_through = np.zeros((16, 16, 4), np.uint8)
    see_through[:, :, 0] = 200
    Image.fromarray(see_through).save(tmp_path / "alpha.png")
    assert first(reader, tmp_path / "alpha.png")[5, 5].tolist() == [200, 0, 0]
    Image.fromarray(see_through[:, :, [0, 3]]).save(tmp_path / "grey_alpha.png")
    assert first(reader, tmp_path / "grey_alpha.png")[5, 5].tolist() == [200, 200, 200]


@pytest.mark.parametrize("mode", ["L", "P", "1", "CMYK", "YCbCr", "RGBA"])
def test_pictures_of_every_mode_become_rgb(reader: MediaReader, tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("picture.tiff" if mode in ("CMYK", "YCbCr") else "picture.png")
    Image.new("RGB", (40, 30), (255, 255, 255)).convert(mode).save(path)
    rgb = first(reader, path)
    assert (rgb.shape, rgb.dtype) == ((30, 40, 3), np.uint8)
    assert rgb.min() >= 254


@pytest.mark.parametrize("name", ["sixteen.png", "sixteen.tiff", "sixteen.ppm"])
def test_sixteen_bits_keep_their_upper_eight(reader: MediaReader, tmp_path: Path, name: str) -> None:
    ramp = (np.arange(256, dtype=np.uint16) * 257)[None].repeat(16, axis=0)
    Image.fromarray(ramp).save(tmp_path / name)
    assert (first(reader, tmp_path / name) == np.arange(256)[None, :, None]).all()


def test_float_pictures_are_zero_to_one(reader: MediaReader, tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 0.5, np.float32)).save(tmp_path / "float.tiff")
    assert first(reader, tmp_path / "float.tiff")[0, 0].tolist() == [128, 128, 128]
