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
from assets_video import mark_corner, numbered, read_number, with_mark, write_video
from facefeed.pipeline.errors import InputError
from facefeed.pipeline.video import MediaReader, Sampling
from facefeed.pipeline.video.decoder.deinterlace import bob_upper_field
from PIL import Image, ImageCms

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


@pytest.mark.parametrize("suffix", ["jpg", "tiff"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_is_obeyed(reader: MediaReader, tmp_path: Path, orientation: int, suffix: str) -> None:
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
    path = tmp_path / f"photo.{suffix}"
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


@pytest.mark.parametrize(
    ("codec", "options"),
    [("mpeg2video", {"bf": "2"}), ("libx264", {"bf": "3"}), ("libx265", {"x265-params": "log-level=none:bframes=3"})],
)
def test_pixels_whose_shape_changes_in_mid_video_are_square_in_each_frame(
    reader: MediaReader, tmp_path: Path, codec: str, options: dict[str, str]
) -> None:
    """As in recordings of television, from 4:3 to 16:9; frames that the decoder returns late keep their own shape."""
    parts = [
        write_video(tmp_path / f"{number}.ts", map(numbered, range(10 * number, 10 * number + 10)), codec=codec,
                    options=options, sample_aspect_ratio=ratio)
        for number, ratio in enumerate((Fraction(1), Fraction(2)))
    ]  # fmt: skip
    joined = tmp_path / "joined.ts"
    with av.open(str(joined), "w") as target:
        stream: Any = None
        for number, part in enumerate(parts):
            with av.open(str(part)) as source:
                stream = stream or target.add_stream_from_template(source.streams.video[0])
                for packet in source.demux(video=0):
                    if packet.pts is not None and packet.dts is not None:
                        packet.pts, packet.dts = packet.pts + number * 36_000, packet.dts + number * 36_000
                        packet.stream = stream
                        target.mux(packet)
    later = next(iter(reader.frames(parts[1], Sampling(every=1)))).rgb.shape
    assert later[1] > 128
    shapes = {read_number(frame.rgb): frame.rgb.shape for frame in reader.frames(joined, Sampling(every=1))}
    assert shapes == {number: (64, 128, 3) if number < 10 else later for number in range(20)}


def test_a_rotated_video_with_non_square_pixels(reader: MediaReader, tmp_path: Path) -> None:
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
    measured = rgb[rgb.shape[0] // 2, stripe // 2 :: stripe].astype(int)
    return int(np.abs(measured - np.array(COLOURS)).max())


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


def test_a_black_and_white_video_keeps_its_grey_levels(reader: MediaReader, tmp_path: Path) -> None:
    ramp = np.repeat(np.arange(256, dtype=np.uint8)[None], 64, axis=0)
    path = write_video(tmp_path / "grey.mkv", [np.repeat(ramp[:, :, None], 3, axis=2)], codec="ffv1", pix_fmt="gray")
    rgb = first(reader, path).astype(int)
    assert np.abs(rgb - ramp[:, :, None]).max() <= MAX_ERROR


@pytest.mark.parametrize("pix_fmt", ["gray", "gray10le"])
def test_black_and_white_of_limited_range_has_full_contrast(reader: MediaReader, tmp_path: Path, pix_fmt: str) -> None:
    scale, dtype = (4, np.uint16) if "10" in pix_fmt else (1, np.uint8)
    levels = np.array([0, 16, 50, 126, 180, 218, 235, 255])
    frame: Any = av.VideoFrame(256, 64, pix_fmt)
    row = np.zeros(frame.planes[0].line_size // dtype().itemsize, dtype)
    row[:256] = levels.repeat(32) * scale
    frame.planes[0].update(np.tile(row, 64).tobytes())
    for color_range, expected in ((0, levels), (1, (levels - 16) * 255 / 219), (2, levels)):
        path = tmp_path / f"grey{color_range}.mkv"
        with av.open(str(path), "w") as container:
            stream: Any = container.add_stream("ffv1", rate=25)
            stream.width, stream.height, stream.pix_fmt = 256, 64, pix_fmt
            stream.codec_context.color_range = frame.color_range = color_range
            container.mux(stream.encode(frame))
            container.mux(stream.encode())
        shown = first(reader, path)[32, 16::32].astype(int)
        assert np.abs(shown - np.clip(expected, 0, 255)[:, None]).max() <= MAX_ERROR


def test_alpha_is_ignored_and_the_stored_colour_counts(reader: MediaReader, tmp_path: Path) -> None:
    see_through = np.zeros((16, 16, 4), np.uint8)
    see_through[:, :, 0] = 200
    Image.fromarray(see_through).save(tmp_path / "alpha.png")
    assert first(reader, tmp_path / "alpha.png")[5, 5].tolist() == [200, 0, 0]
    Image.fromarray(see_through[:, :, [0, 3]]).save(tmp_path / "grey_alpha.png")
    assert first(reader, tmp_path / "grey_alpha.png")[5, 5].tolist() == [200, 200, 200]


def test_samples_of_images_count_as_srgb_with_square_pixels_whatever_their_tags(
    reader: MediaReader, tmp_path: Path
) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("XYZ")).tobytes()
    Image.fromarray(with_mark()).save(tmp_path / "tagged.png", icc_profile=profile, dpi=(72, 36))
    assert (first(reader, tmp_path / "tagged.png") == with_mark()).all()


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


# ---- high dynamic range and wide gamuts

PQ, HLG, BT709 = 16, 18, 1  # transfer characteristics, ITU-T H.273
BT2020, P3 = 9, 12  # colour primaries
TO_BT709 = {  # linear RGB; BT.2087 for BT.2020, and the same computation for P3 with the white of D65
    BT2020: [[1.6605, -0.5876, -0.0728], [-0.1246, 1.1329, -0.0083], [-0.0182, -0.1006, 1.1187]],
    P3: [[1.2249, -0.2247, 0.0], [-0.0420, 1.0419, 0.0], [-0.0197, -0.0786, 1.0979]],
}
LUMA_2020 = np.array([0.2627, 0.6780, 0.0593])
NITS = [0.0, 1.0, 10.0, 50.0, 100.0, 203.0, 400.0, 1000.0]


def pq_signal(nits: Any) -> Any:
    """BT.2100, table 4: the inverse EOTF."""
    power = (np.asarray(nits, float) / 10000) ** (2610 / 16384)
    return ((3424 / 4096 + 2413 / 128 * power) / (1 + 2392 / 128 * power)) ** (2523 / 32)


def pq_nits(signal: float) -> float:
    low, high = 0.0, 10000.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if pq_signal(middle) < signal else (low, middle)
    return low


def hlg_signal(nits: Any) -> Any:
    """BT.2100, table 5, for a display of 1000 cd/m2: the inverse OOTF, then the OETF."""
    display = np.asarray(nits, float) / 1000
    luma = max(float(LUMA_2020 @ display), 1e-12)
    scene = display * luma ** (1 / 1.2 - 1)
    a, b, c = 0.17883277, 0.28466892, 0.55991073
    return np.where(scene <= 1 / 12, np.sqrt(3 * scene), a * np.log(np.maximum(12 * scene - b, 1e-9)) + c)


def shown_nits(nits: float) -> float:
    """BT.2390, 5.4.1, from 1000 to 203 cd/m2, without a lift of black."""
    top = float(pq_signal(1000))
    most = float(pq_signal(203)) / top
    knee = 1.5 * most - 0.5
    signal = min(float(pq_signal(nits)) / top, 1.0)
    if signal > knee:
        t = (signal - knee) / (1 - knee)
        signal = (2 * t**3 - 3 * t**2 + 1) * knee + (t**3 - 2 * t**2 + t) * (1 - knee) + (-2 * t**3 + 3 * t**2) * most
    return pq_nits(signal * top)


def expected_rgb(nits: npt.NDArray[Any], primaries: int, *, tone_mapped: bool = True) -> list[int]:
    """What a BT.709 display of 203 cd/m2 (BT.1886) is given for a patch that emits `nits` of each primary."""
    gain = shown_nits(nits.max()) / nits.max() if tone_mapped and nits.max() > 0 else 1.0
    linear = np.array(TO_BT709[primaries]) @ (nits * gain / 203)
    return [round(float(value)) for value in 255 * np.clip(linear, 0, 1) ** (1 / 2.4)]


def write_patches(
    path: Path, signals: list[Any], transfer: int, primaries: int, frames: int = 1, matrix: int = 9
) -> Path:
    """Vertical stripes of R'G'B' signals (0..1), 10 bits without loss, tagged; BT.2020's matrix, limited range."""
    width = 32 * len(signals)
    kr, kg, kb = LUMA_2020
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=25, options={"qp": "0", "g": "4", "bf": "0"})
        stream.width, stream.height, stream.pix_fmt = width, 64, "yuv444p10le"
        context = stream.codec_context
        context.color_trc, context.color_primaries = transfer, primaries
        context.colorspace, context.color_range = matrix, 1
        for number in range(frames):
            frame: Any = av.VideoFrame(width, 64, "yuv444p10le")
            frame.colorspace, frame.color_range, frame.pts = matrix, 1, number
            yuv = []
            for red, green, blue in np.roll(np.array(signals, float), number, axis=0):
                luma = kr * red + kg * green + kb * blue
                cb, cr = (blue - luma) / (2 * (1 - kb)), (red - luma) / (2 * (1 - kr))
                yuv.append([64 + 876 * luma, 512 + 896 * cb, 512 + 896 * cr])
            for plane, row in zip(frame.planes, np.rint(np.repeat(yuv, 32, axis=0)).T, strict=True):
                samples = np.zeros((plane.height, plane.line_size // 2), np.uint16)
                samples[:, :width] = row
                plane.update(samples.tobytes())
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def patches(rgb: npt.NDArray[np.uint8]) -> list[list[int]]:
    return [rgb[32, x].tolist() for x in range(16, rgb.shape[1], 32)]


def far_off(actual: list[list[int]], expected: list[list[int]]) -> int:
    return int(np.abs(np.array(actual) - np.array(expected)).max())


COLOURED_NITS = [  # of BT.2020's primaries; skin, a lamp, sky, and what no BT.709 display can show
    np.array(nits, float)
    for nits in ((75, 52, 40), (900, 700, 420), (30, 60, 160), (5, 80, 5), (300, 20, 10), (12, 12, 12))
]


@pytest.mark.parametrize(("transfer", "to_signal"), [(PQ, pq_signal), (HLG, hlg_signal)])
def test_high_dynamic_range_comes_as_a_display_of_standard_range_should_show_it(
    reader: MediaReader, tmp_path: Path, transfer: int, to_signal: Any
) -> None:
    patches_nits = [np.full(3, nits) for nits in NITS] + COLOURED_NITS
    path = write_patches(tmp_path / "hdr.mp4", [to_signal(nits) for nits in patches_nits], transfer, BT2020)
    measured = patches(first(reader, path))
    assert far_off(measured, [expected_rgb(nits, BT2020) for nits in patches_nits]) <= 2
    grey = [red for red, _, _ in measured[: len(NITS)]]
    assert grey == sorted(grey)
    assert (grey[0], grey[-1]) == (0, 255)
    assert abs(grey[3] - 255 * (50 / 203) ** (1 / 2.4)) <= 2, "below the knee nothing is changed"


def test_what_is_brighter_than_the_curve_knows_is_white(reader: MediaReader, tmp_path: Path) -> None:
    path = write_patches(tmp_path / "bright.mp4", [pq_signal(np.full(3, nits)) for nits in (4000, 10000)], PQ, BT2020)
    assert patches(first(reader, path)) == [[255, 255, 255]] * 2


def test_high_dynamic_range_without_primaries_is_that_of_bt2020(reader: MediaReader, tmp_path: Path) -> None:
    signals = [pq_signal(nits) for nits in COLOURED_NITS]
    tagged = first(reader, write_patches(tmp_path / "tagged.mp4", signals, PQ, BT2020))
    untagged = first(reader, write_patches(tmp_path / "untagged.mp4", signals, PQ, 2))
    assert (untagged == tagged).all()


@pytest.mark.parametrize("primaries", [BT2020, P3])
def test_a_wide_gamut_of_standard_range_keeps_its_hues(reader: MediaReader, tmp_path: Path, primaries: int) -> None:
    colours_nits = [nits * 203 / 1000 for nits in COLOURED_NITS]
    path = write_patches(tmp_path / "wide.mp4", [(nits / 203) ** (1 / 2.4) for nits in colours_nits], BT709, primaries)
    expected = [expected_rgb(nits, primaries, tone_mapped=False) for nits in colours_nits]
    assert far_off(patches(first(reader, path)), expected) <= 2


def test_whichever_frames_are_wanted_of_high_dynamic_range_they_look_the_same(
    reader: MediaReader, tmp_path: Path
) -> None:
    path = write_patches(tmp_path / "hdr.mp4", [hlg_signal(nits) for nits in COLOURED_NITS], HLG, BT2020, frames=12)
    frames_rgb = [frame.rgb for frame in reader.frames(path, Sampling(every=1))]
    assert len({rgb.tobytes() for rgb in frames_rgb}) == len(COLOURED_NITS)
    for frame in reader.frames(path, Sampling(every=7)):
        assert (frame.rgb == frames_rgb[frame.frame_index]).all()


@pytest.mark.parametrize(("matrix", "name"), [(8, "YCgCo"), (14, "ICtCp")])
def test_colours_that_cannot_be_converted_are_refused(
    reader: MediaReader, tmp_path: Path, matrix: int, name: str
) -> None:
    path = write_patches(tmp_path / "odd.mp4", [[0.5, 0.5, 0.5]], PQ, BT2020, matrix=matrix)
    with pytest.raises(InputError) as caught:
        first(reader, path)
    assert (caught.value.reason, name in caught.value.detail) == ("unsupported", True)


def test_dolby_vision_that_other_displays_cannot_show_is_refused(reader: MediaReader, tmp_path: Path) -> None:
    """Profile 5 is stored as dvh1, without a transfer that would say how to show it; others are HDR as any."""
    path = write_video(tmp_path / "dolby.mp4", [np.full((64, 96, 3), 90, np.uint8)])
    assert len(list(reader.frames(path, Sampling(every=1)))) == 1
    path.write_bytes(path.read_bytes().replace(b"avc1", b"dvh1"))
    with pytest.raises(InputError, match="unsupported"):
        first(reader, path)


# ---- interlaced video


@pytest.mark.parametrize(("height", "expected"), [(5, [0, 50, 100, 150, 200]), (4, [0, 50, 100, 100])])
def test_between_the_lines_of_a_field_lies_what_is_between_them(height: int, expected: list[int]) -> None:
    frame: Any = av.VideoFrame(8, height, "gray")
    (plane,) = frame.planes
    lines = np.array([0, 255, 100, 255, 200], np.uint8)[:height, None].repeat(plane.line_size, axis=1)
    plane.update(lines.tobytes())
    assert bob_upper_field(frame).to_ndarray()[:, 3].tolist() == expected


def write_fields(path: Path, pix_fmt: str, order: str, upper: int, lower: int, frames: int = 6) -> Path:
    """Grey frames whose upper field (lines 0, 2, ...) has luma `upper` of 255, and whose lower one `lower`; no loss."""
    scale, dtype = (4, np.uint16) if "10" in pix_fmt else (1, np.uint8)
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=25, options={"qp": "0", "x264-params": f"{order}=1"})
        stream.width, stream.height, stream.pix_fmt = 128, 96, pix_fmt
        for number in range(frames):
            frame: Any = av.VideoFrame(128, 96, pix_fmt)
            for index, plane in enumerate(frame.planes):
                samples = np.full((plane.height, plane.line_size // dtype().itemsize), 128 * scale, dtype)
                if index == 0:
                    samples[::2], samples[1::2] = (upper + number) * scale, (lower + number) * scale
                plane.update(samples.tobytes())
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


@pytest.mark.parametrize("order", ["tff", "bff"])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv422p10le"])
def test_interlaced_video_shows_one_field_at_a_time(
    reader: MediaReader, tmp_path: Path, pix_fmt: str, order: str
) -> None:
    path = write_fields(tmp_path / "fields.mp4", pix_fmt, order, upper=180, lower=40)
    frames = list(reader.frames(path, Sampling(every=1)))
    assert [frame.pts_seconds for frame in frames] == pytest.approx([index / 25 for index in range(6)])
    for frame in frames:
        assert np.abs(frame.rgb - (180 + frame.frame_index - 16) * 255 / 219).max() <= MAX_ERROR
    for frame in reader.frames(path, Sampling(every=4)):
        assert (frame.rgb == frames[frame.frame_index].rgb).all()
