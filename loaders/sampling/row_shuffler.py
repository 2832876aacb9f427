"""Shuffles the rows of an epoch so that no batch holds more than `max_per_video` images of one video."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.index import Selection
from ...pipeline.dataset.index.whole_videos import rows_per_video, whole_videos
from ...pipeline.dataset.index_like import IndexLike
from ...pipeline.errors import UsageError
from .hashing import derive_key
from .orders import Order, permutation
from .shuffling import Shuffling, SpreadOrder, min_possible_per_batch, spread_videos

_ITEMS_AT_ONCE = 1 << 20


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
        windows = self.shuffling.windows(len(video_rows))
        if len(windows) == 1:
            return self._spread_all(video_rows, shuffled, derive_key(key, "spread", 0))
        order, videos = np.empty(len(video_rows), np.uint32), self.index.codes("video_id", video_rows)
        for number, window in enumerate(windows):  # of whole batches
            part = shuffled[window]
            self._check_sizes(*np.unique(videos[part], return_counts=True))
            order[window] = part[spread_videos(videos[part], self.batch_images, derive_key(key, "spread", number))]
        return order

    def _spread_all(self, video_rows: Selection, shuffled: Order, key: int) -> SpreadOrder:
        """Spreads each video over all batches; takes 8 bytes a row where the rows of each video lie together."""
        items = np.empty(len(video_rows), np.uint32)  # at first the rank of each among the items of its video
        ranks = permutation(len(items), key)
        for start in range(0, len(items), _ITEMS_AT_ONCE):
            items[shuffled[start : start + _ITEMS_AT_ONCE]] = ranks[start : start + _ITEMS_AT_ONCE]
        del ranks
        videos, starts, sizes = [], [], []
        for part, of_part in whole_videos(self.index, video_rows):
            by_video = np.argsort((of_part.astype(np.int64) << 32) | items[part])
            codes, first, counts = np.unique(of_part[by_video], return_index=True, return_counts=True)
            items[part] = part.start + by_video
            videos.append(codes)
            starts.append(part.start + first)
            sizes.append(counts)
        by_code = np.argsort(np.concatenate(videos))
        codes, counts = np.concatenate(videos)[by_code], np.concatenate(sizes)[by_code]
        self._check_sizes(codes, counts)
        return SpreadOrder(items, np.concatenate(starts)[by_code], counts, self.batch_images, key)

    def _check_sizes(self, videos: NDArray[np.int32], sizes: NDArray[np.int64]) -> None:
        """Checks an order of so many rows of each of these videos."""
        self.check_max_per_video(min_possible_per_batch(sizes, self.batch_images), int(videos[sizes.argmax()]))

    def check(self, video_rows: Selection) -> None:
        """Raises `UsageError` where an epoch of all these rows cannot keep `max_per_video`, or not surely.

        Which rows share a window differs from epoch to epoch: all of a video may.
        """
        if self.max_per_video is None or not len(video_rows):
            return
        videos, counts = rows_per_video(self.index, video_rows)
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
        _, counts = rows_per_video(self.index, group)
        if remainder == 0:  # every epoch is whole cycles
            return min_possible_per_batch(counts * cycles, self.batch_images)
        # In the worst case, the rows of a video come last in one cycle and first in the next.
        most = min(int(counts.max()) * (cycles + 2), num_drawn)
        return min(-(-most // max(num_drawn // self.batch_images, 1)), self.batch_images)
