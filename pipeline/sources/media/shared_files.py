"""Inputs that have some of their files in common by links, symbolic or hard: what they show is in OUT twice."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from itertools import chain

import numpy as np

from ...dataset.schema import unlabelled_name
from ..folder_names import VIDEO_FOLDERS, clip_of_folder
from ..listing import Entry, FoundFile
from .suffixes import is_image


def file_id(status: os.stat_result) -> int:
    """A number that two names of one file have in common: a hash of device, inode and size."""
    return hash((status.st_dev, status.st_ino, status.st_size)) & 0xFFFF_FFFF_FFFF_FFFF


def shared_files_warning(
    entries: Sequence[Entry], files: Collection[FoundFile], labels: Sequence[str]
) -> tuple[str, ...]:
    """A warning of those `entries` that have files in common, by the `file_ids` of `files`; none where none have.

    Images of one clip count as one input, which may have equal frames. Equality of whole inputs is no matter here: each
    of these is one entry already. `labels`: names of classes.
    """
    ids_of = _repeated_ids(files)
    if not ids_of:
        return ()
    clips = {_clip(entry) for entry in entries if entry.video_id in ids_of}
    owner_of: dict[str, tuple[int, Entry]] = {}  # by what is the same of all inputs of a clip
    owned: list[tuple[int, Sequence[int]]] = []
    for entry in entries:
        if not entry.problem and (clip := _clip(entry)) in clips:
            number, _ = owner_of.setdefault(clip, (len(owner_of), entry))
            owned.append((number, ids_of.get(entry.video_id, ())))
    counts = [len(file_ids) for _, file_ids in owned]
    ids = np.fromiter(chain.from_iterable(file_ids for _, file_ids in owned), np.uint64, sum(counts))
    owners = np.repeat(np.array([number for number, _ in owned], np.int64), counts)
    order = np.lexsort([owners, ids])  # by file, then by owner
    ids, owners = ids[order], owners[order]
    is_shared = (ids[1:] == ids[:-1]) & (owners[1:] != owners[:-1])
    pairs, shared = np.unique(np.stack([owners[:-1], owners[1:]], axis=1)[is_shared], axis=0, return_counts=True)
    if not len(pairs):
        return ()
    owners_in_order = [entry for _, entry in owner_of.values()]
    names = [*labels, unlabelled_name(labels)]  # -1 is the last
    first, second = (
        f"{(_folder_of_frames(entry) or entry.video_id)!r} "
        f"({names[entry.label]}{f', {entry.split}' if entry.split else ''})"
        for entry in (owners_in_order[number] for number in pairs[0])
    )
    return (
        f"{len(np.unique(pairs)):,} inputs have files in common by links: the first, {first} and {second}, share "
        f"{shared[0]:,}; what these show is in OUT more than once, perhaps in two splits or classes: list each file "
        "in one input",
    )


def _repeated_ids(files: Collection[FoundFile]) -> dict[str, Sequence[int]]:
    """The `file_ids` of each file that has one which occurs more than once, by its path: mostly there is none."""
    ids = np.fromiter(chain.from_iterable(file.file_ids for file in files), np.uint64)
    ids.sort()
    repeated = {*ids[1:][ids[1:] == ids[:-1]].tolist()}
    if not repeated:
        return {}
    return {file.relative: file.file_ids for file in files if not repeated.isdisjoint(file.file_ids)}


def _clip(entry: Entry) -> str:
    """What is the same of all inputs of a clip, which may be in several folders called `frames` or the like."""
    folder = _folder_of_frames(entry)
    parts = (clip_of_folder(folder) or folder).split("/") if folder else []
    return "/".join(part for part in parts if part.lower() not in VIDEO_FOLDERS) or entry.video_id


def _folder_of_frames(entry: Entry) -> str | None:
    """Path of the folder whose images are frames of one clip."""
    if entry.num_images:
        return entry.video_id
    folder = entry.video_id.rpartition("/")[0]
    return folder if is_image(entry.video_id) and clip_of_folder(folder) is not None else None
