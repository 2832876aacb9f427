"""Inputs that have some of their files in common by links, symbolic or hard: what they show is in OUT twice."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from ...dataset.schema import unlabelled_name
from ..listing import Entry, FoundFile


def file_id(status: os.stat_result) -> int:
    """A number that two names of one file have in common: a hash of device, inode and size."""
    return hash((status.st_dev, status.st_ino, status.st_size)) & 0xFFFF_FFFF_FFFF_FFFF


def shared_files_warning(
    entries: Sequence[Entry], files: Iterable[FoundFile], labels: Sequence[str]
) -> tuple[str, ...]:
    """A warning of those `entries` that have files in common, by the `file_ids` of `files`; none where none have.

    Equality of whole inputs is no matter here: each of these is one entry already. `labels`: names of classes.
    """
    ids_of = {file.relative: file.file_ids for file in files}
    sound = [entry for entry in entries if not entry.problem and ids_of.get(entry.video_id)]
    counts = [len(ids_of[entry.video_id]) for entry in sound]
    ids = np.fromiter(chain.from_iterable(ids_of[entry.video_id] for entry in sound), np.uint64, sum(counts))
    order = np.argsort(ids, kind="stable")
    owners = np.repeat(np.arange(len(sound)), counts)[order]
    is_shared = (ids[order][1:] == ids[order][:-1]) & (owners[1:] != owners[:-1])
    pairs, shared = np.unique(np.stack([owners[:-1], owners[1:]], axis=1)[is_shared], axis=0, return_counts=True)
    if not len(pairs):
        return ()
    names = [*labels, unlabelled_name(labels)]  # -1 is the last
    first, second = (
        f"{entry.video_id!r} ({names[entry.label]}{f', {entry.split}' if entry.split else ''})"
        for entry in (sound[number] for number in pairs[0])
    )
    return (
        f"{len(np.unique(pairs)):,} inputs have files in common by links: the first, {first} and {second}, share "
        f"{shared[0]:,}; what these show is in OUT more than once, perhaps in two splits or classes: list each file "
        "in one input",
    )
