"""Segments in time: when a video is fake, as metadata gives it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ...errors import UsageError
from ...json_records import brief
from ..clips.image_sequences import video_of_frame

_MAX_SECONDS = 1e6  # eleven days

Segments = tuple[tuple[float, float], ...]


def parse_segments(value: Any, where: str) -> Segments:
    """Segments as (start, end) in seconds, in order; raises `UsageError`, which begins with `where`, on anything else.

    >>> parse_segments([[2.5, 3], [0, 1.25]], "metadata.json")
    ((0.0, 1.25), (2.5, 3.0))
    """
    if not isinstance(value, (list, tuple)) or not all(map(_is_segment, value)):
        raise UsageError(
            f"{where}: fake segments {brief(value)}: must be a list of [start, end] in seconds, end after start"
        )
    return _one_of_equals(tuple(sorted((float(start), float(end)) for start, end in value)))


@lru_cache(maxsize=1 << 16)
def _one_of_equals(segments: Segments) -> Segments:
    """The first of equal ones, in place of all: a set has millions, in hundredths of a second of short videos."""
    return segments


def segment_fields(segments: Segments, video_id: str) -> dict[str, Any]:
    """The fields of an entry that is fake, label 1, in `segments` and real, label 0, between them.

    Without segments, and of an extracted frame, whose time in its video is not known, the label is unknown.
    """
    if not segments or video_of_frame(video_id) != video_id:
        return {"label": -1}
    return {"label": 1, "fake_segments": segments, "outside_label": 0}


def _is_segment(value: Any) -> bool:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return False
    numbers = [part for part in value if isinstance(part, (int, float)) and not isinstance(part, bool)]
    return len(numbers) == 2 and 0 <= numbers[0] < numbers[1] <= _MAX_SECONDS
