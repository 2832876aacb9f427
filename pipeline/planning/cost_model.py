"""Cost model: estimates the work per input from container headers alone, to plan units of similar size.

Seconds are those of a reference machine; `dryrun` measures the actual one and scales them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError
from ..sources import Entry
from ..video import MediaInfo, MediaReader, Sampling

MAX_HEADERS = 12
"""How many headers a run reads to plan."""
_DETECT_SECONDS_PER_MEGAPIXEL = 0.15  # of a sampled frame: MTCNN on one core
_DECODE_SECONDS_PER_MEGAPIXEL = 0.006  # of every frame
_DECODE_IMAGE_SECONDS_PER_MEGAPIXEL = 0.03  # PNG; JPEG takes half of it
_KEYFRAME_INTERVAL_FRAMES = 250  # x264's default
_OPEN_SECONDS = 0.05  # per file
_MAX_FRAMES = 1_000_000  # nine hours; a header can claim any number


class Cost(NamedTuple):
    """Expected work for one input.

    `seconds`: on one core. `sampled_frames`: how many frames go through face detection. `duration_seconds`: playing
    time.
    """

    seconds: float
    sampled_frames: float
    duration_seconds: float


_UNKNOWN_PER_BYTE = Cost(seconds=2e-6, sampled_frames=1e-5, duration_seconds=4e-6)
_UNKNOWN_SECONDS_PER_IMAGE = 0.1


class CostModel:
    """Estimates the cost of each input: from its own header where that was read, else from its size in bytes.

    A clip of images costs by the number of images that are sampled. Reads the headers of at most `max_headers` of the
    `entries`, evenly spread; of a clip, that of one image.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        root: Path,
        sampling: Sampling,
        reader: MediaReader,
        *,
        max_headers: int = MAX_HEADERS,
    ) -> None:
        num_headers = min(len(entries), max_headers)
        self._sampling = sampling
        self._measured: dict[str, Cost] = {}
        rates: list[Cost] = []
        seconds_per_image: list[float] = []
        for entry in (entries[index * len(entries) // num_headers] for index in range(num_headers)):
            try:
                info = reader.probe(root / entry.video_id)
            except InputError:
                continue
            if entry.num_images:
                seconds_per_image.append(_image_seconds(info))
                continue
            cost = _cost(info, sampling)
            self._measured[entry.video_id] = cost
            rates.append(_scaled(cost, 1 / max(entry.size_bytes, 1)))
        self.headers_read = len(rates) + len(seconds_per_image)
        self._per_byte = _median(rates) if rates else _UNKNOWN_PER_BYTE
        self._seconds_per_image = (
            statistics.median(seconds_per_image) if seconds_per_image else _UNKNOWN_SECONDS_PER_IMAGE
        )

    def __call__(self, entry: Entry) -> Cost:
        """Expected cost of `entry`."""
        if entry.num_images:
            return self._clip_cost(entry.num_images)
        cost = self._measured.get(entry.video_id) or _scaled(self._per_byte, entry.size_bytes)
        return cost._replace(seconds=_OPEN_SECONDS + cost.seconds)

    def _clip_cost(self, num_images: int) -> Cost:
        num_sampled = len(self._sampling.select_images(num_images))
        return Cost(
            seconds=_OPEN_SECONDS + num_sampled * self._seconds_per_image,
            sampled_frames=num_sampled,
            duration_seconds=num_images / self._sampling.fps_of_images if self._sampling.fps_of_images else 0.0,
        )


def _cost(info: MediaInfo, sampling: Sampling) -> Cost:
    megapixels = info.width * info.height / 1e6
    num_frames = min(info.num_frames, _MAX_FRAMES)
    frame_seconds = info.duration_seconds / max(info.num_frames, 1)
    pts_seconds = [index * frame_seconds for index in range(num_frames)]
    num_sampled = len(sampling.select(pts_seconds, range(0, num_frames, _KEYFRAME_INTERVAL_FRAMES)))
    seconds = megapixels * (num_sampled * _DETECT_SECONDS_PER_MEGAPIXEL + num_frames * _DECODE_SECONDS_PER_MEGAPIXEL)
    return Cost(seconds=seconds, sampled_frames=num_sampled, duration_seconds=info.duration_seconds)


def _image_seconds(info: MediaInfo) -> float:
    """Seconds that a sampled image of this size takes; the others are never opened."""
    return info.width * info.height / 1e6 * (_DETECT_SECONDS_PER_MEGAPIXEL + _DECODE_IMAGE_SECONDS_PER_MEGAPIXEL)


def _scaled(cost: Cost, factor: float) -> Cost:
    return Cost(*(value * factor for value in cost))


def _median(costs: Sequence[Cost]) -> Cost:
    """The median of each field."""
    return Cost(*map(statistics.median, zip(*costs, strict=True)))
