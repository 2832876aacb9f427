"""`folders`: images as stored, as `torchvision.datasets.ImageFolder` reads them, and a CSV table of all columns.

    DEST/<split>/<class>/<video>/<frame>_<track>.jpg    DEST/metadata.csv

The suffix is that of the stored format. A face of unknown label is of the class `unknown`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv

from ...dataset.schema import unlabelled_name
from ..naming import column_names, names_of_texts, unique_names
from ..receipt import PartReceipt
from ..rows import Rows, StoredRows
from .csv_table import as_csv_columns
from .form import OnRows, Part, PartRows, undamaged

_FIELDS: Final = ("file_name", "class")
_BATCH_ROWS: Final = 4096


class Folders:
    """One part for each Parquet file of OUT."""

    def __init__(self, stored: StoredRows, rows: Rows) -> None:
        self._stored, self._rows = stored, rows
        self.parts = [Part(PurePosixPath(name).stem, part) for name, part in stored.by_file(rows)]
        video_ids = stored.index.categories("video_id")
        self._names = unique_names(video_ids, [0] * len(video_ids))
        labels = stored.index.labels
        classes = [*labels, unlabelled_name(labels)]
        names = names_of_texts(classes)
        self._classes = [names[name] for name in classes]

    def write(self, part: Part, folder: Path, on_rows: OnRows) -> PartRows:
        """See `Form.write`."""
        written = PartRows()
        paths = dict(zip(map(int, part.rows), self._paths(part.rows), strict=True))
        for row, image, _ in undamaged(self._stored, part.rows, written):
            path = folder / paths[row]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(image)
            on_rows(1)
        return written

    def write_closing(self, parts: Sequence[PartReceipt], folder: Path) -> None:
        """See `Form.write_closing`: the table."""
        damaged = self._stored.rows_of({face_id for part in parts for face_id in part.damaged})
        rows = self._rows[~np.isin(self._rows, damaged)]
        path, writer = folder / "metadata.csv", None
        names = column_names(self._stored.light_columns, _FIELDS)
        for some, batch in self._stored.batches(rows, _BATCH_ROWS):
            fields = pa.record_batch([self._paths(some), self._classes_of(some)], names=_FIELDS)
            columns = {names[name]: column for name, column in as_csv_columns(batch).items()}
            table = pa.table({**as_csv_columns(fields), **columns})
            writer = writer or pa.csv.CSVWriter(path, table.schema)
            writer.write_table(table)
        if writer:
            writer.close()

    def _classes_of(self, rows: Rows) -> list[str]:
        return [self._classes[label] for label in self._stored.index.numbers("label", rows)]  # -1, unknown, is the last

    def _paths(self, rows: Rows) -> list[str]:
        index, suffix = self._stored.index, self._stored.suffix
        splits, videos = index.categories("split"), self._names
        cells = zip(
            index.codes("split", rows), self._classes_of(rows), index.codes("video_id", rows),
            index.numbers("frame_index", rows), index.numbers("track_id", rows), strict=True,
        )  # fmt: skip
        return [
            f"{splits[split]}/{class_}/{videos[video]}/{frame:06d}_{track}{suffix}"
            for split, class_, video, frame, track in cells
        ]
