"""How often a face came before in an epoch, by which its draws on the device differ from time to time."""

from __future__ import annotations

from typing import Any

import numpy as np
from assets_random import examples
from assets_rows import RowsOnly, order_of
from facefeed.loaders.sampling.balance import Quotas, Weights
from facefeed.loaders.sampling.epoch_sampler import EpochSampler
from facefeed.loaders.sampling.repeats import count_earlier
from hypothesis import given
from hypothesis import strategies as st


@examples(100)
@given(st.lists(st.integers(0, 6), max_size=30))
def test_each_row_is_counted_from_0(rows: list[int]) -> None:
    expected = [rows[:position].count(row) for position, row in enumerate(rows)]
    assert count_earlier(np.array(rows, np.uint32)).tolist() == expected


def counting(data: RowsOnly | int, batch_size: int, **options: Any) -> EpochSampler:
    order = order_of(data, batch_size, **options)
    order.counts_repeats = True
    return order


def test_requests_count_how_often_their_rows_came_on_whatever_rank() -> None:
    data = RowsOnly({"label": [0] * 3 + [1] * 9})
    for balance in (Quotas({"real": 1, "fake": 1}), Weights({"real": 3.0})):
        whole = np.concatenate([request.repeats for request in counting(data, 4, balance=balance)])
        ranks = [[*counting(data, 2, balance=balance, rank=rank, num_replicas=2)] for rank in (0, 1)]
        parts = [request.repeats for step in zip(*ranks, strict=True) for request in step]
        assert np.array_equal(np.concatenate(parts), whole)
        assert whole.max() > 0


def test_where_every_row_comes_once_all_counts_are_0_and_where_nobody_asks_there_are_none() -> None:
    assert not np.concatenate([request.repeats for request in counting(10, 4)]).any()
    assert {request.repeats for request in order_of(10, 4)} == {None}
