"""Videos one after another: none is cut, wherever its rows lie, and nothing is kept of those that are done."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from assets_memory import peak_bytes
from assets_random import examples
from assets_rows import ColumnsOnly, LongVideos, order_of
from assets_rows import RowsOnly as Rows
from facefeed.loaders.dataset.selection import select_rows
from facefeed.loaders.sampling import orders, row_shuffler
from facefeed.pipeline.dataset.index import RowRange
from facefeed.pipeline.dataset.index import whole_videos as module
from facefeed.pipeline.dataset.index.whole_videos import rows_per_video, whole_videos
from hypothesis import given
from hypothesis import strategies as st

COUNT = 300_000


@pytest.fixture
def few_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 10_000)
    monkeypatch.setattr(row_shuffler, "_ITEMS_AT_ONCE", 10_000)
    monkeypatch.setattr(orders, "PART_ITEMS", 10_000)
    monkeypatch.setattr(orders, "_SLICE_ITEMS", 10_000)
    monkeypatch.setattr(orders, "_CHUNK_ITEMS", 10_000)


@examples(200)
@given(st.lists(st.sampled_from("abcde"), max_size=40), st.booleans(), st.integers(1, 9), st.integers(0, 5))
def test_each_video_is_in_one_segment(videos: list[str], is_sorted: bool, at_once: int, first: int) -> None:
    index: Any = ColumnsOnly({"video_id": sorted(videos) if is_sorted else videos})
    rows = RowRange(min(first, len(videos)), len(videos))
    expected = index.codes("video_id", rows[:]).tolist()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_ROWS_AT_ONCE", at_once)
        segments = [(part.start, part.stop, codes.tolist()) for part, codes in whole_videos(index, rows)]
        codes, counts = rows_per_video(index, rows)
    assert [code for *_, codes in segments for code in codes] == expected
    assert [start for start, *_ in segments] == [0, *(stop for _, stop, _ in segments)][: len(segments)]
    assert all(stop - start == len(codes) for start, stop, codes in segments)
    seen = Counter(code for *_, codes in segments for code in set(codes))
    assert set(seen.values()) <= {1}
    assert dict(zip(codes.tolist(), counts.tolist(), strict=True)) == Counter(expected)
    assert codes.tolist() == sorted(codes.tolist())


@pytest.mark.usefixtures("few_rows_at_once")
def test_some_frames_of_each_video_are_selected_in_less_than_10_bytes_a_row() -> None:
    index: Any = LongVideos(COUNT)
    assert peak_bytes(lambda: select_rows(index, None, None, 30)) < 10 * COUNT
    assert len(select_rows(index, None, None, 30)) == COUNT * 30 // 100


@pytest.mark.usefixtures("few_rows_at_once")
def test_an_epoch_with_few_images_of_a_video_in_each_batch_takes_some_bytes_a_row() -> None:
    rows: Any = Rows(1)
    rows.index, rows.selection = LongVideos(COUNT), RowRange(0, COUNT)
    order = order_of(rows, batch_size=64, max_per_video=1)

    def some_steps() -> None:
        for step in (0, 1, len(order) - 1):
            videos = rows.index.codes("video_id", order.request(0, step).rows)
            assert len(np.unique(videos)) == len(videos) > 0

    assert peak_bytes(some_steps) < 16 * COUNT  # two numbers a row, and what the parts take
