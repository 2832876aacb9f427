"""What a user with very many rows notices of statistics: how much memory they take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from assets_dataset import make_dataset
from assets_memory import peak_bytes
from facefeed.pipeline.dataset.index import Index, layout, whole_videos
from facefeed.pipeline.inspect.statistics import groups, videos
from facefeed.pipeline.inspect.statistics.groups import Statistics

_VIDEOS = 60


class OneVideoEach(Sequence[Any]):
    """Batches that are alike but for their video."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._at = batch.schema.get_field_index("video_id")
        self._names = pa.array([f"video {number}" for number in range(_VIDEOS)])

    def __len__(self) -> int:
        return _VIDEOS

    def __getitem__(self, number: Any) -> Any:
        codes = pa.array(np.full(len(self._batch), range(_VIDEOS)[number], np.int32))
        column = pa.DictionaryArray.from_arrays(codes, self._names)
        return self._batch.set_column(self._at, self._batch.schema.field(self._at), column)

    def dictionary(self, name: str) -> pa.Array:
        return self[0].column(name).dictionary

    def check_column(self, number: int, name: str) -> None:
        pass  # they have no checksums


def test_statistics_take_less_than_20_bytes_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_dataset(tmp_path / "out")
    index = Index(tmp_path / "out")
    batch = pa.Table.from_batches([index._batches[0]] * 20).combine_chunks().to_batches()[0]
    batches: Any = OneVideoEach(batch)
    index._batches, index.num_rows = batches, _VIDEOS * len(batch)
    monkeypatch.setattr(layout, "BATCH_ROWS", len(batch))
    for module in (whole_videos, groups, videos):
        monkeypatch.setattr(module, "_ROWS_AT_ONCE", len(batch))
    statistics: list[Statistics] = []
    assert peak_bytes(lambda: statistics.append(Statistics.of(index))) < 20 * len(index)
    assert statistics[0].total.rows == len(index) > 300_000
    assert statistics[0].total.videos == _VIDEOS
