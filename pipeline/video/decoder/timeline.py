"""When every frame of a video is shown, found from its packets without decoding them."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import av
import av.container
import av.error
import av.packet
import av.video

FALLBACK_RATE = Fraction(25)
"""Frames a second of raw streams that state none; FFmpeg's own assumption."""

BROKEN_OFF = (av.error.InvalidDataError, av.error.OSError)
"""What demuxers say of bytes that do not go on as they should. An error of the system is an InputError instead."""

_COUNTED_CODECS = frozenset(("mpeg4", "msmpeg4", "msmpeg4v2", "msmpeg4v1", "h263", "flv", "vc1", "wmv3"))
"""Packed B-frames and not-coded frames: here a packet is not always a frame."""


@dataclass(slots=True)
class Packets:
    """What one pass over a stream's packets found, in decode order.

    pts: presentation time in units of the time base, where `has_times` says that all are there and differ.
    key, shown: one byte each; shown is 0 for packets that give no frame (cut away by an edit list, or a hidden
    reference picture of VP8 and VP9). broken: indices of incomplete packets; ends_broken: the demuxer stopped at
    an error or in the middle of the last packet. num_listed: packets that the container's index names.
    """

    time_base: Fraction
    pts: array[int] = field(default_factory=lambda: array("q"))
    key: bytearray = field(default_factory=bytearray)
    shown: bytearray = field(default_factory=bytearray)
    has_times: bool = True
    broken: list[int] = field(default_factory=list)
    num_listed: int = 0
    ends_broken: bool = False

    def __len__(self) -> int:
        return len(self.pts)

    def shown_in_order(self) -> list[int]:
        """Return packet indices of the frames in presentation order: position there is the frame_index."""
        return sorted((i for i in range(len(self)) if self.shown[i]), key=self.pts.__getitem__)

    def needed_for(self, wanted: list[int], *, only_keys: bool) -> bytearray:
        """Return which packets must be decoded for the wanted ones (packet indices): their groups of pictures.

        A group begins at a key packet. Pictures shown before the key picture they follow (leading pictures of an
        open group) are also built on the group before. only_keys: the wanted ones are key and stand alone.
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


def real_packets(
    container: av.container.InputContainer, stream: av.video.VideoStream
) -> Iterator[av.packet.Packet[av.video.VideoStream]]:
    """Yield the stream's packets in decode order, without the empty one at the end (and AVI's empty repeats).

    An empty packet would tell the decoder that the stream is over. Raises what the demuxer raises.
    """
    for packet in container.demux(stream):
        if packet.size:
            yield packet


def read_packets(
    container: av.container.InputContainer, stream: av.video.VideoStream, beat: Callable[[], None]
) -> Packets:
    """Read all packets once, decoding nothing; raises InputError: unreadable for a failing disk."""
    time_base = stream.time_base or Fraction(1)
    packets = Packets(time_base)
    visible = _VISIBLE.get(stream.codec_context.codec.canonical_name, _always)
    try:
        for packet in real_packets(container, stream):
            beat()
            packets.has_times &= packet.pts is not None
            packets.pts.append(packet.pts or 0)
            packets.key.append(packet.is_keyframe)
            packets.shown.append(not packet.is_discard and visible(packet))
            if packet.is_corrupt:
                packets.broken.append(len(packets) - 1)
    except BROKEN_OFF:
        packets.ends_broken = True
    packets.ends_broken |= bool(packets.broken) and packets.broken[-1] == len(packets) - 1
    packets.num_listed = sum(1 for entry in stream.index_entries if entry.size)
    times = [packets.pts[i] for i in range(len(packets)) if packets.shown[i]]
    packets.has_times &= len(set(times)) == len(times)
    return packets


def must_be_counted(container: av.container.InputContainer, stream: av.video.VideoStream, packets: Packets) -> bool:
    """Tell whether packets and frames may differ, so that only decoding can number the frames.

    So where times are missing or double (raw streams), in AVI (which stores none), for codecs with packets that
    are no frames, and in interlaced video, whose fields may come as two packets.
    """
    context = stream.codec_context
    return (
        not packets.has_times
        or "avi" in container.format.name.split(",")
        or context.codec.canonical_name in _COUNTED_CODECS
        or str(getattr(context, "field_order", "progressive")).lower() not in _PROGRESSIVE
    )


_PROGRESSIVE = frozenset(("progressive", "unknown", "0", "1", "none"))


def _always(_: av.packet.Packet[av.video.VideoStream]) -> bool:
    return True


def _vp8_visible(packet: av.packet.Packet[av.video.VideoStream]) -> bool:
    """RFC 6386, 9.1: show_frame is bit 4 of the first byte."""
    return bool(bytes(memoryview(packet)[:1])[0] & 0x10)


def _vp9_visible(packet: av.packet.Packet[av.video.VideoStream]) -> bool:
    """VP9 bitstream specification, 6.2: the uncompressed header's first bits; a superframe shows its last frame."""
    if packet.size == 0:
        return False
    data = memoryview(packet)
    first = data[0]
    if data[-1] & 0xE0 == 0xC0:  # a superframe index: hidden frames and one that is shown
        return True
    profile = (first >> 5 & 1) | (first >> 3 & 2)
    shift = 2 if profile == 3 else 3
    shows_existing = first >> shift & 1
    return bool(shows_existing or first >> (shift - 2) & 1)


_VISIBLE = {"vp8": _vp8_visible, "vp9": _vp9_visible}
