"""`Clip`: the settings of clips."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from ...pipeline.errors import UsageError
from ..real_numbers import as_float
from ..whole_numbers import optional_int, require_int

Pick = Literal["even", "random", "all"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Clip:
    """Clips of T images of one person, in order of presentation: `FaceDataLoader(clip=Clip(frames=16))`.

    A clip lies within one track of one video, and in it within one run: it never steps over a lost frame or a cut.
    Times are `pts_seconds`; for folders of frames with numbers, `frame_number`.

    Args:
        frames: T, images of a clip.
        stride: takes every n-th of the selected images of the track.
        of: "track". (The faces of a whole video are several people, in no order.)
        pick: which clips of a video an epoch has. "even": the middles of equal segments of all that it has, the same in
            every epoch. "random": in every epoch another one of each segment, drawn by (seed, epoch, video). "all": all
            that follow one another without an image in common. None: "random" where the loader shuffles, else "even".
        clips_per_video: how many to pick of each video, at most, and of each label where frames of a video have
            several; None: 1, or all of them with "all".
        max_gap_seconds: the longest time between an image of the track and the next that is no gap. None: 1.5 times the
            typical interval of the video, that is the mean of those up to 1.5 times the median, and no lost frame. For
            folders of frames it needs `precompute --fps-of-images`.
        pad: a run that is too short gives one clip, filled up by repeating its last image; `valid` is False there.
            Otherwise it gives none, which is counted.

    Raises:
        UsageError: a value out of range.

    """

    frames: int
    stride: int = 1
    of: Literal["track"] = "track"
    pick: Pick | None = None
    clips_per_video: int | None = None
    max_gap_seconds: float | None = None
    pad: bool = False

    def __post_init__(self) -> None:
        frames = require_int("Clip: frames", self.frames, minimum=1, example=16)
        stride = require_int("Clip: stride", self.stride, minimum=1, example=1)
        clips = optional_int("Clip: clips_per_video", self.clips_per_video, minimum=1, example=4)
        if self.of != "track":
            raise UsageError(
                f"Clip: of={self.of!r}: must be 'track'; the faces of a whole video are those of several people"
            )
        if self.pick not in (None, "even", "random", "all"):
            raise UsageError(f"Clip: pick={self.pick!r}: must be 'even', 'random', 'all', or None")
        if self.pick == "all" and self.clips_per_video is not None:
            raise UsageError(
                f"Clip: clips_per_video={self.clips_per_video}: pick='all' takes all; leave one of them out"
            )
        gap = None if self.max_gap_seconds is None else as_float(self.max_gap_seconds)
        if gap is not None and not 0 < gap < math.inf:
            raise UsageError(
                f"Clip: max_gap_seconds={self.max_gap_seconds!r}: must be a finite number above 0; try 0.1"
            )
        if not isinstance(self.pad, (bool, np.bool_)):
            raise UsageError(f"Clip: pad={self.pad!r}: must be True or False")
        # Saved states hold the text of a clip, so equal settings need one form: 4 also where numpy's 4 was given.
        same_form = {"frames": frames, "stride": stride, "clips_per_video": None if clips == 1 else clips}
        for name, value in {**same_form, "max_gap_seconds": gap, "pad": bool(self.pad)}.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        defaults = {field.name: field.default for field in fields(self)}
        settings = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return f"Clip({', '.join(f'{name}={value!r}' for name, value in settings if value != defaults[name])})"

    @property
    def span(self) -> int:
        """How many images of a track a clip extends over, those that `stride` skips included."""
        return (self.frames - 1) * self.stride + 1
