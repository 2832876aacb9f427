"""What a user notices of the order: every row once, mixed well, the same on every machine and with every version."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from assets_random import examples
from assets_rows import RowsOnly, batches_of, order_of
from facefeed.loaders.sampling.balance import Pairs, Quotas, Unbalanced, Weights
from facefeed.loaders.sampling.hashing import derive_key, hash_range
from facefeed.loaders.sampling.orders import BLOCK_ROWS, permutation
from facefeed.loaders.sampling.shuffling import Shuffling, min_possible_per_batch, spread_videos
from facefeed.pipeline.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

keys = st.integers(0, 2**64 - 1)


@given(st.integers(0, 3000), keys)
def test_a_permutation_holds_every_number_once(count: int, key: int) -> None:
    mixed = permutation(count, key)
    assert mixed.dtype == np.uint32
    assert np.sort(mixed).tolist() == list(range(count))


def test_hashes_are_those_of_the_published_splitmix64() -> None:
    # The first outputs of the reference implementation (prng.di.unimi.it/splitmix64.c) for the seeds 0 and 1234567.
    assert hash_range(4, 0).tolist()[1:] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert hash_range(4, 1234567).tolist()[1:] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_orders_are_these_whatever_the_version_of_numpy_and_the_machine() -> None:
    assert permutation(12, 7).tolist() == GOLDEN["permutation"]
    assert derive_key("fingerprint", 3, None) == GOLDEN["key"]
    assert spread_videos(np.array([0, 0, 0, 1, 1, 2, 2, 2, 2]), 4, 5).tolist() == GOLDEN["spread_videos"]
    windowed = Shuffling(mode="window", window_images=128).order(300, 9)
    assert windowed[np.array([0, 1, 127, 128, 299])].tolist() == GOLDEN["window"]
    assert batches_of(order_of(5, batch_size=3, seed=11)) == GOLDEN["batches"]


GOLDEN: dict[str, Any] = {
    "permutation": [2, 0, 11, 9, 6, 8, 1, 10, 5, 7, 4, 3],
    "key": 16874591232208531419,
    "spread_videos": [5, 7, 3, 0, 2, 8, 4, 1, 6],
    "window": [22, 41, 73, 171, 260],
    "batches": [[1, 2, 0], [3, 4]],
}


@pytest.mark.parametrize(
    ("balance", "options", "key"),
    [
        (Unbalanced(), {}, 8902637926286921653),
        (Unbalanced(), {"shuffle": "window", "window_images": 128}, 10784771239395432038),
        (Unbalanced(), {"max_per_video": 2}, 16931199707910233308),
        (Quotas({"real": 1, "fake": 3}), {}, 66935832685723832),
        (Quotas({"real": 1, "fake": 3}), {"shuffle": "window", "window_images": 128}, 10534788774666062186),
        (Quotas({"real": 1, "fake": 3}), {"max_per_video": 2}, 18094145939092583029),
        (Weights({"fake": 2.0}), {}, 1368123810799029668),
        (Pairs(), {}, 8079490368023934197),
        (Pairs(), {"shuffle": "window", "window_images": 128}, 1415996527240693862),
        (Pairs(), {"max_per_video": 2}, 15919621156843084746),
    ],
    ids=str,
)
def test_the_order_of_every_balance_stays_as_it_was(balance: Any, options: dict[str, Any], key: int) -> None:
    numbers = range(300)  # ten frames of each video; of three videos, the second and third are fakes of the first
    rows = RowsOnly({
        "label": [int(number // 10 % 3 > 0) for number in numbers],
        "video_id": [f"v{number // 10}" for number in numbers],
        "source_id": [f"v{number // 30 * 3}" if number // 10 % 3 else None for number in numbers],
        "frame_index": [number % 10 for number in numbers],
        "track_id": [0 for _ in numbers],
    })  # fmt: skip
    assert derive_key(order_of(rows, 16, balance=balance, **options).rows(3).tolist()) == key


def test_every_item_comes_to_every_place_about_as_often() -> None:
    count, tries = 16, 4000
    table = np.zeros((count, count), np.int64)
    for epoch in range(tries):
        table[np.arange(count), permutation(count, derive_key("some dataset", 0, epoch))] += 1
    chi2 = ((table - tries / count) ** 2 / (tries / count)).sum()
    assert 140 < chi2 < 330  # 225 degrees of freedom: both bounds are beyond one in 100,000


def test_neighbours_in_the_index_are_no_neighbours_in_a_batch() -> None:
    rows = permutation(20_000, derive_key("some dataset")).astype(np.int64)
    near = (np.abs(np.diff(rows)) < 100).mean()
    assert near == pytest.approx(200 / 20_000, rel=0.2)


def test_keys_tell_their_parts_apart() -> None:
    parts = [(1, 23), (12, 3), ("1", "2", "3"), ("1", "23", ""), (None,), ("",), (123,)]
    assert len({derive_key(*part) for part in parts}) == len(parts)


# ---- an epoch's order


def epoch(rows: RowsOnly | int, number: int = 0, **options: Any) -> list[int]:
    return order_of(rows, **options).rows(number).tolist()


def test_the_order_differs_by_seed_by_epoch_and_by_the_state_of_the_dataset() -> None:
    orders = [
        epoch(50), epoch(50, seed=1), epoch(50, 1), epoch(RowsOnly(50, fingerprint="another state")), list(range(50))
    ]  # fmt: skip
    assert len({tuple(order) for order in orders}) == len(orders)
    assert epoch(50) == epoch(50)


@given(st.integers(1, 400), st.integers(1, 50), st.sampled_from([True, "full", "window", False]))
def test_the_order_is_the_same_for_every_size_of_batches(count: int, batch_size: int, shuffle: Any) -> None:
    batches = batches_of(order_of(count, batch_size=batch_size, shuffle=shuffle, window_images=200))
    assert [row for batch in batches for row in batch] == epoch(count, shuffle=shuffle, window_images=200)
    assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)


@pytest.mark.parametrize("shuffle", [True, "full", "window", False])
def test_every_row_comes_once_an_epoch(shuffle: Any) -> None:
    for number in range(3):
        assert sorted(epoch(1000, number, shuffle=shuffle, window_images=300)) == list(range(1000))


def test_true_means_over_all_rows_and_false_the_stored_order() -> None:
    assert epoch(300, shuffle=True) == epoch(300, shuffle="full") != epoch(300, shuffle="window", window_images=128)
    assert epoch(300, shuffle=False) == epoch(300, 5, shuffle=False) == list(range(300))


@pytest.mark.parametrize("shuffle", ["windows", "random", 1, None, ["full"]])
def test_another_word_for_shuffle_is_refused_with_those_there_are(shuffle: Any) -> None:
    with pytest.raises(UsageError, match=r"shuffle=.*: must be True, False, 'full' or 'window'"):
        Shuffling.from_argument(shuffle, 16_384)


def test_a_window_too_small_to_be_read_in_one_go_is_refused() -> None:
    with pytest.raises(UsageError, match="window_images=127: must be at least 128; try 16384"):
        Shuffling.from_argument("window", 127)


# ---- windows


@examples(60)
@given(st.integers(1, 3000), st.integers(BLOCK_ROWS, 1000), keys)
def test_a_window_is_filled_with_stretches_of_the_disk(count: int, window: int, key: int) -> None:
    shuffling = Shuffling(mode="window", window_images=window)
    order = shuffling.order(count, key)[:]
    assert np.sort(order).tolist() == list(range(count))
    parts = [order[indices] for indices in shuffling.windows(count)]
    assert [len(part) for part in parts[:-1]] == [window] * (len(parts) - 1)
    assert len(parts[-1]) <= window
    for part in parts:
        # Whole blocks, at its two ends parts of blocks that reach over to its neighbours, and the last, short one.
        runs = 1 + (np.diff(np.sort(part).astype(np.int64)) != 1).sum()
        assert runs <= len(part) // BLOCK_ROWS + 3
    in_windows = Counter((int(row) // BLOCK_ROWS, number) for number, part in enumerate(parts) for row in part)
    for block in range(-(-count // BLOCK_ROWS)):
        windows_of_block = [number for held_block, number in in_windows if held_block == block]
        assert max(windows_of_block) - min(windows_of_block) <= 1


def test_windows_take_their_blocks_from_the_whole_dataset_and_mix_them_inside() -> None:
    order = Shuffling(mode="window", window_images=1280).order(128_000, 3)[:]
    blocks = np.unique(order[:1280] // BLOCK_ROWS)
    assert len(blocks) == 10
    assert blocks.max() - blocks.min() > 500
    in_first_batch = np.unique(order[:64] // BLOCK_ROWS)
    assert len(in_first_batch) == 10


def test_windows_hold_other_rows_in_another_epoch() -> None:
    order = order_of(128 * 40, shuffle="window", window_images=128 * 4)
    first, second = (frozenset(order.window(number, 0).tolist()) for number in (0, 1))
    assert len(first & second) < len(first) / 2


# ---- spread_videos


def max_per_batch(videos: NDArray[Any], per_batch: int) -> tuple[int, int]:
    """The most items of one video in any batch of `per_batch` consecutive items, and that video; (0, -1) of none."""
    if not len(videos):
        return 0, -1
    codes, dense = np.unique(videos, return_inverse=True)
    batch = np.arange(len(videos)) // per_batch
    batch_and_video, counts = np.unique(batch * len(codes) + dense, return_counts=True)
    fullest = counts.argmax()
    return int(counts[fullest]), int(codes[batch_and_video[fullest] % len(codes)])


@examples(300)
@given(st.lists(st.integers(0, 6), max_size=60), st.integers(1, 20), keys)
def test_dealing_videos_out_keeps_every_item_and_no_batch_has_more_of_one_than_must_be(
    codes: list[int], per_batch: int, key: int
) -> None:
    order = spread_videos(np.array(codes, np.int32), per_batch, key)
    assert sorted(order.tolist()) == list(range(len(codes)))
    sizes = Counter(codes)
    most, video = max_per_batch(np.array(codes)[order], per_batch)
    assert most == min_possible_per_batch(np.array(list(sizes.values()), np.int64), per_batch)
    assert video == -1 if not codes else sizes[video] >= most
    full = max(len(codes) // per_batch, 1)
    assert most <= max((-(-size // full) for size in sizes.values()), default=0)
    if len(codes) % per_batch == 0:  # all batches are full: each video as evenly as can be
        for code, size in sizes.items():
            batches = (np.array(codes)[order] == code).reshape(-1, per_batch).sum(1)
            assert set(batches.tolist()) <= {size // full, -(-size // full)}


@pytest.mark.parametrize(
    ("sizes", "per_batch", "smallest"),
    [
        ([], 4, 0),
        ([5], 8, 5),
        ([8], 4, 4),
        ([4, 4], 4, 2),
        ([2, 2, 2, 2], 4, 1),
        ([3, 2, 2, 2], 4, 1),  # the third of the first one is the whole last batch
        ([3, 3, 3], 4, 2),  # the last batch has place for one of the three
        ([10, 1, 1], 4, 4),
    ],
)
def test_the_least_of_one_video_that_a_batch_has_to_hold(sizes: list[int], per_batch: int, smallest: int) -> None:
    assert min_possible_per_batch(np.array(sizes, np.int64), per_batch) == smallest
    codes = np.repeat(np.arange(len(sizes)), sizes)
    orders = [codes[spread_videos(codes, per_batch, key)] for key in range(50)]
    assert {max_per_batch(order, per_batch)[0] for order in orders} == {smallest}


def test_dealt_out_rows_are_mixed_between_and_within_batches() -> None:
    codes = np.repeat(np.arange(10), 10)
    first, second = spread_videos(codes, 20, 1), spread_videos(codes, 20, 2)
    assert set(first[:20].tolist()) != set(second[:20].tolist())
    assert codes[first[:20]].tolist() != sorted(codes[first[:20]].tolist())
    places = np.zeros((100, 5), np.int64)
    for key in range(500):
        places[spread_videos(codes, 20, key), np.arange(100) // 20] += 1
    chi2 = ((places - 100) ** 2 / 100).sum()
    assert chi2 < 600  # 400 degrees of freedom, less for what is dealt evenly
