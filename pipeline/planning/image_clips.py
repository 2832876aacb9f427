"""Clips of images: joins the extracted frames of one folder into one entry, which is read and tracked like a video.

In: a listing whose frames are entries of their own, and what OUT has planned. Out: the listing with clips, and what a
user should know of them. The rule is in docs/guides/layouts.md, under "Images and extracted frames".
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from ..console import plural
from ..errors import RefusedError
from ..sources.clips.image_sequences import FramePath, clip_folder, clips_in_names, collecting_folders
from ..sources.layouts.table.layout import TableFile
from ..sources.listing import Entry, FoundFile, Listing
from ..sources.media.suffixes import is_image
from ..video import Sampling
from ..video.image_folder import frame_numbers, frame_step, list_frames

Frames = dict[str, list[Entry]]

_MAX_USUAL_IMAGES = 20_000
"""More are hardly frames of one video: a quarter of an hour, all of it extracted."""


def with_clips(listing: Listing, planned: Iterable[Entry], roots: Sequence[Path]) -> Listing:
    """The listing with each folder of frames as one entry, in the place of its first frame.

    A folder is joined where all of its images are listed, with the same metadata, and so are those of its originals
    and fakes. A table's rows stay as they are. So does a folder whose images OUT has as inputs of their own, and every
    folder where OUT has no clip, but such images: it was made before there were clips.

    `planned`: the entries that OUT has planned; `roots`: folders that inputs may lie in.
    Raises `RefusedError` where images would be in OUT both in a clip and on their own.
    """
    planned_clips, folders_apart = set[str](), set[str]()
    for entry in planned:
        if entry.num_images:
            planned_clips.add(entry.video_id)
        elif is_image(entry.video_id):
            folders_apart.add(_folder_of(entry))
    frames = {} if listing.layout == TableFile.name else _candidates(listing, roots)
    apart = folders_apart & frames.keys()
    joined = {} if apart and not planned_clips else {name: frames[name] for name in frames.keys() - apart}
    joined = _without_cut_links(joined, listing.entries)
    entries = list(_joined_entries(listing.entries, joined))
    _refuse_mixture(entries, planned_clips, folders_apart)
    warnings = (*_apart_warning(frames, apart, joined), *_size_warning(entries), *_names_warning(joined))
    return replace(listing, entries=entries, warnings=(*listing.warnings, *warnings))


def _apart_warning(frames: Frames, apart: Set[str], joined: Frames) -> list[str]:
    if not apart:
        return []
    folders = plural(len(frames.keys() - joined.keys()), "folder")
    return [
        f"OUT has extracted frames as inputs of their own, so the frames of {folders} stay that: without tracks, and "
        "detected one by one; in a new OUT each folder is one clip"
    ]


def _size_warning(entries: Iterable[Entry]) -> list[str]:
    largest = max(entries, key=lambda entry: entry.num_images, default=None)
    if largest is None or largest.num_images <= _MAX_USUAL_IMAGES:
        return []
    return [
        f"{largest.video_id}: {largest.num_images:,} images are one clip, which one worker reads as frames of one "
        "video; put photos directly into a folder called after a class or a split, or list them in a table"
    ]


def _names_warning(joined: Frames) -> list[str]:
    """Reports folders whose images are called after several clips, and became one."""
    clips_of = {
        folder: names
        for folder, frames in sorted(joined.items())
        if (names := clips_in_names(entry.video_id.rpartition("/")[2] for entry in frames))
    }
    if not clips_of:
        return []
    folder, stems = next(iter(clips_of.items()))
    named = f"{stems[0]!r}, {stems[1]!r}{', ...' if len(stems) > 2 else ''}"
    others = f", and so are {plural(len(clips_of) - 1, 'other folder')}" if len(clips_of) > 1 else ""
    return [
        f"{folder}: its {len(joined[folder]):,} images are one clip, though their names have {len(stems):,} different "
        f"stems ({named}){others}; where these are several videos, put the frames of each into a folder of its own, "
        f"such as {f'{folder}/{stems[0]}'!r}"
    ]


def late_start_warnings(listing: Listing, sampling: Sampling, roots: Sequence[Path]) -> list[str]:
    """Reports clips whose labels or masks depend on time, and which seem to lack images before the first one.

    `roots`: folders that inputs may lie in.
    """
    if sampling.fps_of_images is None:
        return []
    starts = {clip: start for clip in _clips_by_time(listing) if (start := _late_start(listing.root / clip, roots))}
    if not starts:
        return []
    clip = max(starts, key=lambda each: starts[each])
    others = f" (so does that of {plural(len(starts) - 1, 'other clip')})" if len(starts) > 1 else ""
    return [
        f"{clip}: its first image has the number {starts[clip]}, and counts as the clip's first frame{others}: "
        "fake_segments, and frames of a video that it is compared with, are timed from there; if frames before it are "
        "missing, labels and masks are those of other moments: add the first frame, or any image with its number"
    ]


def _clips_by_time(listing: Listing) -> set[str]:
    """Ids of clips with segments, and of those that are compared with a video: as its original, or as its fake."""
    clips = {entry.video_id for entry in listing.clips}
    by_time = {entry.video_id for entry in listing.clips if entry.fake_segments is not None}
    for entry in listing.entries:
        if entry.source_id and entry.compared and (entry.video_id in clips) != (entry.source_id in clips):
            clip, other = sorted((entry.video_id, entry.source_id), key=lambda name: name not in clips)
            # A name may be too long, or in a folder without permission: then it is no file, and no error.
            if not is_image(other) and os.path.isfile(listing.root / other):  # noqa: PTH113
                by_time.add(clip)
    return by_time


def _late_start(folder: Path, roots: Sequence[Path]) -> int:
    """The number of the first image where that is more than one step; 0 of any other clip."""
    try:
        numbers = frame_numbers(list_frames(folder, roots))
    except OSError:  # reported when its frames are read
        return 0
    return numbers[0] if numbers and numbers[0] > frame_step(numbers) else 0


def _folder_of(entry: Entry) -> str:
    return entry.video_id.rpartition("/")[0]


def _candidates(listing: Listing, roots: Sequence[Path]) -> Frames:
    """The frames of each folder that is a clip by its name, all of whose images are listed with equal metadata."""
    classes = collecting_folders(listing)
    by_folder: Frames = defaultdict(list)
    for entry in listing.entries:
        if entry.problem or entry.num_images or not is_image(entry.video_id):
            continue
        # In a published set the folders say which images are frames of a video.
        if listing.recognised_by and not FramePath.parse(entry.video_id, in_root=listing.clips_in_root):
            continue
        if clip_folder(_folder_of(entry), classes):
            by_folder[_folder_of(entry)].append(entry)
    return {
        folder: frames
        for folder, frames in by_folder.items()
        if _have_equal_metadata(frames) and _are_all_images(listing.root / folder, frames, roots)
    }


def _have_equal_metadata(frames: Sequence[Entry]) -> bool:
    def metadata(entry: Entry) -> Entry:
        return replace(entry, video_id="", size_bytes=0, mtime_ns=0, source_id=_clip_of(entry.source_id))

    first = metadata(frames[0])
    return all(metadata(entry) == first for entry in frames)


def _clip_of(source_id: str | None) -> str | None:
    """The folder of an original's frame; an original that is no image is returned unchanged."""
    return source_id.rpartition("/")[0] if source_id and is_image(source_id) else source_id


def _are_all_images(folder: Path, frames: Sequence[Entry], roots: Sequence[Path]) -> bool:
    """Whether the listing has what the decoder would read: a layout may list a part of a folder."""
    try:
        return set(list_frames(folder, roots)) == {entry.video_id.rpartition("/")[2] for entry in frames}
    except OSError:
        return False


def _without_cut_links(joined: Frames, entries: Sequence[Entry]) -> Frames:
    """Leaves out clips whose original or fakes are images on their own: their frames would lose each other."""
    folders = {_folder_of(entry) for entry in entries if is_image(entry.video_id)}
    joined = dict(joined)
    while cut := _cut_links(joined, folders, entries):
        for folder in cut:
            del joined[folder]
    return joined


def _cut_links(joined: Mapping[str, Sequence[Entry]], folders: Set[str], entries: Sequence[Entry]) -> set[str]:
    cut = set()
    for entry in entries:
        if entry.source_id and is_image(entry.source_id):
            own, original = _folder_of(entry), entry.source_id.rpartition("/")[0]
            if own in joined and original in folders and original not in joined:
                cut.add(own)
            if own not in joined and original in joined:
                cut.add(original)
    return cut


def _joined_entries(entries: Sequence[Entry], joined: Mapping[str, Sequence[Entry]]) -> Iterable[Entry]:
    done = set()
    for entry in entries:
        folder = _folder_of(entry)
        frames = joined.get(folder)
        if frames is None or entry.problem or not is_image(entry.video_id):
            yield entry
        elif folder not in done:
            done.add(folder)
            yield _joined_entry(folder, frames)


def _joined_entry(folder: str, frames: Sequence[Entry]) -> Entry:
    stats = [(entry.video_id.rpartition("/")[2], entry.size_bytes, entry.mtime_ns) for entry in frames]
    clip = FoundFile.of_frames(folder, stats)
    return replace(
        frames[0], video_id=folder, size_bytes=clip.size_bytes, mtime_ns=clip.mtime_ns, num_images=clip.num_images,
        images_digest=clip.images_digest, source_id=_clip_of(frames[0].source_id),
    )  # fmt: skip


def _refuse_mixture(entries: Sequence[Entry], planned_clips: Collection[str], folders_apart: Collection[str]) -> None:
    """Raises `RefusedError` where OUT has a folder's images in the other way: their rows would be there twice."""
    for entry in entries:
        if entry.num_images and entry.video_id in folders_apart:
            raise RefusedError(
                f"{entry.video_id}: OUT has its images as inputs of their own, and now it is one clip; rows of both "
                "are never mixed: use a new OUT, or list the images"
            )
        if not entry.problem and is_image(entry.video_id) and _folder_of(entry) in planned_clips:
            raise RefusedError(
                f"{entry.video_id}: OUT has its folder as one clip, and now this image is an input of its own; rows of "
                "both are never mixed: use a new OUT, or list the folder, with the same metadata for all its images"
            )
