"""How often a row came before in an epoch: 0 where every row comes once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..dataset.selection import Rows


def count_earlier(rows: Rows) -> NDArray[np.uint32]:
    """For each row of an order, how often the same row came before it: uint32 (rows,)."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    is_first = np.append(True, ordered[1:] != ordered[:-1])[: len(rows)]
    firsts = np.flatnonzero(is_first)
    counts = np.arange(len(rows)) - firsts[np.cumsum(is_first) - 1]
    earlier = np.empty(len(rows), np.uint32)
    earlier[order] = counts
    return earlier
