"""How long an input will take, guessed from a few probes: only so that units come out of a sensible size."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from .errors import InputError
from .sources import Entry
from .video import MediaReader, Sampling

_PROBES = 12
_DETECT_SECONDS = 0.15  # per megapixel of a wanted frame: MTCNN on one core
_DECODE_SECONDS = 0.006  # per megapixel of any frame
_KEY_FRAME_STEP = 250  # x264's default distance of key frames
_FLOOR_SECONDS = 0.05  # opening a file at all
_UNKNOWN_SECONDS_PER_BYTE = 2e-6
_MOST_FRAMES = 1_000_000  # nine hours; a header can claim any number


def cost_model(
    entries: Sequence[Entry], root: Path, sampling: Sampling, reader: MediaReader
) -> Callable[[Entry], float]:
    """Expected seconds of one input on one core, by its bytes; opens at most a dozen files, evenly spread."""
    step = max(1, len(entries) // _PROBES)
    rates = [rate for entry in entries[::step][:_PROBES] if (rate := _rate(entry, root, sampling, reader))]
    rate = statistics.median(rates) if rates else _UNKNOWN_SECONDS_PER_BYTE
    return lambda entry: _FLOOR_SECONDS + entry.size_bytes * rate


def _rate(entry: Entry, root: Path, sampling: Sampling, reader: MediaReader) -> float | None:
    try:
        info = reader.probe(root / entry.video_id)
    except InputError:
        return None
    megapixels = info.width * info.height / 1e6
    num_frames = min(info.num_frames, _MOST_FRAMES)
    frame_seconds = info.duration_seconds / max(info.num_frames, 1)
    times = [index * frame_seconds for index in range(num_frames)]
    wanted = len(sampling.select(times, range(0, num_frames, _KEY_FRAME_STEP)))
    seconds = megapixels * (wanted * _DETECT_SECONDS + num_frames * _DECODE_SECONDS)
    return seconds / max(entry.size_bytes, 1)
