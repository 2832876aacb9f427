"""Probes inputs: processes some seconds of each as the job would, measures, and discards the rows."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from ..dataset.schema import parquet_writer_options
from ..errors import InputError
from ..rows.input_pipeline import FrameIterator, InputPipeline
from ..sources import Entry
from ..video import DecodeSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What one input took as far as it was tried, scaled to all of it.

    `paired`: whether it was compared with its original. `frames`: how many were tried, of `wanted_frames`. `reason`:
    why it failed, if it did; `detail` for people. `is_partial`: whether some of its frames are damaged.
    """

    video_id: str
    paired: bool
    frames: int
    wanted_frames: int
    seconds: float
    faces: float
    size_bytes: float
    reason: str | None = None
    detail: str = ""
    is_partial: bool = False

    @property
    def figures(self) -> tuple[float, float, float]:
        """Seconds, bytes and faces of the whole input."""
        return self.seconds, self.size_bytes, self.faces

    @property
    def seconds_tried(self) -> float:
        """Seconds of the part that was tried."""
        return self.seconds * self.frames / max(self.wanted_frames, 1)


def probe_family(pipeline: InputPipeline, family: Sequence[Entry], seconds: float) -> list[Probe]:
    """Tries the members one after the other, each for about `seconds`, the fakes no further than the original.

    One that fails has cost what it cost, and gives no faces.
    """
    probes = []
    until_frame: int | None = None
    for entry in family:
        probe, last_frame = _probe_input(pipeline, entry, family, seconds, until_frame)
        probes.append(probe)
        if entry.source_id is None:
            until_frame = last_frame
    pipeline.release()
    return probes


def first_frame_seconds(pipeline: InputPipeline, families: Sequence[Sequence[Entry]]) -> float:
    """Searches the first frame of one of `families` twice; returns by how many seconds the second time is faster.

    That is what a process does once: starting the decoder's child, setting up the detector. In a trial it would be
    scaled with the rest: a video of 15 frames, of which 3 were tried, to 42 s instead of 9. 0 where none gives a frame.
    """
    for family in families:
        times = [time.monotonic()]
        for _ in range(2):
            [probe] = probe_family(pipeline, family[:1], 0.0)
            times.append(time.monotonic())
        if probe.frames:
            return max(0.0, (times[1] - times[0]) - (times[2] - times[1]))
    return 0.0


def _probe_input(
    pipeline: InputPipeline, entry: Entry, family: Sequence[Entry], seconds: float, until_frame: int | None
) -> tuple[Probe, int]:
    """Tries one input, for some seconds or, unless that is None, until a frame; returns the last frame's index too.

    The index is -1 where there was no frame.
    """
    shown: list[tuple[int, float]] = []  # index and time of each frame that was tried

    def limited(frames: FrameIterator) -> FrameIterator:
        for frame in frames:
            shown.append((frame.frame_index, time.monotonic()))
            yield frame
            is_over = time.monotonic() - shown[0][1] > seconds
            if is_over if until_frame is None else frame.frame_index >= until_frame:
                return

    asked = time.monotonic()
    with contextlib.suppress(InputError):
        pipeline.path_of(entry.video_id)
    fetch_seconds = time.monotonic() - asked  # from a store: all of it, however few frames are tried
    with contextlib.suppress(InputError):
        # A trial that was ended early has ended the decoder's child: starting one is no part of the next.
        pipeline.warm_up(entry.video_id)
    started = time.monotonic()
    batches: list[pa.RecordBatch] = []
    reason, detail = None, ""
    summary = DecodeSummary()
    try:
        batches += pipeline.batches(entry, "train", family, limited, summary)
    except InputError as error:
        batches.clear()
        reason, detail = error.reason, error.detail
    ended = time.monotonic()
    is_partial = bool(summary.damage)  # which is only known at the end: no further frame will come
    wanted = len(shown) if is_partial else max(summary.frames_wanted, len(shown))
    share = wanted / len(shown) if shown else 0.0
    # What comes before the first frame comes once, however long the rest is.
    before = (shown[0][1] if shown else ended) - started
    probe = Probe(
        video_id=entry.video_id,
        paired=entry.mask_id is None and pipeline.is_compared(entry),
        frames=len(shown),
        wanted_frames=wanted,
        seconds=fetch_seconds + before + (ended - started - before) * share,
        faces=sum(batch.num_rows for batch in batches) * share,
        size_bytes=_stored_bytes(batches) * share,
        reason=reason,
        detail=detail,
        is_partial=is_partial,
    )
    return probe, shown[-1][0] if shown else -1


def _stored_bytes(batches: Sequence[pa.RecordBatch]) -> int:
    """What the rows take as Parquet, without the footer, which a unit's inputs share."""
    if not batches:
        return 0
    table = pa.Table.from_batches(batches)
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, table.schema, **parquet_writer_options(table.schema)) as writer:
        writer.write_table(table)
    group = pq.read_metadata(io.BytesIO(buffer.getvalue())).row_group(0)
    return sum(group.column(number).total_compressed_size for number in range(group.num_columns))
