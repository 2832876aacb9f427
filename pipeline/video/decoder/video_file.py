"""`VideoFile`: index the packets of a video, then decode the wanted frames or raise the reason why not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import av.container
import av.video
import numpy as np

from ...errors import InputError
from ..frame import Frame, FrameTimes, MediaInfo
from ..sampling import Sampling
from .decoding import DecoderHealth, SampleAspectRatios, configure_codec, decode_frames
from .demuxer import check_size, choose_stream, open_video
from .pixels import RgbConverter
from .sniffing import MediaFile
from .timeline import (
    PacketTable,
    frame_rate,
    may_have_decode_order_times,
    must_decode_to_count,
    read_packets,
    seconds_of_frames,
)
from .truncation import check_not_truncated
from .wanted_frames import DamageBudget, FrameRequest

_NO_PTS = -(1 << 63)
"""FFmpeg's AV_NOPTS_VALUE."""


@dataclass(slots=True)
class Timeline:
    """All frames in presentation order.

    pts_seconds: their times. key_indices: frame indices of the key frames. packet_indices: the packet of each frame;
    empty if the frames were numbered by decoding.
    """

    pts_seconds: list[float]
    key_indices: list[int]
    packet_indices: list[int] = field(default_factory=list)


@dataclass(slots=True)
class VideoFile:
    """Decodes one open video.

    heartbeat: called often while it makes progress. damage: after `frames`, how many wanted frames are missing and why.

    Raises InputError: not_video, audio_only, truncated, no_frames, too_large, unreadable, decode_error.
    """

    file: MediaFile
    max_pixels: int
    threads: int
    heartbeat: Callable[[], None]
    damage: DamageBudget = field(default_factory=lambda: DamageBudget(frozenset(), 0))

    def frames(self, request: FrameRequest) -> Iterator[Frame]:
        """Yield the wanted frames in presentation order."""
        packets, timeline = self._timeline()
        sampled = request.sampling.select(timeline.pts_seconds, timeline.key_indices)
        wanted, self.damage = request.plan(sampled, len(timeline.pts_seconds))
        only_keys = request.sampling.keyframes and wanted == timeline.key_indices and bool(timeline.packet_indices)
        yield from self._decode_wanted(timeline, packets, wanted, only_keys=only_keys)

    def times(self, sampling: Sampling) -> FrameTimes:
        """Return the presentation times of all frames and the indices of the sampled ones."""
        _, timeline = self._timeline()
        wanted = sampling.select(timeline.pts_seconds, timeline.key_indices)
        return FrameTimes(np.array(timeline.pts_seconds, np.float64), np.array(wanted, np.int64))

    def _timeline(self) -> tuple[PacketTable, Timeline]:
        num_blocks = check_not_truncated(self.file, self.heartbeat)
        with self._open_stream() as (container, stream):
            packets = read_packets(container, stream, self.heartbeat)
            must_count = must_decode_to_count(container, stream, packets)
            may_be_misplaced = may_have_decode_order_times(container, stream, packets)
            ordinal = container.streams.video.index(stream)
        if packets.ends_in_error:
            raise InputError("truncated", f"reading broke off in packet {len(packets)}")
        num_indexed = max(packets.num_indexed, *num_blocks[ordinal : ordinal + 1], 0)
        if num_indexed > len(packets):
            raise InputError("decode_error", f"of its {num_indexed} packets only {len(packets)} can be read")
        if not any(packets.visible):
            raise InputError("no_frames", "its video stream holds no frame")
        if not (must_count or may_be_misplaced):
            return packets, _timeline_from_packets(packets)
        return packets, self._timeline_by_decoding(packets, must_count=must_count, may_be_misplaced=may_be_misplaced)

    def probe(self) -> MediaInfo:
        """Return the metadata from the header and the first frame."""
        check_not_truncated(self.file, self.heartbeat)
        with self._open_stream() as (container, stream):
            configure_codec(stream, threads=self.threads, max_pixels=self.max_pixels)
            health, ratios = DecoderHealth(), SampleAspectRatios(stream)
            decoded = decode_frames(container, stream, health, heartbeat=self.heartbeat)
            frame = next((frame for frame, _ in decoded), None)
            if frame is None:
                raise InputError("no_frames", health.first_error or "its video stream holds no frame")
            rgb = RgbConverter(self.max_pixels).convert(frame, ratios.of(frame))
            duration_seconds = _duration_seconds(container, stream)
            expected = round(duration_seconds * frame_rate(container, stream))
            return MediaInfo(
                width=rgb.shape[1],
                height=rgb.shape[0],
                # The header of a fragmented MP4 may count the frames of the first fragment alone.
                num_frames=stream.frames if stream.frames > expected / 2 else expected,
                duration_seconds=duration_seconds,
                is_image=False,
            )

    @contextmanager
    def _open_stream(self) -> Iterator[tuple[av.container.InputContainer, av.video.VideoStream]]:
        with open_video(self.file, self.max_pixels) as container:
            stream = choose_stream(container)
            check_size(stream, self.max_pixels)
            yield container, stream

    def _timeline_by_decoding(self, packets: PacketTable, *, must_count: bool, may_be_misplaced: bool) -> Timeline:
        """Number the frames by decoding all of them. After an error the numbers would be unknown, so it is raised.

        must_count, may_be_misplaced: what `must_decode_to_count` and `may_have_decode_order_times` return.
        Misplaced times are sorted; where none is and frames need not be counted, the numbers are those of the packets.
        """
        times: list[int | None] = []
        keys: list[int] = []
        health = DecoderHealth()
        with self._open_stream() as (container, stream):
            configure_codec(stream, threads=self.threads, max_pixels=self.max_pixels)
            decoded = decode_frames(container, stream, health, heartbeat=self.heartbeat)
            for frame, _ in decoded:
                keys += [len(times)] if frame.key_frame else []
                times.append(frame.pts)
            rate = frame_rate(container, stream)
        _check_decoded(health)
        if may_be_misplaced:
            known = [pts for pts in times if pts is not None]
            if not must_count and all(earlier < later for earlier, later in pairwise(known)):
                return _timeline_from_packets(packets)
            times = [*sorted(known)] if len(known) == len(times) else times
        if health.num_errors:
            raise InputError("decode_error", health.first_error)
        return Timeline(seconds_of_frames(times, packets.time_base, rate), keys)

    def _decode_wanted(
        self, timeline: Timeline, packets: PacketTable, wanted: list[int], *, only_keys: bool
    ) -> Iterator[Frame]:
        """Decode the GOPs of the wanted frames; if one of those is missing or damaged, decode the whole video.

        A stream may flag pictures as key frames that only begin a gradual refresh; frames after them need earlier ones.
        """
        due = deque(wanted)
        needed_packets = None
        if timeline.packet_indices:
            wanted_packets = [timeline.packet_indices[index] for index in wanted]
            needed_packets = packets.packets_to_decode(wanted_packets, only_keys=only_keys)
        if needed_packets is not None and not all(needed_packets):
            try:
                yield from self._decode_pass(timeline, packets, due, needed_packets, DamageBudget(frozenset(wanted), 0))
                return
            except InputError as error:
                if error.reason not in ("decode_error", "no_frames"):
                    raise
        yield from self._decode_pass(timeline, packets, due, None, self.damage)

    def _decode_pass(
        self,
        timeline: Timeline,
        packets: PacketTable,
        due: deque[int],
        needed_packets: bytearray | None,
        damage: DamageBudget,
    ) -> Iterator[Frame]:
        """Decode once and yield the frames of `due`, removing those that are yielded or lost."""
        packet_indices = timeline.packet_indices
        index_at = {packets.pts[packet_indices[index]]: index for index in due} if packet_indices else None
        health = DecoderHealth()
        with self._open_stream() as (container, stream):
            configure_codec(stream, threads=self.threads, max_pixels=self.max_pixels)
            converter, ratios = RgbConverter(self.max_pixels), SampleAspectRatios(stream)
            decoded = decode_frames(
                container, stream, health, packets.corrupt, needed_packets=needed_packets, heartbeat=self.heartbeat
            )
            for ordinal, (frame, is_intact) in enumerate(decoded):
                index = ordinal if index_at is None else index_at.get(_NO_PTS if frame.pts is None else frame.pts, -1)
                if not due or index < due[0]:
                    continue
                damage.drop_due(due, health.first_error, before=index + (not is_intact))
                if is_intact:
                    rgb = converter.convert(frame, ratios.of(frame))
                    due.popleft()
                    yield Frame(index, timeline.pts_seconds[index], rgb, start_seconds=timeline.pts_seconds[0])
        _check_decoded(health)
        damage.drop_due(due, health.first_error, before=len(timeline.pts_seconds))


def _check_decoded(health: DecoderHealth) -> None:
    if health.num_decoded == 0:
        raise InputError("no_frames", health.first_error or "its video stream gives no frame")


def _timeline_from_packets(packets: PacketTable) -> Timeline:
    packet_indices = packets.presentation_order()
    keys = [index for index, i in enumerate(packet_indices) if packets.key[i]]
    return Timeline([float(packets.pts[i] * packets.time_base) for i in packet_indices], keys, packet_indices)


def _duration_seconds(container: av.container.InputContainer, stream: av.video.VideoStream) -> float:
    if stream.duration and stream.time_base:
        return float(max(stream.duration, 0) * stream.time_base)
    return max(container.duration or 0, 0) / 1e6
