"""What a training run notices of ranks: the same steps everywhere, one order over all, nothing lost or doubled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assets_random import examples
from assets_rows import RowsOnly, make_small, order_of, rows_seen, stored_rows
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.sampling.balance import Pairs, Quotas
from facefeed.loaders.sampling.batch_request import BatchRequest
from facefeed.loaders.sampling.epoch_sampler import EpochSampler
from facefeed.pipeline.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st

EVEN = Quotas({"real": 1, "fake": 1})
counts, sizes, worlds = st.integers(0, 120), st.integers(1, 20), st.integers(1, 5)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


def ranks_of(rows: Any, ranks: int, **options: Any) -> list[EpochSampler]:
    return [order_of(rows, rank=rank, num_replicas=ranks, **options) for rank in range(ranks)]


@examples(200)
@given(counts, sizes, worlds, st.booleans())
def test_every_rank_takes_the_steps_that_len_says_before_the_first(
    count: int, batch_size: int, ranks: int, drop_last: bool
) -> None:
    orders = ranks_of(count, ranks, batch_size=batch_size, drop_last=drop_last)
    full_steps, remainder = divmod(count, batch_size * ranks)
    for order in orders:
        assert len(order) == full_steps + (bool(remainder) and not drop_last)
        assert len(list(order)) == len(order)


@examples(200)
@given(counts, sizes, worlds, st.booleans())
def test_the_ranks_share_each_step_and_repeat_only_where_there_is_too_little_for_all(
    count: int, batch_size: int, ranks: int, drop_last: bool
) -> None:
    orders = ranks_of(count, ranks, batch_size=batch_size, drop_last=drop_last)
    all_rows = orders[0].rows(0).tolist()
    used: list[int] = []
    padded = 0
    for step in range(len(orders[0])):
        parts = [order.request(0, step).rows.tolist() for order in orders]
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert 1 <= min(map(len, parts)) <= max(map(len, parts)) <= batch_size
        expected = all_rows[step * batch_size * ranks :][: batch_size * ranks]
        together = [row for part in parts for row in part]
        assert together[: len(expected)] == expected
        padded += len(together) - len(expected)
        if len(together) > len(expected):
            assert len(expected) < ranks
            assert len(together) == ranks
            assert together[len(expected) :] == (all_rows * ranks)[: len(together) - len(expected)]
        used += expected
    assert padded == orders[0].padded_images
    assert len(all_rows) - len(used) == orders[0].dropped_images
    assert sorted(used) == sorted(all_rows[: len(used)])
    assert len(set(used)) == len(used)


@examples(50)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 6), worlds)
def test_sets_of_quotas_are_never_torn_apart_between_ranks(real: int, fake: int, half: int, ranks: int) -> None:
    rows = RowsOnly({"label": [0] * real + [1] * fake})
    orders = ranks_of(rows, ranks, batch_size=2 * half, balance=EVEN)
    for step in range(len(orders[0])):
        parts = [order.request(0, step).rows for order in orders]
        lengths = [len(part) for part in parts]
        assert all(length % 2 == 0 and length for length in lengths)
        assert max(lengths) - min(lengths) <= 2
        assert all(2 * rows.index.numbers("label", part).sum() == len(part) for part in parts)


@pytest.mark.parametrize("shuffle", [True, "window", False])
@pytest.mark.parametrize("balance", [None, EVEN])
def test_ranks_that_share_a_global_batch_see_the_order_that_one_rank_sees(shuffle: Any, balance: Any) -> None:
    rows = RowsOnly({"label": [number % 3 == 0 for number in range(500)]})
    options: dict[str, Any] = {"shuffle": shuffle, "window_images": 150} | ({"balance": balance} if balance else {})
    (single_rank,) = ranks_of(rows, 1, batch_size=32, **options)
    for ranks in (2, 4):
        orders = ranks_of(rows, ranks, batch_size=32 // ranks, **options)
        assert len(orders[0]) == len(single_rank)
        for epoch, step in ((0, 0), (0, 7), (0, len(single_rank) - 1), (3, 2)):
            requests = [order.request(epoch, step) for order in orders]
            single_request = single_rank.request(epoch, step)
            assert np.concatenate([request.rows for request in requests]).tolist() == single_request.rows.tolist()
            assert (
                np.concatenate([request.global_positions for request in requests]).tolist()
                == single_request.global_positions.tolist()
            )


def test_places_number_the_images_of_a_step_over_all_ranks() -> None:
    requests = [order.request(0, 1) for order in ranks_of(20, 3, batch_size=3)]
    assert [request.global_positions.tolist() for request in requests] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    last = [order.request(0, 2) for order in ranks_of(20, 3, batch_size=3)]
    assert [request.global_positions.tolist() for request in last] == [[0], [1], [2]]


def test_what_is_repeated_or_dropped_is_reported(dataset: Path) -> None:
    options: dict[str, Any] = {"num_replicas": 4, "rank": 1, "num_workers": 0, "image_size": 8}
    padded = FaceDataLoader(dataset, batch_size=15, **options).describe()
    assert (padded.batches, padded.padded_images, padded.dropped_images) == (2, 0, 0)  # 107 = 60 + 47
    padded = FaceDataLoader(dataset, batch_size=7, filters=[("frame_index", "<", 9)], **options).describe()
    assert (padded.rows, padded.batches, padded.padded_images) == (36, 2, 0)
    few = FaceDataLoader(dataset, split="val", batch_size=7, filters=[("frame_index", "==", 0)], **options)
    assert (few.describe().rows, len(few), few.describe().padded_images) == (2, 1, 2)
    assert "2 repeated at the end of an epoch" in str(few.describe())
    dropped = FaceDataLoader(dataset, batch_size=15, drop_last=True, **options)
    assert (len(dropped), dropped.describe().dropped_images, dropped.describe().padded_images) == (1, 47, 0)
    assert "47 dropped at the end of an epoch" in str(dropped.describe())


def test_the_batches_of_all_ranks_are_the_split_with_each_row_once(dataset: Path) -> None:
    loaders = [
        FaceDataLoader(
            dataset, batch_size=8, rank=rank, num_replicas=3, num_workers=0, image_size=8, fields=("image", "row")
        )
        for rank in range(3)
    ]
    epochs = [list(loader) for loader in loaders]
    assert {len(epoch) for epoch in epochs} == {len(loaders[0])} == {5}
    rows = [row for epoch in epochs for row in rows_seen(epoch)]
    assert sorted(rows) == [number for number, row in enumerate(stored_rows(dataset)) if row["split"] == "train"]
    assert [len(epoch[-1]["row"]) for epoch in epochs] == [4, 4, 3]  # 107 = 4 * 24 + 11


def test_length_is_exact_before_the_first_batch_while_it_goes_on_and_after_a_resume(dataset: Path) -> None:
    loader = FaceDataLoader(dataset, batch_size=10, image_size=8, num_workers=0)
    batches = iter(loader)
    next(batches)
    assert len(loader) == 11
    state = loader.state_dict()
    assert 1 + sum(1 for _ in batches) == 11
    resumed = FaceDataLoader(dataset, batch_size=10, image_size=8, num_workers=0)
    resumed.load_state_dict(state)
    assert len(resumed) == 11
    assert [sum(1 for _ in resumed), sum(1 for _ in resumed)] == [10, 11]


def test_a_ticket_says_what_to_make_and_holds_nothing() -> None:
    request = order_of(100, 16).request(2, 3)
    assert isinstance(request, BatchRequest)
    assert (request.epoch, request.step, request.slot) == (2, 3, None)
    assert request.rows.nbytes + request.global_positions.nbytes == 16 * (4 + 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0: must be at least 1; try 64"),
        ({"rank": 0}, "rank and num_replicas: give both, or none"),
        ({"num_replicas": 2}, "rank and num_replicas: give both, or none"),
        ({"rank": 2, "num_replicas": 2}, r"rank=2: must be in 0\.\.1"),
        ({"rank": -1, "num_replicas": 2}, "rank=-1: must be at least 0"),
        ({"balance": Pairs(), "batch_size": 3}, "take a multiple of 2"),
    ],
)
def test_ranks_and_sizes_that_cannot_be_are_refused(dataset: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FaceDataLoader(dataset, num_workers=0, **options)
