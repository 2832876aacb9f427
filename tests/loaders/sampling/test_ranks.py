"""What a training run on several ranks notices: all take the same steps, each has its own part, none is left over."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from assets_dataset import ROWS, make_dataset
from assets_loaders import loader
from assets_ranks import RankRecord, in_ranks, run_epochs
from facefeed.loaders.sampling.balance import Pairs, Quotas

QUOTAS = {"batch_size": 8, "balance": Quotas({"real": 1, "fake": 3})}
PAIRS = {"batch_size": 6, "balance": Pairs()}
SETTINGS: dict[str, dict[str, Any]] = {
    "train": {"batch_size": 16},
    "window": {"batch_size": 16, "shuffle": "window", "window_images": 128},
    "a row over": {"split": "val", "batch_size": 5},
    "two rows": {"split": "test", "batch_size": 4, "filters": [("frame_index", "==", 0)]},
    "no rows": {"filters": [("frame_index", "==", 1000)]},
    "drop_last": {"batch_size": 16, "drop_last": True},
    "quotas": QUOTAS,
    "pairs": PAIRS,
}
Runs = dict[str, list[RankRecord]]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ranks") / "out"
    make_dataset(out)
    return out


@pytest.fixture(scope="module", params=[2, 3])
def runs(request: pytest.FixtureRequest, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """What each rank saw by name of the setting. That they came to an end proves that all took the same steps."""
    folder = tmp_path_factory.mktemp("group")
    ranks = in_ranks(request.param, run_epochs, folder, dataset, list(SETTINGS.values()))
    return {name: [rank[number] for rank in ranks] for number, name in enumerate(SETTINGS)}


def faces(dataset: Path, **options: Any) -> list[str]:
    batches = loader(dataset, num_workers=0, shuffle=False, **options)
    return [face for batch in batches for face in batch["face_id"]]


def faces_of(rank: RankRecord, epoch: int) -> list[str]:
    return [face for step in rank.epochs[epoch] for face in step]


@pytest.mark.parametrize("name", SETTINGS)
def test_every_rank_takes_as_many_steps_as_it_stated_before_the_first(runs: Runs, name: str) -> None:
    assert len({rank.length for rank in runs[name]}) == 1
    for rank in runs[name]:
        assert [len(steps) for steps in rank.epochs] == [rank.length] * 2


@pytest.mark.parametrize(("name", "split"), [("train", "train"), ("window", "train"), ("a row over", "val")])
def test_together_the_ranks_see_every_face_once_and_the_stated_few_twice(
    runs: Runs, dataset: Path, name: str, split: str
) -> None:
    stored = faces(dataset, split=split)
    assert len(stored) == ROWS[split]
    for epoch in range(2):
        union = Counter(face for rank in runs[name] for face in faces_of(rank, epoch))
        assert union.keys() == set(stored)
        assert union.total() == len(stored) + runs[name][0].padded
        assert max(union.values()) <= 2


def test_only_where_a_step_has_fewer_faces_than_ranks_some_come_twice(runs: Runs) -> None:
    ranks = len(runs["train"])
    assert [runs[name][0].padded for name in ("train", "a row over", "two rows")] == [0, ranks - 1, ranks - 2]
    assert [len(faces_of(rank, 0)) for rank in runs["two rows"]] == [1] * ranks


def test_ranks_differ_by_at_most_one_image_a_step(runs: Runs) -> None:
    for name in ("train", "window", "a row over"):
        for step in zip(*(rank.epochs[0] for rank in runs[name]), strict=True):
            sizes = [len(part) for part in step]
            assert max(sizes) - min(sizes) <= 1


def test_drop_last_leaves_out_what_does_not_fill_a_step_on_all_ranks(runs: Runs, dataset: Path) -> None:
    ranks = runs["drop_last"]
    step = 16 * len(ranks)
    assert ranks[0].length == ROWS["train"] // step
    assert {len(part) for rank in ranks for part in rank.epochs[0]} == {16}
    union = Counter(face for rank in ranks for face in faces_of(rank, 0))
    assert union.total() == len(union) == ROWS["train"] // step * step


def test_quotas_are_exact_on_every_rank_in_every_step(runs: Runs) -> None:
    for rank in runs["quotas"]:
        for labels in (step for epoch in rank.labels for step in epoch):
            assert labels.count(1) == 3 * labels.count(0) > 0


def test_pairs_stay_together_on_every_rank(runs: Runs) -> None:
    for rank in runs["pairs"]:
        for labels in (step for epoch in rank.labels for step in epoch):
            assert labels == [0, 1] * (len(labels) // 2)
            assert labels


def test_epochs_differ_and_no_rank_keeps_its_part(runs: Runs) -> None:
    for rank in runs["train"]:
        assert faces_of(rank, 0) != faces_of(rank, 1)
        assert set(faces_of(rank, 0)) != set(faces_of(rank, 1))


def test_no_rows_are_no_steps_on_any_rank(runs: Runs) -> None:
    for rank in runs["no rows"]:
        assert (rank.length, rank.epochs) == (0, [[], []])


def test_the_ranks_steps_put_together_are_the_steps_of_a_single_rank(runs: Runs, dataset: Path) -> None:
    for name, batch_size in (("train", 16), ("window", 16), ("quotas", 8), ("pairs", 6)):
        ranks = runs[name]
        options = {**SETTINGS[name], "batch_size": batch_size * len(ranks), "num_workers": 0}
        alone = [list(batch["face_id"]) for batch in loader(dataset, **options)]
        together = [
            [face for part in step for face in part] for step in zip(*(rank.epochs[0] for rank in ranks), strict=True)
        ]
        num_steps = len(alone) - 1  # the last step may have been filled up
        assert together[:num_steps] == alone[:num_steps]


@pytest.mark.processes
def test_ranks_with_workers_see_what_they_see_without(dataset: Path, tmp_path: Path) -> None:
    settings = [{"batch_size": 16}, {"batch_size": 16, "num_workers": 1}]
    for without_workers, with_workers in in_ranks(2, run_epochs, tmp_path / "group", dataset, settings):
        assert with_workers == without_workers
