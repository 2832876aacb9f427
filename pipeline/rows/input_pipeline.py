"""From one input to its outcome and rows: the decoder process, the detector, the own mask, the cached source frames."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..dataset.manifest import InputOutcome
from ..errors import PASSING_REASONS, InputError, StoppedError
from ..manipulation.frame_matching import match_frames
from ..manipulation.source_frames import CurrentSource, SourceFrameCache
from ..planning.content_hash import stat_signature
from ..planning.options import JobSpec
from ..planning.plan import Unit
from ..sources import Entry, is_inside
from ..sources.metadata.segments import Segments
from ..stored_source.staging import StagedFiles
from ..video import DecodeSummary, Frame, FrameTimes, MediaReader
from .decoded_file import DecodedFile, sha256_if_unchanged
from .own_masks import OwnMask, OwnMaskLoader, expects_source
from .reuse import SupersededRows
from .row_builder import RowBuilder
from .spools import Spool, SpoolMemory

_SEGMENTS_OVERSHOOT = 2.0
"""Times its length that the segments of a video may end at: both are rounded, and files are cut."""
_SEGMENTS_OVERSHOOT_SECONDS = 1.0

FrameIterator = Iterator[Frame]


@dataclass(frozen=True, slots=True)
class ProcessedInput:
    """One finished input: its outcome, and its rows, which can be iterated once."""

    outcome: InputOutcome
    batches: Iterable[pa.RecordBatch] = ()


class InputPipeline:
    """Processes one input after the other; consecutive inputs may be a family: a source video and its fakes.

    memory: for rows that wait to be written, where several pipelines of a process share it.
    """

    def __init__(self, job: JobSpec, memory: SpoolMemory | None = None) -> None:
        self._staged = None if job.stored_files is None else StagedFiles(job.stored_files, job.paths.temporary)
        job = job if self._staged is None else replace(job, root=self._staged.root)
        self._job = job
        self._memory = memory or SpoolMemory(job.paths.temporary)
        self._spools: list[Spool] = []
        self._row_builder = RowBuilder(job)
        self._source = CurrentSource(self._decode_source)
        self.reader = MediaReader(job.limits, job.roots)
        self._own_mask_loader = OwnMaskLoader(job, self.reader, self._row_builder, self.path_of)
        self._own_mask = OwnMask()  # of the input in progress
        self._absent: str | None = None  # the own mask or original of the input in progress, where it is not there
        self._compared_with: SourceFrameCache | None = None
        self.schema: pa.Schema = self._row_builder.schema
        self._superseded = SupersededRows(job.paths, job.config_hash, self.schema)
        self._closed = False

    def close(self) -> None:
        """Ends the decoder process and the threads, from any thread; an input in progress ends with an error."""
        self._closed = True
        self.reader.close()
        self._superseded.close()
        self._row_builder.close()
        if self._staged is not None:
            self._staged.close()

    def warm_up(self, video_id: str) -> None:
        """Starts the decoder process, unless it runs, and opens an input in it; raises `InputError`."""
        self._row_builder.read(self.reader.probe, self.path_of(video_id))

    def process_family(self, family: Sequence[Entry], unit: Unit) -> Iterator[ProcessedInput]:
        """Processes one input after the other; raises `StoppedError` for failures that are no input's fault."""
        current = [entry for entry in family if entry.video_id not in unit.gone]
        try:
            for entry in family:
                yield self._reuse(entry, unit) or self._process(entry, unit.split, current)
        finally:
            if self._staged is not None:
                self._staged.discard()

    def _process(self, entry: Entry, split: str, family: Sequence[Entry]) -> ProcessedInput:
        """Decodes one input; one that fails half-way gives no rows."""
        started = time.monotonic()
        file = DecodedFile(
            entry, self._job.root / entry.video_id, self._job.roots, exists=self._file_exists(entry.video_id)
        )
        common: dict[str, Any] = {"video_id": entry.video_id, "size_bytes": entry.size_bytes}
        max_damaged_percent = self._job.limits.max_damaged_percent
        # Not straight to the unit's file: a damaged frame may come last, and an input that fails must give no row.
        spool = self._memory.open()
        self._spools.append(spool)
        decoded = DecodeSummary()
        try:
            faces = without_mask = 0
            rows = self.batches(entry, split, family, summary=decoded)
            with closing(rows), pa.ipc.new_stream(spool, self.schema) as stream:
                for batch in rows:
                    stream.write_batch(batch)
                    faces += batch.num_rows
                    without_mask += batch.column("mask").null_count
        except InputError as error:
            spool.close()
            self._raise_if_no_input_at_fault(error)
            return ProcessedInput(InputOutcome(
                **common, outcome="failed", reason=error.reason, detail=error.detail or None,
                max_damaged_percent=max_damaged_percent if error.reason == "decode_error" else None,
                # Reading a file that stalled the decoder may never return.
                sha256=None if error.reason == "timeout" else file.sha256(self._is_closed), mtime_ns=file.mtime_ns(),
                frames_wanted=error.frames_wanted, frames_decoded=error.frames_decoded, seconds=_seconds_since(started),
            ))  # fmt: skip
        own_mask = self._own_mask
        outcome = InputOutcome(
            **common, outcome="partial" if decoded.damage else "ok" if faces else "no_faces", faces=faces,
            reason="decode_error" if decoded.damage else None, detail=decoded.damage or None,
            max_damaged_percent=max_damaged_percent if decoded.damage else None,
            frames_wanted=decoded.frames_wanted, frames_decoded=decoded.frames_decoded,
            sha256=file.sha256(self._is_closed), mtime_ns=file.mtime_ns(), seconds=_seconds_since(started),
            faces_without_mask=without_mask if entry.mask_id or self.is_compared(entry) else 0,
            faces_with_own_mask=faces - without_mask if own_mask.frames else 0, own_mask_problem=own_mask.problem_text,
            absent=self._absent, source_sha256=self._source_sha256(),
        )  # fmt: skip
        return ProcessedInput(outcome, _read_batches(spool))

    def _raise_if_no_input_at_fault(self, error: InputError) -> None:
        if self._closed:
            raise StoppedError("this worker was stopped; run the same command again") from error
        missing_roots = [root for root in self._job.roots if not root.is_dir()] if error.reason == "unreadable" else []
        if missing_roots:
            raise StoppedError(
                f"{missing_roots[0]}: does not exist on this worker; fix that and run the same command again"
            ) from error

    def _reuse(self, entry: Entry, unit: Unit) -> ProcessedInput | None:
        """Rows of an unchanged input, or one that is gone from the source, from the units that `unit` supersedes.

        What the source does not name is gone, whatever lies there: an emptied folder, or another file of that name. It
        is not decoded, also where it has no rows yet.
        """
        is_reused, is_gone = entry.video_id in unit.reuses, entry.video_id in unit.gone
        if not (is_reused or is_gone or (unit.supersedes and not self._file_exists(entry.video_id))):
            return None
        if (found := self._superseded.lookup(entry, unit)) is None:
            return ProcessedInput(_outcome_of_gone(entry)) if is_gone else None
        outcome, batches = found
        if outcome.absent and not is_gone and all(map(self._file_exists, (outcome.absent, entry.video_id))):
            return None  # it is back since the unit was planned, by a run that was killed
        return ProcessedInput(outcome if is_reused else replace(outcome, absent=entry.video_id), batches)

    def _is_closed(self) -> bool:
        return self._closed

    def _source_sha256(self) -> str | None:
        """The hash of the original that the input in progress was compared with; see `InputOutcome`."""
        cache = self._compared_with
        if cache is None:
            return None
        path = self._job.root / cache.video_id
        return sha256_if_unchanged(path, self._job.roots, cache.signature, self._is_closed) or ""

    def batches(
        self,
        entry: Entry,
        split: str,
        family: Sequence[Entry],
        limit_frames: Callable[[FrameIterator], FrameIterator] = lambda frames: frames,
        summary: DecodeSummary | None = None,
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yields the rows of `entry` as they are built.

        Args:
            entry: the input.
            split: the split that its rows go into.
            family: inputs that this process handles one after the other; a source's frames are cached for its fakes.
            limit_frames: may end the frames early; runs on the thread that reads them.
            summary: of its frames, to be filled; see `MediaReader.frames`.

        Raises:
            InputError: the input failed; batches that were yielded before must be dropped.

        """
        self._absent = self._compared_with = None
        if entry.fake_segments:
            self._check_segments(entry.video_id, entry.fake_segments)
        with closing(self._own_mask_loader.load(entry, self._raise_if_no_input_at_fault)) as own_mask:
            self._own_mask = own_mask
            if own_mask.problem == "unreadable" and not self._file_exists(str(entry.mask_id)):
                self._absent = entry.mask_id
            needs_source = own_mask.frames is None or expects_source(entry, self._job.options)
            source_cache = self._source_cache(entry, family) if needs_source else None
            fakes = self._fakes_to_compare(entry.video_id, family)
            own_cache = self._new_cache(entry, entry.video_id, fakes) if fakes else None
            extra_indices = own_cache.extra_indices if own_cache else ()
            frames = limit_frames(self._frames(entry.video_id, extra_indices, summary))
            try:
                yield from self._row_builder.batches(
                    entry, split, frames, source_cache=source_cache, own_cache=own_cache, own_mask=own_mask.frames
                )
            except InputError as error:
                if own_cache is not None:
                    own_cache.fail(error)
                raise
            finally:
                if own_cache is not None:
                    self._source.replace(own_cache)

    def _check_segments(self, video_id: str, segments: Segments) -> None:
        """Raises `InputError` where segments end so late that they are of another unit, or of another video.

        Frames would get wrong labels without a sign of it. Videos of unknown length are not checked.
        """
        if self._closed:
            return
        length = self._row_builder.read(self._length_seconds, self.path_of(video_id))
        end = max(end for _, end in segments)
        if length and end > _SEGMENTS_OVERSHOOT * length + _SEGMENTS_OVERSHOOT_SECONDS:
            raise InputError(
                "wrong_segments",
                f"its fake_segments end at {end:g} s, but it is {length:.1f} s long: are they in milliseconds or "
                "frames, of another video, or of one of which only the first frames are here? One that lasts to the "
                "end ends there",
            )

    def _length_seconds(self, path: Path) -> float:
        """Length of a video by its header, of a clip of images by their rate; 0 where it is unknown."""
        sampling = self._job.options.sampling
        if sampling.fps_of_images is None or not path.is_dir():
            return self.reader.probe(path).duration_seconds
        return float(self.reader.times(path, sampling).pts_seconds[-1]) + 1 / sampling.fps_of_images

    def release(self) -> None:
        """Frees the cached source frames, all rows of processed inputs and what was fetched from a store.

        No thread may be using the pipeline.
        """
        self._source.release()
        if self._staged is not None:
            self._staged.discard()
        for spool in self._spools:
            spool.close()
        self._spools.clear()

    def is_compared(self, entry: Entry) -> bool:
        """Whether `entry` is a fake that is compared with its source, which is known and exists, readable or not."""
        return entry.compared and entry.source_id not in (None, entry.video_id) and self._file_exists(entry.source_id)

    def _fakes_to_compare(self, video_id: str, family: Sequence[Entry]) -> set[str]:
        fakes = [other for other in family if other.source_id == video_id != other.video_id]
        return {fake.video_id for fake in fakes if fake.compared and expects_source(fake, self._job.options)}

    def _source_cache(self, entry: Entry, family: Sequence[Entry]) -> SourceFrameCache | None:
        """The cached frames of the video that a fake is compared with, where that is known and exists."""
        if entry.source_id in (None, entry.video_id) or not entry.compared:
            return None
        cache = self._source.get(entry.source_id)
        is_cached = cache is not None and entry.video_id in cache.matches  # not, where it was made for another family
        exists = self._file_exists(entry.source_id)
        if not exists:  # also where its cache is there: it is empty if it failed
            self._absent = self._absent or entry.source_id
        if not is_cached and exists:
            fakes = {entry.video_id, *self._fakes_to_compare(entry.source_id, family)}
            cache = self._new_cache(entry, entry.source_id, fakes)
            self._source.load(cache)
        self._compared_with = cache
        return cache

    def _new_cache(self, entry: Entry, video_id: str, fakes: set[str]) -> SourceFrameCache:
        """An empty cache for a source, with the frame indices that its `fakes` need; `entry`: it or one of them."""
        self._fetch(video_id)
        signature = stat_signature(self._job.root / video_id, self._job.roots)
        try:
            own = self._frame_times(video_id)
            times_of = {fake: self._frame_times(fake) for fake in sorted(fakes)} if own else {}
        except InputError:
            own, times_of, signature = None, {}, None
        matches = {
            fake: match_frames(times, own) if own and (times := times_of.get(fake)) else {} for fake in sorted(fakes)
        }
        needed = {index for frames in matches.values() for index in frames.values()}
        extra = frozenset(needed.difference(own.wanted_indices.tolist())) if own else frozenset[int]()
        # A fake is only compared with a source that is cropped already where it is, too.
        temporary = self._job.paths.temporary
        return SourceFrameCache(video_id, temporary, matches, extra, signature=signature, whole_frame=entry.whole_frame)

    def _frame_times(self, video_id: str) -> FrameTimes | None:
        """None where the video cannot be read; the reason is recorded when its own rows are built.

        Raises `InputError` where that reason may pass.
        """
        if self._closed:
            return None
        try:
            return self._row_builder.read(self.reader.times, self.path_of(video_id), self._job.options.sampling)
        except InputError as error:
            if error.reason in PASSING_REASONS:
                raise
            return None

    def _decode_source(self, cache: SourceFrameCache) -> None:
        self._row_builder.fill_cache(cache, self._frames(cache.video_id, cache.extra_indices))

    def _frames(
        self, video_id: str, extra_indices: Iterable[int], summary: DecodeSummary | None = None
    ) -> FrameIterator:
        if self._closed:
            raise InputError("crashed", "the decoder was closed")
        path, sampling = self.path_of(video_id), self._job.options.sampling
        return self.reader.frames(path, sampling, sorted(extra_indices), summary)

    def path_of(self, video_id: str) -> Path:
        """Where an input lies, fetched from a store; raises `InputError` where it has become a link out of SRC."""
        if problem := self._fetch(video_id):
            raise InputError("unreadable", problem)
        path = self._job.root / video_id
        if not is_inside(path, self._job.roots):  # it was not one when it was planned
            raise InputError("outside_root", "has become a link out of the source")
        return path

    def _file_exists(self, name: str) -> bool:
        """Whether the source has the file, within the folders that inputs may lie in."""
        self._fetch(name)
        return self._job.file_exists(name)

    def _fetch(self, name: str) -> str | None:
        return None if self._staged is None else self._staged.fetch(name)


def _outcome_of_gone(entry: Entry) -> InputOutcome:
    """The outcome of an input that is gone and has no rows; it is computed once it is back."""
    return InputOutcome(
        video_id=entry.video_id, size_bytes=entry.size_bytes, mtime_ns=entry.mtime_ns, outcome="failed",
        reason="unreadable", detail="no longer in the source", reused=True, absent=entry.video_id,
    )  # fmt: skip


def _read_batches(spool: Spool) -> Iterator[pa.RecordBatch]:
    with spool:
        spool.seek(0)
        with pa.ipc.open_stream(spool) as stream:
            yield from stream


def _seconds_since(started: float) -> float:
    return round(time.monotonic() - started, 3)
