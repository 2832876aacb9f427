"""`OutPaths`: where things lie in OUT."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from .files import FolderFiles, OutFiles

RECEIPT_FOLDERS = ("receipts", "_receipts")
"""Names of folders of small files, of which either none or nearly all are read: of units, and of added columns."""


@dataclass(frozen=True)
class OutPaths:
    """Paths of the files and folders of one dataset.

    `root`: OUT, or the working copy of one in a store. `files`: how its files are read and written.
    """

    root: Path
    files: OutFiles = field(default=FolderFiles(), compare=False)

    @property
    def faces(self) -> Path:
        """Parquet files of rows, one folder per split."""
        return self.root / "faces"

    @property
    def receipts(self) -> Path:
        """Receipts, one per unit."""
        return self.root / "receipts"

    @property
    def plan(self) -> Path:
        """Parts of the plan, which assigns inputs to units."""
        return self.root / "plan"

    @property
    def temporary(self) -> Path:
        """Unfinished attempts and quarantined files; no reader opens these."""
        return self.root / "_tmp"

    @property
    def manifest(self) -> Path:
        """The manifest of the finished dataset."""
        return self.root / "manifest.json"

    @property
    def index(self) -> Path:
        """The index: the small columns of all rows."""
        return self.root / "index.arrow"

    @property
    def next_index(self) -> Path:
        """The next index, written before its manifest and renamed to `index` after it."""
        return self.root / "index.next.arrow"

    @property
    def columns(self) -> Path:
        """Added columns, one folder per set; see `added_columns`."""
        return self.root / "columns"

    def columns_record(self, name: str) -> Path:
        """The file that says what a set of added columns is."""
        return self.columns / name / "_set.json"

    @property
    def lease(self) -> Path:
        """The lease of the driver that is working on OUT."""
        return self.root / "driver.lease"

    @property
    def leases(self) -> Path:
        """Leases of an OUT in a store."""
        return self.root / "leases"

    @property
    def index_parts(self) -> Path:
        """Rows of the index, one file per unit, of an OUT in a store: the end of a run reads no unit again."""
        return self.root / "index"

    def index_part(self, unit: str) -> Path:
        """The rows of the index of one unit."""
        return self.index_parts / f"{unit}.arrow"

    @property
    def unlisted(self) -> Self:
        """The same, of which nothing was listed before: each question is answered by what is there now."""
        return replace(self, files=self.files.unlisted())

    def unit_file(self, split: str, unit: str) -> Path:
        """The published Parquet file of a unit."""
        return self.faces / split / f"{unit}.parquet"

    def receipt(self, unit: str) -> Path:
        """The receipt of a unit."""
        return self.receipts / f"{unit}.json"

    @property
    def place(self) -> str:
        """The folder or the address, for people."""
        return self.files.place(self.root)

    def name_of(self, path: Path) -> str:
        """The name of a file relative to OUT."""
        return path.relative_to(self.root).as_posix()
