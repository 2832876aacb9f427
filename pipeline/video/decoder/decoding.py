"""One decoding pass over a stream: frames in presentation order, and which of them may be damaged."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import av.container
import av.error
import av.packet
import av.video

from ...errors import InputError
from .demuxer import error_text
from .timeline import DEMUX_ERRORS, nonempty_packets

_PREDICT_FROM_GREY = frozenset(("flv1", "h263", "mpeg4", "msmpeg4v1", "msmpeg4v2", "msmpeg4v3", "wmv1", "wmv2"))
"""Codecs whose decoders report no error where a stream begins without a key frame."""

_SHOW_PICTURES_AGAIN = frozenset(("av1", "vp9"))
"""Codecs with `show_existing_frame`: a packet that is none of a key picture may show an earlier one again."""

VideoPacket: TypeAlias = "av.packet.Packet[av.video.VideoStream]"  # generic in its stubs alone


@dataclass(slots=True)
class DecoderHealth:
    """Tracks decoder errors to tell which frames may be damaged.

    num_decoded: frames so far. num_errors: packets that could not be decoded. first_error: a message, or "".
    """

    num_decoded: int = 0
    num_errors: int = 0
    first_error: str = ""
    _is_suspect: bool = False
    _last_damaged_packet: int = -1

    def record_error(self, description: str, packet_index: int) -> None:
        """Record damage in a packet: frames decoded from now on may reference the damaged one."""
        self.first_error = self.first_error or description
        self._is_suspect = True
        self._last_damaged_packet = max(self._last_damaged_packet, packet_index)

    def expect_key_frame(self) -> None:
        """Regard frames as damaged until the first key frame."""
        self._is_suspect = True

    def reset(self) -> None:
        """Forget earlier errors: the decoder was flushed and continues with a key packet."""
        self._is_suspect = False

    def check_frame(self, frame: av.video.VideoFrame, packet_index: int) -> bool:
        """Return whether a frame is intact; call it for every frame, in the decoder's output order.

        After an error no frame is, until a key frame of a later packet. Decoders output frames with a delay, and some
        (MPEG-2) also the picture of a packet that they could not decode. packet_index: of the frame's packet; -1 where
        the frame may be an earlier picture that is shown again.
        """
        self.num_decoded += 1
        if frame.is_corrupt:
            time = "" if frame.time is None or math.isnan(frame.time) else f" at {frame.time:.3f} s"
            self.first_error = self.first_error or f"the decoder marked the frame{time} as damaged"
            self._is_suspect = True  # until the key frame after it: what follows that one does not reference it
        elif frame.key_frame and packet_index > self._last_damaged_packet:
            self._is_suspect = False
        if self._is_suspect:
            self.first_error = self.first_error or "no key frame comes before it"
        return not self._is_suspect


class SampleAspectRatios:
    """Sample aspect ratios of the frames of a stream that `configure_codec` set up; create it before the first packet.

    The container's ratio, where it differs from the codec's; else the codec's, which may change between frames. With
    several codec threads a change is not seen.
    """

    def __init__(self, stream: av.video.VideoStream) -> None:
        self._of_stream = stream.sample_aspect_ratio
        self._may_change = stream.codec_context.sample_aspect_ratio == self._of_stream

    def of(self, frame: av.video.VideoFrame) -> Fraction | None:
        """Width of a pixel of the frame over its height; None if unknown."""
        coded = frame.opaque if self._may_change else None
        return (coded.sample_aspect_ratio if isinstance(coded, _CodedPicture) else None) or self._of_stream


@dataclass(slots=True)
class _CodedPicture:
    """What holds for the frame that a packet becomes, which decoders may return many packets later."""

    sample_aspect_ratio: Fraction | None = None


def configure_codec(stream: av.video.VideoStream, *, threads: int, max_pixels: int) -> None:
    """Set the codec's options; call it before the first packet.

    `explode` makes decoders report damage instead of concealing it; `crccheck` verifies checksums where a stream has
    them.
    """
    context = stream.codec_context
    # From packets to their frames, for `SampleAspectRatios`. With several threads, the context is ahead of the frames.
    context.copy_opaque = threads == 1
    context.thread_count = threads
    context.thread_type = "AUTO" if threads > 1 else "SLICE"
    context.options = {"err_detect": "crccheck+explode", "max_pixels": str(max_pixels)}


def decode_frames(
    container: av.container.InputContainer,
    stream: av.video.VideoStream,
    health: DecoderHealth,
    corrupt_packets: Collection[int] = (),
    *,
    needed_packets: bytearray | None = None,
    heartbeat: Callable[[], None],
) -> Iterator[tuple[av.video.VideoFrame, bool]]:
    """Yield (frame, is_intact) in presentation order; errors are recorded in `health`, and decoding continues.

    Args:
        container: the open file.
        stream: its video stream, set up by `configure_codec`.
        health: records errors and decides which frames are intact.
        corrupt_packets: packet indices, in decode order, that the demuxer found incomplete.
        needed_packets: one byte per packet, 0 for those to skip; the decoder is flushed at each gap. None needs all.
        heartbeat: called for every packet.

    Raises:
        InputError: too_large if memory does not suffice, unreadable if the disk fails.

    """
    index_at: dict[int, int] = {}  # packets whose frames the decoder has not returned yet, by pts
    codec = stream.codec_context.codec.canonical_name
    predicts_from_grey, shows_again = codec in _PREDICT_FROM_GREY, codec in _SHOW_PICTURES_AGAIN
    for index, packet in _packets_and_gaps(container, stream, needed_packets):
        heartbeat()
        if predicts_from_grey and index == 0 and packet is not None and not packet.is_keyframe:
            health.expect_key_frame()
        if packet is not None and index in corrupt_packets:
            health.record_error(f"packet {index} is incomplete", index)
        if packet is not None and packet.pts is not None:
            index_at[packet.pts] = index if packet.is_keyframe or not shows_again else -1
        for frame in _decode(stream, packet, index, health):
            # Without times, as in raw streams and AVI, it is of a packet that is older by the decoder's delay.
            oldest = index - _delay_frames(stream)
            yield frame, health.check_frame(frame, oldest if frame.pts is None else index_at.pop(frame.pts, oldest))
        if packet is None:
            stream.codec_context.flush_buffers()
            health.reset()


def _packets_and_gaps(
    container: av.container.InputContainer, stream: av.video.VideoStream, needed_packets: bytearray | None
) -> Iterator[tuple[int, VideoPacket | None]]:
    """Yield the needed packets with their indices, and None after each run of consecutive ones."""
    index, in_run = -1, False
    try:
        for index, packet in enumerate(nonempty_packets(container, stream)):
            if needed_packets is None or needed_packets[index]:
                in_run = True
                yield index, packet
            elif in_run:
                in_run = False
                yield index, None
    except DEMUX_ERRORS:
        pass  # `read_packets` has met and recorded the same error
    if in_run:
        yield index, None


def _decode(
    stream: av.video.VideoStream, packet: VideoPacket | None, index: int, health: DecoderHealth
) -> list[av.video.VideoFrame]:
    coded, context = _CodedPicture(), stream.codec_context
    if packet is not None and context.copy_opaque:
        packet.opaque = coded
    try:
        frames = context.decode(packet)
    except (av.error.MemoryError, MemoryError):
        raise InputError("too_large", "its frames need more memory than the decoder may use") from None
    except av.error.EOFError:
        return []
    except av.error.FFmpegError as error:
        health.num_errors += 1
        health.record_error(f"packet {index} cannot be decoded ({error_text(error)})", index)
        return []
    coded.sample_aspect_ratio = context.sample_aspect_ratio
    return frames


def _delay_frames(stream: av.video.VideoStream) -> int:
    context = stream.codec_context
    return int(context.has_b_frames) + max(1, context.thread_count)
