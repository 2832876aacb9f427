"""Shuffles the rows of an epoch so that no batch holds more than `max_per_video` images of one video."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.index import Selection
from ...pipeline.dataset.index_like import IndexLike
from ...pipeline.errors import UsageError
from .hashing import derive_key
from .orders import Order
from .shuffling import Shuffling, max_per_batch, min_possible_per_batch, spread_videos


@dataclass(frozen=True, kw_only=True)
class RowShuffler:
    """Shuffles rows by `shuffling`; with `max_per_video`, spreads the images of each video over the batches.

    `batch_images`: how many of these rows one step holds, over all ranks.
    """

    index: IndexLike
    shuffling: Shuffling
    batch_images: int
    max_per_video: int | None = None

    def for_share(self, share: float) -> RowShuffler:
        """The shuffler of rows that fill this share of each batch, 0 to 1.

        With `max_per_video`, its windows hold whole batches.
        """
        shuffling, batch_images = self.shuffling.scaled(share), max(round(self.batch_images * share), 1)
        if shuffling.mode == "window" and self.max_per_video is not None:
            images = -(-shuffling.window_images // batch_images) * batch_images
            shuffling = replace(shuffling, window_images=images, batch_images=batch_images)
        return replace(self, shuffling=shuffling, batch_images=batch_images)

    def __call__(self, video_rows: Selection, key: int) -> Order:
        """Returns the positions 0 .. `len(video_rows)` - 1, shuffled; item `i` is of `video_rows[i]`'s video.

        Raises `UsageError` where these rows, of which `check` knows nothing, cannot keep `max_per_video`.
        """
        shuffled = self.shuffling.order(len(video_rows), key)
        if self.max_per_video is None:
            return shuffled
        order = shuffled[:].astype(np.int64)
        videos = self.index.codes("video_id", video_rows)
        for number, window in enumerate(self.shuffling.windows(len(order))):
            part = order[window]
            order[window] = part[spread_videos(videos[part], self.batch_images, derive_key(key, "spread", number))]
        self.check_max_per_video(*max_per_batch(videos[order], self.batch_images))
        return order

    def check(self, video_rows: Selection) -> None:
        """Raises `UsageError` where an epoch of all these rows cannot keep `max_per_video`, or not surely.

        Which rows share a window differs from epoch to epoch: all of a video may.
        """
        if self.max_per_video is None or not len(video_rows):
            return
        videos, counts = self._rows_per_video(video_rows)
        sizes = {window.stop - window.start for window in self.shuffling.windows(len(video_rows))}
        largest, other_remedies = int(counts.max()), "or frames_per_video"
        if sizes == {len(video_rows)}:
            most = min_possible_per_batch(counts, self.batch_images)
        else:
            most = max(-(-min(largest, size) // max(size // self.batch_images, 1)) for size in sizes)
            most = min(most, self.batch_images)
            other_remedies = "frames_per_video, or a larger window_images"
        self.check_max_per_video(most, int(videos[counts.argmax()]), other_remedies)

    def check_max_per_video(self, most: int, video: int, other_remedies: str = "or frames_per_video") -> None:
        """Raises `UsageError` where a batch may have to hold `most` images of one video and `max_per_video` is less.

        `video`: its code in the column `video_id`.
        """
        if self.max_per_video is not None and most > self.max_per_video:
            raise UsageError(
                f"max_per_video={self.max_per_video}: one video has so many images that a batch may have to hold "
                f"{most} of them, {self.index.categories('video_id')[video]}; try max_per_video={most}, "
                f"{other_remedies}"
            )

    def limit_of_stream(self, group: Selection, num_drawn: int) -> int:
        """The least `max_per_video` that holds where each epoch draws `num_drawn` rows of an endless repetition."""
        cycles, remainder = divmod(num_drawn, len(group))
        _, rows_per_video = self._rows_per_video(group)
        if remainder == 0:  # every epoch is whole cycles
            return min_possible_per_batch(rows_per_video * cycles, self.batch_images)
        # In the worst case, the rows of a video come last in one cycle and first in the next.
        most = min(int(rows_per_video.max()) * (cycles + 2), num_drawn)
        return min(-(-most // max(num_drawn // self.batch_images, 1)), self.batch_images)

    def _rows_per_video(self, rows: Selection) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The codes of the videos that have some of these rows, and how many."""
        return np.unique(self.index.codes("video_id", rows), return_counts=True)
