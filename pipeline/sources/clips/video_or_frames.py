"""Clips that SRC holds as a video, as a folder of extracted frames, or as both: each is listed once.

The rule, for all layouts: the video is used; frames are, where there is no video of their clip. A video and a folder
of frames are of one clip where their paths are the same without suffix, case and folders such as `videos`, `frames`,
and where the video is the only one in the folder of the clip: `anna/talk.mp4`, `anna/frames/0001.png`. Images
directly in that folder may be of something else: both are used, in one split.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache, partial
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple, Self

from ...console import plural
from ..disjoint_sets import DisjointSets
from ..folder_names import CONTENT_NAMES, VIDEO_FOLDERS
from ..listing import Entry, FoundFile, Listing
from ..media.allowed_roots import is_inside, resolved_root
from ..media.media_files import DERIVED_FOLDERS, FRAME_FOLDERS, find_media, listable_folders, printable_name
from ..media.suffixes import is_image, is_media, split_video_suffix
from ..packed_records import PackedRecords
from .image_sequences import clip_folder, collecting_folders

_FRAMES_OF_CLIP = re.compile(rf"(.+?)[\W_]+(?:{'|'.join(sorted(CONTENT_NAMES))})")


@lru_cache(maxsize=1024)
def clip_keys(path: str) -> tuple[str, ...]:
    """What identifies the clip of a video, or of a folder of frames: equal for both.

    A folder whose name ends in `frames` or the like has two keys; the one without the ending is for want of the other.

    >>> clip_keys("real/videos/033.MP4"), clip_keys("real/frames/033"), clip_keys("real/033_frames")
    (('real/033',), ('real/033',), ('real/033_frames', 'real/033'))
    """
    stem, suffix = split_video_suffix(path.lower())
    *folders, name = stem.split("/")
    match = None if suffix else _FRAMES_OF_CLIP.fullmatch(name)
    names = (name, match[1]) if match else (name,)
    return tuple("/".join(part for part in (*folders, each) if part not in VIDEO_FOLDERS) for each in names)


def _by_clip_key(clips: Sequence[tuple[str, Entry]]) -> dict[str, list[Entry]]:
    """Entries by the keys of their clips' paths; by a key without an ending where it is no other clip's whole name."""
    by_key: tuple[dict[str, list[Entry]], ...] = (defaultdict(list), defaultdict(list))
    for path, entry in clips:
        for entries_of, key in zip(by_key, clip_keys(path), strict=False):
            entries_of[key].append(entry)
    whole, without_ending = by_key
    return without_ending | whole


def _find(by_key: Mapping[str, list[Entry]], path: str) -> list[Entry]:
    return next((by_key[key] for key in clip_keys(path) if key in by_key), [])


class EntriesOfClips(NamedTuple):
    """Inputs by the keys of their clips.

    `by_folder`: each video that is the only one in the folder of a clip, by the key of that folder.
    """

    by_path: dict[str, list[Entry]]
    by_folder: dict[str, Entry]

    @classmethod
    def of(cls, entries: Sequence[Entry], classes: frozenset[str]) -> Self:
        """Those of `entries`; `classes`: see `collecting_folders`."""
        videos_in: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            if not (entry.num_images or is_image(entry.video_id)):
                videos_in[clip_keys(entry.video_id.rpartition("/")[0])[0]].append(entry)
        return cls(
            _by_clip_key([(entry.video_id, entry) for entry in entries]),
            {key: videos[0] for key, videos in videos_in.items() if len(videos) == 1 and clip_folder(key, classes)},
        )

    def find(self, path: str) -> list[Entry]:
        """What is of the clip that `path`, a video or a folder of frames, is of."""
        if clips := _find(self.by_path, path):
            return clips
        if (video := self.in_folder(path)) is None:
            return []
        own, parts = video.video_id.lower().split("/")[:-1], path.lower().split("/")
        num_common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(own, parts, strict=False)))
        below = parts[num_common:]
        is_of_frames = any(part in CONTENT_NAMES or _FRAMES_OF_CLIP.fullmatch(part) for part in below)
        return [video] if is_of_frames else []

    def of_image(self, path: str, classes: frozenset[str]) -> list[Entry]:
        """What is of the clip that the image `path` is a frame of, but for other images of it."""
        folder = path.rpartition("/")[0]
        clip = clip_folder(folder, classes)
        return [] if clip is None else _find(self.by_path, clip) or self.find(folder)

    def in_folder(self, folder: str) -> Entry | None:
        """The only video in `folder`, or in that of the clip whose frames it holds."""
        if is_media(folder):
            return None
        return next((self.by_folder[key] for key in clip_keys(folder) if key in self.by_folder), None)


def find_videos_or_frames(
    root: Path,
    ignored: Counter[str],
    *,
    is_input: Callable[[FoundFile], bool],
    skip: Callable[[str], str | None] | None = None,
    below: str = "",
    allowed: Sequence[Path] = (),
) -> Sequence[FoundFile]:
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
    files = PackedRecords(FoundFile, find_media(root, ignored, below=below, skip=skip_derived, allowed=allowed))
    if not any(map(is_input, files)):
        ignored.clear()
        return PackedRecords(FoundFile, find_media(root, ignored, below=below, skip=skip_others, allowed=allowed))
    frames: list[FoundFile] = []
    inputs = filter(is_input, files if frame_folders else ())
    keys = {key for file in inputs for key in clip_keys(_path_of_clip(file.relative))}
    for folder in frame_folders:
        for clip in listable_folders(root / folder):  # one without permission stays counted
            if keys.isdisjoint(clip_keys(f"{folder}/{clip}")):
                found = _find_frames(root, f"{folder}/{clip}", skip=skip_others, allowed=allowed)
                ignored[f"in {folder.rpartition('/')[2].lower()}/"] -= len(found)
                frames += found
    return sorted((*files, *frames), key=lambda file: file.relative) if frames else files


def find_in_folders(
    root: Path,
    folders: Container[str],
    ignored: Counter[str],
    *,
    skip: Callable[[str], str | None] | None = None,
    allowed: Sequence[Path] = (),
) -> Sequence[FoundFile]:
    """What `find_videos_or_frames` finds in these folders of `root`; media beside them count as ignored."""

    def is_input(file: FoundFile) -> bool:
        return file.relative.partition("/")[0] in folders

    files = find_videos_or_frames(root, ignored, is_input=is_input, skip=skip, allowed=allowed)
    inputs = PackedRecords(FoundFile, filter(is_input, files))
    ignored["media beside the folders"] += len(files) - len(inputs)
    return inputs


def _find_frames(
    root: Path, clip: str, *, skip: Callable[[str], str | None], allowed: Sequence[Path]
) -> list[FoundFile]:
    if not is_inside(root / clip, (resolved_root(root), *allowed)):
        return [FoundFile(printable_name(clip), problem="outside_root", detail="a link out of the source")]
    return list(find_media(root, Counter(), below=clip, skip=skip, allowed=allowed))


def each_clip_once(listing: Listing) -> Listing:
    """The listing without frames of clips that it has as videos; warns of what is used and what is left out.

    Fakes whose original is in the other form than theirs get the `source_id` that it has, and its footage. All that may
    be of one clip has one footage: images and the only video in their folder, folders of frames of one name.
    """
    classes = collecting_folders(listing)
    frames = {entry.video_id: clip for entry in listing.entries if (clip := _clip_of_frames(entry, classes))}
    videos = [entry for entry in listing.entries if not (entry.problem or entry.num_images or is_image(entry.video_id))]
    skipped = sum(listing.ignored[f"in {name}/"] for name in FRAME_FOLDERS)
    if not frames and not (videos and skipped):
        return listing
    videos_of = EntriesOfClips.of(videos, classes)

    def has_video(entry: Entry) -> bool:
        """Whether it is frames of a video, which are not of another recording by what metadata says."""
        clip = frames.get(entry.video_id)
        if clip is None:
            return False
        found = _find(videos_of.by_path, clip)
        if not found and entry.footage == clip:
            found = videos_of.find(_folder_of_images(entry))
        return any(entry.label in (-1, video.label) and entry.source_id != video.video_id for video in found)

    kept = [entry for entry in listing.entries if not has_video(entry)]
    left_out = sum(entry.num_images or 1 for entry in listing.entries) - sum(entry.num_images or 1 for entry in kept)
    clips = _by_clip_key([(frames[entry.video_id], entry) for entry in kept if entry.video_id in frames])
    num_clips = len({frames[entry.video_id] for entry in kept if entry.video_id in frames})

    def is_used(name: str) -> bool:
        """Whether what metadata names is there in the other form, or in another folder for videos or frames."""
        clip = _path_of_clip(name)
        return bool(videos_of.find(clip)) or (bool(_find(clips, clip)) and not is_image(name))

    by_name = {
        entry.video_id: clip
        for entry in kept
        if (clip := frames.get(entry.video_id)) and (listing.footage_from_names or entry.footage == clip)
    }
    joined = _in_one_footage(kept, by_name, videos_of, clips) if frames else kept
    return replace(
        listing,
        entries=_with_originals(joined, videos_of, clips) if frames else kept,
        footage_before={
            before.video_id: before.footage
            for before, entry in zip(kept, joined, strict=True)
            if before.footage != entry.footage
        },
        missing=[name for name in listing.missing if not (clips and is_used(name))],
        warnings=(*listing.warnings, *_warnings(len(videos), num_clips, left_out + skipped)),
    )


def _in_one_footage(
    entries: Sequence[Entry], frames: Mapping[str, str], videos_of: EntriesOfClips, clips: Mapping[str, list[Entry]]
) -> list[Entry]:
    """The entries, with one footage for all that may be of one clip, and for fakes of frames with these.

    frames: by the id of each image or folder of images its clip, but of those of which metadata names the recording.
    """
    present = {entry.video_id for entry in entries}
    footages = _Footages(frames.values())
    for entry in entries:
        if clip := frames.get(entry.video_id):
            beside = [video] if (video := videos_of.in_folder(clip)) else []
            footages.join(entry, *(_find(videos_of.by_path, clip) or beside))
            others = (other for key in clip_keys(clip) for other in clips[key][:1])
            footages.join(entry, *(other for other in others if other.video_id in frames))
        if entry.source_id and entry.source_id not in present:
            footages.join(entry, *_find(clips, _path_of_clip(entry.source_id))[:1])
    return [footages.with_name(entry) for entry in entries]


class _Footages:
    """Sets of footages that are one, by their names and by ids of entries without footage.

    clips: paths of clips, which are names for want of one that metadata gives.
    """

    def __init__(self, clips: Iterable[str]) -> None:
        self._sets = DisjointSets()
        self._is_name: set[str] = set()
        self._clips = {*clips}

    def join(self, *entries: Entry) -> None:
        roots = {self._sets.root(self._node(entry)) for entry in entries}
        self._sets.join(min(roots, key=lambda root: (root not in self._is_name, root in self._clips, root)), roots)

    def with_name(self, entry: Entry) -> Entry:
        """The entry with the name of its set, the first of those that are names of footage."""
        name = self._sets.root(self._node(entry))
        return replace(entry, footage=name) if name in self._is_name and name != entry.footage else entry

    def _node(self, entry: Entry) -> str:
        if entry.footage is None:
            return f"\0{entry.video_id}"  # which no footage is called
        self._is_name.add(entry.footage)
        return entry.footage


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
    return clip_folder(_folder_of_images(entry), classes)


def _folder_of_images(entry: Entry) -> str:
    return entry.video_id if entry.num_images else entry.video_id.rpartition("/")[0]


def _with_originals(
    entries: Sequence[Entry], videos_of: EntriesOfClips, clips: Mapping[str, list[Entry]]
) -> list[Entry]:
    present = {entry.video_id for entry in entries}
    return [
        entry
        if entry.source_id is None or entry.source_id in present
        else _with_original(entry, entry.source_id, videos_of, clips)
        for entry in entries
    ]


def _with_original(entry: Entry, source_id: str, videos_of: EntriesOfClips, clips: Mapping[str, list[Entry]]) -> Entry:
    clip = _path_of_clip(source_id)
    videos = [video for video in videos_of.find(clip) if video.video_id != entry.video_id]
    if videos:  # of several of one name, one of another class
        return replace(entry, source_id=min(videos, key=lambda video: video.label == entry.label).video_id)
    beside = videos_of.in_folder(clip)
    if beside is not None and beside.video_id != entry.video_id:
        # An image there may be of something else: it is not compared.
        is_compared = entry.compared and not is_image(source_id)
        return replace(entry, source_id=beside.video_id, compared=is_compared)
    for original in _find(clips, clip):
        if original.num_images or not is_image(source_id):
            return replace(entry, source_id=_folder_of_images(original))
    return entry
