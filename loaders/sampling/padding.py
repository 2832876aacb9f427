"""Which units of an epoch are repeated in its last step, where that has fewer of them than there are ranks."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray


def first_units(num_images: int, unit_size: int, missing: int) -> NDArray[np.int64]:
    """Positions in the epoch, int64 (missing * unit_size,), of its first units; again where it has fewer."""
    return np.arange(missing * unit_size) % num_images


def first_units_within_video_limit(
    videos: NDArray[np.int32], unit_size: int, missing: int, *, num_last: int, max_per_video: int
) -> NDArray[np.int64]:
    """The same of the first units that leave every video of the step at `max_per_video` images or fewer.

    Where too few leave it, the epoch's first units follow: so only where it has fewer units than ranks, or with quotas.

    videos: int32 (images,), that of each image of the epoch. num_last: images of the last step, not repeated.
    """
    units = videos.reshape(-1, unit_size)
    in_step = Counter(videos[len(videos) - num_last :].tolist())
    full = [video for video, count in in_step.items() if count >= max_per_video]
    taken: list[int] = []
    for unit in np.flatnonzero(~np.isin(units[: len(units) - num_last // unit_size], full).any(axis=1)).tolist():
        if len(taken) == missing:
            break
        with_unit = in_step + Counter(units[unit].tolist())
        if max(with_unit[video] for video in units[unit].tolist()) <= max_per_video:
            in_step = with_unit
            taken.append(unit)
    chosen = np.array(taken, np.int64)[:, np.newaxis] * unit_size + np.arange(unit_size)
    return np.append(chosen.ravel(), first_units(len(videos), unit_size, missing - len(taken)))
