"""Groups frames into the batches that the detector gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..video import Frame

MAX_BATCH_PIXELS = 32 << 20
"""Maximum number of pixels in a detector batch of several frames.

Each of the three stages holds one batch, the second and third another one where frames are compared with a source.
"""


def frame_batches(frames: Iterable[Frame], frames_at_once: int, extra_indices: frozenset[int]) -> Iterator[list[Frame]]:
    """Yields frames in batches of `frames_at_once`, or smaller ones where their pixels exceed the limit.

    Each frame with one of `extra_indices` is a batch of its own, ahead of those that are not complete: what a detector
    finds in a frame may depend on its batch, and must not depend on which fakes share a source.
    """
    batch: list[Frame] = []
    for frame in frames:
        if frame.frame_index in extra_indices:
            yield [frame]
            continue
        if batch and sum(other.rgb.size for other in [*batch, frame]) > 3 * MAX_BATCH_PIXELS:
            yield batch
            batch = []
        batch.append(frame)
        if len(batch) >= frames_at_once:
            yield batch
            batch = []
    if batch:
        yield batch
