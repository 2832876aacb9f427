"""Reads the own mask of an input, before the input's own frames: one decoder process serves both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from ..errors import InputError, Reason
from ..manipulation.frame_matching import match_frames
from ..manipulation.own_masks import OwnMaskFrames
from ..manipulation.source_frames import has_same_aspect
from ..planning.options import JobSpec, Options
from ..sources import Entry
from ..video import FrameTimes, MediaInfo, MediaReader, Sampling
from .row_builder import RowBuilder

T = TypeVar("T")

OwnMaskProblem = Reason | Literal["other_length", "other_shape"]
"""Why an own mask is not used: `other_length`: it lacks sampled frames; `other_shape`: it has another aspect ratio."""


@dataclass(frozen=True, slots=True)
class OwnMask:
    """`frames`: the masks of all sampled frames of an input; None where it has none or, for `problem`, an unusable one.

    `detail`: the problem, for people.
    """

    frames: OwnMaskFrames | None = None
    problem: OwnMaskProblem | None = None
    detail: str = ""

    def close(self) -> None:
        """Frees memory and disk of the frames."""
        if self.frames is not None:
            self.frames.discard()

    @property
    def problem_text(self) -> str | None:
        """Problem and detail as one text; None without a problem."""
        return f"{self.problem}: {self.detail}" if self.problem and self.detail else self.problem


def expects_source(entry: Entry, options: Options) -> bool:
    """Whether a fake needs frames of its source, for its mask or its boxes, unless an own mask proves unusable."""
    return entry.mask_id is None or options.boxes == "source"


class OwnMaskLoader:
    """Decodes the masks of one input after the other; `path_of` resolves a path below the root or raises `InputError`.

    A mask is used for all sampled frames of an input or for none, so that no clip changes its kind of mask half-way: a
    published mask video can be a second long where its fake is a minute long, and nothing says which second it shows.
    """

    def __init__(
        self, job: JobSpec, reader: MediaReader, row_builder: RowBuilder, path_of: Callable[[str], Path]
    ) -> None:
        self._sampling, self._folder = job.options.sampling, job.paths.temporary
        self._reader, self._row_builder, self._path_of = reader, row_builder, path_of

    def load(self, entry: Entry, on_error: Callable[[InputError], None]) -> OwnMask:
        """Decodes the mask of `entry` at the frames that are sampled; no frames where the input itself is unreadable.

        `on_error`: called where the mask cannot be read; may raise in place of that.
        """
        if entry.mask_id is None:
            return OwnMask()
        try:
            path = self._path_of(entry.video_id)
            info, times = self._call(self._reader.probe, path), self._call(self._reader.times, path, self._sampling)
        except InputError:  # the reason is recorded when its own rows are built
            return OwnMask()
        try:
            return self._read(self._path_of(entry.mask_id), info, times)
        except InputError as error:
            on_error(error)
            return OwnMask(problem=error.reason, detail=error.detail)

    def _read(self, mask_path: Path, info: MediaInfo, times: FrameTimes) -> OwnMask:
        mask_info = self._call(self._reader.probe, mask_path)
        if not has_same_aspect((mask_info.height, mask_info.width), (info.height, info.width)):
            sizes = f"{mask_info.width} x {mask_info.height} px for {info.width} x {info.height} px"
            return OwnMask(problem="other_shape", detail=sizes)
        mask_times = self._call(self._reader.times, mask_path, self._sampling)
        matches = match_frames(times, mask_times)
        if len(matches) < len(times.wanted_indices):
            lengths = f"{len(mask_times.pts_seconds)} frames for {len(times.pts_seconds)}"
            return OwnMask(problem="other_length", detail=lengths)
        frames = OwnMaskFrames(self._folder, matches)
        try:
            self._decode(mask_path, len(mask_times.pts_seconds), frames)
        except BaseException:
            frames.discard()
            raise
        if not frames.is_complete:
            frames.discard()
            return OwnMask(problem="decode_error", detail="some of its frames are damaged")
        return OwnMask(frames)

    def _call(self, read: Callable[..., T], *arguments: object) -> T:
        """Calls the reader on the thread that owns its decoder process."""
        return self._row_builder.read_executor.submit(read, *arguments).result()

    def _decode(self, mask_path: Path, num_frames: int, frames: OwnMaskFrames) -> None:
        first_alone = Sampling(every=max(num_frames, 1))  # its own samples may be at other moments than the input's
        decoded = self._reader.frames(mask_path, first_alone, frames.needed_indices)
        with closing(self._row_builder.prefetched(decoded)) as mask_frames:
            for frame in mask_frames:
                frames.add(frame)
