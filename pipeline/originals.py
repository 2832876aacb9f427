"""The frames of a real video, kept while its fakes are made, so that it is decoded and searched for faces once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from .encode import ImageEncoder, decode_rgb
from .errors import InputError
from .faces import Faces
from .video import Frame

# Raw frames of a long video would fill the disk; this is a tenth of them, and off by a step or two of 255.
_ENCODER: Final = ImageEncoder(format="jpeg", quality=95, chroma="444")
_LONGEST_PX: Final = 65_500  # of a JPEG's side
_MEMORY_BYTES: Final = 64 << 20
_ROUNDING_PX: Final = 2.0
_SAME_MOMENT_SECONDS: Final = 0.02  # half a frame at 25 a second


@dataclass(frozen=True, slots=True)
class Found:
    """The N faces of a frame that become rows, and whose they are: `track_ids` (N,) int32."""

    faces: Faces
    track_ids: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Twin:
    """The source's same frame at the fake's size: `rgb` (H, W, 3) uint8, and what was found in it, `frame` px."""

    rgb: NDArray[np.uint8]
    found: Found | None


@dataclass(frozen=True, slots=True)
class _Kept:
    pts_seconds: float
    offset: int
    size_bytes: int
    found: Found | None


class Original:
    """Sampled frames of one video by their index; beyond 64 MiB they lie in a file in `folder` that has no name.

    For one thread at a time.
    """

    def __init__(self, video_id: str, folder: Path) -> None:
        self.video_id = video_id
        self._file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES, dir=str(folder))  # noqa: SIM115 (`forget` closes it)
        self._kept: dict[int, _Kept] = {}

    def forget(self) -> None:
        """Gives memory and disk back; no frame has a twin here any more."""
        self._kept.clear()
        self._file.close()

    def add(self, frame: Frame, found: Found | None) -> None:
        """Keeps one frame and, where they were looked for, its faces; none that is too long for a JPEG."""
        if max(frame.height, frame.width) > _LONGEST_PX:
            return
        data = _ENCODER(frame.rgb)
        offset = self._file.seek(0, 2)
        self._file.write(data)
        self._kept[frame.frame_index] = _Kept(frame.pts_seconds, offset, len(data), found)

    def kept(self, frame_index: int) -> _Kept | None:
        """Where a frame lies, if it was kept."""
        return self._kept.get(frame_index)

    def picture(self, kept: _Kept) -> NDArray[np.uint8]:
        """A frame's pixels, (H, W, 3) uint8."""
        self._file.seek(kept.offset)
        return decode_rgb(self._file.read(kept.size_bytes))


class Twins:
    """The frames of an original that belong to those of one fake: of the same index, and shown at the same moment."""

    def __init__(self, original: Original) -> None:
        self._original = original
        self._behind: float | None = None  # by how much the fake's clock is, which the first pair tells

    def of(self, frame: Frame) -> Twin | None:
        """What was kept for a frame; None where that is nothing, another moment or of other proportions.

        An original of another size but the same proportions is brought to the fake's.
        """
        kept = self._original.kept(frame.frame_index)
        if kept is None:
            return None
        behind = kept.pts_seconds - frame.pts_seconds
        self._behind = behind if self._behind is None else self._behind
        if abs(behind - self._behind) > _SAME_MOMENT_SECONDS:
            return None
        return _brought_to(self._original.picture(kept), kept.found, frame.rgb.shape[:2])


def _brought_to(rgb: NDArray[np.uint8], found: Found | None, size: tuple[int, ...]) -> Twin | None:
    (height, width), (there_height, there_width) = size, rgb.shape[:2]
    if (there_height, there_width) == (height, width):
        return Twin(rgb, found)
    if abs(there_width * height / there_height - width) > _ROUNDING_PX:
        return None
    scale = width / there_width
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    resized = cv2.resize(rgb, (width, height), interpolation=how).astype(np.uint8, copy=False)
    return Twin(resized, found and Found(found.faces.scaled(scale), found.track_ids))


class OriginalInHand:
    """The one original whose fakes are being made; the next one takes its place.

    `search` decodes an original that was not kept when its own rows were made: the frames of a video id, each with its
    faces where these are wanted; raises `InputError`. For the thread that makes the rows, while no input is under way.
    """

    def __init__(
        self, folder: Path, search: Callable[[str], Generator[tuple[Frame, Found | None], None, None]]
    ) -> None:
        self._folder, self._search = folder, search
        self._held: Original | None = None

    def hold(self, original: Original) -> None:
        """Takes one in hand whose rows were just made."""
        self.let_go()
        self._held = original

    def held(self, video_id: str) -> Original | None:
        """The one in hand, if it is `video_id`."""
        return self._held if self._held is not None and self._held.video_id == video_id else None

    def read(self, video_id: str) -> Original:
        """Decodes `video_id` now; what comes back has no frames if it cannot be read to its end."""
        original = Original(video_id, self._folder)
        self.hold(original)
        try:
            with closing(self._search(video_id)) as frames:
                for frame, found in frames:
                    original.add(frame, found)
        except InputError:
            original.forget()
        return original

    def let_go(self) -> None:
        """Gives memory and disk back."""
        if self._held is not None:
            self._held.forget()
        self._held = None
