"""What a user notices of balance: shares that hold in every batch, rows that all get their turn, names that exist."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from assets_random import examples
from assets_rows import RowsOnly, batches_of, make_small, order_of
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.sampling.balance import BlendPairs, Pairs, Quotas, Weights
from facefeed.pipeline.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st

EVEN = Quotas({"real": 1, "fake": 1})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


def rows_of(*counts: int) -> RowsOnly:
    """So many rows of label 0, of label 1 and so on, and of methods "a", "b" and so on."""
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    return RowsOnly({"label": labels, "method": [chr(ord("a") + label) for label in labels]})


def labels_in(rows: RowsOnly, batch: list[int]) -> Counter[int]:
    return Counter(rows.index.numbers("label", batch).tolist())


@examples(60)
@given(
    st.integers(1, 60), st.integers(1, 60), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 5),
    st.sampled_from(["full", "window", False]),
)  # fmt: skip
def test_quotas_hold_in_every_batch_of_every_rank_and_in_the_last_one(
    real: int, fake: int, real_share: int, fake_share: int, units: int, ranks: int, shuffle: Any
) -> None:
    rows, set_size = rows_of(real, fake), real_share + fake_share
    quotas = Quotas({"real": real_share, "fake": fake_share})
    for rank in range(ranks):
        order = order_of(
            rows, units * set_size, shuffle, window_images=128, balance=quotas, rank=rank, num_replicas=ranks
        )
        batches = batches_of(order)
        assert len(batches) == len(order) > 0
        for batch in batches:
            assert labels_in(rows, batch) == {
                0: real_share * len(batch) // set_size,
                1: fake_share * len(batch) // set_size,
            }
            assert batch


@examples(40)
@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(["full", "window", False]))
def test_over_many_epochs_all_rows_of_a_value_come_equally_often(real: int, fake: int, shuffle: Any) -> None:
    rows = rows_of(real, fake)
    order = order_of(rows, 4, shuffle, window_images=128, balance=EVEN)
    counts: Counter[int] = Counter(dict.fromkeys(range(len(rows)), 0))
    for number in range(7):
        counts.update(order.rows(number).tolist())
        for group in (range(real), range(real, real + fake)):
            times = [counts[row] for row in group]
            assert max(times) - min(times) <= 1


@pytest.mark.parametrize("balance", [EVEN, Weights({"fake": 3.0})], ids=["quotas", "weights"])
def test_unshuffled_epochs_go_on_through_the_rows_until_one_asks_for_the_first_again(
    dataset: Path, balance: Any
) -> None:
    loader = FaceDataLoader(
        dataset, 8, shuffle=False, balance=balance, image_size=8, num_workers=0, fields=("image", "row")
    )

    def rows() -> list[int]:
        return [row for batch in loader for row in batch["row"].tolist()]

    first, second = rows(), rows()
    assert first != second
    for _ in range(2):
        loader.set_epoch(0)
        assert rows() == first


def test_the_minority_comes_round_again_and_every_row_of_the_majority_gets_its_turn() -> None:
    rows = rows_of(10, 90)
    order = order_of(rows, 10, balance=EVEN)
    first = Counter(order.rows(0).tolist())
    assert order.num_images == 100
    assert [first[row] for row in range(10)] == [5] * 10
    assert max(first[row] for row in range(10, 100)) == 1
    second = Counter(order.rows(1).tolist())
    missed = {row for row in range(10, 100) if not first[row]}
    assert missed <= {row for row in range(10, 100) if second[row]}


def test_the_places_of_a_value_are_spread_over_a_batch() -> None:
    rows = rows_of(30, 90)
    batch = order_of(rows, 8, balance=Quotas({"real": 1, "fake": 3})).rows(0)[:8]
    labels = rows.index.numbers("label", batch).tolist()
    assert [sum(part) for part in (labels[:4], labels[4:])] == [3, 3]


def test_quotas_take_any_column_of_strings_and_say_which_rows_are_in_none() -> None:
    rows = rows_of(20, 30, 50)
    order = order_of(rows, 6, balance=Quotas({"b": 2, "c": 1}, column="method"))
    for batch in batches_of(order):
        assert labels_in(rows, batch) == {1: 2 * len(batch) // 3, 2: len(batch) // 3}
    assert order.bound_balance.notes == ["20 rows of no named method"]
    assert order_of(rows_of(5, 5), 2, balance=EVEN).bound_balance.notes == []


def test_quotas_mix_anew_by_seed_and_epoch() -> None:
    rows = rows_of(40, 40)
    orders = [order_of(rows, 8, balance=EVEN, seed=seed).rows(epoch).tolist() for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4
    assert orders[0] == order_of(rows, 80, balance=EVEN).rows(0).tolist()


@pytest.mark.parametrize(
    ("shares", "column"),
    [({"real": 1, "fake": 3}, "label"), ({"swap": 1, "talk": 3}, "method")],
    ids=["label", "method"],
)
def test_shares_in_any_order_are_one_order_of_rows_on_every_rank_and_in_a_resumed_run(
    dataset: Path, column: str, shares: dict[str, int]
) -> None:
    loaders = [
        FaceDataLoader(dataset, 8, balance=Quotas(dict(items), column), num_workers=0, fields=("image", "row"))
        for items in (shares.items(), reversed(shares.items()))
    ]
    first, second = ([batch["row"].tolist() for batch in loader] for loader in loaders)
    assert first == second
    loaders[1].load_state_dict(loaders[0].state_dict())


def test_shares_in_the_order_of_the_labels_have_the_states_that_they_always_had(dataset: Path) -> None:
    loader = FaceDataLoader(dataset, 8, balance=EVEN, num_workers=0)
    assert "Quotas(shares={'real': 1, 'fake': 1}, column='label')" in loader.state_dict()["order"]


@pytest.mark.parametrize(
    ("balance", "message"),
    [
        (Quotas({"real": 1, "deepfake": 1}), "'deepfake': no label is called so; there are real, fake"),
        (Quotas({"a": 1, "z": 1}, column="method"), "'z': no method is called so; there are a, b"),
        (Quotas({"real": 1}, column="score"), "column='score': must be label or one of method"),
        (Quotas({"real": 1}, column="nonsense"), "column='nonsense': must be label or one of method"),
        (
            Quotas({"real": 2, "fake": 1}),
            "batch_size=8: cannot hold .*; take a multiple of 3, such as 6, or balance",
        ),
        (
            BlendPairs(real="live"),
            r"BlendPairs\(real='live'\): no label is called so; there are real, fake; give BlendPairs\(real='real'\)",
        ),
        (Weights({"deepfake": 1.0}), "'deepfake': no label is called so"),
        (Weights({"real": 1.0}, column="score"), "column='score': must be label or one of method"),
        (Weights({"real": 0.0, "fake": 0.0}), "no row has a weight above 0"),
    ],
)
def test_a_balance_that_the_rows_cannot_give_is_refused_with_what_there_is(balance: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _ = order_of(rows_of(10, 20), 8, balance=balance).bound_balance


def test_where_no_class_is_called_real_blend_pairs_say_how_to_name_it() -> None:
    rows = rows_of(10, 20)
    rows.index.labels = ["live", "spoof"]
    with pytest.raises(UsageError, match=r"there are live, spoof; give BlendPairs\(real=NAME\)"):
        _ = order_of(rows, 8, balance=BlendPairs()).bound_balance


def test_a_value_that_no_selected_row_has_is_refused(dataset: Path) -> None:
    with pytest.raises(UsageError, match="Quotas: no selected row has label 'fake'"):
        FaceDataLoader(dataset, filters=[("label", "==", 0)], balance=EVEN, num_workers=0)


@pytest.mark.parametrize("shares", [{}, {"real": 0}, {"real": -1}, {"real": 0.5, "fake": 0.5}, None, ["real"]])
def test_shares_that_are_no_counts_are_refused(shares: Any) -> None:
    with pytest.raises(UsageError, match=r"Quotas.*(needs a share for each value|real=.*: must be .*at least 1)"):
        Quotas(shares)


@pytest.mark.parametrize("weights", [{}, {"real": -1.0}, {"real": float("nan")}, {"real": 1e308}, {"a": "1"}, "x"])
def test_weights_that_are_none_are_refused(weights: Any) -> None:
    with pytest.raises(UsageError, match=r"Weights.*(needs a weight for each value|=.*: must be a number from 0 to)"):
        Weights(weights)


def test_weights_draw_each_value_as_often_as_they_say() -> None:
    rows = rows_of(100, 300, 600)
    order = order_of(rows, 10, balance=Weights({"a": 4.0, "c": 0.5}, column="method"))
    counts: Counter[int] = Counter()
    for number in range(20):
        counts += labels_in(rows, order.rows(number).tolist())
    assert order.num_images == 1000
    for label, weight in ((0, 400), (1, 300), (2, 300)):
        assert counts[label] == pytest.approx(20_000 * weight / 1000, rel=0.05)


def test_a_weight_of_zero_leaves_out_and_rows_of_one_weight_come_alike_often() -> None:
    order = order_of(rows_of(10, 10), 10, balance=Weights({"real": 0.0}))
    counts = Counter(row for number in range(500) for row in order.rows(number).tolist())
    assert set(counts) == set(range(10, 20))
    assert sum((times - 1000) ** 2 / 1000 for times in counts.values()) < 30  # chi2, 9 degrees of freedom


def test_rows_without_the_column_weigh_one() -> None:
    rows = RowsOnly({"label": [0, 1], "method": [None, "a"]})
    order = order_of(rows, 2, balance=Weights({"a": 3.0}, column="method"))
    counts = Counter(row for number in range(1000) for row in order.rows(number).tolist())
    assert counts[1] / counts[0] == pytest.approx(3, rel=0.15)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"balance": Weights({"real": 2.0}), "max_per_video": 2}, "Weights: draws freely"),
        ({"balance": Weights({"real": 2.0}), "shuffle": "window"}, "Weights: draws freely"),
        ({"balance": EVEN, "max_per_video": 2, "shuffle": "window"}, "Quotas: max_per_video cannot hold together"),
        ({"balance": EVEN, "batch_size": 7}, "batch_size=7: cannot hold .* take a multiple of 2"),
        ({"balance": Pairs(), "batch_size": 5}, "batch_size=5: cannot hold .* take a multiple of 2"),
    ],
)
def test_what_cannot_hold_together_is_refused_when_the_loader_is_made(
    dataset: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        FaceDataLoader(dataset, **{"num_workers": 0, "batch_size": 8, **options})


def test_a_loader_with_quotas_hands_out_its_shares(dataset: Path) -> None:
    loader = FaceDataLoader(dataset, batch_size=12, image_size=8, balance=Quotas({"real": 1, "fake": 2}), num_workers=0)
    labels = [labels.tolist() for _, labels in loader]
    assert len(labels) == len(loader) == 9  # of 107 rows 105 make whole sets of shares
    assert [(len(batch), sum(batch)) for batch in labels] == [(12, 8)] * 8 + [(9, 6)]


@pytest.mark.parametrize(("labels", "orphans"), [(("real", "fake"), 3), (("angry", "happy"), 1)], ids=str)
def test_pairs_count_fakes_whose_source_is_unknown(labels: tuple[str, ...], orphans: int) -> None:
    sources = [None, "a.mp4", None, None, "gone.mp4", None]
    rows = RowsOnly({
        "video_id": ["a.mp4", "x.mp4", "y.mp4", "y.mp4", "z.mp4", "u.mp4"], "source_id": sources,
        "label": [0, 1, 1, 1, 1, -1], "frame_index": [0, 0, 0, 1, 0, 0], "box_xyxy": [(10, 10, 30, 40)] * 6,
        "frame_width": [100] * 6, "frame_height": [100] * 6,
    })  # fmt: skip
    rows.index.labels = labels
    order = order_of(rows, 2, balance=Pairs())
    assert order.rows(0).tolist() == [0, 1]
    assert order.bound_balance.notes[0] == f"{orphans} fakes without rows of their source"
