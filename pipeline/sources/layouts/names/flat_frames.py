"""Extracted frames of several videos in one folder of a set, called after these: `Celeb-real/id0_0000_001.png`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from ...clips.image_sequences import path_of_video, video_of_frame
from ...folder_names import without_content_folders
from ...media.suffixes import is_image

_MAX_NUMBERS = 2  # of the frame, and of the face in it
_NUMBER = re.compile(r"[_-]\d+$")


class FlatFrame(NamedTuple):
    """The folders above an image, the stem of the video that it is a frame of, and the rest of its name."""

    folders: tuple[str, ...]
    stem: str
    end: str

    @classmethod
    def parse(cls, relative: str, has_video: Callable[[Sequence[str], str], bool]) -> Self | None:
        """None for any file but an image in one of the set's own folders whose name begins with that of a video.

        Of several such beginnings the shortest counts: names of scenes, which end as they like, would have the number.

        has_video: whether the set has a video of this stem in these folders; called for every image.

        >>> FlatFrame.parse("real/033_0001.png", lambda folders, stem: len(folders) == 1 and len(stem) == 3)
        FlatFrame(folders=('real',), stem='033', end='_0001.png')
        """
        if not is_image(relative):
            return None
        *folders, name = relative.split("/")
        stems = [posixpath.splitext(name)[0]]
        while len(stems) <= _MAX_NUMBERS and (number := _NUMBER.search(stems[-1])):
            stems.append(stems[-1][: number.start()])
        stem = next((stem for stem in reversed(stems) if has_video(folders, stem)), None)
        return None if stem is None else cls(tuple(folders), stem, name[len(stem) :])

    @property
    def video(self) -> str:
        """Path of the video that the frame belongs to."""
        return path_of_video(self.folders, self.stem)

    @property
    def collecting_folder(self) -> str:
        """Name of the folder, in lower case, without folders called `frames` and the like; empty where none is left."""
        return "".join(without_content_folders("/".join(self.folders))[-1:]).lower()


def video_of_flat(flat: FlatFrame | None, relative: str) -> str:
    """Path of the video that a frame belongs to, whether it lies flat or in a folder; a video's path is unchanged."""
    return flat.video if flat else video_of_frame(relative)
