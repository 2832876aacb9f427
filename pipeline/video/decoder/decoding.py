"""The decoding pass: frames in presentation order, and which of them cannot be trusted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import av.container
import av.error
import av.packet
import av.video

from ...errors import InputError
from .demuxer import words
from .timeline import BROKEN_OFF, real_packets

VideoPacket: TypeAlias = "av.packet.Packet[av.video.VideoStream]"  # generic in its stubs alone


@dataclass(slots=True)
class Health:
    """What the decoder reported. first_error: in words, or empty; num_errors: packets that it refused."""

    num_decoded: int = 0
    num_errors: int = 0
    first_error: str = ""
    _suspect: bool = False
    _since_error: int = 0

    def report(self, what: str) -> None:
        """Note an error: what is decoded from now on may be built on damage."""
        self.first_error = self.first_error or what
        self._suspect = True
        self._since_error = 0

    def restart(self) -> None:
        """Note that the decoder was emptied and begins anew with a key packet."""
        self._suspect = False

    def judge(self, frame: av.video.VideoFrame, delay_frames: int) -> bool:
        """Tell whether a frame is sound; call for every frame, in the order in which they come.

        After an error nothing is, until a sound key frame. Decoders give frames late by `delay_frames`, so a key
        frame that comes sooner after the error than that is older than the error.
        """
        self.num_decoded += 1
        if frame.is_corrupt:
            self.report(f"the decoder marked the frame at {frame.time or 0:.3f} s as damaged")
        self._since_error += 1
        if self._suspect and frame.key_frame and not frame.is_corrupt and self._since_error > delay_frames:
            self._suspect = False
        return not self._suspect


def configure(stream: av.video.VideoStream, *, threads: int, max_pixels: int) -> None:
    """Set the codec up before its first packet.

    `explode` has decoders report damage instead of painting over it; `crccheck` compares checksums where a
    stream has them.
    """
    context = stream.codec_context
    context.thread_count = threads
    context.thread_type = "AUTO" if threads > 1 else "SLICE"
    context.options = {"err_detect": "crccheck+explode", "max_pixels": str(max_pixels)}


def decode_frames(
    container: av.container.InputContainer,
    stream: av.video.VideoStream,
    health: Health,
    broken: Collection[int] = (),
    *,
    needed: bytearray | None = None,
    beat: Callable[[], None],
) -> Iterator[tuple[av.video.VideoFrame, bool]]:
    """Yield (frame, is sound) in presentation order; errors go to `health`, and decoding goes on after them.

    broken: packet indices, in decode order, that the demuxer found incomplete. needed: one byte a packet; those
    with 0 are not given to the decoder, which is emptied at such a gap. Raises InputError: too_large where memory
    does not do, unreadable where the disk fails.
    """
    for index, packet in _with_gaps(container, stream, needed):
        beat()
        if packet is not None and index in broken:
            health.report(f"packet {index} is incomplete")
        for frame in _decode(stream, packet, index, health):
            yield frame, health.judge(frame, _delay_frames(stream))
        if packet is None:
            stream.codec_context.flush_buffers()
            health.restart()


def _with_gaps(
    container: av.container.InputContainer, stream: av.video.VideoStream, needed: bytearray | None
) -> Iterator[tuple[int, VideoPacket | None]]:
    """Yield the needed packets with their indices, and None where a run of them ends."""
    index, running = -1, False
    try:
        for index, packet in enumerate(real_packets(container, stream)):
            if needed is None or needed[index]:
                running = True
                yield index, packet
            elif running:
                running = False
                yield index, None
    except BROKEN_OFF:
        pass  # the first pass has met the same and noted where
    if running:
        yield index, None


def _decode(
    stream: av.video.VideoStream, packet: VideoPacket | None, index: int, health: Health
) -> list[av.video.VideoFrame]:
    try:
        return stream.codec_context.decode(packet)
    except (av.error.MemoryError, MemoryError):
        raise InputError("too_large", "its frames need more memory than the decoder may use") from None
    except av.error.EOFError:
        return []
    except av.error.FFmpegError as error:
        health.num_errors += 1
        health.report(f"packet {index} cannot be decoded ({words(error)})")
        return []


def _delay_frames(stream: av.video.VideoStream) -> int:
    context = stream.codec_context
    return int(context.has_b_frames) + max(1, context.thread_count)
