"""Presentation times of a video's frames, from its packets and without decoding."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import av
import av.container
import av.error
import av.packet
import av.video
import numpy as np

FALLBACK_RATE = Fraction(25)
"""Frames per second of raw streams that state none; FFmpeg's default."""

_NO_TIMESTAMPS = 0x80
"""FFmpeg's AVFMT_NOTIMESTAMPS, a flag of formats that are a codec's stream without a container."""

DEMUX_ERRORS = (av.error.InvalidDataError, av.error.OSError)
"""Errors of demuxers on malformed data. Errors of the operating system are raised as InputError instead."""

_COUNTED_CODECS = frozenset(("mpeg4", "msmpeg4", "msmpeg4v2", "msmpeg4v1", "h263", "flv", "vc1", "wmv3"))
"""Codecs with packed B-frames or not-coded frames, where a packet is not always one frame."""

_MPEG_VIDEO = frozenset(("mpeg1video", "mpeg2video"))
_START_CODE = re.compile(rb"\x00\x00\x01")
"""Begins every header and slice of `_MPEG_VIDEO` (ISO/IEC 13818-2, 6.2.1): its decoders skip packets that have none."""


@dataclass(slots=True)
class PacketTable:
    """The packets of a stream, in decode order.

    pts: presentation times in units of `time_base`; 0 where missing. has_unique_pts: whether all exist and differ.
    has_rising_dts: whether decode times never go back, as they do where files were joined or a recorder's clock begins
    anew: presentation times are then those of several clocks, and in no order.
    key, visible: one byte per packet; visible is 0 for packets that give no frame (removed by an edit list, or a
    hidden reference picture of VP8 and VP9). corrupt: indices of incomplete or overwritten packets. ends_in_error:
    whether the demuxer stopped at an error or inside the last packet. num_indexed: packets in the container's index.
    """

    time_base: Fraction
    pts: array[int] = field(default_factory=lambda: array("q"))
    key: bytearray = field(default_factory=bytearray)
    visible: bytearray = field(default_factory=bytearray)
    has_unique_pts: bool = True
    has_rising_dts: bool = True
    corrupt: set[int] = field(default_factory=set)
    num_indexed: int = 0
    ends_in_error: bool = False

    def __len__(self) -> int:
        return len(self.pts)

    def presentation_order(self) -> list[int]:
        """Return the packet index of each frame: position i is the packet of the frame with frame_index i."""
        return sorted((i for i in range(len(self)) if self.visible[i]), key=self.pts.__getitem__)

    def packets_to_decode(self, wanted: list[int], *, only_keys: bool) -> bytearray:
        """Return a mask, one byte per packet, of those to decode for the wanted packet indices: their GOPs.

        A group of pictures (GOP) begins at a key packet. Leading pictures of an open GOP, which are shown before its
        key picture, also need the GOP before. only_keys: the wanted packets are key packets, so no others are needed.
        """
        if only_keys:
            chosen = frozenset(wanted)
            return bytearray(index in chosen for index in range(len(self)))
        starts = [0, *(i for i in range(1, len(self)) if self.key[i])]
        ends = [*starts[1:], len(self)]
        needed = bytearray(len(self))
        for index in wanted:
            group = bisect_right(starts, index) - 1
            leads = group > 0 and self.pts[index] < self.pts[starts[group]]
            first, end = starts[group - leads], ends[group]
            if not needed[first] or not needed[end - 1]:
                needed[first:end] = b"\1" * (end - first)
        return needed


def nonempty_packets(
    container: av.container.InputContainer, stream: av.video.VideoStream
) -> Iterator[av.packet.Packet[av.video.VideoStream]]:
    """Yield the stream's packets in decode order, without the empty one at the end and AVI's empty repeats.

    The decoder would take an empty packet for the end of the stream. Raises the demuxer's errors.
    """
    for packet in container.demux(stream):
        if packet.size:
            yield packet


def read_packets(
    container: av.container.InputContainer, stream: av.video.VideoStream, heartbeat: Callable[[], None]
) -> PacketTable:
    """Read all packets without decoding; raises InputError: unreadable if the disk fails."""
    time_base = stream.time_base or Fraction(1)
    packets = PacketTable(time_base)
    codec = stream.codec_context.codec.canonical_name
    is_visible = _VISIBLE.get(codec, lambda _: True)
    blank: set[int] = set()
    last_dts: int | None = None
    try:
        for packet in nonempty_packets(container, stream):
            heartbeat()
            packets.has_unique_pts &= packet.pts is not None
            packets.pts.append(packet.pts or 0)
            if packet.dts is not None:
                packets.has_rising_dts &= last_dts is None or packet.dts >= last_dts
                last_dts = packet.dts
            packets.key.append(packet.is_keyframe)
            packets.visible.append(not packet.is_discard and is_visible(packet))
            if packet.is_corrupt:
                packets.corrupt.add(len(packets) - 1)
            if codec in _MPEG_VIDEO and not _START_CODE.search(memoryview(packet)):
                blank.add(len(packets) - 1)
    except DEMUX_ERRORS:
        packets.ends_in_error = True
    packets.ends_in_error |= len(packets) - 1 in packets.corrupt
    if "mpegts" in container.format.name.split(","):
        # A picture ends where the next one begins, so FFmpeg marks the picture before the one that lacks data.
        packets.corrupt |= {index + 1 for index in packets.corrupt if index + 1 < len(packets)}
    packets.corrupt |= blank
    packets.num_indexed = sum(1 for entry in stream.index_entries if entry.size)
    times = [packets.pts[i] for i in range(len(packets)) if packets.visible[i]]
    packets.has_unique_pts &= len(set(times)) == len(times)
    return packets


def must_decode_to_count(
    container: av.container.InputContainer, stream: av.video.VideoStream, packets: PacketTable
) -> bool:
    """Return whether packets and frames may not be one to one, so that only decoding can number the frames.

    That is so where times are missing or repeated (raw streams) or begin anew (joined files), in AVI (which stores
    none), for codecs where a packet is not always a frame, and in interlaced video, whose fields may be separate
    packets.
    """
    context = stream.codec_context
    return (
        not packets.has_unique_pts
        or not packets.has_rising_dts
        or "avi" in container.format.name.split(",")
        or context.codec.canonical_name in _COUNTED_CODECS
        or str(getattr(context, "field_order", "progressive")).lower() not in _PROGRESSIVE
    )


def may_have_decode_order_times(
    container: av.container.InputContainer, stream: av.video.VideoStream, packets: PacketTable
) -> bool:
    """Return whether times rise from packet to packet although the codec may reorder its frames.

    Then either it does not, or times are those of other frames, as in streams that were copied from AVI or from raw
    H.264, which lack times, into a container that has some. Only decoding shows which. AVI itself is not included.
    """
    return (
        bool(stream.codec_context.has_b_frames)
        and "avi" not in container.format.name.split(",")
        and packets.has_unique_pts
        and not all(packets.key)
        and all(earlier < later for earlier, later in pairwise(packets.pts))
    )


def frame_rate(container: av.container.InputContainer, stream: av.video.VideoStream) -> Fraction:
    """Return the frames per second that count frames without times.

    The average rate of a raw stream is FFmpeg's default; the rate that it guesses is the one in the bitstream, if any.
    """
    rates = (stream.average_rate, stream.guessed_rate)
    is_raw = bool(container.format.flags & _NO_TIMESTAMPS)
    return next((rate for rate in (reversed(rates) if is_raw else rates) if rate), FALLBACK_RATE)


def seconds_of_frames(pts: Sequence[int | None], time_base: Fraction, rate: Fraction) -> list[float]:
    """Return the times of decoded frames, rising; one that is missing or repeated is interpolated.

    Before the first known time and after the last one, frames are `1 / rate` apart. Where times go back, as those that
    FFmpeg makes up for B-frames in AVI, or where most are missing, all are counted from 0 at `rate`.

    >>> seconds_of_frames([0, 500, 500, 750, None, 1000, 1000], Fraction(1, 1000), Fraction(4))
    [0.0, 0.5, 0.625, 0.75, 0.875, 1.0, 1.25]
    >>> seconds_of_frames([250, 750, 500], Fraction(1, 1000), Fraction(4))
    [0.0, 0.25, 0.5]
    """
    known = [(index, value) for index, value in enumerate(pts) if value is not None]
    own = [known[0], *(later for earlier, later in pairwise(known) if later[1] > earlier[1])] if known else []
    if any(earlier[1] > later[1] for earlier, later in pairwise(known)) or 2 * len(own) < len(pts):
        return [float(index / rate) for index in range(len(pts))]
    (first, first_pts), (last, last_pts) = own[0], own[-1]
    anchors = {
        0: float(first_pts * time_base - first / rate),
        **{index: float(value * time_base) for index, value in own},
        len(pts) - 1: float(last_pts * time_base + (len(pts) - 1 - last) / rate),
    }
    return [float(value) for value in np.interp(range(len(pts)), list(anchors), list(anchors.values()))]


_PROGRESSIVE = frozenset(("progressive", "unknown", "0", "1", "none"))


def _vp8_visible(packet: av.packet.Packet[av.video.VideoStream]) -> bool:
    """RFC 6386, 9.1: show_frame is bit 4 of the first byte."""
    return bool(bytes(memoryview(packet)[:1])[0] & 0x10)


def _vp9_visible(packet: av.packet.Packet[av.video.VideoStream]) -> bool:
    """VP9 bitstream specification, 6.2: the uncompressed header's first bits; a superframe shows its last frame."""
    data = memoryview(packet)
    first = data[0]
    if data[-1] & 0xE0 == 0xC0:  # a superframe index: hidden frames and one that is shown
        return True
    profile = (first >> 5 & 1) | (first >> 3 & 2)
    shift = 2 if profile == 3 else 3
    shows_existing = first >> shift & 1
    return bool(shows_existing or first >> (shift - 2) & 1)


_VISIBLE = {"vp8": _vp8_visible, "vp9": _vp9_visible}
