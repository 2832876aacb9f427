"""`MixedIndex`: the indexes of several datasets, one after another, as one."""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from ...pipeline.dataset.frame_numbers import frame_numbers
from ...pipeline.dataset.index import Index
from ...pipeline.dataset.index.row_range import check_row_count
from ...pipeline.dataset.index_like import OutdatedIndex
from ...pipeline.dataset.reserved_names import DATASET_COLUMN
from ...pipeline.errors import UsageError
from .names import ID_COLUMNS, Rename, check_rename, merged_labels

_FRAME_NUMBER = "frame_number"


class MixedIndex:
    """What loaders ask of an `Index`, over the rows of several: `offsets[i]` .. `offsets[i + 1]` are of dataset i.

    It has the columns that all of them have with the same type, `frame_number` where any has it, which older ones may
    lack (-1 there), and `DATASET_COLUMN`. Labels and classes are those of the mixture: equal by name, not by number.
    Codes of videos, sources, people and files differ between datasets, even where their names are the same. Pickled by
    its settings.

    Args:
        indexes: by the name of their dataset.
        rename: see `Rename`; None: every name is the same in the mixture.

    Raises:
        UsageError: a name that cannot be mapped.

    """

    def __init__(self, indexes: Mapping[str, Index], rename: Rename | None = None) -> None:
        self.rename = check_rename(rename, indexes)
        self.names, self.indexes = list(indexes), list(indexes.values())
        self.outs: list[Path] = [index.out for index in self.indexes]
        self.offsets = np.cumsum([0, *(len(index) for index in self.indexes)]).tolist()
        check_row_count(len(self), ", ".join(self.names))
        own = [[self._renamed(n, "label", name) for name in index.labels] for n, index in enumerate(self.indexes)]
        self._own_labels = dict(zip(self.names, own, strict=True))
        self.labels = merged_labels(self._own_labels)
        self._label_numbers = [np.array([*map(self.labels.index, names), -1]) for names in own]
        self.schema = self._common_schema()
        self.fingerprint = self._mixed_fingerprint()
        self._merged: dict[str, tuple[list[str], list[NDArray[np.int32]]]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (dict(zip(self.names, self.indexes, strict=True)), self.rename)

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def _renamed(self, dataset: int, column: str, name: Any) -> Any:
        return self.rename.get(self.names[dataset], {}).get(column, {}).get(name, name)

    def _common_schema(self) -> pa.Schema:
        for name, index in zip(self.names, self.indexes, strict=True):
            if DATASET_COLUMN in index.schema.names:
                raise UsageError(
                    f"{name} ({index.where}): has a column {DATASET_COLUMN}, which mixtures add themselves"
                )
        schemas = [index.schema for index in self.indexes]
        newest = next((schema for schema in schemas if _FRAME_NUMBER in schema.names), schemas[0])
        fields = [
            field
            for field in newest
            if field.name == _FRAME_NUMBER or all(_has_field(schema, field) for schema in schemas)
        ]
        return pa.schema([*fields, pa.field(DATASET_COLUMN, pa.int64(), nullable=False)])

    def _mixed_fingerprint(self) -> str:
        """Of the datasets in their order and of what `rename` changes, but not of their names: folders may move.

        Of the labels too where earlier versions had another order: fake first, where no class is called real.
        """
        renamed = [self.rename.get(name, {}) for name in self.names]
        parts: list[Any] = [[index.fingerprint for index in self.indexes], renamed]
        lower = [label.lower() for label in self.labels]
        parts += [self.labels] if "real" not in lower and "fake" in lower[1:] else []
        state = json.dumps(parts, sort_keys=True, default=dict)
        return hashlib.sha256(state.encode()).hexdigest()

    def changed_columns(self) -> dict[str, str]:
        """A dataset for each column whose numbers or names are others in the mixture than in that dataset."""
        changed = {}
        for name, numbers in zip(self.names, self._label_numbers, strict=True):
            if numbers.tolist() != [*range(len(numbers) - 1), -1]:
                changed["label"] = name
        for name, columns in self.rename.items():
            for column, names in columns.items():
                if column != "label" and any(old != new for old, new in names.items()):
                    changed[column] = name
        return changed

    @property
    def categorical_columns(self) -> list[str]:
        """Names of the columns of strings that repeat."""
        return [field.name for field in self.schema if pa.types.is_dictionary(field.type)]

    def hints(self, text: str) -> str:
        """The end of a message on `text`: which datasets lack the columns that it names and others have."""
        hints = []
        kinds = {field.name: field.type for index in self.indexes for field in index.schema}
        for column in sorted(kinds.keys() - set(self.schema.names)):
            if not re.search(rf"\b{column}\b", text):
                continue
            for name, index in zip(self.names, self.indexes, strict=True):
                if column not in index.schema.names:
                    hints.append(f"; {name} ({index.where}) has no {column}{index.hints(column)}")
                elif (kind := index.schema.field(column).type) != kinds[column]:
                    hints.append(f"; {name} ({index.where}) has {column} as {kind}, another as {kinds[column]}")
        return "".join(hints)

    def datasets_without(self, label: str) -> str:
        """The names of the datasets that have no label of that name in the mixture, with commas."""
        return ", ".join(name for name, labels in self._own_labels.items() if label not in labels)

    def dataset_of(self, row: int) -> int:
        """The number of the dataset that a row is of."""
        return bisect_right(self.offsets, row) - 1

    def _locate(self, row: int) -> tuple[int, int]:
        """The dataset of a row, and its number there."""
        dataset = bisect_right(self.offsets, row) - 1
        return dataset, row - self.offsets[dataset]

    def value(self, name: str, row: int) -> Any:
        """See `Index`; a label's number and a class's name are those of the mixture."""
        if name in (DATASET_COLUMN, "label", _FRAME_NUMBER):
            return int(self.number(name, row))
        dataset, own_row = self._locate(row)
        value = self.indexes[dataset].value(name, own_row)
        return self._renamed(dataset, name, value) if isinstance(value, str) else value

    def numbers(self, name: str, rows: ArrayLike) -> NDArray[Any]:
        """See `Index`."""
        return self._gather(rows, lambda dataset, own_rows: self._own_numbers(name, dataset, own_rows))

    def _own_numbers(self, name: str, dataset: int, own_rows: NDArray[np.int64]) -> NDArray[Any]:
        if name == DATASET_COLUMN:
            return np.full(len(own_rows), dataset)
        if name == _FRAME_NUMBER:
            return frame_numbers(self.indexes[dataset], own_rows)
        numbers = self.indexes[dataset].numbers(name, own_rows)
        return self._label_numbers[dataset][numbers] if name == "label" else numbers

    def number(self, name: str, row: int) -> Any:
        """See `Index`."""
        dataset, own_row = self._locate(row)
        if name == DATASET_COLUMN:
            return dataset
        if name == _FRAME_NUMBER:
            return int(frame_numbers(self.indexes[dataset], np.array([own_row]))[0])
        number = self.indexes[dataset].number(name, own_row)
        return self._label_numbers[dataset][number] if name == "label" else number

    def text(self, name: str, row: int) -> str | None:
        """See `Index`; as in `categories`."""
        code = int(self.codes(name, [row])[0])
        return None if code < 0 else self.categories(name)[code]

    def codes(self, name: str, rows: ArrayLike) -> NDArray[np.int32]:
        """See `Index`."""
        _, codes = self._merge(name)
        return self._gather(rows, lambda dataset, own: codes[dataset][self.indexes[dataset].codes(name, own)])

    def categories(self, name: str) -> list[str]:
        """See `Index`; ids begin with the name of their dataset, files with its folder or address."""
        return self._merge(name)[0]

    def _merge(self, name: str) -> tuple[list[str], list[NDArray[np.int32]]]:
        """The categories of the mixture, and for each dataset their codes by its own ones; -1 stays -1."""
        if name not in self._merged:
            codes: dict[str, int] = {}
            by_dataset = []
            for dataset, index in enumerate(self.indexes):
                mixed = [self._category(dataset, name, text) for text in index.categories(name)]
                by_dataset.append(np.array([*(codes.setdefault(text, len(codes)) for text in mixed), -1], np.int32))
            self._merged[name] = list(codes), by_dataset
        return self._merged[name]

    def _category(self, dataset: int, name: str, text: str) -> str:
        if name == "file":
            return f"{self.indexes[dataset].where}/{text}"
        if name in ID_COLUMNS:
            return f"{self.names[dataset]}/{text}"
        return str(self._renamed(dataset, name, text))

    def points(self, name: str, row: int) -> NDArray[np.float32]:
        """See `Index`."""
        dataset, own_row = self._locate(row)
        return self.indexes[dataset].points(name, own_row)

    def regions(self, row: int) -> dict[str, NDArray[np.float32]]:
        """See `Index`."""
        dataset, own_row = self._locate(row)
        return self.indexes[dataset].regions(own_row)

    def boxes(self, name: str, rows: ArrayLike) -> NDArray[np.float32]:
        """See `Index`."""
        return self._gather(rows, lambda dataset, own_rows: self.indexes[dataset].boxes(name, own_rows))

    def vectors(self, name: str, rows: ArrayLike) -> NDArray[Any]:
        """See `Index`; nulls of any dataset count."""
        cells = self._gather(rows, lambda dataset, own_rows: self.indexes[dataset].vectors(name, own_rows))
        dtypes = [index.vectors(name, []).dtype for index in self.indexes if len(index)]
        return cells.astype(np.result_type(cells.dtype, *dtypes), copy=False)

    def landmarks(self, rows: ArrayLike) -> NDArray[np.float32]:
        """See `Index`."""
        return self._gather(rows, lambda dataset, own_rows: self.indexes[dataset].landmarks(own_rows))

    def _gather(self, rows: ArrayLike, read: Callable[[int, NDArray[np.int64]], NDArray[Any]]) -> NDArray[Any]:
        """What `read(dataset, rows of it)` gives for each of the rows, in their order."""
        row_numbers = np.atleast_1d(np.asarray(rows, np.int64))
        datasets = np.searchsorted(self.offsets, row_numbers, side="right") - 1
        present = np.unique(datasets) if len(row_numbers) else np.zeros(1, np.int64)
        parts = [
            (is_own, read(int(dataset), row_numbers[is_own] - self.offsets[dataset]))
            for dataset in present for is_own in [datasets == dataset]
        ]  # fmt: skip
        values = np.empty(
            (len(row_numbers), *parts[0][1].shape[1:]), np.result_type(*(part.dtype for _, part in parts))
        )
        for is_own, part in parts:
            values[is_own] = part
        return values


def _remade(indexes: Mapping[str, Index | OutdatedIndex], rename: Rename | None) -> MixedIndex | OutdatedIndex:
    """The mixture of indexes as another process reopens them."""
    current = {name: index for name, index in indexes.items() if isinstance(index, Index)}
    outdated = next((index for index in indexes.values() if isinstance(index, OutdatedIndex)), None)
    return MixedIndex(current, rename) if outdated is None else outdated


def as_mixed(index: Any) -> MixedIndex | None:
    """The index, if it is that of a mixture; else None."""
    return index if isinstance(index, MixedIndex) else None


def _has_field(schema: pa.Schema, field: pa.Field) -> bool:
    return field.name in schema.names and bool(schema.field(field.name).type == field.type)
