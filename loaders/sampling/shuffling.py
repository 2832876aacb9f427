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
from .orders import BLOCK_ROWS, LazyOrder, Order, Permutation, WindowedOrder, permutation

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


class SpreadOrder(LazyOrder):
    """An order in which no batch holds more items of one video than `min_possible_per_batch`: no order can do better.

    The last batch, which may be shorter, takes what the full ones cannot hold, then an item of each video in turn; the
    others are distributed round-robin, video by video, one to each full batch.

    Args:
        items: uint32 (items,), those of each video together. It is kept.
        starts: int64 (videos,), where those of each video begin.
        sizes: int64 (videos,), how many each video has.
        per_batch: items in a batch.
        key: decides among all such orders, together with the order of the videos and of the items of each.

    """

    def __init__(
        self, items: NDArray[np.uint32], starts: NDArray[np.int64], sizes: NDArray[np.int64], per_batch: int, key: int
    ) -> None:
        by_rank = np.argsort(permutation(len(sizes), derive_key(key, "videos")))
        sizes = sizes[by_rank]
        self._items, self._per_batch = items, per_batch
        # A place is a position among all items, video by video.
        self._ends = np.cumsum(sizes)
        self._shifts = starts[by_rank] - (self._ends - sizes)
        last = _places_of_last_batch(sizes, per_batch)
        self._skipped = last - np.arange(len(last))
        self._rounds = np.argsort(permutation(len(items) // per_batch, derive_key(key, "batches")))
        self._within = permutation(len(items), derive_key(key, "within"))
        self._last = last[np.argsort(self._within[last])]

    def __len__(self) -> int:
        return len(self._items)

    def _at(self, positions: NDArray[np.int64]) -> NDArray[np.uint32]:
        batch, in_batch = np.divmod(positions, self._per_batch)
        is_last = batch == len(self._rounds)
        places = np.empty(len(positions), np.int64)
        places[is_last] = self._last[in_batch[is_last]]
        full, number = np.unique(batch[~is_last], return_inverse=True)
        places[~is_last] = self._places_of_full(full)[number, in_batch[~is_last]]
        return self._items[places + self._shifts[np.searchsorted(self._ends, places, side="right")]]

    def _places_of_full(self, batches: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of the items of full batches, in order: (batches, per_batch)."""
        rounds = self._rounds[batches, np.newaxis] + np.arange(self._per_batch) * len(self._rounds)
        places = rounds + np.searchsorted(self._skipped, rounds, side="right")
        return np.take_along_axis(places, np.argsort(self._within[places], axis=1), axis=1)


def _places_of_last_batch(sizes: NDArray[np.int64], per_batch: int) -> NDArray[np.int64]:
    """Which items the last batch of a `SpreadOrder` takes, counted video by video: int64, ascending."""
    full, missing = divmod(int(sizes.sum()), per_batch)
    starts = np.cumsum(sizes) - sizes
    excess = np.maximum(sizes - min_possible_per_batch(sizes, per_batch) * full, 0)
    ordinals = np.arange(excess.sum()) - np.repeat(np.cumsum(excess) - excess, excess)
    taken, ordinal = [np.repeat(starts, excess) + ordinals], 0
    missing -= len(ordinals)
    while missing:
        videos = np.flatnonzero((sizes > ordinal) & (excess <= ordinal))[:missing]
        taken.append(starts[videos] + ordinal)
        missing, ordinal = missing - len(videos), ordinal + 1
    return np.sort(np.concatenate(taken))


def spread_videos(videos: NDArray[Any], per_batch: int, key: int) -> NDArray[np.uint32]:
    """The positions in `videos`, (items,) which video each item is of, in a `SpreadOrder`: uint32 (items,)."""
    items = np.lexsort((permutation(len(videos), key), videos)).astype(np.uint32)
    _, starts, sizes = np.unique(videos[items], return_index=True, return_counts=True)
    return SpreadOrder(items, starts, sizes, per_batch, key)[:]


def min_possible_per_batch(sizes: NDArray[Any], per_batch: int) -> int:
    """The smallest limit on items of one video in a batch that any order can keep; `sizes`: items of each video."""
    full, short = divmod(int(sizes.sum()), per_batch)
    limit = -(-int(sizes.max(initial=0)) // max(full + bool(short), 1))
    while np.maximum(sizes - limit * full, 0).sum() > short:
        limit += 1
    return limit
