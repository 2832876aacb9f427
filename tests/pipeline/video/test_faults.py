"""No file takes the reader down, reaches another file, or costs more than its limits."""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from assets_video import FAULTY_CHILD, numbered, write_video
from facefeed.pipeline.errors import InputError, UsageError
from facefeed.pipeline.video import DecoderLimits, MediaReader, Sampling
from PIL import Image

ALL = Sampling(every=1)
FAULTY_COMMAND = (sys.executable, "-P", "-c", FAULTY_CHILD)


@pytest.fixture(scope="module")
def reader() -> Iterator[MediaReader]:
    with MediaReader() as reader:
        yield reader


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 numbered frames, key frames at 0, 10 and 20, with B-frames."""
    path = tmp_path_factory.mktemp("video") / "numbered.mp4"
    options = {"g": "10", "sc_threshold": "0", "bf": "2"}
    return write_video(path, [numbered(index) for index in range(30)], options=options)


def failure(reader: MediaReader, path: Path, sampling: Sampling = ALL) -> InputError:
    with pytest.raises(InputError) as caught:
        list(reader.frames(path, sampling))
    return caught.value


def png_header(width: int, height: int) -> bytes:
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    idat = b"IDAT" + zlib.compress(b"\0" * 1000)
    chunks = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in (body, idat, b"IEND")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def jpeg_with_size(path: Path, width: int, height: int) -> None:
    Image.new("RGB", (64, 64)).save(path, "JPEG")
    data = bytearray(path.read_bytes())
    start = data.index(b"\xff\xc0") + 5
    data[start : start + 4] = struct.pack(">HH", height, width)
    path.write_bytes(data)


def test_pictures_that_claim_to_be_huge_are_refused_before_they_are_decoded(
    reader: MediaReader, tmp_path: Path
) -> None:
    (tmp_path / "bomb.png").write_bytes(png_header(100_000, 100_000))
    jpeg_with_size(tmp_path / "bomb.jpg", 65_000, 65_000)
    for name in ("bomb.png", "bomb.jpg"):
        assert failure(reader, tmp_path / name).reason == "too_large"
        with pytest.raises(InputError, match="too_large"):
            reader.probe(tmp_path / name)


def test_frames_beyond_the_limit_are_refused(video: Path) -> None:
    with MediaReader(DecoderLimits(max_pixels=128 * 64)) as reader:
        assert len(list(reader.frames(video, ALL))) == 30
    with MediaReader(DecoderLimits(max_pixels=128 * 64 - 1)) as reader:
        error = failure(reader, video)
    assert (error.reason, error.frames_decoded) == ("too_large", 0)


def test_a_file_that_needs_too_much_memory_is_too_large(tmp_path: Path) -> None:
    Image.new("RGB", (7000, 7000)).save(tmp_path / "large.png")
    with MediaReader(DecoderLimits(memory_bytes=250 << 20)) as reader:
        assert failure(reader, tmp_path / "large.png").reason == "too_large"


@pytest.mark.parametrize(
    ("name", "reason", "detail"),
    [
        ("segfault.mp4", "crashed", "SIGSEGV"),
        ("hang.mp4", "timeout", "no progress"),
        ("spin.mp4", "timeout", "CPU"),
        ("eat.mp4", "too_large", "memory"),
        ("exit.mp4", "crashed", "status 7"),
        ("babble.mp4", "crashed", "damaged"),
    ],
)
def test_a_decoder_that_dies_hangs_or_eats_costs_one_file_alone(
    tmp_path: Path, video: Path, name: str, reason: str, detail: str
) -> None:
    (tmp_path / name).write_bytes(video.read_bytes())
    limits = DecoderLimits(
        command=FAULTY_COMMAND,
        deadline_seconds=2.0 if name.startswith("hang") else 30.0,
        cpu_seconds=1.0 if name.startswith("spin") else 600.0,
        memory_bytes=1 << 30,
    )
    with MediaReader(limits) as reader:
        error = failure(reader, tmp_path / name)
        assert error.reason == reason
        assert detail in error.detail
        assert len(list(reader.frames(video, ALL))) == 30


def test_the_time_for_a_whole_file_is_bounded_too(tmp_path: Path, video: Path) -> None:
    (tmp_path / "hang.mp4").write_bytes(video.read_bytes())
    with MediaReader(DecoderLimits(command=FAULTY_COMMAND, total_seconds=1.0)) as reader:
        error = failure(reader, tmp_path / "hang.mp4")
    assert (error.reason, "total" in error.detail) == ("timeout", True)


def test_a_child_that_was_killed_between_two_files_is_replaced(video: Path) -> None:
    with MediaReader() as reader:
        list(reader.frames(video, ALL))
        assert reader.child_pid is not None
        end_of(reader.child_pid, after=lambda pid: os.kill(pid, signal.SIGKILL))
        assert len(list(reader.frames(video, ALL))) == 30


def test_a_command_that_does_not_exist_is_the_users_mistake_not_the_files(video: Path) -> None:
    with (
        MediaReader(DecoderLimits(command=("/nonexistent",))) as reader,
        pytest.raises(UsageError, match="the decoder, '/nonexistent', cannot be started"),
    ):
        list(reader.frames(video, ALL))


def test_a_command_that_ends_at_once_is_a_crash(video: Path) -> None:
    with MediaReader(DecoderLimits(command=("true",))) as reader:
        assert failure(reader, video).reason == "crashed"


def end_of(pid: int, after: object = None) -> None:
    """Wait until a process has ended."""
    descriptor = os.pidfd_open(pid)
    if callable(after):
        after(pid)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(20_000), f"process {pid} is still there"
    os.close(descriptor)


def test_the_child_dies_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    path = write_video(tmp_path / "long.mp4", [numbered(i, 640, 480) for i in range(40)])
    script = (
        "import sys, pathlib; from facefeed.pipeline.video import MediaReader, Sampling\n"
        "reader = MediaReader()\n"
        "frames = reader.frames(pathlib.Path(sys.argv[1]), Sampling(every=1))\n"
        "next(frames); print(reader.child_pid, flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        end_of(int(parent.stdout.readline()), after=lambda _: parent.kill())


@pytest.mark.parametrize("name", ["list.m3u8", "list.mp4", "list.ffconcat", "list.sdp"])
def test_a_file_that_names_another_file_is_not_followed(
    reader: MediaReader, tmp_path: Path, video: Path, name: str
) -> None:
    write_video(tmp_path / "secret.ts", [numbered(index) for index in range(5)])
    (tmp_path / "secret.mp4").write_bytes(video.read_bytes())
    content = {
        "list.ffconcat": "ffconcat version 1.0\nfile secret.mp4\n",
        "list.sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n",
    }.get(name, f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{tmp_path}/secret.ts\n#EXT-X-ENDLIST\n")
    (tmp_path / name).write_text(content)
    assert failure(reader, tmp_path / name).reason == "not_video"


@pytest.mark.parametrize("name", ["concat:a|b.mp4", "%03d.mp4", "-i.mp4", "two\nlines.mp4", b"not utf-8 \xff.mp4"])
def test_odd_names_are_just_names(reader: MediaReader, tmp_path: Path, video: Path, name: str | bytes) -> None:
    path = tmp_path / os.fsdecode(name)
    path.write_bytes(video.read_bytes())
    assert len(list(reader.frames(path, Sampling(frames=2)))) == 2
