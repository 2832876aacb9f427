"""From one input to its rows, in one process: the decoder process, the detector and the cache of source frames."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from ..errors import InputError
from ..manipulation.frame_matching import match_frames
from ..manipulation.source_frames import CurrentSource, SourceFrameCache, TrackedFaces
from ..planning.options import JobSpec
from ..sources import Entry, is_inside
from ..sources.media_files import path_exists
from ..video import Frame, FrameTimes, MediaReader
from .row_builder import RowBuilder

FrameIterator = Iterator[Frame]


class InputPipeline:
    """Processes one input after the other; consecutive inputs may be a family: a source video and its fakes."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self._row_builder = RowBuilder(job)
        self._source = CurrentSource(self._decode_source)
        self.reader = MediaReader(job.limits)
        self.schema: pa.Schema = self._row_builder.schema
        self._closed = False

    def close(self) -> None:
        """Ends the decoder process and the threads, from any thread; an input in progress ends with an error."""
        self._closed = True
        self.reader.close()
        self._row_builder.close()

    def warm_up(self, video_id: str) -> None:
        """Starts the decoder process, unless it runs, and opens an input in it; raises `InputError`."""
        self._row_builder.read_executor.submit(self.reader.probe, self.path_of(video_id)).result()

    def batches(
        self,
        entry: Entry,
        split: str,
        family: Sequence[Entry],
        limit_frames: Callable[[FrameIterator], FrameIterator] = lambda frames: frames,
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yields the rows of `entry` as they are built.

        Args:
            entry: the input.
            split: the split that its rows go into.
            family: inputs that this process handles one after the other; a source's frames are cached for its fakes.
            limit_frames: may end the frames early; runs on the thread that reads them.

        Raises:
            InputError: the input failed; batches that were yielded before must be dropped.

        """
        source_cache = self._source_cache(entry, family)
        has_fakes = any(other.source_id == entry.video_id for other in family if other != entry)
        own_cache = self._new_cache(entry.video_id, family) if has_fakes else None
        frames = limit_frames(self._frames(entry.video_id, own_cache.extra_indices if own_cache else ()))
        try:
            yield from self._row_builder.batches(entry, split, frames, source_cache=source_cache, own_cache=own_cache)
        except InputError:
            if own_cache is not None:
                own_cache.discard()  # nothing is compared with a source that failed
            raise
        finally:
            if own_cache is not None:
                self._source.replace(own_cache)

    def release(self) -> None:
        """Frees the cached source frames."""
        self._source.release()

    def file_exists(self, video_id: str) -> bool:
        """Whether the file exists, within the folders that inputs may lie in."""
        path = self._job.root / video_id
        return path_exists(path) and is_inside(path, self._job.roots)

    def has_source(self, entry: Entry) -> bool:
        """Whether `entry` is a fake whose source video is known and exists, readable or not."""
        return entry.source_id not in (None, entry.video_id) and self.file_exists(entry.source_id)

    def _source_cache(self, entry: Entry, family: Sequence[Entry]) -> SourceFrameCache | None:
        """The cached frames of the video that a fake was made from, where that is known and exists."""
        if entry.source_id in (None, entry.video_id):
            return None
        cache = self._source.get(entry.source_id)
        if cache is None and self.file_exists(entry.source_id):
            cache = self._new_cache(entry.source_id, [entry, *family])
            self._source.load(cache)
        return cache

    def _new_cache(self, video_id: str, family: Sequence[Entry]) -> SourceFrameCache:
        """An empty cache for a source, with the frame indices that its fakes in `family` need."""
        fakes = {other.video_id for other in family if other.source_id == video_id != other.video_id}
        own = self._frame_times(video_id)
        times_of = {fake: self._frame_times(fake) for fake in sorted(fakes)} if own else {}
        matches = {fake: match_frames(times, own) for fake, times in times_of.items() if own and times}
        needed = {index for frames in matches.values() for index in frames.values()}
        extra = frozenset(needed.difference(own.wanted_indices.tolist())) if own else frozenset[int]()
        return SourceFrameCache(video_id, self._job.paths.temporary, matches, extra)

    def _frame_times(self, video_id: str) -> FrameTimes | None:
        """None where the video cannot be read; the reason is recorded when its own rows are built."""
        if self._closed:
            return None
        try:
            path = self.path_of(video_id)
            executor = self._row_builder.read_executor
            return executor.submit(self.reader.times, path, self._job.options.sampling).result()
        except InputError:
            return None

    def _decode_source(self, cache: SourceFrameCache) -> Generator[tuple[Frame, TrackedFaces | None], None, None]:
        frames = self._frames(cache.video_id, cache.extra_indices)
        if self._job.options.boxes == "source":
            yield from self._row_builder.track_faces(frames)
        else:
            yield from ((frame, None) for frame in self._row_builder.prefetched(frames))

    def _frames(self, video_id: str, extra_indices: Iterable[int] = ()) -> FrameIterator:
        if self._closed:
            raise InputError("crashed", "the decoder was told to end")
        return self.reader.frames(self.path_of(video_id), self._job.options.sampling, sorted(extra_indices))

    def path_of(self, video_id: str) -> Path:
        """Where an input lies; raises `InputError` where it has become a link out of the source."""
        path = self._job.root / video_id
        if not is_inside(path, self._job.roots):  # it was not one when it was planned
            raise InputError("outside_root", "has become a link out of the source")
        return path
