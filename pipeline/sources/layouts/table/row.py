"""A row of a table: what its cells say of an input."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ....dataset.schema import real_class
from ....errors import UsageError
from ....json_records import parse_json
from ...listing import parse_split_name
from ...media.allowed_roots import relative_name
from ...media.linked_files import RealPaths
from ...metadata.own_columns import Value
from ...metadata.segments import parse_segments
from .class_names import class_file

_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}


@dataclass(frozen=True, slots=True)
class Row:
    """Row `number` of `table`, counted from 0.

    `cells`: those of known columns as text, by name of the column. `values`: of the source's own columns.
    """

    table: Path
    number: int
    cells: Mapping[str, str]
    values: tuple[Value, ...]

    @property
    def path(self) -> str:
        """The input, as the table names it."""
        return self.cells["path"]

    @property
    def label(self) -> str:
        """Its label, as the table names it."""
        return self.cells["label"]

    @property
    def split(self) -> str | None:
        """Its split; None where it gives none. Raises `UsageError` on another name."""
        given = self.cells.get("split")
        if not given:
            return None
        split = parse_split_name(given)
        if split is None:
            raise UsageError(
                f"{self.table}: {self.position}: split {given!r} of {self.path!r}: must be train, val or test"
            )
        return split

    def label_fields(self, classes: Sequence[str], label: int) -> dict[str, Any]:
        """The fields of an entry that say its label, and when it has it; unknown where the segments are an empty list.

        Raises `UsageError` where the segments are none, no class is real, or the row's own label is real or unknown.
        """
        given = self.cells.get("fake_segments")
        if not given:
            return {"label": label}
        where = f"{self.table}: {self.path}"
        try:
            value = parse_json(given)
        except ValueError:
            value = given
        segments = parse_segments(value, where)
        real = real_class(classes)
        if real is None:
            raise UsageError(
                f"{where}: has fake segments, but no class is called real, which its other frames would be; call it "
                f"real, or list it as 'real: NAME' in {class_file(self.table).name}"
            )
        if segments and label in (-1, real):
            raise UsageError(
                f"{where}: has fake segments, and the label {self.label!r}; give the label that it has in them"
            )
        if not segments:
            return {"label": label if label == real else -1}
        return {"label": label, "fake_segments": segments, "outside_label": real}

    @property
    def is_whole_frame(self) -> bool:
        """Whether the input is cropped already; raises `UsageError` on a value that says neither."""
        given = self.cells.get("whole_frame", "")
        if given.lower() not in _BOOLEANS:
            raise UsageError(
                f"{self.table}: {self.position}: whole_frame {given!r} of {self.path!r}: must be true or false (or 1, "
                "0, yes, no; empty is false)"
            )
        return _BOOLEANS[given.lower()]

    @property
    def position(self) -> str:
        """Where it is in the table: in a CSV the line where it begins, if that can be counted."""
        if self.table.suffix.lower() == ".csv":
            with (
                suppress(csv.Error, StopIteration),
                self.table.open(encoding="utf-8-sig", errors="replace", newline="") as file,
            ):
                return f"line {next(islice(_first_lines(file), self.number + 1, None))}"
        return f"row {self.number + 1}"

    def source_of(self, video_id: str, real_paths: RealPaths) -> str | None:
        """`source_id` of the row of `video_id`; raises `UsageError` where it is that itself, also by a link."""
        source_id = self.source_id
        if source_id and real_paths.of(source_id) == real_paths.of(video_id):
            raise UsageError(
                f"{self.table}: {self.position}: {self.path!r} is its own source; a source is the original that a fake "
                "was made from: name that, or leave the cell empty"
            )
        return source_id

    @property
    def source_id(self) -> str | None:
        """Video id of its original; None where it names none."""
        given = self.cells.get("source")
        return relative_name(self.table.parent, given) if given else None


def _first_lines(lines: Iterable[str]) -> Iterator[int]:
    """The line where each row of a CSV begins: empty lines are no rows, and a quoted cell may have several lines."""
    reader, line = csv.reader(lines), 1
    for cells in reader:
        if cells:
            yield line
        line = reader.line_num + 1
