"""What a form reads of OUT: light columns from the index, and the stored images and masks."""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import suppress
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..dataset.added_columns import IncompleteSet, complete_sets
from ..dataset.index import INDEX_COLUMNS
from ..dataset.manifest import Manifest, Receipt
from ..dataset.open_dataset import open_dataset
from ..dataset.out import OutPaths
from ..dataset.stored_images import StoredImages
from ..dataset.stores.opening import StoreOptions, open_store
from ..errors import CorruptDataError
from ..files import refuse_address

Rows = NDArray[np.uint32]
"""Row numbers in the index (rows,), ascending."""

_DEFAULT = StoreOptions()


class StoredRows:
    """The rows of a finished dataset, in a folder or at an address.

    `index`: of OUT. `images`: of its rows. `suffix`: of the stored images, such as ".jpg". Not thread-safe.
    Raises what `open_dataset` raises or, of a store, `open_store`.
    """

    def __init__(self, out: Path | str, options: StoreOptions = _DEFAULT) -> None:
        if isinstance(out, Path):
            refuse_address(out, "write it with two slashes, and from Python as a text, not as a Path")
            self.manifest, self.index = open_dataset(out)
            self.images = StoredImages(self.index)
        else:
            store = open_store(out, options)
            self.manifest, self.index = Manifest.read(store.folder), store.index
            self.images = StoredImages(self.index, store.reader)
        self.suffix = {"jpeg": ".jpg"}.get(format_ := self.manifest.image_format, f".{format_}")
        self.light_columns = [name for name in self.index.schema.names if name not in INDEX_COLUMNS]

    def select(self, split: str | None) -> Rows:
        """Rows of a split, or all."""
        return np.arange(len(self.index), dtype=np.uint32) if split is None else self.index.rows_where("split", split)

    def by_file(self, rows: Rows) -> Iterator[tuple[str, Rows]]:
        """`rows` by the Parquet file that holds them: its name relative to OUT, and the rows."""
        names = self.index.categories("file")
        codes = self.index.codes("file", rows)
        starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])) if len(rows) else np.empty(0, np.int64)
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            yield names[codes[start]], rows[start:end]

    def incomplete_sets(self) -> list[IncompleteSet]:
        """The sets of added columns of OUT that the index lacks; raises `CorruptDataError` where one is damaged."""
        complete, incomplete = complete_sets(OutPaths(self.index.out), self._units(), other_than=self.index.added)
        return [*incomplete, *(IncompleteSet(column_set, 0, 0) for column_set in complete)]

    def _units(self) -> Iterator[Receipt]:
        """Receipts of the files that hold the rows, as far as they can be read."""
        for name in self.index.categories("file"):
            path = OutPaths(self.index.out).receipt(PurePosixPath(name).stem)
            with suppress(OSError, CorruptDataError):
                yield Receipt.from_json(path.read_bytes(), where=str(path))

    def rows_of(self, face_ids: Set[str]) -> Rows:
        """Rows of some faces."""
        if not face_ids:
            return np.empty(0, np.uint32)
        wanted, found, start = pa.array(face_ids, pa.string()), [], 0
        for batch in self.index.batches(["face_id"]):
            is_wanted = pc.is_in(batch.column("face_id"), value_set=wanted).to_numpy(zero_copy_only=False)
            found.append(np.flatnonzero(is_wanted) + start)
            start += batch.num_rows
        return np.concatenate(found).astype(np.uint32)

    def label_name(self, row: int) -> str | None:
        """Name of a row's label; None where it is unknown."""
        number = int(self.index.number("label", row))
        return self.index.labels[number] if 0 <= number < len(self.index.labels) else None

    def batches(self, rows: Rows, max_rows: int) -> Iterator[tuple[Rows, pa.RecordBatch]]:
        """The light columns of `rows`, at most `max_rows` at a time, with their row numbers."""
        start = 0
        for batch in self.index.batches(self.light_columns):
            first, end = np.searchsorted(rows, [start, start + batch.num_rows])
            for position in range(first, end, max_rows):
                chunk = rows[position : min(position + max_rows, end)]
                yield chunk, batch.take(pa.array(chunk.astype(np.int64) - start))
            start += batch.num_rows
