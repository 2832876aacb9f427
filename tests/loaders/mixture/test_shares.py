"""What a user of weights and temperatures notices: shares that are exact, and even at every point of an epoch."""

from __future__ import annotations

import random

import numpy as np
import pytest
from facefeed.loaders.mixture.shares import count_each, interleave, items_until, share_numbers


def rounding_of(shares: list[int], count: int) -> float:
    """The most by which the number of items of any dataset, in any consecutive ones, differs from its share."""
    source = interleave(shares, count)
    ahead = [
        np.cumsum(np.append(0, source == number)) - share / sum(shares) * np.arange(count + 1)
        for number, share in enumerate(shares)
    ]
    return max(float(each.max() - each.min()) for each in ahead)


@pytest.mark.parametrize(("datasets", "most"), [(2, 1), (3, 2), (4, 3), (7, 3), (12, 3)])
def test_in_any_part_of_an_epoch_each_dataset_has_its_share_to_rounding(datasets: int, most: int) -> None:
    drawn = random.Random(datasets)
    for _ in range(40):
        weights = [drawn.choice([drawn.randint(1, 9), 10 ** drawn.uniform(0, 4)]) for _ in range(datasets)]
        assert rounding_of(share_numbers([1] * datasets, weights=weights), 2000) < most, weights


def test_sizes_are_the_shares_where_nothing_else_is_given() -> None:
    shares = share_numbers([400_000, 3_000, 7])
    assert np.bincount(interleave(shares, 403_007)).tolist() == [400_000, 3_000, 7]


def test_a_temperature_of_two_takes_square_roots_and_a_high_one_makes_shares_equal() -> None:
    for temperature, expected in ((1, [0.8, 0.15, 0.05]), (2, None), (1e6, [1 / 3] * 3)):
        shares = np.array(share_numbers([800, 150, 50], temperature=temperature))
        roots = np.sqrt([800, 150, 50])
        assert shares / shares.sum() == pytest.approx(expected or roots / roots.sum(), abs=1e-5)


@pytest.mark.parametrize("temperature", [0.1, 0.005, 1e-300])
def test_no_temperature_leaves_a_dataset_out(temperature: float) -> None:
    shares = share_numbers([4000, 40], temperature=temperature)
    assert shares[0] / sum(shares) == pytest.approx(1, abs=1e-8)
    assert shares[1] == 1
    assert count_each(shares, items_until(shares, 1, 2))[1] == 2


def test_weights_may_be_of_any_magnitude() -> None:
    for weights in ([5, 3, 2], [0.5, 0.3, 0.2], [5e200, 3e200, 2e200], [5e-200, 3e-200, 2e-200]):
        shares = np.array(share_numbers([1, 1, 1], weights=weights))
        assert shares / shares.sum() == pytest.approx([0.5, 0.3, 0.2], abs=1e-9)


def test_datasets_of_a_thousand_million_faces_are_counted_without_overflow() -> None:
    shares = share_numbers([3 * 10**9, 10**9, 5])
    assert count_each(shares, 10**12) == pytest.approx([75 * 10**10, 25 * 10**10, 1250], abs=1000)


def test_the_counts_of_an_epoch_are_those_of_its_sequence() -> None:
    for shares in ([1], [3, 1], [5, 3, 2], [60, 24, 9, 1]):
        for count in (0, 1, 17, 100):
            assert count_each(shares, count) == np.bincount(interleave(shares, count), minlength=len(shares)).tolist()


def test_an_epoch_that_a_dataset_defines_ends_with_its_last_item() -> None:
    for dataset in range(3):
        count = items_until([5, 3, 2], dataset, 40)
        assert count_each([5, 3, 2], count)[dataset] == 40
        assert count_each([5, 3, 2], count - 1)[dataset] == 39
