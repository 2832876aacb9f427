"""What a user with many rows notices of orders: any part of one without the rest, in memory that does not grow."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from assets_memory import peak_bytes
from assets_random import examples
from assets_rows import RowsOnly, batches_of, order_of
from facefeed.loaders.sampling import orders
from facefeed.loaders.sampling.balance import BlendPairs, Quotas, Unbalanced, Weights
from facefeed.loaders.sampling.hashing import derive_key, hash_range
from facefeed.loaders.sampling.orders import BLOCK_ROWS, Permutation
from facefeed.loaders.sampling.shuffling import Shuffling
from facefeed.pipeline.dataset.index import RowRange
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

keys = st.integers(0, 2**64 - 1)
BEYOND_INT32 = RowRange(2**31 + 5, 2**31 + 5 + 1000)
LAST = RowRange(2**32 - 1000, 2**32)


def whole_permutation(count: int, key: int) -> NDArray[np.int64]:
    """The rule written out: the numbers by the upper halves of their hashes, equal ones by themselves."""
    return np.argsort(hash_range(count, key) >> np.uint64(32), kind="stable")


def whole_windows(count: int, window: int, key: int) -> NDArray[np.int64]:
    """The rule written out: blocks in the order of a permutation, then one within each window."""
    blocks = [np.arange(count)[start : start + BLOCK_ROWS] for start in range(0, count, BLOCK_ROWS)]
    order = np.concatenate([blocks[number] for number in whole_permutation(len(blocks), key)])
    windows = [order[start : start + window] for start in range(0, count, window)]
    return np.concatenate(
        [part[whole_permutation(len(part), derive_key(key, number))] for number, part in enumerate(windows)]
    )


@pytest.mark.parametrize("part_items", [7, 100, 1 << 24])
@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_a_permutation_is_the_same_in_any_number_of_parts(
    monkeypatch: pytest.MonkeyPatch, count: int, part_items: int
) -> None:
    monkeypatch.setattr(orders, "PART_ITEMS", part_items)
    monkeypatch.setattr(orders, "_CHUNK_ITEMS", 64)
    monkeypatch.setattr(orders, "_SLICE_ITEMS", 50)
    for key in (3, 2**63):
        expected = whole_permutation(count, key).tolist()
        assert orders.permutation(count, key).tolist() == Permutation(count, key)[:].tolist() == expected


@examples(60)
@given(st.integers(1, 3000), st.integers(BLOCK_ROWS, 1000), keys, st.lists(st.integers(0, 2999), max_size=9))
def test_any_images_of_windows_are_those_that_the_whole_order_has(
    count: int, window: int, key: int, positions: list[int]
) -> None:
    order = Shuffling(mode="window", window_images=window).order(count, key)
    expected = whole_windows(count, window, key)
    at = np.array(positions, np.int64) % count
    assert order[at].tolist() == expected[at].tolist()
    assert order[:].tolist() == expected.tolist()
    assert order[at.min(initial=0) :].tolist() == expected[at.min(initial=0) :].tolist()


@pytest.mark.parametrize("shuffle", [True, False, "window"])
@pytest.mark.parametrize(
    "balance", [Unbalanced(), BlendPairs(), Quotas({"real": 1, "fake": 3}), Weights({"fake": 2.0})], ids=repr
)
def test_any_step_of_an_epoch_is_the_one_that_the_whole_order_has(
    monkeypatch: pytest.MonkeyPatch, balance: Any, shuffle: Any
) -> None:
    if isinstance(balance, Weights) and shuffle == "window":
        pytest.skip("draws freely")
    monkeypatch.setattr(orders, "PART_ITEMS", 100)
    rows = RowsOnly({"label": [int(number % 5 == 0) for number in range(999)]})
    order = order_of(rows, batch_size=16, shuffle=shuffle, window_images=150, balance=balance)
    whole = order.rows(2).tolist()
    assert len(whole) == order.num_images
    for step in (len(order) - 1, 3, 4, 0):  # not in turn, as after a resume
        assert order.request(2, step).rows.tolist() == whole[16 * step : 16 * step + 16]


@pytest.mark.parametrize("shuffle", [True, "window", False])
def test_a_step_of_a_long_epoch_takes_memory_for_parts_of_its_order_alone(
    monkeypatch: pytest.MonkeyPatch, shuffle: Any
) -> None:
    monkeypatch.setattr(orders, "PART_ITEMS", 100_000)
    rows = RowsOnly({"label": [0]})
    rows.selection = RowRange(0, 3_000_000)

    def requests() -> None:
        order = order_of(rows, batch_size=64, shuffle=shuffle)
        assert len(order.request(0, 20_000).rows) == 64
        assert order.state()["rows"].startswith("3000000 rows ")

    assert peak_bytes(requests) < 6_000_000  # of rows alone, 12 MB; 4 MB are hashed at a time for the state


@pytest.mark.parametrize("selection", [BEYOND_INT32, LAST], ids=str)
@pytest.mark.parametrize("shuffle", [True, "window", False])
def test_row_numbers_beyond_2_to_the_31_stay_what_they_are(selection: RowRange, shuffle: Any) -> None:
    rows = RowsOnly({"label": [0] * 1000})
    low = batches_of(order_of(rows, shuffle=shuffle, window_images=300))
    rows.selection = selection
    high = batches_of(order_of(rows, shuffle=shuffle, window_images=300))
    assert high == [[selection.start + row for row in batch] for batch in low]


def test_a_range_of_rows_is_saved_and_ordered_as_the_same_rows_one_by_one() -> None:
    as_range, one_by_one = RowsOnly(3000), RowsOnly(3000)
    one_by_one.selection = np.arange(3000, dtype=np.uint32)
    first, second = order_of(as_range), order_of(one_by_one)
    assert first.state() == second.state()
    assert batches_of(first) == batches_of(second)


class LastRowsFirst:
    """A balance of a user's own, which takes the rows and their shuffled positions for arrays."""

    unit_size = 1
    notes: ClassVar[list[str]] = []

    def bind(self, rows: Any, shuffler: Any) -> Any:
        self._rows, self._shuffler, self.num_images = rows, shuffler, len(rows)
        return self

    def epoch_rows(self, epoch: int, key: int) -> Any:
        return self._rows[self._shuffler(self._rows, key)][::-1]


@pytest.mark.parametrize("shuffle", [True, False, "window"])
def test_a_balance_of_ones_own_may_index_rows_by_a_shuffled_order_as_by_an_array(
    monkeypatch: pytest.MonkeyPatch, shuffle: Any
) -> None:
    rows = RowsOnly(300)
    monkeypatch.setattr(orders, "_SLICE_ITEMS", 64)
    for selection in (rows.selection, rows.rows):
        rows.selection = selection
        order = order_of(rows, batch_size=300, shuffle=shuffle, window_images=150, balance=LastRowsFirst())
        assert order.rows(0).dtype == np.uint32
        assert sorted(order.rows(0).tolist()) == [*range(300)]
        positions = Shuffling.from_argument(shuffle, 150).order(300, 5)
        assert np.asarray(positions).tolist() == positions[:].tolist()
        assert np.asarray(positions, np.int64).dtype == np.int64
        for part in (slice(None, None, -2), slice(-7, None), slice(200, 9, -1), slice(9, 9)):
            assert positions[part].tolist() == positions[:].tolist()[part]
