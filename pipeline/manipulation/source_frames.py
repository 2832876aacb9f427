"""The frames of a real video that its fakes are compared with, kept while the fakes are processed.

So it is decoded and searched for faces once for all of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from ..dataset.image_codec import ImageEncoder, decode_rgb
from ..errors import InputError
from ..faces import Faces
from ..video import Frame

# Raw frames of a long video would fill the disk; this is a tenth of them, and off by a step or two of 255.
_ENCODER: Final = ImageEncoder(format="jpeg", quality=95, chroma="444")
_LONGEST_PX: Final = 65_500  # of a JPEG's side
_MEMORY_BYTES: Final = 64 << 20
_ROUNDING_PX: Final = 2.0


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
    offset: int
    size_bytes: int
    found: Found | None


class Original:
    """Frames of one video by their index; beyond 64 MiB they lie in a file in `folder` that has no name.

    `counterparts`: for each fake, by its video_id, the frame of this video that belongs to a frame of the fake; see
    `counterparts.counterparts`. `extra`: those of them that are not among the video's own sampled frames.
    For one thread at a time.
    """

    def __init__(
        self,
        video_id: str,
        folder: Path,
        counterparts: Mapping[str, Mapping[int, int]],
        extra: frozenset[int] = frozenset(),
    ) -> None:
        self.video_id, self.counterparts, self.extra = video_id, counterparts, extra
        self._needed = frozenset(index for frames in counterparts.values() for index in frames.values())
        self._file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES, dir=str(folder))  # noqa: SIM115 (`forget` closes it)
        self._kept: dict[int, _Kept] = {}

    @property
    def next_track_id(self) -> int:
        """Above the ids of all faces that were kept."""
        ids = [one.found.track_ids.max(initial=-1) for one in self._kept.values() if one.found is not None]
        return int(max(ids, default=-1)) + 1

    def forget(self) -> None:
        """Gives memory and disk back; no frame has a twin here any more."""
        self._kept.clear()
        self._file.close()

    def add(self, frame: Frame, found: Found | None) -> None:
        """Keeps a frame that a fake needs and, where they were looked for, its faces; none too long for a JPEG."""
        if frame.frame_index not in self._needed or max(frame.height, frame.width) > _LONGEST_PX:
            return
        data = _ENCODER(frame.rgb)
        offset = self._file.seek(0, 2)
        self._file.write(data)
        self._kept[frame.frame_index] = _Kept(offset, len(data), found)

    def kept(self, video_id: str, frame_index: int) -> _Kept | None:
        """Where the counterpart of a fake's frame lies, if there is one and it was kept."""
        own = self.counterparts.get(video_id, {}).get(frame_index)
        return None if own is None else self._kept.get(own)

    def first_with_faces(self) -> _Kept | None:
        """Where the first frame lies in which faces were found."""
        return next((one for one in self._kept.values() if one.found is not None and len(one.found.faces)), None)

    def picture(self, kept: _Kept) -> NDArray[np.uint8]:
        """A frame's pixels, (H, W, 3) uint8."""
        self._file.seek(kept.offset)
        return decode_rgb(self._file.read(kept.size_bytes))


class Twins:
    """The frames of an original that belong to those of the fake `video_id`, at the fake's size.

    An original of another size but the same proportions is brought to the fake's; of others, no frame is given.
    """

    def __init__(self, original: Original, video_id: str) -> None:
        self._original, self._video_id = original, video_id
        self.next_track_id = original.next_track_id

    def of(self, frame: Frame) -> Twin | None:
        """The counterpart of a frame, None where it has none that was kept."""
        return self._at_size_of(frame, self._original.kept(self._video_id, frame.frame_index))

    def first_with_faces(self, frame: Frame) -> Twin | None:
        """The original's first frame that shows a face, whichever that is, at the size of `frame`."""
        return self._at_size_of(frame, self._original.first_with_faces())

    def _at_size_of(self, frame: Frame, kept: _Kept | None) -> Twin | None:
        if kept is None:
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

    `search` decodes an original that was not kept when its own rows were made: its frames, each with its faces where
    these are wanted; raises `InputError`. For the thread that makes the rows, while no input is under way.
    """

    def __init__(self, search: Callable[[Original], Generator[tuple[Frame, Found | None], None, None]]) -> None:
        self._search = search
        self._held: Original | None = None

    def hold(self, original: Original) -> None:
        """Takes one in hand whose rows were just made."""
        self.let_go()
        self._held = original

    def held(self, video_id: str) -> Original | None:
        """The one in hand, if it is `video_id`."""
        return self._held if self._held is not None and self._held.video_id == video_id else None

    def read(self, original: Original) -> None:
        """Takes one in hand and decodes it now; it has no frames if it cannot be read to its end."""
        self.hold(original)
        try:
            with closing(self._search(original)) as frames:
                for frame, found in frames:
                    original.add(frame, found)
        except InputError:
            original.forget()

    def let_go(self) -> None:
        """Gives memory and disk back."""
        if self._held is not None:
            self._held.forget()
        self._held = None
