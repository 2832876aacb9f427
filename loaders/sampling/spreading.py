"""How a stream of rows is put in order, and what keeps one video from filling a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.index import Index
from ...pipeline.errors import UsageError
from ..dataset.selection import Rows
from .order import Shuffling, key_of, least_of_one, most_of_one, spread


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """Mixes rows, so that no video is in a batch more often than allowed.

    `batch_images`: of one step, over all ranks. `share`, in what follows: these rows' part of each batch.
    """

    index: Index
    shuffling: Shuffling
    batch_images: int
    max_per_video: int | None = None

    def __call__(self, rows: Rows, of_video: Rows, key: int, *, share: float = 1.0) -> NDArray[np.int64]:
        """An order of `rows` as positions. Row `i` counts for the video of row `of_video[i]`.

        Raises `UsageError` where a window has too many rows of one video to keep `max_per_video`.
        """
        shuffling, per_batch = self._windows(share), self._per_batch(share)
        order = shuffling(np.arange(len(rows), dtype=np.uint32), key).astype(np.int64)
        if self.max_per_video is None:
            return order
        videos = self.index.codes("video_id", of_video)
        for number, window in enumerate(shuffling.windows(len(order))):
            part = order[window]
            order[window] = part[spread(videos[part], per_batch, key_of(key, "spread", number))]
        self._allow(most_of_one(videos[order], per_batch))
        return order

    def check(self, of_video: Rows, *, share: float = 1.0) -> None:
        """Raises `UsageError` where an epoch of all these rows cannot keep `max_per_video`.

        With windows it depends on the epoch which rows meet in one, so there it is known only then.
        """
        if self.max_per_video is not None and self.shuffling.mode == "full":
            self._allow(least_of_one(self._rows_of_each(of_video), self._per_batch(share)))

    def check_streams(self, groups: list[Rows], drawn: list[int], shares: list[float]) -> None:
        """The same where each epoch draws so many rows of endless streams, each of which repeats its group."""
        if self.max_per_video is not None:
            streams = zip(groups, drawn, shares, strict=True)
            self._allow(max(self._most_of_stream(*stream) for stream in streams))

    def _most_of_stream(self, group: Rows, drawn: int, share: float) -> int:
        per_batch, (cycles, rest) = self._per_batch(share), divmod(drawn, len(group))
        sizes = self._rows_of_each(group)
        if rest == 0:  # every epoch is whole cycles
            return least_of_one(sizes * cycles, per_batch)
        # At worst, the rows of a video come last in one cycle and first in the next.
        most = min(int(sizes.max()) * (cycles + 2), drawn)
        return min(-(-most // max(drawn // per_batch, 1)), per_batch)

    def _allow(self, most: int) -> None:
        if self.max_per_video is not None and most > self.max_per_video:
            raise UsageError(
                f"max_per_video={self.max_per_video}: one video has so many images that a batch has to hold {most} of "
                f"them; try max_per_video={most}, or frames_per_video"
            )

    def _per_batch(self, share: float) -> int:
        return max(round(self.batch_images * share), 1)

    def _windows(self, share: float) -> Shuffling:
        """The shuffling of a part of the stream; a batch lies in one window where its videos are counted."""
        shuffling = self.shuffling if share == 1 else self.shuffling.scaled(share)
        if shuffling.mode != "window" or self.max_per_video is None:
            return shuffling
        per_batch = self._per_batch(share)
        return replace(shuffling, window_images=-(-shuffling.window_images // per_batch) * per_batch)

    def _rows_of_each(self, rows: Rows) -> NDArray[np.int64]:
        _, sizes = np.unique(self.index.codes("video_id", rows), return_counts=True)
        return sizes
