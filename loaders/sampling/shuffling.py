"""Shuffling as pure functions of numbers that are the same on every machine.

No stateful generator is used: every position follows from hashes (splitmix64), so the order depends neither on library
versions, nor on the number of workers or ranks, nor on earlier calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.index import RowRange
from ...pipeline.errors import UsageError
from ..whole_numbers import require_int
from .hashing import derive_key
from .orders import BLOCK_ROWS, Order, Permutation, WindowedOrder, permutation

Shuffle = Literal["none", "full", "window"]


@dataclass(frozen=True, kw_only=True)
class Shuffling:
    """How rows are shuffled: not at all, over the whole dataset, or within consecutive windows of `window_images`.

    A window is filled with blocks of up to `BLOCK_ROWS` rows that follow each other on disk, drawn from the whole
    dataset; so storage is read in long sequential runs, and no more than two windows need to be in memory.

    `batch_images`: of which windows hold whole batches, each about as many; divides `window_images`. None: the last
    window has what the others leave. Saved states hold the text of a shuffling, without it.
    """

    mode: Shuffle = "full"
    window_images: int = 16_384
    batch_images: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.mode not in ("none", "full", "window"):
            raise UsageError(f"shuffle={self.mode!r}: must be True, False, 'full' or 'window'")

    @classmethod
    def from_argument(cls, shuffle: Any, window_images: int) -> Shuffling:
        """The shuffling for the loader's `shuffle` argument: True, False, "full" or "window"."""
        mode: Any = ("full" if shuffle else "none") if isinstance(shuffle, bool) else shuffle
        images = require_int("window_images", window_images, minimum=BLOCK_ROWS, example=16_384)
        return cls(mode=mode, window_images=images)

    def order(self, count: int, key: int) -> Order:
        """The numbers 0 .. `count` - 1 in the order given by the key."""
        if self.mode == "none":
            return RowRange(0, count)
        return Permutation(count, key) if self.mode == "full" else WindowedOrder(self.window_bounds(count), key)

    def scaled(self, share: float) -> Shuffling:
        """The shuffling of a part of the images, 0 to 1: its window is that share of the whole window."""
        return replace(self, window_images=max(round(self.window_images * share), BLOCK_ROWS))

    def windows(self, count: int) -> list[slice]:
        """The segments of an epoch of `count` images within which images are shuffled."""
        return [slice(start, end) for start, end in pairwise(self.window_bounds(count).tolist())]

    def window_bounds(self, count: int) -> NDArray[np.int64]:
        """The first image of each of the `windows`, and the end: int64 (windows + 1,)."""
        size = self.window_images if self.mode == "window" else max(count, 1)
        starts = np.arange(0, count, size)
        if self.mode == "window" and self.batch_images is not None:
            num_batches = -(-count // self.batch_images)
            num_windows = -(-num_batches // (size // self.batch_images))
            starts = np.arange(num_windows) * num_batches // num_windows * self.batch_images
        return np.append(starts, count)


def spread_videos(videos: NDArray[Any], per_batch: int, key: int) -> NDArray[np.int64]:
    """An order in which no batch holds more items of one video than `min_possible_per_batch`: no order can do better.

    The last batch, which may be shorter, takes what the full ones cannot hold, then an item of each video in turn; the
    others are distributed round-robin, video by video, one to each full batch.

    Args:
        videos: (items,) which video each item is of.
        per_batch: items in a batch.
        key: decides among all such orders.

    Returns:
        Positions in `videos`, int64 (items,), batch by batch.

    """
    count = len(videos)
    full, short = divmod(count, per_batch)
    _, video, sizes = np.unique(videos, return_inverse=True, return_counts=True)
    video_rank = permutation(len(sizes), derive_key(key, "videos"))
    by_video = np.lexsort((permutation(count, key), video_rank[video]))
    video = video[by_video]
    starts = np.flatnonzero(np.append(True, video[1:] != video[:-1])) if count else np.empty(0, np.int64)
    number_in_video = np.arange(count) - np.repeat(starts, sizes[video[starts]])
    fits_full_batches = number_in_video >= (sizes - min_possible_per_batch(sizes, per_batch) * full)[video]
    in_last = np.lexsort((number_in_video, fits_full_batches))[:short]
    batch = np.full(count, full)
    others = np.delete(np.arange(count), in_last)
    batch[others] = permutation(full, derive_key(key, "batches"))[np.arange(len(others)) % max(full, 1)]
    return by_video[np.lexsort((permutation(count, derive_key(key, "within")), batch))]


def min_possible_per_batch(sizes: NDArray[Any], per_batch: int) -> int:
    """The smallest limit on items of one video in a batch that any order can keep; `sizes`: items of each video."""
    full, short = divmod(int(sizes.sum()), per_batch)
    limit = -(-int(sizes.max(initial=0)) // max(full + bool(short), 1))
    while np.maximum(sizes - limit * full, 0).sum() > short:
        limit += 1
    return limit


def max_per_batch(videos: NDArray[Any], per_batch: int) -> tuple[int, int]:
    """The most items of one video in any batch of `per_batch` consecutive items, and that video; (0, -1) of none."""
    if not len(videos):
        return 0, -1
    codes, dense = np.unique(videos, return_inverse=True)
    batch = np.arange(len(videos)) // per_batch
    batch_and_video, counts = np.unique(batch * len(codes) + dense, return_counts=True)
    fullest = counts.argmax()
    return int(counts[fullest]), int(codes[batch_and_video[fullest] % len(codes)])
