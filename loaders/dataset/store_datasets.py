"""`StoreDatasets`: the datasets that a loader reads from object stores, and the requests that reading takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Self

import numpy as np

from ...pipeline.dataset.index import Index
from ...pipeline.dataset.stored_images import StoredImages
from ...pipeline.dataset.stores.counts import StoreCounts
from ...pipeline.dataset.stores.reader import StoreReader
from .selection import Rows


@dataclass(frozen=True, kw_only=True)
class StoreDataset:
    """One dataset in a store. Its rows are `first` .. `first + len(index)` of those of all datasets of the loader."""

    first: int
    index: Index
    images: StoredImages
    reader: StoreReader

    def own_rows(self, rows: Rows) -> Rows:
        """Those of `rows` that belong to this dataset, as row numbers of its own index."""
        return rows[(rows >= self.first) & (rows < self.first + len(self.index))] - np.uint32(self.first)

    def block_bytes(self, rows: Rows) -> int:
        """Bytes of all blocks that hold images of `rows`, which are row numbers of its own index."""
        size, index = self.reader.block_bytes, self.index
        starts = index.numbers("image_offset", rows)
        ends = starts + index.numbers("image_bytes", rows) - 1
        files = index.codes("file", rows).astype(np.int64) << 32
        return len(np.unique(np.concatenate([files + starts // size, files + ends // size]))) * size


@dataclass(frozen=True)
class StoreDatasets:
    """Those of a loader's datasets that are in stores; empty where all are local. Picklable."""

    datasets: tuple[StoreDataset, ...] = field(default=())

    def __bool__(self) -> bool:
        return bool(self.datasets)

    @classmethod
    def of(cls, indexes: Sequence[Index], images: Sequence[StoredImages]) -> Self:
        """Selects those in stores from all datasets of a loader, given in order by their indexes and images."""
        datasets, first = [], 0
        for index, each in zip(indexes, images, strict=True):
            if isinstance(each.ranges, StoreReader):
                datasets.append(StoreDataset(first=first, index=index, images=each, reader=each.ranges))
            first += len(index)
        return cls(tuple(datasets))

    def prefetch(self, rows: Sequence[int], *, masks: bool) -> None:
        """Fetches concurrently the blocks that loading `rows` needs; raises as `StoreReader.prefetch`."""
        numbers = np.asarray(rows, np.uint32)
        for dataset in self.datasets:
            dataset.images.prefetch(dataset.own_rows(numbers).tolist(), masks=masks)

    def take_counts(self) -> StoreCounts | None:
        """Requests and bytes of this process since the last call; None without stores."""
        return reduce(add, [dataset.reader.counter.take() for dataset in self.datasets]) if self.datasets else None

    def for_another_thread(self) -> Self:
        """Returns a copy with its own connections and counts."""
        datasets = []
        for dataset in self.datasets:
            reader = dataset.reader.for_another_thread()
            images = StoredImages(dataset.index, reader)
            datasets.append(StoreDataset(first=dataset.first, index=dataset.index, images=images, reader=reader))
        return type(self)(tuple(datasets))

    def local(self, rows: Rows) -> Rows:
        """Those of `rows` that belong to local datasets."""
        is_stored = np.zeros(len(rows), np.bool_)
        for dataset in self.datasets:
            is_stored |= (rows >= dataset.first) & (rows < dataset.first + len(dataset.index))
        return rows[~is_stored]

    def block_bytes(self, rows: Rows) -> int:
        """Bytes of all blocks that hold images of `rows`."""
        return sum(dataset.block_bytes(dataset.own_rows(rows)) for dataset in self.datasets)

    @property
    def limit_bytes(self) -> int:
        """Limit of their cache in bytes."""
        return self.datasets[0].reader.limit_bytes

    @property
    def remedies(self) -> dict[Path, Any]:
        """Advice on damaged images of each dataset, by the folder of its index."""
        return {dataset.index.out: dataset.reader.remedy for dataset in self.datasets}
