"""A truncated file never counts as complete, wherever the cut is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assets_video import STATES_ITS_SIZE, STATES_NOTHING, numbered, write_video
from facefeed.pipeline.errors import InputError
from facefeed.pipeline.video import DecoderLimits, MediaReader, Sampling
from PIL import Image

ALL = Sampling(every=1)
NUM_CUTS = 50


@pytest.fixture(scope="module")
def reader() -> Iterator[MediaReader]:
    with MediaReader() as reader:
        yield reader


@pytest.fixture(scope="module")
def strict_reader() -> Iterator[MediaReader]:
    """Lets no frame be damaged: what is cut from a stream that states no size, looks like damage to its last frames."""
    with MediaReader(DecoderLimits(max_damaged_percent=0)) as reader:
        yield reader


def noisy(number: int) -> Any:
    """Noise makes frames so large that no cut falls between two of them."""
    rgb = numbered(number)
    noise = np.random.default_rng(number).integers(0, 60, rgb.shape)
    return np.clip(rgb + noise, 0, 255).astype(np.uint8)


def outcomes(reader: MediaReader, data: bytes, path: Path) -> set[str]:
    results = set()
    for cut in range(1, NUM_CUTS + 1):
        path.write_bytes(data[: len(data) * cut // (NUM_CUTS + 1)])
        try:
            list(reader.frames(path, ALL))
        except InputError as error:
            results.add(error.reason if error.frames_decoded <= error.frames_wanted else "miscounted")
        else:
            results.add(f"ok at cut {cut}")
    return results


@pytest.mark.parametrize("name", STATES_ITS_SIZE)
def test_a_video_that_was_cut_off_is_truncated(reader: MediaReader, tmp_path: Path, name: str) -> None:
    path = write_video(tmp_path / name, [noisy(index) for index in range(30)], **STATES_ITS_SIZE[name])
    data = path.read_bytes()
    assert len(list(reader.frames(path, ALL))) == 30
    assert outcomes(reader, data, path) == {"truncated"}


@pytest.mark.parametrize("box", [b"\0\0\0\x14XtraNobodyKnows!", b"\0\0\0\1\xa9new\0\0\0\0\0\0\0\x18whatever"])
def test_unknown_boxes_are_skipped_and_hide_no_truncation(reader: MediaReader, tmp_path: Path, box: bytes) -> None:
    """Between media and index, and behind both (ISO/IEC 14496-12, 4.2: unknown boxes are ignored and skipped)."""
    path = write_video(tmp_path / "plain.mp4", [noisy(index) for index in range(30)])
    plain = path.read_bytes()
    index_at = plain.index(b"moov") - 4
    data = plain[:index_at] + box + plain[index_at:] + box
    path.write_bytes(data)
    assert len(list(reader.frames(path, Sampling(every=10)))) == 3
    for cut in (index_at // 2, index_at + len(box) // 2, index_at + len(box), (index_at + len(plain)) // 2):
        path.write_bytes(data[:cut])
        with pytest.raises(InputError, match="truncated"):
            list(reader.frames(path, ALL))


def test_a_few_bytes_behind_a_complete_file_are_junk(reader: MediaReader, tmp_path: Path) -> None:
    """Fewer than the header of a box; behind fragments they may be the start of the next one."""
    frames = [noisy(index) for index in range(30)]
    for name in ("plain.mp4", "faststart.mp4"):
        path = write_video(tmp_path / name, frames, **STATES_ITS_SIZE[name])
        data = path.read_bytes()
        for junk in (b"\n", b"\r\n", bytes(4), b"garbage"):
            path.write_bytes(data + junk)
            assert len(list(reader.frames(path, Sampling(every=10)))) == 3
    path = write_video(tmp_path / "fragments.mp4", frames, **STATES_ITS_SIZE["fragments.mp4"])
    data = path.read_bytes()
    for cut in (data.index(b"moof"), data.rindex(b"moof")):
        path.write_bytes(data[:cut])
        with pytest.raises(InputError, match="truncated"):
            list(reader.frames(path, ALL))


@pytest.mark.parametrize("name", STATES_NOTHING)
def test_a_raw_stream_that_was_cut_inside_a_frame_is_not_ok(
    strict_reader: MediaReader, tmp_path: Path, name: str
) -> None:
    path = write_video(tmp_path / name, [noisy(index) for index in range(30)], **STATES_NOTHING[name])
    data = path.read_bytes()
    assert len(list(strict_reader.frames(path, ALL))) == 30
    assert outcomes(strict_reader, data, path) <= {"truncated", "decode_error", "no_frames", "not_video"}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("baseline.jpg", {"quality": 90}),
        ("progressive.jpg", {"progressive": True}),
        ("picture.png", {}),
        ("picture.webp", {}),
        ("picture.bmp", {}),
        ("picture.ppm", {}),
        ("picture.tiff", {}),
        ("packed.tiff", {"compression": "tiff_lzw"}),
    ],
)
def test_a_picture_that_was_cut_off_is_truncated(
    reader: MediaReader, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    path = tmp_path / name
    Image.fromarray(noisy(77)).save(path, **options)
    data = path.read_bytes()
    assert len(list(reader.frames(path, ALL))) == 1
    assert outcomes(reader, data, path) == {"truncated"}


def test_a_picture_with_damage_inside_was_not_cut_off(reader: MediaReader, tmp_path: Path) -> None:
    path = tmp_path / "damaged.png"
    Image.fromarray(noisy(77)).save(path)
    data = bytearray(path.read_bytes())
    data[200:260] = bytes(60)
    path.write_bytes(data)
    with pytest.raises(InputError, match="decode_error"):
        list(reader.frames(path, ALL))


@pytest.mark.parametrize("name", ["plain.mp4", "x264.mkv", "xvid.avi"])
def test_flipped_bits_end_in_sound_frames_or_a_reason(strict_reader: MediaReader, tmp_path: Path, name: str) -> None:
    """Of these codecs, whose damage decoders report, none may give a frame that is far from the whole file's."""
    path = write_video(tmp_path / name, [noisy(index) for index in range(30)], **STATES_ITS_SIZE[name])
    data = path.read_bytes()
    whole = {frame.frame_index: frame.rgb.astype(int) for frame in strict_reader.frames(path, ALL)}
    draw = random.Random(7)
    for _ in range(15):
        flipped = bytearray(data)
        for _ in range(20):
            flipped[draw.randrange(len(data) // 5, len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        try:
            frames = list(strict_reader.frames(path, Sampling(every=5)))
        except InputError:
            continue
        assert [frame.frame_index for frame in frames] == [0, 5, 10, 15, 20, 25]
        assert all(np.abs(whole[f.frame_index] - f.rgb).mean() < 4 for f in frames)
