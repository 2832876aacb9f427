"""Groups frames into the batches that the detector gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..video import Frame

MAX_BATCH_PIXELS = 32 << 20
"""Maximum number of pixels in a detector batch of several frames.

Each of the three stages holds one batch, the second and third another one where frames are compared with a source, and
the first another one of extra frames.
"""


def frame_batches(frames: Iterable[Frame], frames_at_once: int, extra_indices: frozenset[int]) -> Iterator[list[Frame]]:
    """Yields frames in batches of `frames_at_once`, or smaller ones where their pixels exceed the limit.

    Frames with `extra_indices` come in batches of their own, so that those of the others are what they are without
    them: what a detector finds in a frame may depend on its batch. Each extra frame comes before the batch of the next
    other frame.
    """
    batch: list[Frame] = []
    extra_batch: list[Frame] = []
    for frame in frames:
        is_extra = frame.frame_index in extra_indices
        own_batch, completed = (extra_batch, [extra_batch]) if is_extra else (batch, [extra_batch, batch])
        if own_batch and sum(other.rgb.size for other in [*own_batch, frame]) > 3 * MAX_BATCH_PIXELS:
            yield from _emptied(completed)
        own_batch.append(frame)
        if len(own_batch) >= frames_at_once:
            yield from _emptied(completed)
    yield from _emptied([extra_batch, batch])


def _emptied(batches: Iterable[list[Frame]]) -> Iterator[list[Frame]]:
    for batch in batches:
        if batch:
            yield batch.copy()
            batch.clear()
