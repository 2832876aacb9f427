"""`StoreParts`: those of a dataset's rows that are in object stores, and what reading them takes."""

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
class StorePart:
    """One dataset in a store, whose rows are `first` .. `first + len(index)` of the whole."""

    first: int
    index: Index
    images: StoredImages
    reader: StoreReader

    def own_rows(self, rows: Rows) -> Rows:
        """Those of the rows that are of it, by their numbers in its index."""
        return rows[(rows >= self.first) & (rows < self.first + len(self.index))] - np.uint32(self.first)

    def block_bytes(self, rows: Rows) -> int:
        """Bytes of all blocks that hold images of some of its rows."""
        size, index = self.reader.block_bytes, self.index
        starts = index.numbers("image_offset", rows)
        ends = starts + index.numbers("image_bytes", rows) - 1
        files = index.codes("file", rows).astype(np.int64) << 32
        return len(np.unique(np.concatenate([files + starts // size, files + ends // size]))) * size


@dataclass(frozen=True)
class StoreParts:
    """The parts of a dataset that are in stores: none of a local one. Picklable, like the images of each."""

    parts: tuple[StorePart, ...] = field(default=())

    def __bool__(self) -> bool:
        return bool(self.parts)

    @classmethod
    def of(cls, indexes: Sequence[Index], images: Sequence[StoredImages]) -> Self:
        """Those of some datasets in their order that are in stores."""
        parts, first = [], 0
        for index, each in zip(indexes, images, strict=True):
            if isinstance(each.ranges, StoreReader):
                parts.append(StorePart(first=first, index=index, images=each, reader=each.ranges))
            first += len(index)
        return cls(tuple(parts))

    def prefetch(self, rows: Sequence[int], *, masks: bool) -> None:
        """Fetches at once what the loading of these rows needs; raises as `StoreReader.prefetch`."""
        numbers = np.asarray(rows, np.uint32)
        for part in self.parts:
            part.images.prefetch(part.own_rows(numbers).tolist(), masks=masks)

    def take_counts(self) -> StoreCounts | None:
        """What reading took since the last call, in this process; None without stores."""
        return reduce(add, [part.reader.counter.take() for part in self.parts]) if self.parts else None

    def for_another_thread(self) -> Self:
        """The same, with connections and counts of their own."""
        parts = []
        for part in self.parts:
            reader = part.reader.another()
            images = StoredImages(part.index, reader)
            parts.append(StorePart(first=part.first, index=part.index, images=images, reader=reader))
        return type(self)(tuple(parts))

    def local(self, rows: Rows) -> Rows:
        """Those of the rows that are in no store."""
        is_stored = np.zeros(len(rows), np.bool_)
        for part in self.parts:
            is_stored |= (rows >= part.first) & (rows < part.first + len(part.index))
        return rows[~is_stored]

    def block_bytes(self, rows: Rows) -> int:
        """Bytes of all blocks that hold images of these rows."""
        return sum(part.block_bytes(part.own_rows(rows)) for part in self.parts)

    @property
    def limit_bytes(self) -> int:
        """Most that their cache takes."""
        return self.parts[0].reader.limit_bytes

    @property
    def addresses(self) -> dict[Path, str]:
        """The address of each by the folder of its index."""
        return {part.index.out: part.reader.where for part in self.parts}

    @property
    def remedies(self) -> dict[Path, Any]:
        """What to do about damaged images of each, by the folder of its index."""
        return {part.index.out: part.reader.remedy for part in self.parts}
