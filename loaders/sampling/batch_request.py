"""`BatchRequest`: which batch a worker is to prepare."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..dataset.selection import ClipRows, Rows


@dataclass(frozen=True)
class BatchRequest:
    """Which batch to prepare: the `rows` of the index and their positions in the step's global batch.

    rows: uint32 (N,). global_positions: int64 (N,), 0 .. batch size x ranks - 1. first_image: images of the epoch, over
    all ranks, before this step. slot: the slot of the shared pool to write the images to, or None. clips: of a loader
    of clips, the images of each, N clips; `rows` then name the items. repeats: uint32 (N,), how often each row came
    before in the epoch; None where nobody asks.
    """

    epoch: int
    step: int
    rows: Rows
    global_positions: NDArray[np.int64]
    first_image: int
    slot: int | None = None
    clips: ClipRows | None = None
    repeats: NDArray[np.uint32] | None = None
