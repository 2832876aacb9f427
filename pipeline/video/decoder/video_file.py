"""One video file: packets first, then the wanted frames, each sound, or the reason why not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import av.container
import av.video

from ...errors import InputError
from ..frame import MediaInfo
from ..limits import most_damaged
from ..sampling import Sampling
from .decoding import Health, configure, decode_frames
from .demuxer import check_size, choose_stream, open_video
from .pixels import Rgb, RgbConverter
from .sniffing import Content
from .timeline import FALLBACK_RATE, Packets, must_be_counted, read_packets
from .truncation import check_whole

_NO_PTS = -(1 << 63)
"""FFmpeg's AV_NOPTS_VALUE."""


@dataclass(slots=True)
class Timeline:
    """All frames in presentation order.

    key_indices: frame indices of the key frames. packet_indices: of each frame, or empty if frames were counted.
    """

    pts_seconds: list[float]
    key_indices: list[int]
    packet_indices: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Losses:
    """Frames that are damaged or do not come: of those in `counting` at most `max_percent`, rounded up, never all."""

    counting: Collection[int]
    max_percent: float
    num_lost: int = 0
    first: str = ""

    def take(self, due: deque[int], health: Health, *, before: int) -> None:
        """Count the frames of `due` below index `before` as lost; raises InputError: decode_error for one too many."""
        most = most_damaged(len(self.counting), self.max_percent)
        while due and due[0] < before:
            if due[0] not in self.counting:
                due.popleft()
                continue
            self.first = self.first or f"frame {due[0]}: {health.first_error or 'the decoder did not return it'}"
            if self.num_lost == most:
                raise InputError("decode_error", f"damaged or missing are {self._count(self.num_lost + 1)}")
            self.num_lost += 1
            due.popleft()

    def in_words(self) -> str:
        """Return how many are lost and why the first one is, or nothing if none is."""
        return f"damaged or missing are {self._count(self.num_lost)}" if self.num_lost else ""

    def _count(self, num_lost: int) -> str:
        return f"{num_lost} of {len(self.counting)} wanted frames, first {self.first}"


@dataclass(slots=True)
class VideoFile:
    """A video that is open for one job. beat is called often while it makes progress.

    losses: after `frames`, the wanted ones that did not come.

    Raises InputError: not_video, audio_only, truncated, no_frames, too_large, unreadable, decode_error.
    """

    content: Content
    max_pixels: int
    threads: int
    beat: Callable[[], None]
    losses: Losses = field(default_factory=lambda: Losses(frozenset(), 0))

    def frames(
        self,
        sampling: Sampling,
        max_damaged_percent: float,
        planned: Callable[[int], None],
        *,
        also: Collection[int] = (),
    ) -> Iterator[tuple[int, float, Rgb]]:
        """Yield (frame_index, pts_seconds, rgb) of the wanted frames; `planned` gets the number of all to come.

        Damaged ones are left out, up to `max_damaged_percent` of the wanted ones, rounded up, but never all; the others
        keep index and time.
        also: indices of further frames to yield; those that are damaged or that the video does not have are left out.
        """
        packets, timeline = self._timeline()
        chosen = sampling.select(timeline.pts_seconds, timeline.key_indices)
        wanted = sorted({*chosen, *(index for index in also if 0 <= index < len(timeline.pts_seconds))})
        planned(len(wanted))
        self.losses = Losses(frozenset(chosen), max_damaged_percent)
        only_keys = sampling.keyframes and wanted == chosen and bool(timeline.packet_indices)
        yield from self._wanted_frames(timeline, packets, wanted, only_keys=only_keys)

    def times(self, sampling: Sampling) -> tuple[list[float], list[int]]:
        """Return the presentation times of all frames, and the indices of those that the sampling wants."""
        _, timeline = self._timeline()
        return timeline.pts_seconds, sampling.select(timeline.pts_seconds, timeline.key_indices)

    def _timeline(self) -> tuple[Packets, Timeline]:
        num_blocks = check_whole(self.content, self.beat)
        with self._opened() as (container, stream):
            packets = read_packets(container, stream, self.beat)
            counted = must_be_counted(container, stream, packets)
            ordinal = container.streams.video.index(stream)
        if packets.ends_broken:
            raise InputError("truncated", f"reading broke off in packet {len(packets)}")
        num_listed = max(packets.num_listed, *num_blocks[ordinal : ordinal + 1], 0)
        if num_listed > len(packets):
            raise InputError("decode_error", f"of its {num_listed} packets only {len(packets)} can be read")
        if not any(packets.shown):
            raise InputError("no_frames", "its video stream holds no frame")
        return packets, self._count(packets) if counted else _from_packets(packets)

    def probe(self) -> MediaInfo:
        """Return what the header and the first frame say."""
        check_whole(self.content, self.beat)
        with self._opened() as (container, stream):
            configure(stream, threads=self.threads, max_pixels=self.max_pixels)
            health = Health()
            decoded = decode_frames(container, stream, health, beat=self.beat)
            frame = next((frame for frame, _ in decoded), None)
            if frame is None:
                raise InputError("no_frames", health.first_error or "its video stream holds no frame")
            rgb = self._converter(stream).convert(frame)
            duration_seconds = _duration_seconds(container, stream)
            rate = stream.average_rate or stream.guessed_rate or FALLBACK_RATE
            return MediaInfo(
                width=rgb.shape[1],
                height=rgb.shape[0],
                num_frames=max(stream.frames, 0) or round(duration_seconds * rate),
                duration_seconds=duration_seconds,
                is_image=False,
            )

    @contextmanager
    def _opened(self) -> Iterator[tuple[av.container.InputContainer, av.video.VideoStream]]:
        with open_video(self.content, self.max_pixels) as container:
            stream = choose_stream(container)
            check_size(stream, self.max_pixels)
            yield container, stream

    def _converter(self, stream: av.video.VideoStream) -> RgbConverter:
        return RgbConverter(stream.sample_aspect_ratio, self.max_pixels)

    def _count(self, packets: Packets) -> Timeline:
        """Number the frames by decoding them all once. An error would leave the numbers open, so it is fatal."""
        times: list[int | None] = []
        keys: list[int] = []
        health = Health()
        with self._opened() as (container, stream):
            configure(stream, threads=self.threads, max_pixels=self.max_pixels)
            decoded = decode_frames(container, stream, health, beat=self.beat)
            for frame, _ in decoded:
                keys += [len(times)] if frame.key_frame else []
                times.append(frame.pts)
            rate = stream.average_rate or stream.guessed_rate or FALLBACK_RATE
        _check_any(health)
        if health.num_errors:
            raise InputError("decode_error", health.first_error)
        known = [pts for pts in times if pts is not None]
        if len(known) == len(times) and all(a < b for a, b in pairwise(known)):
            return Timeline([float(pts * packets.time_base) for pts in known], keys)
        return Timeline([float(index / rate) for index in range(len(times))], keys)

    def _wanted_frames(
        self, timeline: Timeline, packets: Packets, wanted: list[int], *, only_keys: bool
    ) -> Iterator[tuple[int, float, Rgb]]:
        """Decode what the wanted frames need; if one of those does not come, decode everything after all.

        A stream may call pictures key that only begin a gradual refresh, so that a wanted frame needs more.
        """
        due = deque(wanted)
        needed = None
        if timeline.packet_indices:
            wanted_packets = [timeline.packet_indices[index] for index in wanted]
            needed = packets.needed_for(wanted_packets, only_keys=only_keys)
        if needed is not None and not all(needed):
            try:
                yield from self._pass(timeline, packets, due, needed, Losses(frozenset(wanted), 0))
                return
            except InputError as error:
                if error.reason not in ("decode_error", "no_frames"):
                    raise
        yield from self._pass(timeline, packets, due, None, self.losses)

    def _pass(
        self, timeline: Timeline, packets: Packets, due: deque[int], needed: bytearray | None, losses: Losses
    ) -> Iterator[tuple[int, float, Rgb]]:
        """Decode once, taking from `due` what has been given out or is lost."""
        order = timeline.packet_indices
        index_at = {packets.pts[order[index]]: index for index in due} if order else None
        health = Health()
        with self._opened() as (container, stream):
            configure(stream, threads=self.threads, max_pixels=self.max_pixels)
            converter = self._converter(stream)
            decoded = decode_frames(container, stream, health, packets.broken, needed=needed, beat=self.beat)
            for ordinal, (frame, sound) in enumerate(decoded):
                index = ordinal if index_at is None else index_at.get(_NO_PTS if frame.pts is None else frame.pts, -1)
                if not due or index < due[0]:
                    continue
                losses.take(due, health, before=index + (not sound))
                if sound:
                    rgb = converter.convert(frame)
                    due.popleft()
                    yield index, timeline.pts_seconds[index], rgb
        _check_any(health)
        losses.take(due, health, before=len(timeline.pts_seconds))


def _check_any(health: Health) -> None:
    if health.num_decoded == 0:
        raise InputError("no_frames", health.first_error or "its video stream gives no frame")


def _from_packets(packets: Packets) -> Timeline:
    order = packets.shown_in_order()
    keys = [index for index, i in enumerate(order) if packets.key[i]]
    return Timeline([float(packets.pts[i] * packets.time_base) for i in order], keys, order)


def _duration_seconds(container: av.container.InputContainer, stream: av.video.VideoStream) -> float:
    if stream.duration and stream.time_base:
        return float(max(stream.duration, 0) * stream.time_base)
    return max(container.duration or 0, 0) / 1e6
