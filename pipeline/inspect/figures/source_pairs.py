"""Pairs each fake's face with the same face in the same frame of its source video."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...dataset.boxes import paired_iou, relative_boxes
from ...dataset.frame_numbers import VideoEnds, comparable_frames
from ...dataset.index import Index
from ..statistics.columns import code_column, manipulation_of_fakes, real_faces
from ..statistics.groups import MANIPULATED_THRESHOLD
from .selection import Rng, Rows, fakes_by_method

_CANDIDATES_PER_PAIR: Final = 8  # a source may lack the frame


class SourcePair(NamedTuple):
    """Rows of a fake's face and of its source's; `manipulated` is None where the fake has no mask.

    `source` is None where the dataset has no rows of the source, but the fake has a mask of its own.
    """

    fake: int
    source: int | None
    manipulated: float | None


class SourcePairSamples(NamedTuple):
    """`unchanged`: pairs whose `manipulated` is below `MANIPULATED_THRESHOLD`; `changed`: all others.

    `num_fakes`: faces that were made from a source or have a mask; `num_with_mask`: those of them that have a mask.
    """

    changed: list[SourcePair]
    unchanged: list[SourcePair]
    num_fakes: int
    num_with_mask: int


def find_source_pairs(index: Index, rng: Rng, count: int) -> SourcePairSamples:
    """Up to `count` changed and `count` unchanged pairs, from as many videos and methods as possible."""
    manipulated = manipulation_of_fakes(index)
    has_mask = ~np.isnan(manipulated)
    is_fake = ((code_column(index, "source_id") >= 0) & ~real_faces(index)) | has_mask
    is_unchanged = is_fake & (manipulated < MANIPULATED_THRESHOLD)
    ends = VideoEnds.of_rows(index, np.arange(len(index)))
    video_of_row = code_column(index, "video_id")
    video_index = {name: number for number, name in enumerate(index.categories("video_id"))}

    def pairs(mask: NDArray[np.bool_]) -> Iterator[SourcePair]:
        for row in fakes_by_method(index, rng, mask, _CANDIDATES_PER_PAIR * count).tolist():
            video = video_index.get(index.text("source_id", row) or "", -1)
            source = matching_source_row(index, ends, np.flatnonzero(video_of_row == video), row)
            if source is not None or (video < 0 and has_mask[row]):
                yield SourcePair(row, source, float(manipulated[row]) if has_mask[row] else None)

    return SourcePairSamples(
        changed=list(islice(pairs(is_fake & ~is_unchanged), count)),
        unchanged=list(islice(pairs(is_unchanged), count)),
        num_fakes=int(is_fake.sum()),
        num_with_mask=int(has_mask.sum()),
    )


def matching_source_row(index: Index, ends: VideoEnds, source_rows: Rows, fake: int) -> int | None:
    """Of the source's rows in the fake's frame, the one with the highest IoU; None where no box overlaps.

    `ends`: of the videos.
    """
    if not len(source_rows):
        return None
    frame, source_frames, tolerance = comparable_frames(index, ends, fake, source_rows)
    distances = np.abs(source_frames - frame)
    if distances.min() > tolerance:
        return None
    candidates = source_rows[distances == distances.min()]
    iou = paired_iou(relative_boxes(index, candidates), relative_boxes(index, [fake]))
    best = int(iou.argmax())
    return int(candidates[best]) if iou[best] > 0 else None
