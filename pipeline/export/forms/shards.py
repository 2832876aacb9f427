"""Shards: the rows of each split, in the order of OUT, in files of about a given size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...dataset.schema import SPLITS
from ..rows import Rows, StoredRows


def plan_shards(stored: StoredRows, rows: Rows, shard_bytes: int, row_overhead_bytes: int) -> list[tuple[str, Rows]]:
    """Split and rows of each shard; a split without rows has none.

    `row_overhead_bytes`: what a row takes beside its image and mask. A shard ends before `shard_bytes`, unless a single
    row is larger.
    """
    index = stored.index
    shards = []
    split_of_rows = index.codes("split", rows)
    categories = index.categories("split")
    for split in SPLITS:
        if split not in categories:
            continue
        in_split = rows[split_of_rows == categories.index(split)]
        stored_bytes = [index.numbers(column, in_split).astype(np.int64) for column in ("image_bytes", "mask_bytes")]
        sizes = np.sum(stored_bytes, axis=0) + row_overhead_bytes
        shards += [(split, part) for part in np.split(in_split, _starts(sizes, shard_bytes)) if len(part)]
    return shards


def _starts(sizes: NDArray[np.int64], shard_bytes: int) -> list[int]:
    """Positions at which a new shard starts, without the first."""
    ends = np.cumsum(sizes)
    starts, start = [], 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        start = max(start + 1, int(np.searchsorted(ends, before + shard_bytes, side="right")))
        starts.append(start)
    return starts[:-1]
