"""Clips that SRC holds as a video, as a folder of extracted frames, or as both: each is listed once.

The rule, for all layouts: the video is used; frames are, where there is no video of their clip. A video and a folder
of frames are of one clip where their paths are the same without suffix, case and folders such as `videos`, `frames`,
and where the video is the only one in the folder of the clip: `anna/talk.mp4`, `anna/frames/0001.png`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple, Self

from ...console import plural
from ..folder_names import CONTENT_NAMES, VIDEO_FOLDERS
from ..listing import Entry, FoundFile, Listing
from ..media.allowed_roots import is_inside, resolved_root
from ..media.media_files import (
    DERIVED_FOLDERS,
    FRAME_FOLDERS,
    VIDEO_SUFFIXES,
    find_media,
    is_image,
    is_media,
    listable_folders,
    printable_name,
)
from .image_sequences import class_names, clip_folder

_FRAMES_OF_CLIP = re.compile(rf"(.+?)[\W_]+(?:{'|'.join(sorted(CONTENT_NAMES))})")


@lru_cache(maxsize=1024)
def clip_key(path: str) -> str:
    """The same for a video and for a folder of its frames.

    >>> clip_key("real/videos/033.MP4"), clip_key("real/frames/033"), clip_key("real/033_frames")
    ('real/033', 'real/033', 'real/033')
    """
    stem, dot, end = path.lower().rpartition(".")
    is_video = f"{dot}{end}" in VIDEO_SUFFIXES
    *folders, name = (stem if is_video else path.lower()).split("/")
    if not is_video and (match := _FRAMES_OF_CLIP.fullmatch(name)):
        name = match[1]
    return "/".join(part for part in (*folders, name) if part not in VIDEO_FOLDERS)


class IdsOfClips(NamedTuple):
    """The ids of inputs by `clip_key`.

    `by_folder`: of each video that is the only one in the folder of a clip, by the key of that folder.
    """

    by_path: dict[str, str]
    by_folder: dict[str, str]

    @classmethod
    def of(cls, entries: Sequence[Entry], classes: frozenset[str]) -> Self:
        """Those of `entries`; `classes`: see `class_names`."""
        videos_in: dict[str, list[str]] = defaultdict(list)
        for entry in entries:
            if not (entry.num_images or is_image(entry.video_id)):
                videos_in[clip_key(entry.video_id.rpartition("/")[0])].append(entry.video_id)
        return cls(
            {clip_key(entry.video_id): entry.video_id for entry in entries},
            {key: ids[0] for key, ids in videos_in.items() if len(ids) == 1 and clip_folder(key, classes)},
        )

    def find(self, path: str) -> str | None:
        """The id of the clip that `path`, a video or a folder of frames, is of."""
        key = clip_key(path)
        return self.by_path.get(key) or (None if is_media(path) else self.by_folder.get(key))


def find_videos_or_frames(
    root: Path,
    ignored: Counter[str],
    *,
    is_input: Callable[[FoundFile], bool],
    skip: Callable[[str], str | None] | None = None,
    below: str = "",
    allowed: Sequence[Path] = (),
) -> list[FoundFile]:
    """The media of a set of videos, without derived files; frames of clips that it has no video of.

    Folders of frames of other clips are skipped without listing what is in them: there can be millions.

    is_input: whether a file belongs to the set. The other arguments: see `find_media`.
    """
    frame_folders: list[str] = []

    def skip_derived(folder: str, derived: Set[str] = DERIVED_FOLDERS) -> str | None:
        name = folder.rpartition("/")[2].lower()
        if (other := skip(folder) if skip else None) or name not in derived:
            return other
        if name in FRAME_FOLDERS:
            frame_folders.append(folder)
        return f"in {name}/"

    skip_others = partial(skip_derived, derived=DERIVED_FOLDERS - FRAME_FOLDERS)
    files = list(find_media(root, ignored, below=below, skip=skip_derived, allowed=allowed))
    if not any(map(is_input, files)):
        ignored.clear()
        return list(find_media(root, ignored, below=below, skip=skip_others, allowed=allowed))
    frames: list[FoundFile] = []
    keys = {clip_key(_path_of_clip(file.relative)) for file in files if is_input(file)} if frame_folders else set()
    for folder in frame_folders:
        for clip in listable_folders(root / folder):  # one without permission stays counted
            if clip_key(f"{folder}/{clip}") not in keys:
                found = _find_frames(root, f"{folder}/{clip}", skip=skip_others, allowed=allowed)
                ignored[f"in {folder.rpartition('/')[2].lower()}/"] -= len(found)
                frames += found
    return sorted((*files, *frames), key=lambda file: file.relative) if frames else files


def _find_frames(
    root: Path, clip: str, *, skip: Callable[[str], str | None], allowed: Sequence[Path]
) -> list[FoundFile]:
    if not is_inside(root / clip, (resolved_root(root), *allowed)):
        return [FoundFile(printable_name(clip), problem="outside_root", detail="a link out of the source")]
    return list(find_media(root, Counter(), below=clip, skip=skip, allowed=allowed))


def each_clip_once(listing: Listing) -> Listing:
    """The listing without frames of clips that it has as videos; warns of what is used and what is left out.

    Fakes whose original is in the other form than theirs get the `source_id` that it has, and its footage.
    """
    classes = class_names(listing.entries, listing.labels)
    frames = {entry.video_id: clip for entry in listing.entries if (clip := _clip_of_frames(entry, classes))}
    videos = [entry for entry in listing.entries if not (entry.problem or entry.num_images or is_image(entry.video_id))]
    skipped = sum(listing.ignored[f"in {name}/"] for name in FRAME_FOLDERS)
    if not frames and not (videos and skipped):
        return listing
    video_ids = IdsOfClips.of(videos, classes)

    def has_video(entry: Entry) -> bool:
        """Whether it is frames of a video, which are not of another recording by what metadata name."""
        clip = frames.get(entry.video_id)
        if clip is None or clip_key(clip) in video_ids.by_path:
            return clip is not None
        return entry.footage == clip and clip_key(clip) in video_ids.by_folder

    kept = [entry for entry in listing.entries if not has_video(entry)]
    left_out = sum(entry.num_images or 1 for entry in listing.entries) - sum(entry.num_images or 1 for entry in kept)
    clips = {
        clip_key(frames[entry.video_id]): entry for entry in reversed(kept) if entry.video_id in frames
    }  # by their first frame

    def is_used(name: str) -> bool:
        """Whether what metadata names is there in the other form, or in another folder for videos or frames."""
        clip = _path_of_clip(name)
        return video_ids.find(clip) is not None or (clip_key(clip) in clips and not is_image(name))

    return replace(
        listing,
        entries=_with_originals(kept, video_ids, clips) if frames else kept,
        missing=[name for name in listing.missing if not (clips and is_used(name))],
        warnings=(*listing.warnings, *_warnings(len(videos), len(clips), left_out + skipped)),
    )


def _warnings(videos: int, clips: int, left_out: int) -> Iterable[str]:
    if left_out:
        frames = "extracted frame is" if left_out == 1 else "extracted frames are"
        yield f"{left_out:,} {frames} left out, beside the videos of their clips: each clip is used once, as the video"
    if clips and videos:
        yield (
            f"{plural(clips, 'clip')} {'is' if clips == 1 else 'are'} used as extracted frames, and "
            f"{plural(videos, 'other')} as {'a video' if videos == 1 else 'videos'}: a model may learn to tell the two "
            "kinds apart; better have all clips as one of them"
        )


def _path_of_clip(path: str) -> str:
    """The folder of a frame; a video is returned unchanged."""
    return path.rpartition("/")[0] if is_image(path) else path


def _clip_of_frames(entry: Entry, classes: frozenset[str]) -> str | None:
    """Path that identifies the clip whose frames an input is or holds; None of any other input."""
    if entry.problem or not (entry.num_images or is_image(entry.video_id)):
        return None
    return clip_folder(entry.video_id if entry.num_images else entry.video_id.rpartition("/")[0], classes)


def _with_originals(entries: Sequence[Entry], video_ids: IdsOfClips, clips: dict[str, Entry]) -> list[Entry]:
    present = {entry.video_id for entry in entries}
    return [_with_original(entry, present, video_ids, clips) for entry in entries]


def _with_original(entry: Entry, present: Set[str], video_ids: IdsOfClips, clips: dict[str, Entry]) -> Entry:
    if entry.source_id is None or entry.source_id in present:
        return entry
    clip = _path_of_clip(entry.source_id)
    if video := video_ids.find(clip):
        return replace(entry, source_id=video)
    if is_image(entry.source_id) or not (original := clips.get(clip_key(clip))):
        return entry
    folder = original.video_id if original.num_images else original.video_id.rpartition("/")[0]
    # The frames' own footage, too: they may stay inputs of their own, which no source_id names.
    return replace(entry, source_id=folder, footage=entry.footage or original.footage)
