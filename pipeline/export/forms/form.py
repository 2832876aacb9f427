"""What a form of an export is: parts, each a set of rows and of files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from ...dataset.byte_ranges import MissingFileError
from ...errors import CorruptDataError
from ..receipt import PartReceipt
from ..rows import Rows, StoredRows

OnRows = Callable[[int], object]
"""Called with a number of rows that are done."""

_ROWS_AT_ONCE: Final = 512
"""That are fetched from a store: several requests at a time, and some MB in memory."""

CLOSING: Final = "closing"
"""Name of the part that is written last: tables and descriptions of the whole export."""


@dataclass(frozen=True, eq=False)
class Part:
    """A set of rows whose files are written and published together. `name`: unique, and safe as a file name."""

    name: str
    rows: Rows


@dataclass
class PartRows:
    """What became of the rows of a part; every one of them is counted once.

    `rows`: those that were written. `skipped`: those that the form has no place for, by reason. `damaged`: face ids of
    those whose stored bytes are damaged. `notes`: rows that were written, but that the user should know of, by remark.
    """

    rows: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    damaged: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)


class Form(Protocol):
    """A form of an export. The same rows give the same parts, files and bytes.

    No path of a file depends on what `write` meets, so that a part that is written again replaces its own files alone.
    """

    @property
    def parts(self) -> Sequence[Part]:
        """The parts, in the order of OUT."""
        ...

    def write(self, part: Part, folder: Path, on_rows: OnRows) -> PartRows:
        """Writes the files of a part below `folder`; raises `OSError` where the disk fails."""
        ...

    def write_closing(self, parts: Sequence[PartReceipt], folder: Path) -> None:
        """Writes the files that describe all of `parts` below `folder`."""
        ...


def undamaged(stored: StoredRows, rows: Rows, written: PartRows) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Yields row number, image and mask of each undamaged row, and counts it; records the others in `written`.

    Raises `MissingFileError` where a file of OUT is not there, `StoppedError` where the disk fails.
    """
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        fetched = rows[start : start + _ROWS_AT_ONCE].tolist()
        stored.images.prefetch(fetched, masks=True)
        for row in fetched:
            try:
                image, mask = stored.images.image(row), stored.images.mask(row)
            except MissingFileError:
                raise
            except CorruptDataError:
                written.damaged.append(stored.index.value("face_id", row))
                continue
            written.rows += 1
            yield row, image, mask
