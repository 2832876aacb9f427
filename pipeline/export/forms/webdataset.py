"""`webdataset`: tar shards of samples `key.jpg`, `key.json` and, where OUT has masks, `key.mask.png`.

    DEST/train-000000.tar    DEST/val-000000.tar    ...

Hugging Face's reader takes the fields and their types from the first samples. So every sample has the same ones: a row
without a mask gets one of a single grey level; in the JSON null is the empty text, or -1, NaN and infinity are -1, and
a list that may be null is text.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
import pyarrow as pa

from ...dataset.schema import real_class
from ...json_records import finite_or_null
from ..naming import column_names, unique_names
from ..receipt import PartReceipt
from ..rows import Rows, StoredRows
from .form import OnRows, Part, PartRows, undamaged
from .shards import plan_shards

ORIGINAL_LEVEL: Final = 0
"""Of the mask of a row of the `real_class`: nothing was manipulated."""
UNKNOWN_LEVEL: Final = 128
"""Of the mask of any other row without one: what was manipulated is not known."""
_ROW_OVERHEAD_BYTES: Final = 4608  # headers, padding and the JSON
_FIELDS: Final = ("class", "has_mask")
_BATCH_ROWS: Final = 256


class WebDataset:
    """One part for each shard."""

    def __init__(self, stored: StoredRows, rows: Rows, shard_bytes: int) -> None:
        self._stored = stored
        real = real_class(stored.index.labels)
        self._real = None if real is None else stored.index.labels[real]
        self._has_masks = bool(stored.index.numbers("mask_bytes", rows).any())
        shards = plan_shards(stored, rows, shard_bytes, _ROW_OVERHEAD_BYTES)
        first = {split: number for number, (split, _) in reversed([*enumerate(shards)])}
        self.parts = [Part(f"{split}-{number - first[split]:06d}", part) for number, (split, part) in enumerate(shards)]
        fields = [stored.index.schema.field(name) for name in stored.light_columns]
        self._unknown = {field.name: _unknown(field.type) for field in fields}
        self._names_of_columns = column_names(stored.light_columns, _FIELDS)
        self._as_text = {field.name for field in fields if field.nullable and pa.types.is_nested(field.type)}
        video_ids = stored.index.categories("video_id")
        self._names = unique_names(video_ids, [0] * len(video_ids))

    def write(self, part: Part, folder: Path, on_rows: OnRows) -> PartRows:
        """See `Form.write`."""
        written = PartRows()
        with tarfile.open(folder / f"{part.name}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for rows, batch in self._stored.batches(part.rows, _BATCH_ROWS):
                columns = dict(zip(map(int, rows), batch.to_pylist(), strict=True))
                for row, image, mask in undamaged(self._stored, rows, written):
                    self._add_sample(tar, row, columns[row], image, mask)
                on_rows(len(rows))
        return written

    def write_closing(self, parts: Sequence[PartReceipt], folder: Path) -> None:
        """See `Form.write_closing`; the shards describe themselves."""

    def _add_sample(
        self, tar: tarfile.TarFile, row: int, columns: dict[str, Any], image: bytes, mask: bytes | None
    ) -> None:
        video = self._names[int(self._stored.index.codes("video_id", row)[0])]
        key = f"{video}_{columns['frame_index']:06d}_{columns['track_id']}"
        label = self._stored.label_name(row)
        values = {self._names_of_columns[name]: self._plain(name, value) for name, value in columns.items()}
        values |= {"class": label or "", "has_mask": mask is not None}
        _add(tar, f"{key}{self._stored.suffix}", image)
        _add(tar, f"{key}.json", json.dumps(values).encode())
        if self._has_masks:
            level = ORIGINAL_LEVEL if label is not None and label == self._real else UNKNOWN_LEVEL
            _add(tar, f"{key}.mask.png", mask or _plain_mask(columns["height"], columns["width"], level))

    def _plain(self, name: str, value: Any) -> Any:
        """A value of the type that all samples have in this column."""
        value = finite_or_null(value)
        if value is None:
            return self._unknown[name]
        return json.dumps(value) if name in self._as_text else value


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o644
    tar.addfile(member, io.BytesIO(data))


def _unknown(type_: pa.DataType) -> Any:
    """What stands for null."""
    return -1.0 if pa.types.is_floating(type_) else -1 if pa.types.is_integer(type_) else ""


@cache
def _plain_mask(height: int, width: int, level: int) -> bytes:
    """An 8-bit PNG of a single grey level."""
    _, png = cv2.imencode(".png", np.full((height, width), level, np.uint8))
    return bytes(png)
