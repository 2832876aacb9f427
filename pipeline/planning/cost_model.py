"""What an input will take, guessed from headers alone: so that units come out of a sensible size.

Seconds are those of some machine. `dryrun` measures this one and scales them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..sources import Entry
from ..video import MediaInfo, MediaReader, Sampling

HEADERS = 12
"""How many a run reads to plan."""
_DETECT_SECONDS = 0.15  # per megapixel of a wanted frame: MTCNN on one core
_DECODE_SECONDS = 0.006  # per megapixel of any frame
_KEY_FRAME_STEP = 250  # x264's default distance of key frames
_FLOOR_SECONDS = 0.05  # opening a file at all
_MOST_FRAMES = 1_000_000  # nine hours; a header can claim any number


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """`seconds`: of work on one core. `wanted_frames`: those that will be searched for faces. `play_seconds`: how long
    it runs when it is played.
    """

    seconds: float
    wanted_frames: float
    play_seconds: float


_UNKNOWN_PER_BYTE = Cost(seconds=2e-6, wanted_frames=1e-5, play_seconds=4e-6)


class CostModel:
    """What each input will take: by its own header where that was read, else by its bytes.

    Reads at most `headers` of the `entries`, evenly spread.
    """

    def __init__(
        self, entries: Sequence[Entry], root: Path, sampling: Sampling, reader: MediaReader, *, headers: int = HEADERS
    ) -> None:
        step = max(1, len(entries) // headers)
        self._known: dict[str, Cost] = {}
        rates: list[Cost] = []
        for entry in entries[::step][:headers]:
            try:
                cost = _cost(reader.probe(root / entry.video_id), sampling)
            except InputError:
                continue
            self._known[entry.video_id] = cost
            rates.append(_scaled(cost, 1 / max(entry.size_bytes, 1)))
        self.headers_read = len(rates)
        self._per_byte = _median(rates) if rates else _UNKNOWN_PER_BYTE

    def __call__(self, entry: Entry) -> Cost:
        """What `entry` is expected to take."""
        cost = self._known.get(entry.video_id) or _scaled(self._per_byte, entry.size_bytes)
        return Cost(
            seconds=_FLOOR_SECONDS + cost.seconds, wanted_frames=cost.wanted_frames, play_seconds=cost.play_seconds
        )


def _cost(info: MediaInfo, sampling: Sampling) -> Cost:
    megapixels = info.width * info.height / 1e6
    num_frames = min(info.num_frames, _MOST_FRAMES)
    frame_seconds = info.duration_seconds / max(info.num_frames, 1)
    times = [index * frame_seconds for index in range(num_frames)]
    wanted = len(sampling.select(times, range(0, num_frames, _KEY_FRAME_STEP)))
    seconds = megapixels * (wanted * _DETECT_SECONDS + num_frames * _DECODE_SECONDS)
    return Cost(seconds=seconds, wanted_frames=wanted, play_seconds=info.duration_seconds)


def _scaled(cost: Cost, by: float) -> Cost:
    return Cost(seconds=cost.seconds * by, wanted_frames=cost.wanted_frames * by, play_seconds=cost.play_seconds * by)


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(
        seconds=statistics.median(cost.seconds for cost in costs),
        wanted_frames=statistics.median(cost.wanted_frames for cost in costs),
        play_seconds=statistics.median(cost.play_seconds for cost in costs),
    )
