"""`Index`: reads the index, memory-mapped."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from ...errors import CorruptDataError, UsageError
from ...files import raise_unless_damage, refuse_non_file
from ...json_records import brief, parse_json
from ..added_columns import ADDED, column_origins, keeps_columns, read_column_sets, with_folder
from ..index_like import OutdatedIndex
from ..manifest import check_unit_files
from ..out import OutPaths
from ..schema import DENSE_COLUMNS, UNINDEXED_COLUMNS, labels_of
from . import arrays, layout
from .batches import Batches, MappedFile
from .row_range import RowRange, Selection, check_row_count, joined

_ROWS_AT_ONCE = 1 << 20  # of which cells are gathered; bounds the memory


class Index:
    """Every row of a dataset, memory-mapped: opening it reads no rows, and processes share its pages. A batch that is
    damaged is found where it is first needed.

    All batches but the last have the same length, so the batch of a row is found by division. Pickled as its path and
    what tells its state from others: see `reopen_index`.
    `added`: fingerprints of the sets of added columns that it has, by name. `restore`: called in another process before
    it opens the index, of a dataset whose folder is a cache that may have been removed meanwhile. `address`: of such a
    dataset's store.
    """

    def __init__(self, out: Path, address: str | None = None) -> None:
        self.out, self.address = Path(out), address
        self.restore: Callable[[], None] | None = None
        path, remedy = layout.current_index_path(self.out), self.remedy
        try:
            refuse_non_file(path)
            mapped = MappedFile(path)
            reader = mapped.reader
            if reader.num_record_batches:
                reader.get_batch(0)  # with all dictionaries
            self.schema: pa.Schema = reader.schema
            self.labels, metadata = labels_of(self.schema), self.schema.metadata
            self.fingerprint = metadata[b"facefeed.fingerprint"].decode()
            self.added, self._missing = (_texts(metadata, name) for name in (ADDED, layout.MISSING))
            has_expected_schema = layout.has_expected_columns(self.schema, self.fingerprint)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UsageError(f"{path}: not there; finish `facefeed precompute`, or {remedy}") from error
        except UsageError:  # cannot be mapped
            raise
        except (CorruptDataError, KeyError, OSError, ValueError, pa.ArrowException) as error:
            raise_unless_damage(path, error)
            raise CorruptDataError(f"{path}: cannot be read ({error}); {remedy}") from error
        self._views: dict[tuple[str, int], Any] = {}
        self._checked: set[tuple[str, int]] = set()  # columns, by batch
        self._categories: dict[str, list[str]] = {}
        self._vector_dtypes: dict[str, np.dtype[Any]] = {}
        self._mapped = mapped
        self._batches = Batches(reader, path, remedy)
        self.num_rows: int = self._batches.num_rows
        check_row_count(self.num_rows, str(path))
        if not has_expected_schema:
            raise self._batches.other_layout()

    def __reduce__(self) -> tuple[Callable[..., Index | OutdatedIndex], tuple[Any, ...]]:
        return reopen_index, (self.out, self.fingerprint, column_origins(self.schema), self.restore, self.address)

    def __len__(self) -> int:
        return self.num_rows

    @property
    def remedy(self) -> str:
        """What to do where it is damaged, for messages."""
        if self.address is None:
            return f"run `facefeed verify {self.out} --rebuild-index`"
        return (
            f"remove {self.out}, so that it is fetched again; if that is damaged too, run `facefeed verify OUT "
            "--rebuild-index` where it was copied from, and copy it again"
        )

    @property
    def where(self) -> str:
        """The address of the dataset, or its folder, for messages."""
        return self.address or str(self.out)

    def hints(self, text: str) -> str:
        """The end of a message on `text`: where else the columns are that it names, and what adds them; else ""."""
        known = {name: self._with_place(hint) for name, hint in self._missing.items()}
        hints = {name: hint for name, hint in self._stored_elsewhere().items() if name not in self.schema.names} | known
        named = dict.fromkeys(hint for name, hint in hints.items() if re.search(rf"\b{name}\b", text))
        return "".join(f"; {hint}" for hint in named)

    def _with_place(self, hint: str) -> str:
        if self.address is None:
            return with_folder(hint, self.out)
        return f"{hint} on the folder that it was copied from, and copy it again"

    def _stored_elsewhere(self) -> dict[str, str]:
        """Columns that OUT has and the index has not, each with where it is."""
        too_large = "is too large for the index, so loaders do not have it; read it with pyarrow from {}"
        stored = {}
        if "landmarks_68" in self.schema.names and not self.added_fields:
            large = [name for name in DENSE_COLUMNS if name in UNINDEXED_COLUMNS]
            stored = {name: f"{name} {too_large.format(self.out / 'faces')}" for name in large}
        try:
            sets = read_column_sets(OutPaths(self.out))
        except (CorruptDataError, OSError):  # `facefeed verify` reports it
            return stored
        for column_set in sets:
            for name in column_set.schema.names:
                if column_set.name in self.added:
                    stored[name] = f"{name} {too_large.format(column_set.folder)}"
                elif not column_set.is_being_removed:
                    stored[name] = f"added columns {column_set.name!r} are not finished; run `{column_set.command}`"
        return stored

    @property
    def added_fields(self) -> list[pa.Field]:
        """Fields of the added columns."""
        return [field for field in self.schema if ADDED in (field.metadata or {})]

    @property
    def added_sets(self) -> dict[str, dict[str, Any]]:
        """What identifies each set of added columns, by name: `fingerprint`, and `columns`, Arrow types by name."""
        sets: dict[str, dict[str, Any]] = {
            name: {"fingerprint": fingerprint, "columns": {}} for name, fingerprint in self.added.items()
        }
        for field in self.added_fields:
            type_ = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            sets[field.metadata[ADDED].decode()]["columns"][field.name] = str(type_)
        return sets

    @property
    def categorical_columns(self) -> list[str]:
        """Names of the dictionary-encoded columns of strings."""
        return [field.name for field in self.schema if pa.types.is_dictionary(field.type)]

    def column(self, name: str) -> pa.ChunkedArray:
        """One column of all rows, zero-copy."""
        batches = self.batches([name])
        return pa.chunked_array([batch.column(0) for batch in batches], self.schema.field(name).type)

    def value(self, name: str, row: int) -> Any:
        """One cell as a Python value."""
        if pa.types.is_dictionary(self.schema.field(name).type):
            return self.text(name, row)
        batch, position = divmod(row, layout.BATCH_ROWS)
        if (name, batch) not in self._checked:
            self._viewed(name, batch, len)
            self._checked.add((name, batch))
        return self._batches[batch].column(name)[position].as_py()

    def box(self, name: str, row: int) -> tuple[float, float, float, float]:
        """A cell x0, y0, x1, y1; raises `CorruptDataError` where it is no box, since code computes with its sides."""
        x0, y0, x1, y1 = self.value(name, row)
        if not (math.isfinite(x1 - x0) and math.isfinite(y1 - y0) and min(x1 - x0, y1 - y0) >= 1):
            raise self._damage(name, ValueError(f"row {row} has no box, but {x0:g}, {y0:g}, {x1:g}, {y1:g}"))
        return x0, y0, x1, y1

    def rows_where(self, name: str, value: str) -> NDArray[np.uint32]:
        """Numbers uint32 (rows,) of the rows whose dictionary column `name` equals `value`, ascending."""
        return np.asarray(self.select(name, value))

    def select(self, name: str, value: str) -> Selection:
        """The rows of `rows_where`, as a range where none between them is missing."""
        return joined(rows_of_batch(number, matches) for number, matches in enumerate(self.matches(name, value)))

    def matches(self, name: str, value: str) -> Iterator[NDArray[np.bool_]]:
        """Whether the dictionary column `name` of each row equals `value`, batch by batch."""
        categories = self.categories(name)
        code = categories.index(value) if value in categories else None
        for number in range(len(self._batches)):
            yield np.equal(self._cached(name, number, arrays.codes), -2 if code is None else code)

    def numbers(self, name: str, rows: ArrayLike) -> NDArray[Any]:
        """Cells of a numeric column at `rows`, in that order; null is 0 for integers, NaN for floats."""
        return self._gather(rows, lambda batch: self._cached(name, batch, arrays.numbers))

    def number(self, name: str, row: int) -> Any:
        """One cell of a numeric column; null as in `numbers`."""
        batch, position = divmod(row, layout.BATCH_ROWS)
        return self._cached(name, batch, arrays.numbers)[position]

    def text(self, name: str, row: int) -> str | None:
        """One cell of a dictionary column; None where null."""
        batch, position = divmod(row, layout.BATCH_ROWS)
        code = self._cached(name, batch, arrays.codes)[position]
        return None if code < 0 else self.categories(name)[code]

    def codes(self, name: str, rows: ArrayLike) -> NDArray[np.int32]:
        """Cells of a dictionary column at `rows`, as positions in `categories(name)`; -1 where null."""
        codes: NDArray[np.int32] = self._gather(rows, lambda batch: self._cached(name, batch, arrays.codes))
        return codes

    def categories(self, name: str) -> list[str]:
        """The distinct strings of a dictionary column; `codes` are positions in this list."""
        if not self._batches:
            return []
        if name not in self._categories:
            try:
                self._mapped.read_ahead(self._batches[0].column(name).dictionary)
                dictionary = self._batches.dictionary(name)
                dictionary.validate(full=True)
                names = dictionary.to_pylist()
                if name == "file":
                    check_unit_files(names)  # they are opened
            except ValueError as error:
                raise self._damage(name, error) from error
            self._categories[name] = names
        return self._categories[name]

    def points(self, name: str, row: int) -> NDArray[np.float32]:
        """One cell of `landmarks` or `hull`: float32 (points, 2), crop px; read-only."""
        batch, position = divmod(row, layout.BATCH_ROWS)
        offsets, values = self._cached(name, batch, arrays.points)
        return values[offsets[position] : offsets[position + 1]]  # type: ignore[no-any-return]

    def boxes(self, name: str, rows: ArrayLike) -> NDArray[np.float32]:
        """Cells of a column of boxes at `rows`, in that order: float32 (rows, 4), xyxy."""
        return self._gather(rows, lambda batch: self._cached(name, batch, arrays.boxes))

    def vectors(self, name: str, rows: ArrayLike) -> NDArray[Any]:
        """Cells of a column of lists of one length at `rows`, in that order: (rows, *lengths); NaN where null.

        Of integers, float64 where any list of the column is null, at `rows` or elsewhere.
        """
        if name not in self._vector_dtypes:
            counted = attrgetter("null_count")
            has_nulls = any(self._viewed(name, number, counted, cells=False) for number in range(len(self._batches)))
            self._vector_dtypes[name] = arrays.vectors_dtype(self.schema.field(name).type, has_nulls=has_nulls)
        return self._gather(
            rows, lambda batch: self._cached(name, batch, arrays.vectors), dtype=self._vector_dtypes[name]
        )

    def landmarks(self, rows: ArrayLike) -> NDArray[np.float32]:
        """The landmarks at `rows`, in that order: float32 (rows, 5, 2), crop px."""
        return self._gather(rows, lambda batch: self._cached("landmarks", batch, arrays.points)[1].reshape(-1, 5, 2))

    def regions(self, row: int) -> dict[str, NDArray[np.float32]]:
        """Boxes of a face's regions: name -> float32 (4,), xyxy, crop px; read-only."""
        batch, position = divmod(row, layout.BATCH_ROWS)
        boxes: dict[str, NDArray[np.float32]] = self._cached("regions", batch, arrays.regions)
        return {name: values[position] for name, values in boxes.items()}

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, in order, zero-copy."""
        for number, batch in enumerate(self._batches):
            for name in columns:
                is_coded = pa.types.is_dictionary(self.schema.field(name).type)
                self._viewed(name, number, arrays.codes if is_coded else len)
            yield batch.select(columns)

    def check_bytes(self) -> None:
        """Reads all of the index; raises `CorruptDataError` where its bytes are not those that were written.

        Of an index from before there were checksums, only what cannot be read is found.
        """
        for name in self.categorical_columns:
            self.categories(name)
        for number in range(len(self._batches)):
            for name in self.schema.names:
                self._viewed(name, number, len)

    def _cached(self, name: str, batch: int, view: Callable[[pa.Array], Any]) -> Any:
        key = (name, batch)
        if key not in self._views:
            self._views[key] = self._viewed(name, batch, view)
        return self._views[key]

    def _viewed(self, name: str, batch: int, view: Callable[[pa.Array], Any], *, cells: bool = True) -> Any:
        """A view of a column of a batch; raises `CorruptDataError` where the column is damaged.

        `cells`: whether the view shows cells, all of which are then read once.
        """
        column = self._batches[batch].column(name)
        self._mapped.read_ahead(column)
        try:
            if cells:
                self._batches.check_column(batch, name)
            # Its lengths, and of texts and lists each offset: Arrow ends the process where one is beyond the values.
            column.validate(full=_has_offsets(column.type))
            return view(column)
        except ValueError as error:
            raise self._damage(name, error) from error

    def _damage(self, name: str, error: ValueError) -> CorruptDataError:
        return CorruptDataError(f"{self.where}: index.arrow: column {name}: {error}; {self.remedy}")

    def _gather(
        self, rows: ArrayLike, column: Callable[[int], NDArray[Any]], dtype: np.dtype[Any] | None = None
    ) -> NDArray[Any]:
        """Cells of `column(batch)` at `rows`; `dtype`: where batches differ in it."""
        row_numbers = rows if isinstance(rows, RowRange) else np.atleast_1d(np.asarray(rows))
        if not len(row_numbers) and not self._batches:
            return np.empty(0)
        first = column(int(row_numbers[0]) // layout.BATCH_ROWS if len(row_numbers) else 0)
        values = np.empty((len(row_numbers), *first.shape[1:]), dtype or first.dtype)
        for start in range(0, len(row_numbers), _ROWS_AT_ONCE):
            part = row_numbers[start : start + _ROWS_AT_ONCE].astype(np.int64)
            batches, positions = np.divmod(part, layout.BATCH_ROWS)
            part_values = values[start : start + len(part)]
            for batch, in_batch in arrays.by_value(batches):
                part_values[in_batch] = column(batch)[positions[in_batch]]
        return values


def rows_of_batch(number: int, is_selected: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """The selected rows of one of the batches of an `Index`: uint32 (rows,)."""
    return np.flatnonzero(is_selected).astype(np.uint32) + np.uint32(number * layout.BATCH_ROWS)


def reopen_index(
    out: Path,
    fingerprint: str,
    origins: dict[str, str],
    restore: Callable[[], None] | None,
    address: str | None,
) -> Index | OutdatedIndex:
    """The index of OUT in another process, if it still has the rows and the columns that it had in the first one."""
    if restore is not None:
        restore()
        if not layout.current_index_path(out).exists():  # the store has another state by now
            return OutdatedIndex(address or out)
    index = Index(out, address)
    index.restore = restore
    is_same = index.fingerprint == fingerprint and keeps_columns(index.schema, origins)
    return index if is_same else OutdatedIndex(address or out)


def _has_offsets(kind: pa.DataType) -> bool:
    """Whether Arrow finds a cell by offsets, as of texts and lists."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_list, pa.types.is_large_list)
    return any(is_kind(kind) for is_kind in kinds)


def _texts(metadata: dict[bytes, bytes], name: bytes) -> dict[str, str]:
    """An object of texts in the metadata, empty where it is not there; raises `ValueError` on anything else."""
    texts = parse_json(metadata.get(name, b"{}"))
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise ValueError(f"{name.decode()} is {brief(texts)}, not an object of texts")
    return texts
