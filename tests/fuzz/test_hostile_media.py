"""What a user notices of damaged and forged media: frames or one counted reason, in bounded time and memory."""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assets_hostile import damaged_bytes
from assets_paths import MEDIA
from assets_random import examples
from assets_reader_process import Outcome, ReaderProcess
from assets_video import STATES_ITS_SIZE, STATES_NOTHING, numbered, write_video
from facefeed.pipeline.errors import REASONS, InputError
from facefeed.pipeline.video import DecoderLimits, DecodeSummary, MediaReader, Sampling
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

LIMITS = DecoderLimits(deadline_seconds=60.0, total_seconds=120.0, cpu_seconds=20.0, memory_bytes=1 << 30, threads=1)
OF_CODE = re.compile(
    r"(Attribute|Index|Key|Type|UnboundLocal|Assertion|Recursion|NotImplemented|ZeroDivision|Overflow|Name|Lookup)Error:"
)
"""Details that show a mistake in code, and not damage of a file."""

VIDEOS = {**STATES_ITS_SIZE, **STATES_NOTHING}
PICTURES: dict[str, dict[str, Any]] = {
    "baseline.jpg": {}, "progressive.jpg": {"progressive": True}, "picture.png": {}, "picture.webp": {},
    "lossless.webp": {"lossless": True}, "picture.bmp": {}, "picture.ppm": {}, "picture.tiff": {},
    "packed.tiff": {"compression": "tiff_lzw"}, "deflated.tiff": {"compression": "tiff_deflate"},
}  # fmt: skip
_LARGEST_REAL_BYTES = 1_500_000


def smallest_real_files() -> list[str]:
    """The smallest file of each suffix beside the checkout, as its path there."""
    by_suffix: dict[str, Path] = {}
    found = sorted(MEDIA.rglob("*"), key=lambda path: (path.stat().st_size, str(path))) if MEDIA.is_dir() else []
    for path in found:
        if path.is_file() and 1000 < path.stat().st_size <= _LARGEST_REAL_BYTES:
            by_suffix.setdefault(path.suffix.lower(), path)
    texts = (".json", ".md", ".txt", ".xml", ".pts", "", ".html")
    return [str(path.relative_to(MEDIA)) for suffix, path in sorted(by_suffix.items()) if suffix not in texts]


REAL = smallest_real_files()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Small files of every container and picture format, by name."""
    folder = tmp_path_factory.mktemp("made")
    frames = [numbered(number) for number in range(10)]
    for name, options in VIDEOS.items():
        write_video(folder / name, frames, **options)
    for name, options in PICTURES.items():
        Image.fromarray(numbered(77)).save(folder / name, **options)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def media_reader() -> Iterator[MediaReader]:
    with MediaReader(LIMITS) as reader:
        yield reader


def frames_or_reason(reader: MediaReader, path: Path, operation: str) -> str:
    """ "ok", or the reason why not; fails where the counts contradict each other, or code went wrong."""
    summary = DecodeSummary()
    try:
        if operation == "probe":
            reader.probe(path)
        elif operation == "times":
            times = reader.times(path, Sampling(frames=3))
            assert len(times.wanted_indices) <= 3
        else:
            frames = list(reader.frames(path, Sampling(frames=3), summary=summary))
            assert 0 < len(frames) == summary.frames_decoded <= summary.frames_wanted <= 3
            assert all(frame.rgb.dtype == np.uint8 and frame.rgb.size for frame in frames)
    except InputError as error:
        failure = error
    else:
        return "ok"
    assert failure.reason in REASONS
    assert failure.frames_decoded <= failure.frames_wanted
    assert not OF_CODE.match(failure.detail), failure
    return failure.reason


OPERATIONS = st.sampled_from(["frames", "frames", "frames", "times", "probe"])


@pytest.mark.parametrize("name", [*VIDEOS, *PICTURES])
@examples(20, in_test=10, same_fixtures=True)
@given(drawn=st.data(), operation=OPERATIONS)
def test_a_damaged_file_gives_frames_or_a_reason(
    media_reader: MediaReader, made: dict[str, bytes], tmp_path: Path, name: str, drawn: Any, operation: str
) -> None:
    path = tmp_path / name
    path.write_bytes(drawn.draw(damaged_bytes(made[name], *made.values())))
    assert frames_or_reason(media_reader, path, operation) != "timeout"


@pytest.mark.skipif(not MEDIA.is_dir(), reason="no real media beside the checkout")
@pytest.mark.parametrize("name", REAL)
@examples(5, same_fixtures=True)
@given(drawn=st.data(), operation=OPERATIONS)
def test_a_damaged_real_file_gives_frames_or_a_reason(
    media_reader: MediaReader, tmp_path: Path, name: str, drawn: Any, operation: str
) -> None:
    path = tmp_path / Path(name).name
    path.write_bytes(drawn.draw(damaged_bytes((MEDIA / name).read_bytes())))
    assert frames_or_reason(media_reader, path, operation) != "timeout"


# ---- stored images, which somebody else's dataset may hold with right checksums


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReaderProcess]:
    process = ReaderProcess(tmp_path_factory.mktemp("reader"))
    yield process
    process.close()


def decode(reader: ReaderProcess, folder: Path, content: bytes) -> Outcome:
    (folder / "image").write_bytes(content)
    return reader.read("assets_image_readers.decode_stored", folder)


def stored(image_format: str, mode: str = "RGB") -> bytes:
    sink = io.BytesIO()
    Image.fromarray(numbered(77)).convert(mode).save(sink, image_format)
    return sink.getvalue()


STORED = {"jpeg": stored("JPEG"), "png": stored("PNG"), "webp": stored("WEBP"), "mask": stored("PNG", "1")}


@st.composite
def with_right_checksums(draw: st.DrawFn, png: bytes) -> bytes:
    """A PNG with other contents of its chunks, and their CRC-32: what a forger writes."""
    data, position = bytearray(png[:8]), 8
    while position < len(png):
        size = int.from_bytes(png[position : position + 4], "big")
        kind, content = png[position + 4 : position + 8], png[position + 8 : position + 8 + size]
        if draw(st.booleans()):
            content = draw(damaged_bytes(content))
        data += struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        position += 12 + size
    return bytes(data)


@pytest.mark.parametrize("name", STORED)
@examples(60, in_test=20, same_fixtures=True)
@given(drawn=st.data())
def test_a_hostile_stored_image_is_decoded_or_refused(
    reader: ReaderProcess, tmp_path: Path, name: str, drawn: Any
) -> None:
    sound = STORED[name]
    forged = with_right_checksums(sound) if name in ("png", "mask") else damaged_bytes(sound)
    content = drawn.draw(st.one_of(forged, damaged_bytes(sound, *STORED.values())))
    outcome = decode(reader, tmp_path, content)
    assert outcome.is_sound, outcome


def jpeg_of(width: int, height: int) -> bytes:
    """A JPEG of 64 px whose header says another size."""
    data = bytearray(STORED["jpeg"])
    start = data.index(b"\xff\xc0") + 5
    data[start : start + 4] = struct.pack(">HH", height, width)
    return bytes(data)


def png_of(width: int, height: int, bits: int, colour: int) -> bytes:
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    body = b"IDAT" + zlib.compress(b"\0" * 1000)
    chunks = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in (head, body, b"IEND")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


BOMBS = {
    "jpeg": jpeg_of(65_000, 65_000), "wide jpeg": jpeg_of(65_000, 2_000), "png": png_of(30_000, 30_000, 8, 2),
    "mask": png_of(60_000, 60_000, 1, 0), "wide mask": png_of(100_000_000, 1, 1, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_stored_image_that_says_it_is_huge_is_refused_before_memory_is_taken(
    reader: ReaderProcess, tmp_path: Path, name: str
) -> None:
    outcome = decode(reader, tmp_path, BOMBS[name])
    assert outcome.kind == "refused", outcome
