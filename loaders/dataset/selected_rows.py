"""`SelectedRows`: the rows of one dataset that a loader reads, whose stored crops hold what its images show."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from ...pipeline.dataset.crops import black_parts, check_coverage, crop_protocol
from ...pipeline.dataset.index import Index
from ...pipeline.dataset.open_dataset import open_dataset
from .. import validation
from .selection import Filters, Rows, select_rows

_log = logging.getLogger("facefeed.loaders")

Crop = str | Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SelectedRows:
    """Some rows of one dataset. out: its folder. index: of all of its rows. rows: uint32 (rows,), as `select` computes
    them from `frames_per_video`, which another process can do anew.
    """

    out: Path
    index: Index
    rows: Rows
    select: Callable[[int | None], Rows]

    @classmethod
    def open(
        cls, out: Any, *, split: str | None, crop: Crop | None, filters: Filters | None, frames_per_video: int | None
    ) -> Self:
        """Opens a dataset and selects rows; the arguments, and what it raises, are those of `FaceDataset`.

        Logs a warning where a few of the rows lack a part of what the `crop` protocol shows.
        """
        path = validation.require_dataset_folder(out).resolve()
        _, index = open_dataset(path)
        select = partial(select_rows, index, split, filters)
        rows = select(frames_per_video)
        if crop is not None:
            is_missing = check_coverage(
                crop_protocol(crop), index, rows, setting=f"crop={crop!r}",
                alternative="give a crop with a smaller margin, or none",
            )  # fmt: skip
            if count := int(is_missing.sum()):
                _log.warning("crop=%r: %s", crop, black_parts(count, len(rows)))
        return cls(out=path, index=index, rows=rows, select=select)

    @property
    def has_68(self) -> bool:
        """Whether the rows have `landmarks_68`."""
        return "landmarks_68" in self.index.schema.names
