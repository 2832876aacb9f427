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

_FAKES_PER_FAMILY = 2


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


def select_trial_inputs(family: Sequence[Entry]) -> list[Entry]:
    """Which of a family (an original and its fakes) are tried: the original and two of the fakes."""
    originals = [entry for entry in family if entry.source_id is None]
    fakes = [entry for entry in family if entry.source_id is not None]
    return originals[:1] + fakes[:_FAKES_PER_FAMILY]


def probe_family(pipeline: InputPipeline, family: Sequence[Entry], seconds: float) -> list[Probe]:
    """Tries the members one after the other, each for about `seconds`, the fakes no further than the original.

    One that fails has cost what it cost, and gives no faces.
    """
    done = []
    until_frame: int | None = None
    for entry in family:
        trial = _InputTrial(pipeline, entry, family, seconds, until_frame)
        done.append(trial.run())
        if entry.source_id is None:
            until_frame = trial.last_frame
    pipeline.release()
    return done


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


class _InputTrial:
    """One input being tried; ends after some seconds, or at the frame at which the trial of its original ended."""

    def __init__(
        self, pipeline: InputPipeline, entry: Entry, family: Sequence[Entry], seconds: float, until_frame: int | None
    ) -> None:
        self._pipeline, self._entry, self._family = pipeline, entry, family
        self._seconds, self._until_frame = seconds, until_frame
        self._first_frame_at = 0.0
        self._frames = 0
        self.last_frame = -1

    def run(self) -> Probe:
        reader = self._pipeline.reader
        self._warm_up()
        started = time.monotonic()
        batches: list[pa.RecordBatch] = []
        reason, detail = None, ""
        try:
            batches += self._pipeline.batches(self._entry, "train", self._family, self._limited)
        except InputError as error:
            batches.clear()
            reason, detail = error.reason, error.detail
        ended = time.monotonic()
        is_partial = bool(reader.last_damage)  # which is only known at the end: no further frame will come
        wanted = self._frames if is_partial else max(reader.last_frames_wanted, self._frames)
        share = wanted / self._frames if self._frames else 0.0
        # What comes before the first frame comes once, however long the rest is.
        before = (self._first_frame_at or ended) - started
        return Probe(
            video_id=self._entry.video_id,
            paired=self._entry.source_id is not None and self._pipeline.file_exists(self._entry.source_id),
            frames=self._frames,
            wanted_frames=wanted,
            seconds=before + (ended - started - before) * share,
            faces=sum(batch.num_rows for batch in batches) * share,
            size_bytes=_stored_bytes(batches) * share,
            reason=reason,
            detail=detail,
            is_partial=is_partial,
        )

    def _warm_up(self) -> None:
        """A trial that was ended early has ended the decoder's child: starting one is no part of the next."""
        with contextlib.suppress(InputError):
            self._pipeline.warm_up(self._entry.video_id)

    def _limited(self, frames: FrameIterator) -> FrameIterator:
        for frame in frames:
            now = time.monotonic()
            self._first_frame_at = self._first_frame_at or now
            self._frames += 1
            self.last_frame = frame.frame_index
            yield frame
            over = time.monotonic() - self._first_frame_at > self._seconds
            if over if self._until_frame is None else frame.frame_index >= self._until_frame:
                return


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
