"""Seeds of what is drawn for an image on the device: functions of the face, whatever else is in its batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..sampling.hashing import derive_key, hash_numbers


def device_seeds(seed: int, epoch: int, rows: NDArray[np.int64], repeats: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Seeds of images, or clips, from (seed, epoch, row, how often the row came before in the epoch): uint64 (N,).

    `rows`: of the index, (N,), the first of each clip. `repeats`: (N,).
    """
    numbers = rows.astype(np.uint64) | repeats.astype(np.uint64) << np.uint64(32)  # rows have 32 bits
    return hash_numbers(numbers, derive_key("device", seed, epoch))
