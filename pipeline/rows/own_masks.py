"""Reads the own mask of an input, before the input's own frames: one decoder process serves both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ..console import plural
from ..errors import PASSING_REASONS, InputError, Reason
from ..manipulation.frame_matching import match_frames
from ..manipulation.own_masks import THRESHOLD, OwnMaskFrames
from ..manipulation.source_frames import has_same_aspect
from ..planning.options import JobSpec, Options
from ..sources import Entry
from ..video import DecodeSummary, FrameTimes, MediaInfo, MediaReader, Sampling
from .row_builder import RowBuilder

OwnMaskProblem = Reason | Literal["missing_frames", "other_length", "other_shape", "too_dark"]
"""Why an own mask is not used, or not for all sampled frames.

`missing_frames`: of images that are matched by number, some or all are missing; `other_length`: a mask that is matched
in another way lacks sampled frames; `other_shape`: it has another aspect ratio; `too_dark`: its images are black, or
have numbers for colours.
"""


@dataclass(frozen=True, slots=True)
class OwnMask:
    """`frames`: the masks of the sampled frames of an input; None where it has none or an unusable one.

    `problem`: why it is unusable or, beside `frames`, why some frames have no mask; `detail`: the same for people.
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
        """Problem and detail as one text; None without a problem. After the rows: some are noticed there alone."""
        problem, detail = self.problem, self.detail
        if problem is None and self.frames is not None and self.frames.num_other_shape:
            problem, detail = "other_shape", f"{plural(self.frames.num_other_shape, 'frame')} with faces"
        return f"{problem}: {detail}" if problem and detail else problem


def expects_source(entry: Entry, options: Options) -> bool:
    """Whether a fake needs frames of its source, for its mask or its boxes, unless an own mask proves unusable."""
    return entry.mask_id is None or options.boxes == "source"


class OwnMaskLoader:
    """Decodes the masks of one input after the other; `path_of` resolves a path below the root or raises `InputError`.

    A mask video is used for all sampled frames of an input or for none: a published one can be a second long where its
    fake is a minute long, and nothing says which second it shows. Of a folder of masks the numbers in the names say
    which frame each belongs to, so single ones may be missing or damaged: these frames have no mask then, and are not
    compared either, so that no clip changes its kind of mask half-way.
    """

    def __init__(
        self, job: JobSpec, reader: MediaReader, row_builder: RowBuilder, path_of: Callable[[str], Path]
    ) -> None:
        self._sampling, self._folder = job.options.sampling, job.paths.temporary
        self._reader, self._path_of = reader, path_of
        self._read, self._prefetched = row_builder.read, row_builder.prefetched

    def load(self, entry: Entry, on_error: Callable[[InputError], None]) -> OwnMask:
        """Decodes the mask of `entry` at the frames that are sampled; no frames where the input itself is unreadable.

        `on_error`: called where the mask cannot be read; may raise in place of that. Raises `InputError` where the
        input cannot be read for a reason that may pass.
        """
        if entry.mask_id is None:
            return OwnMask()
        try:
            path = self._path_of(entry.video_id)
            info, times = self._read(self._reader.probe, path), self._read(self._reader.times, path, self._sampling)
        except InputError as error:
            if error.reason in PASSING_REASONS:  # its own rows may be built without this error, and then lack the mask
                raise
            return OwnMask()  # the reason is recorded when its own rows are built
        try:
            return self._load(self._path_of(entry.mask_id), info, times)
        except InputError as error:
            on_error(error)
            return OwnMask(problem=error.reason, detail=error.detail)

    def _load(self, mask_path: Path, info: MediaInfo, times: FrameTimes) -> OwnMask:
        mask_info = self._read(self._reader.probe, mask_path)
        if not has_same_aspect((mask_info.height, mask_info.width), (info.height, info.width)):
            sizes = f"{mask_info.width} x {mask_info.height} px for {info.width} x {info.height} px"
            return OwnMask(problem="other_shape", detail=sizes)
        mask_times = self._read(self._reader.times, mask_path, self._sampling)
        matches = match_frames(times, mask_times)
        has_numbers = times.numbers is not None and mask_times.numbers is not None
        missing = [index for index in times.wanted_indices.tolist() if index not in matches]
        if missing and not has_numbers:
            lengths = f"{plural(len(mask_times.pts_seconds), 'frame')} for {len(times.pts_seconds)}"
            return OwnMask(problem="other_length", detail=lengths)
        own_mask = OwnMask(problem="missing_frames", detail=_missing_text(missing, times)) if missing else OwnMask()
        if not matches:
            return own_mask
        frames, damage = self._decode(mask_path, len(mask_times.pts_seconds), matches)
        is_still = mask_info.is_image or mask_path.is_dir()
        if unusable := _problem_of_all(frames, damage, has_numbers=has_numbers, is_still=is_still):
            frames.discard()
            return unusable
        if frames.num_absent:
            return OwnMask(frames, "decode_error", damage)
        return replace(own_mask, frames=frames)

    def _decode(self, mask_path: Path, num_frames: int, matches: Mapping[int, int]) -> tuple[OwnMaskFrames, str]:
        """Decodes the matching frames; returns them, and why some are absent.

        Of a folder it decodes those of its own sampling too, which limits how many are damaged.
        """
        first_alone = Sampling(every=max(num_frames, 1))  # its own samples may be at other moments than the input's
        sampling = self._sampling if mask_path.is_dir() else first_alone
        frames, summary = OwnMaskFrames(self._folder, matches), DecodeSummary()
        try:
            decoded = self._reader.frames(mask_path, sampling, frames.needed_indices, summary)
            with closing(self._prefetched(decoded)) as mask_frames:
                for frame in mask_frames:
                    frames.add(frame)
        except BaseException:
            frames.discard()
            raise
        return frames, summary.damage or f"damaged or missing are {plural(frames.num_absent, 'frame')}"


def _problem_of_all(frames: OwnMaskFrames, damage: str, *, has_numbers: bool, is_still: bool) -> OwnMask | None:
    """Why none of the decoded masks can be used; None where some can.

    `damage`: why some are absent; `has_numbers`: whether each belongs to a frame by its number; `is_still`: whether
    they are images.
    """
    num_absent = frames.num_absent
    if num_absent == len(frames.needed_indices) or (num_absent and not has_numbers):
        return OwnMask(problem="decode_error", detail=damage)
    if is_still and frames.brightest < THRESHOLD:
        detail = f"its brightest value is {frames.brightest} of 255; must be at least {THRESHOLD} where manipulated"
        return OwnMask(problem="too_dark", detail=detail)
    return None


def _missing_text(missing: Sequence[int], times: FrameTimes) -> str:
    """How many of the sampled frames have no mask, and the number of the first one."""
    first = "" if times.numbers is None else f"; the first has the number {times.numbers[missing[0]]}"
    return f"{len(missing)} of {plural(len(times.wanted_indices), 'sampled frame')}{first}"
