"""Shuffles the rows of an epoch so that no batch holds more than `max_per_video` images of one video."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.index import Index
from ...pipeline.errors import UsageError
from ..dataset.selection import Rows
from .order import Shuffling, derive_key, max_per_batch, min_possible_per_batch, spread_videos


@dataclass(frozen=True, kw_only=True)
class RowShuffler:
    """Shuffles rows by `shuffling`; with `max_per_video`, spreads the images of each video over the batches.

    `batch_images`: images of one step over all ranks. In the methods, `share` is the part of each batch, 0 to 1, that
    these rows fill.
    """

    index: Index
    shuffling: Shuffling
    batch_images: int
    max_per_video: int | None = None

    def __call__(self, rows: Rows, video_rows: Rows, key: int, *, share: float = 1.0) -> NDArray[np.int64]:
        """Returns positions in `rows`, int64 (rows,), in shuffled order; row `i` is of the video of `video_rows[i]`.

        Raises `UsageError` where a window has too many rows of one video to keep `max_per_video`.
        """
        shuffling, per_batch = self._shuffling_for(share), self._images_per_batch(share)
        order = shuffling(np.arange(len(rows), dtype=np.uint32), key).astype(np.int64)
        if self.max_per_video is None:
            return order
        videos = self.index.codes("video_id", video_rows)
        for number, window in enumerate(shuffling.windows(len(order))):
            part = order[window]
            order[window] = part[spread_videos(videos[part], per_batch, derive_key(key, "spread", number))]
        self._check_max_per_video(max_per_batch(videos[order], per_batch))
        return order

    def check(self, video_rows: Rows, *, share: float = 1.0) -> None:
        """Raises `UsageError` where an epoch of all these rows cannot keep `max_per_video`.

        Checks only full shuffles: with windows, which rows share a window differs from epoch to epoch.
        """
        if self.max_per_video is not None and self.shuffling.mode == "full":
            rows_per_video = self._rows_per_video(video_rows)
            self._check_max_per_video(min_possible_per_batch(rows_per_video, self._images_per_batch(share)))

    def check_streams(self, groups: list[Rows], num_drawn: list[int], shares: list[float]) -> None:
        """The same check for endless streams that repeat `groups[i]`, of which an epoch draws `num_drawn[i]` rows."""
        if self.max_per_video is not None:
            streams = zip(groups, num_drawn, shares, strict=True)
            self._check_max_per_video(max(self._max_of_stream(*stream) for stream in streams))

    def _max_of_stream(self, group: Rows, num_drawn: int, share: float) -> int:
        per_batch, (cycles, remainder) = self._images_per_batch(share), divmod(num_drawn, len(group))
        rows_per_video = self._rows_per_video(group)
        if remainder == 0:  # every epoch is whole cycles
            return min_possible_per_batch(rows_per_video * cycles, per_batch)
        # In the worst case, the rows of a video come last in one cycle and first in the next.
        most = min(int(rows_per_video.max()) * (cycles + 2), num_drawn)
        return min(-(-most // max(num_drawn // per_batch, 1)), per_batch)

    def _check_max_per_video(self, most: int) -> None:
        if self.max_per_video is not None and most > self.max_per_video:
            raise UsageError(
                f"max_per_video={self.max_per_video}: one video has so many images that a batch has to hold {most} of "
                f"them; try max_per_video={most}, or frames_per_video"
            )

    def _images_per_batch(self, share: float) -> int:
        return max(round(self.batch_images * share), 1)

    def _shuffling_for(self, share: float) -> Shuffling:
        """The shuffling of a part of the stream; with `max_per_video`, windows hold whole batches."""
        shuffling = self.shuffling if share == 1 else self.shuffling.scaled(share)
        if shuffling.mode != "window" or self.max_per_video is None:
            return shuffling
        per_batch = self._images_per_batch(share)
        return replace(shuffling, window_images=-(-shuffling.window_images // per_batch) * per_batch)

    def _rows_per_video(self, rows: Rows) -> NDArray[np.int64]:
        _, counts = np.unique(self.index.codes("video_id", rows), return_counts=True)
        return counts
