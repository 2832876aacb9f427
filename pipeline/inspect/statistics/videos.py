"""What the index says of each video: how much of it there is, and what it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...dataset.index import Index
from ...dataset.schema import SPLITS
from ...sources import name_of_none
from .columns import codes, numbers, split_codes

Counts = NDArray[np.int64]


class Kind(NamedTuple):
    """What all faces of a video share; None where it is not known."""

    split: str
    label: str
    dataset: str | None = None
    method: str | None = None
    compression: str | None = None


_TEXTS = Kind._fields[2:]


def telling(kinds: Iterable[Kind]) -> list[str]:
    """Those of dataset, method and compression that tell some of these videos from others."""
    values = list(zip(*kinds, strict=True))[2:]
    return [name for name, found in zip(_TEXTS, values, strict=False) if len(set(found)) > 1]


@dataclass(frozen=True)
class Videos:
    """One entry a video in each array, in the order of `names`; `of_row` (rows,) says of which video each row is.

    `most_at_once`: the most faces in one frame. `kind`: position in `kinds`; these are sorted by split, then label.
    """

    names: list[str]
    of_row: NDArray[np.int32]
    rows: Counts
    tracks: Counts
    frames: Counts
    most_at_once: Counts
    kind: NDArray[np.int32]
    kinds: list[Kind]

    @classmethod
    def of(cls, index: Index) -> Self:
        """Counts in arrays alone, never row by row."""
        names = index.names("video_id")
        of_row = codes(index, "video_id")
        size = len(names)
        frames_of, faces = _counted(of_row, numbers(index, "frame_index"))
        most_at_once = np.zeros(size, np.int64)
        np.maximum.at(most_at_once, frames_of, faces)
        tracks_of, _ = _counted(of_row, numbers(index, "track_id"))
        first = np.zeros(size, np.int64)
        first[of_row[::-1]] = np.arange(len(of_row) - 1, -1, -1)
        kind, kinds = _kinds(index, first)
        return cls(
            names=names,
            of_row=of_row,
            rows=np.bincount(of_row, minlength=size),
            tracks=np.bincount(tracks_of, minlength=size),
            frames=np.bincount(frames_of, minlength=size),
            most_at_once=most_at_once,
            kind=kind,
            kinds=kinds,
        )


def label_names(index: Index) -> list[str]:
    """Names of the labels 0, 1, 2 ..., and at the end, where -1 finds it, that of none."""
    return [*index.labels, name_of_none(index.labels)]


def _counted(of_row: NDArray[np.int32], number: NDArray[Any]) -> tuple[Counts, Counts]:
    """Each number that a video has: of which video, and in how many rows. In place, where `np.unique` takes copies."""
    pairs = of_row.astype(np.int64) << 32
    pairs |= number
    pairs.sort()
    first = np.ones(len(pairs), np.bool_)
    np.not_equal(pairs[1:], pairs[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    return pairs[starts] >> 32, np.diff(starts, append=len(pairs))


def _kinds(index: Index, first: Counts) -> tuple[NDArray[np.int32], list[Kind]]:
    columns = [split_codes(index)[first], numbers(index, "label")[first]]
    columns += [codes(index, name)[first] for name in _TEXTS]
    found, kind = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    labels = label_names(index)
    texts = [[*index.names(name), None] for name in _TEXTS]
    kinds = [
        Kind(SPLITS[split], str(labels[label]), *(text[code] for text, code in zip(texts, others, strict=True)))
        for split, label, *others in found.tolist()
    ]
    return kind.reshape(-1).astype(np.int32), kinds
