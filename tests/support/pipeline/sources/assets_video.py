"""Video and picture files for tests, encoded on the spot; every frame says its own number.

Recipe of a frame: `NUM_BITS` vertical bars, white or black, are the frame's number in binary, most significant
first, above a grey ramp. `read_number` reads it back from any decoded size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt

Rgb = npt.NDArray[np.uint8]
NUM_BITS = 8
RATE = 25

STATES_ITS_SIZE: dict[str, dict[str, Any]] = {
    "plain.mp4": {"audio": True},
    "faststart.mp4": {"container_options": {"movflags": "faststart"}},
    "fragments.mp4": {"container_options": {"movflags": "frag_keyframe+empty_moov"}, "options": {"g": "10"}},
    "prores.mov": {"codec": "prores_ks", "pix_fmt": "yuv422p10le"},
    "x264.mkv": {},
    "live.mkv": {"container_options": {"live": "1"}},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {"deadline": "realtime", "cpu-used": "8"}},
    "xvid.avi": {"codec": "mpeg4"},
    "motion_jpeg.avi": {"codec": "mjpeg", "pix_fmt": "yuvj420p"},
    "stream.ts": {},
    "sorenson.flv": {"codec": "flv"},
    "windows.wmv": {"codec": "wmv2"},
    "moving.gif": {"codec": "gif", "pix_fmt": "rgb8"},
}
"""Arguments of `write_video` for a file of each container that says how long it is, by its name."""
STATES_NOTHING: dict[str, dict[str, Any]] = {"raw.h264": {}, "program.mpg": {"codec": "mpeg2video"}}
"""The same for those that do not."""


def numbered(number: int, width: int = 128, height: int = 64) -> Rgb:
    """uint8 (H, W, 3) that shows `number` in its upper half."""
    rgb = np.zeros((height, width, 3), np.uint8)
    bar = width // NUM_BITS
    for bit in range(NUM_BITS):
        if number >> (NUM_BITS - 1 - bit) & 1:
            rgb[: height // 2, bit * bar : (bit + 1) * bar] = 255
    rgb[height // 2 :] = np.linspace(40, 200, width).astype(np.uint8)[None, :, None]
    return rgb


def read_number(rgb: Rgb) -> int:
    """The number that a decoded frame shows."""
    bar = rgb.shape[1] / NUM_BITS
    upper = rgb[: rgb.shape[0] * 3 // 8].astype(int).mean(axis=(0, 2))
    bits = [upper[int((bit + 0.25) * bar) : int((bit + 0.75) * bar)].mean() > 128 for bit in range(NUM_BITS)]
    return sum(1 << (NUM_BITS - 1 - bit) for bit, is_set in enumerate(bits) if is_set)


def with_mark() -> Rgb:
    """A frame with a red square in its upper left corner: which way is up, and is it mirrored?"""
    rgb = np.full((96, 160, 3), 90, np.uint8)
    rgb[:32, :32] = (255, 0, 0)
    return rgb


def mark_corner(rgb: Rgb) -> str:
    """The corner that holds the red square."""
    height, width = rgb.shape[:2]
    for name, y, x in (
        ("upper left", 12, 12),
        ("upper right", 12, width - 13),
        ("lower left", height - 13, 12),
        ("lower right", height - 13, width - 13),
    ):
        red, green, blue = (int(value) for value in rgb[y, x])
        if red > 150 and green < 100 and blue < 100:
            return name
    return "nowhere"


def write_video(
    path: Path,
    frames: Iterable[Rgb],
    *,
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    rate: int = RATE,
    times: Sequence[int] | None = None,
    options: dict[str, str] | None = None,
    container_options: dict[str, str] | None = None,
    rotation: int = 0,
    sample_aspect_ratio: Fraction | None = None,
    audio: bool = False,
    file_format: str | None = None,
    title: str = "",
) -> Path:
    """Encode RGB frames; times are presentation times in milliseconds, instead of an even rate; title in Latin-1."""
    options_of_file = container_options or {}
    with av.open(str(path), "w", format=file_format, options=options_of_file, metadata_encoding="latin-1") as container:
        if title:
            container.metadata["title"] = title
        stream: Any = None
        sound: Any = container.add_stream("aac", rate=16000) if audio else None
        for index, rgb in enumerate(frames):
            if stream is None:
                stream = container.add_stream(codec, rate=rate, options=options or {})
                stream.height, stream.width = rgb.shape[:2]
                stream.pix_fmt = pix_fmt
                if times is not None:
                    stream.codec_context.time_base = Fraction(1, 1000)
                if sample_aspect_ratio is not None:
                    stream.codec_context.sample_aspect_ratio = sample_aspect_ratio
                if rotation:
                    stream.set_display_rotation(rotation)
            frame = av.VideoFrame.from_ndarray(rgb, format="rgb24")
            frame.time_base = Fraction(1, 1000) if times is not None else Fraction(1, rate)
            frame.pts = times[index] if times is not None else index
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
        if sound is not None:
            _mux_silence(container, sound, seconds=1)
    return path


def spoil(path: Path, source: Path, packets: range) -> Path:
    """Overwrite the second half of some packets, in decode order."""
    data = bytearray(source.read_bytes())
    with av.open(str(source)) as container:
        for index, packet in enumerate(container.demux(video=0)):
            if index in packets and packet.pos is not None:
                half = packet.size // 2
                data[packet.pos + half : packet.pos + packet.size] = b"\xa5" * (packet.size - half)
    path.write_bytes(data)
    return path


def write_audio(path: Path) -> Path:
    """One second of silence, and no video."""
    with av.open(str(path), "w") as container:
        _mux_silence(container, container.add_stream("aac", rate=16000), seconds=1)
    return path


def _mux_silence(container: Any, stream: Any, seconds: int) -> None:
    for start in range(0, 16000 * seconds, 1024):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 16000, start
        container.mux(stream.encode(frame))
    container.mux(stream.encode())


FAULTY_CHILD = """
import os, signal, time
from facefeed.pipeline.video.decoder import child
from facefeed.pipeline.video.decoder.stills import clip

real = child.open_media_file

def open_media_file(path):
    name = os.path.basename(path)
    if name.startswith("segfault"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if name.startswith("hang"):
        time.sleep(3600)
    if name.startswith("spin"):
        while True:
            pass
    if name.startswith("eat"):
        eaten = []
        while True:
            eaten.append(bytearray(1 << 24))
    if name.startswith("exit"):
        os._exit(7)
    if name.startswith("babble"):
        os.write(pipe, b"this is no message at all, is it?")
    return real(path)

def take():
    global pipe
    pipe = take_real()
    return pipe

take_real, child.claim_protocol_descriptor = child.claim_protocol_descriptor, take
child.open_media_file = clip.open_media_file = open_media_file
child.main()
"""
"""The decoder's child, except that it misbehaves as a file's name says: segfault, hang, spin, eat, exit, babble."""
