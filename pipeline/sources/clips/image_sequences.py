"""Image sequences: groups images that are frames of one clip, by their folder or by a numbered file name.

No image is opened. The rule is in docs/guides/layouts.md, under "Images and extracted frames".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, Self

from ...dataset.schema import REAL_NAMES
from ..folder_names import (
    COMPRESSIONS,
    CONTENT_NAMES,
    FAKE_NAMES,
    class_of_folder,
    clip_of_folder,
    split_of_folder,
    without_content_folders,
)
from ..listing import Entry, Listing
from ..media.suffixes import is_image, split_video_suffix

_PHOTO_NAMES = frozenset(["dsc", "dscf", "dscn", "image", "img", "person", "photo", "pic", "picture", "portrait"])
_NAME_OF_FRAME = re.compile(r"(.*[^\W\d_].*|\d{3}_\d{3})[_-]\d+")  # of a clip with a letter, or of FaceForensics++
_RUNNING_NUMBERS = re.compile(r"(.*?)(?:(?:[\s._-]+\(?\d+\)?)+|\d+)")  # of the clip, the frame, the face in it


def group_frames(entries: Sequence[Entry], classes: frozenset[str]) -> list[Entry]:
    """Sets `footage` of each image that is a frame of a clip, and of each clip, unless its layout has set it.

    classes: see `collecting_folders`.
    """

    def footage(entry: Entry) -> str | None:
        if entry.num_images:
            return clip_folder(entry.video_id, classes)
        folder, _, name = entry.video_id.rpartition("/")
        if clip := clip_folder(folder, classes):
            return clip
        numbered = _numbered(name)
        clip = numbered[1] if numbered else ""
        return f"{folder}/{clip}" if clip and clip.lower() not in classes | _PHOTO_NAMES else None

    return [
        replace(entry, footage=footage(entry))
        if entry.footage is None and (entry.num_images or is_image(entry.video_id))
        else entry
        for entry in entries
    ]


def separable_frames_warning(entries: Sequence[Entry], labels: Sequence[str]) -> Iterator[str]:
    """Reports numbered images without footage in folders such as `clip07/real`, where there are several as `clip07`.

    These may be clips, whose frames splits may separate, or collections of photos, whose images they should.
    """
    images = (entry.video_id for entry in entries if not (entry.footage or entry.split) and is_image(entry.video_id))
    parts = (image.rpartition("/") for image in images)
    folders = Counter(folder for folder, _, name in parts if _numbered(name))
    classes = class_names(entries, labels)
    folders_in: dict[str, list[str]] = defaultdict(list)
    for folder in sorted(folders):
        if clip := clip_folder("/".join(without_content_folders(folder)[:-1]), classes):
            folders_in[clip].append(folder)
    beside = Counter(clip.rpartition("/")[0] for clip in folders_in)
    clips = [clip for clip in folders_in if beside[clip.rpartition("/")[0]] > 1]
    if clips:
        count = sum(folders[folder] for clip in clips for folder in folders_in[clip])
        above, _, name = clips[0].rpartition("/")
        folder = folders_in[clips[0]][0]
        moved = "/".join(filter(None, [above, without_content_folders(folder)[-1], name]))
        yield (
            f"{count:,} numbered images in folders such as {folder!r} are inputs of their own, which splits may "
            f"separate: a folder called after a class or a split collects images; where {clips[0]!r} is a clip, move "
            f"its frames into folders such as {moved!r}, or name it in the column footage of a table"
        )


def clips_in_names(names: Iterable[str]) -> list[str]:
    """The stems of names of images, STEM_NUMBER, sorted, where they are of several clips; else none.

    Stems that differ in numbers alone are none: `frame_12_0` is a face in a frame. FaceForensics++'s `000_001` is one.

    >>> clips_in_names(["anna_01.png", "anna_02.png", "ben_01.png"])
    ['anna', 'ben']
    >>> clips_in_names(["000_001_07.png", "002_003_07.png"]), clips_in_names(["frame_12_0.png", "frame_13_0.png"])
    (['000_001', '002_003'], [])
    """
    matches = [_NAME_OF_FRAME.fullmatch(name.rpartition(".")[0]) for name in names]
    stems = {match[1] for match in matches if match}
    without_numbers = {re.sub(r"[\s._-]*\d+", "", stem) or stem for stem in stems}
    return sorted(stems) if all(matches) and len(without_numbers) > 1 else []


def collecting_folders(listing: Listing) -> frozenset[str]:
    """Names, in lower case, of folders that collect images: of a class, or as the listing says of clips of its set."""
    return class_names(listing.entries, listing.labels) | listing.collecting_folders


def class_names(entries: Iterable[Entry], labels: Sequence[str]) -> frozenset[str]:
    """Names of folders that collect the images of a class, in lower case.

    Labels that are numbers are none of them where `entries` show that folders called by numbers are clips.
    """
    names = frozenset(label.lower() for label in labels)
    numbers = frozenset(filter(str.isdecimal, names))
    return REAL_NAMES | FAKE_NAMES | (names - numbers if numbers and _are_clips(numbers, entries, labels) else names)


def _are_clips(numbers: Container[str], entries: Iterable[Entry], labels: Sequence[str]) -> bool:
    """Whether, among the folders of images that are called by `numbers` and beside these by others, one is no class.

    A folder of a class has images with its label; a few of them may have been corrected.
    """
    labels_in: dict[tuple[tuple[str, ...], str], set[str]] = defaultdict(set)
    for entry in entries:
        if entry.label >= 0 and (entry.num_images or is_image(entry.video_id)):
            folder = entry.video_id if entry.num_images else entry.video_id.rpartition("/")[0]
            *above, name = without_content_folders(folder) or ("",)
            if name.isdecimal():
                labels_in[tuple(above), name].add(labels[entry.label])
    beside = {above for above, name in labels_in if name in numbers}
    return any(above in beside and name not in given for (above, name), given in labels_in.items())


def _numbered(name: str) -> re.Match[str] | None:
    """Match of an image's name that ends in a number; group 1 is what precedes the numbers."""
    return _RUNNING_NUMBERS.fullmatch(name.rpartition(".")[0])


@lru_cache(maxsize=1024)
def clip_folder(folder: str, classes: frozenset[str]) -> str | None:
    """Path that identifies the clip; None where the folder collects images of a class, a split or all."""
    clip = clip_of_folder(folder)
    return None if clip is None or clip.rpartition("/")[2].lower() in classes else clip


class FramePath(NamedTuple):
    """Path of an extracted frame: the folders above that of its clip, the clip's name, and the path below it."""

    above: tuple[str, ...]
    clip: str
    below: str

    @property
    def stem(self) -> str:
        """The clip's name without the suffix of a video, which its folder may be called with."""
        return split_video_suffix(self.clip)[0]

    @property
    def suffix(self) -> str:
        """That suffix, with its dot; empty where the folder has none."""
        return split_video_suffix(self.clip)[1]

    @property
    def video(self) -> str:
        """Path of the video that the frame belongs to."""
        return path_of_video(self.above, self.stem)

    @classmethod
    def parse(cls, relative: str, *, in_root: bool = False) -> Self | None:
        """None for a video, and for an image in a folder that is not called after a clip.

        in_root: whether folders in the root may be clips, and not only those in folders of the set.

        >>> FramePath.parse("real/faces/033/0001.png")
        FramePath(above=('real', 'faces'), clip='033', below='0001.png')
        >>> FramePath.parse("real/033/faces/0001.png")
        FramePath(above=('real',), clip='033', below='faces/0001.png')
        """
        if not is_image(relative):
            return None
        parts = relative.split("/")
        position = len(parts) - 2
        while position > 0 and parts[position].lower() in CONTENT_NAMES:
            position -= 1
        if (
            position < (0 if in_root else 1)
            or parts[position].lower() == "videos"
            or (position < len(parts) - 2 and _collects_clips(parts[position]))
        ):
            return None
        return cls(tuple(parts[:position]), parts[position], "/".join(parts[position + 1 :]))


def _collects_clips(name: str) -> bool:
    """Whether a folder of frames in a folder of this name holds frames of several clips."""
    return class_of_folder(name) is not None or split_of_folder(name) is not None or name.lower() in COMPRESSIONS


def path_of_video(folders: Sequence[str], stem: str) -> str:
    """Path of the video of this stem whose frames are in these folders, or in one of its own there."""
    above = [*folders]
    if above and above[-1].lower() in CONTENT_NAMES:
        above[-1] = "videos"
    return "/".join([*above, f"{stem}.mp4"])


def video_of_frame(relative: str) -> str:
    """Path of the video that an extracted frame belongs to; a video's path is returned unchanged.

    >>> video_of_frame("real/videos/033.mp4"), video_of_frame("real/frames/033/0001.png")
    ('real/videos/033.mp4', 'real/videos/033.mp4')
    >>> video_of_frame("real/033/0001.png"), video_of_frame("real/033.mp4/0001.png")
    ('real/033.mp4', 'real/033.mp4')
    """
    frame = FramePath.parse(relative)
    return frame.video if frame else relative
