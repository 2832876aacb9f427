"""The order of an epoch: which rows come, as pure functions of numbers that are the same on every machine.

No generator with a state is used: the position of everything follows from hashes (splitmix64), so the order depends on
neither the library's version, nor the number of workers or ranks, nor on what was asked before.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...pipeline.errors import UsageError
from .. import validation
from ..dataset.selection import Rows

Shuffle = Literal["none", "full", "window"]

BLOCK_ROWS = 128
"""Consecutive rows that a window keeps together: about 2 MB of images in one read."""


def key_of(*parts: object) -> int:
    """64 bits that stand for all parts together."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def hashes(count: int, key: int) -> NDArray[np.uint64]:
    """`count` hashes (count,) uint64 of the numbers from 0 under a key; splitmix64 (Steele et al., OOPSLA 2014)."""
    x = np.arange(count, dtype=np.uint64)
    x *= np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    x ^= x >> np.uint64(31)
    return x


def permutation(count: int, key: int) -> Rows:
    """The numbers below `count` in an order that the key decides: uint32 (count,)."""
    # The number itself fills the lower half, so that no two are equal and every way of sorting gives the same.
    mixed = hashes(count, key)
    mixed &= np.uint64(0xFFFFFFFF00000000)
    mixed |= np.arange(count, dtype=np.uint64)
    mixed.sort()
    return mixed.astype(np.uint32)  # the lower half


@dataclass(frozen=True, kw_only=True)
class Shuffling:
    """How rows are mixed: not at all, over the whole, or within a window of `window_images` that moves on.

    A window is filled with blocks of up to `BLOCK_ROWS` rows that follow each other on disk, drawn from the whole
    dataset; so storage is read in long runs, and no more than two windows need to be in memory.
    """

    mode: Shuffle = "full"
    window_images: int = 16_384

    def __post_init__(self) -> None:
        if self.mode not in ("none", "full", "window"):
            raise UsageError(f"shuffle={self.mode!r}: must be True, False, 'full' or 'window'")

    @classmethod
    def of(cls, shuffle: Any, window_images: int) -> Shuffling:
        """What torch's `shuffle` (True, False) or ours ("full", "window") means."""
        mode: Any = ("full" if shuffle else "none") if isinstance(shuffle, bool) else shuffle
        images = validation.whole("window_images", window_images, least=BLOCK_ROWS, such_as=16_384)
        return cls(mode=mode, window_images=images)

    def __call__(self, rows: Rows, key: int) -> Rows:
        """The same rows, mixed."""
        if self.mode == "none":
            return rows
        if self.mode == "full":
            return rows[permutation(len(rows), key)]
        laid = _mixed_blocks(rows, key)
        for number, window in enumerate(self.windows(len(laid))):
            part = laid[window]
            laid[window] = part[permutation(len(part), key_of(key, number))]
        return laid

    def scaled(self, share: float) -> Shuffling:
        """The same for a part of the stream: its share of the window."""
        return replace(self, window_images=max(round(self.window_images * share), BLOCK_ROWS))

    def windows(self, count: int) -> list[slice]:
        """The stretches of an epoch of `count` images within which images change places."""
        size = self.window_images if self.mode == "window" else max(count, 1)
        return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _mixed_blocks(rows: Rows, key: int) -> Rows:
    count = -(-len(rows) // BLOCK_ROWS)
    order = permutation(count, key)
    positions = (order[:, None].astype(np.int64) * BLOCK_ROWS + np.arange(BLOCK_ROWS)).ravel()
    laid: Rows = rows[positions[positions < len(rows)]]
    return laid


def spread(codes: NDArray[Any], per_batch: int, key: int) -> NDArray[np.int64]:
    """An order in which no batch holds more items of one code than `least_of_one` says: no order can do better.

    `codes` (items,) says which video each item is of. Returns positions (items,) int64: `codes[spread(...)]` in batches
    of `per_batch`, the last one shorter. That one takes what the full ones cannot hold, then an item of each video in
    turn; all else is dealt like cards, video by video, one to each full batch.
    """
    count = len(codes)
    full, short = divmod(count, per_batch)
    _, video, sizes = np.unique(codes, return_inverse=True, return_counts=True)
    turn = permutation(len(sizes), key_of(key, "videos"))
    by_video = np.lexsort((permutation(count, key), turn[video]))
    video = video[by_video]
    starts = np.flatnonzero(np.append(True, video[1:] != video[:-1])) if count else np.empty(0, np.int64)
    number = np.arange(count) - np.repeat(starts, sizes[video[starts]])
    beyond = number >= (sizes - least_of_one(sizes, per_batch) * full)[video]
    in_last = np.lexsort((number, beyond))[:short]
    batch = np.full(count, full)
    others = np.delete(np.arange(count), in_last)
    batch[others] = permutation(full, key_of(key, "batches"))[np.arange(len(others)) % max(full, 1)]
    return by_video[np.lexsort((permutation(count, key_of(key, "within")), batch))]


def least_of_one(sizes: NDArray[Any], per_batch: int) -> int:
    """How many items of one video some batch of `per_batch` has to hold at least; `sizes`: of each video, its items."""
    full, short = divmod(int(sizes.sum()), per_batch)
    least = -(-int(sizes.max(initial=0)) // max(full + bool(short), 1))
    while np.maximum(sizes - least * full, 0).sum() > short:
        least += 1
    return least


def most_of_one(codes: NDArray[Any], per_batch: int) -> int:
    """The most items of one code in any batch of `per_batch` consecutive ones."""
    if not len(codes):
        return 0
    _, dense = np.unique(codes, return_inverse=True)
    batch = np.arange(len(codes)) // per_batch
    _, counts = np.unique(batch * (int(dense.max()) + 1) + dense, return_counts=True)
    return int(counts.max())
