"""From one input to its rows, in one process: the decoder's child, the detector, and the original in hand."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from ..errors import InputError
from ..manipulation.frame_matching import counterparts
from ..manipulation.source_frames import Found, Original, OriginalInHand
from ..planning.options import JobSpec
from ..sources import Entry, is_inside
from ..sources.media_files import path_exists
from ..video import Frame, FrameTimes, MediaReader
from .row_builder import RowMaker

Frames = Iterator[Frame]


class InputRows:
    """Makes the rows of one input after the other; inputs that are neighbours may be an original and its fakes."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self._maker = RowMaker(job)
        self._originals = OriginalInHand(self._search)
        self.reader = MediaReader(job.limits)
        self.schema: pa.Schema = self._maker.schema
        self._closed = False

    def close(self) -> None:
        """Ends the decoder's child and the threads, for good, from any thread; what is under way ends with an error."""
        self._closed = True
        self.reader.close()
        self._maker.close()

    def warm_up(self, video_id: str) -> None:
        """Starts the decoder's child, if there is none, and has it open an input; raises `InputError`."""
        self._maker.reading.submit(self.reader.probe, self.path_of(video_id)).result()

    def batches(
        self,
        entry: Entry,
        split: str,
        neighbours: Sequence[Entry],
        limit: Callable[[Frames], Frames] = lambda frames: frames,
    ) -> Generator[pa.RecordBatch, None, None]:
        """The rows of `entry`, as they come; raises `InputError`, after which those that came must not be kept.

        `neighbours`: inputs that are done by the same process, so that an original's frames are kept for them.
        `limit` may end the frames early; it is run by the thread that reads them.
        """
        source = self._source_of(entry, neighbours)
        has_fakes = any(other.source_id == entry.video_id for other in neighbours if other != entry)
        keep_in = self._original(entry.video_id, neighbours) if has_fakes else None
        frames = limit(self._frames(entry.video_id, keep_in.extra if keep_in else ()))
        try:
            yield from self._maker.batches(entry, split, frames, source=source, keep_in=keep_in)
        except InputError:
            if keep_in is not None:
                keep_in.forget()  # nothing is compared with an original that fails
            raise
        finally:
            if keep_in is not None:
                self._originals.hold(keep_in)

    def let_go(self) -> None:
        """Gives back what was kept of an original."""
        self._originals.let_go()

    def is_there(self, video_id: str) -> bool:
        """Whether the source has the file, where inputs may lie."""
        path = self._job.root / video_id
        return path_exists(path) and is_inside(path, self._job.roots)

    def has_source(self, entry: Entry) -> bool:
        """Whether `entry` was made from a video that is known and there, whatever can be read of that."""
        return entry.source_id not in (None, entry.video_id) and self.is_there(entry.source_id)

    def _source_of(self, entry: Entry, neighbours: Sequence[Entry]) -> Original | None:
        """The frames of the video that a fake was made from, where it is known and there."""
        if entry.source_id in (None, entry.video_id):
            return None
        held = self._originals.held(entry.source_id)
        if held is None and self.is_there(entry.source_id):
            held = self._original(entry.source_id, [entry, *neighbours])
            self._originals.read(held)
        return held

    def _original(self, video_id: str, neighbours: Sequence[Entry]) -> Original:
        """An original that is to be decoded at its own sampled frames and at those of its fakes among `neighbours`."""
        fakes = {one.video_id for one in neighbours if one.source_id == video_id != one.video_id}
        own = self._times(video_id)
        there = {fake: self._times(fake) for fake in sorted(fakes)} if own else {}
        found = {fake: counterparts(times, own) for fake, times in there.items() if own and times}
        needed = {index for frames in found.values() for index in frames.values()}
        extra = frozenset(needed.difference(own.wanted_indices.tolist())) if own else frozenset[int]()
        return Original(video_id, self._job.paths.temporary, found, extra)

    def _times(self, video_id: str) -> FrameTimes | None:
        """None where it cannot be read: why, is said where its own rows are made."""
        if self._closed:
            return None
        try:
            path = self.path_of(video_id)
            return self._maker.reading.submit(self.reader.times, path, self._job.options.sampling).result()
        except InputError:
            return None

    def _search(self, original: Original) -> Generator[tuple[Frame, Found | None], None, None]:
        frames = self._frames(original.video_id, original.extra)
        if self._job.options.boxes == "source":
            yield from self._maker.search(frames)
        else:
            yield from ((frame, None) for frame in self._maker.read(frames))

    def _frames(self, video_id: str, also: Iterable[int] = ()) -> Frames:
        if self._closed:
            raise InputError("crashed", "the decoder was told to end")
        return self.reader.frames(self.path_of(video_id), self._job.options.sampling, sorted(also))

    def path_of(self, video_id: str) -> Path:
        """Where an input lies; raises `InputError` where it has become a link out of the source."""
        path = self._job.root / video_id
        if not is_inside(path, self._job.roots):  # it was not one when it was planned
            raise InputError("outside_root", "has become a link out of the source")
        return path
