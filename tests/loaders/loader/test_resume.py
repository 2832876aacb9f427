"""What a training run that was stopped notices when it goes on: exactly the batches that were left, in their order."""

from __future__ import annotations

import json
import pickle
from itertools import islice
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as its own documentation writes it)
import pytest
from assets_dataset import make_dataset
from assets_loaders import Noise, Seen, loader, seen, start_training, take_steps
from assets_ranks import in_ranks, stop_after
from assets_rows import RowsOnly, order_of
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.sampling.balance import Pairs, Quotas, Weights
from facefeed.loaders.sampling.epoch_sampler import EpochSampler

STEPS = 11  # of 32 images


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("resume") / "out"
    make_dataset(out)
    return out


def uninterrupted(out: Path, epochs: int = 1, **options: Any) -> list[Seen]:
    batches = loader(out, num_workers=0, transform=Noise(), **options)
    return [batch for _ in range(epochs) for batch in seen(batches)]


def state_after(steps: int, batches: FaceDataLoader) -> tuple[list[Seen], dict[str, Any]]:
    """The first steps of the next epoch and the state after them, as a file would bring it back."""
    iterator = iter(batches)
    consumed = seen(islice(iterator, steps))
    return consumed, json.loads(json.dumps(batches.state_dict()))


def resume(state: dict[str, Any], batches: FaceDataLoader) -> list[Seen]:
    batches.load_state_dict(state)
    return seen(batches)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_stopped_with_two_workers_it_goes_on_with_any_number(dataset: Path, workers: int) -> None:
    consumed, state = state_after(4, loader(dataset, num_workers=2, transform=Noise()))
    remaining = resume(state, loader(dataset, num_workers=workers, transform=Noise()))
    assert [*consumed, *remaining] == uninterrupted(dataset)


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": "window", "window_images": 128},
        {"balance": Quotas({"real": 1, "fake": 3})},
        {"split": "val", "batch_size": 4},
        {"drop_last": True},
    ],
    ids=["window", "quotas", "unshuffled", "drop_last"],
)
@pytest.mark.parametrize("steps", [1, 6])
def test_stopped_anywhere_nothing_is_lost_or_doubled(dataset: Path, options: dict[str, Any], steps: int) -> None:
    consumed, state = state_after(steps, loader(dataset, num_workers=0, transform=Noise(), **options))
    remaining = resume(state, loader(dataset, num_workers=0, transform=Noise(), **options))
    assert [*consumed, *remaining] == uninterrupted(dataset, **options)


def test_an_albumentations_pipeline_goes_on_with_the_same_draws(dataset: Path) -> None:
    def pipeline() -> A.Compose:
        return A.Compose(
            [A.HorizontalFlip(p=0.5), A.RandomBrightnessContrast(p=0.8), A.RandomCrop(24, 24), A.Resize(32, 32)]
        )

    consumed, state = state_after(5, loader(dataset, num_workers=1, transform=pipeline()))
    remaining = resume(state, loader(dataset, num_workers=0, transform=pipeline()))
    assert [*consumed, *remaining] == seen(loader(dataset, num_workers=0, transform=pipeline()))


def test_stopped_on_two_ranks_it_goes_on_with_one_of_the_same_global_batch(dataset: Path, tmp_path: Path) -> None:
    options = {"batch_size": 16, "num_workers": 0, "transform": Noise()}
    (first, state), (second, other_state) = in_ranks(2, stop_after, tmp_path / "group", dataset, 4, options)
    assert state == other_state
    consumed = [[*rank0, *rank1] for rank0, rank1 in zip(first, second, strict=True)]
    assert [*consumed, *resume(state, loader(dataset, num_workers=0, transform=Noise()))] == uninterrupted(dataset)


def test_stopped_on_one_rank_it_goes_on_with_two_of_the_same_global_batch(dataset: Path) -> None:
    consumed, state = state_after(4, loader(dataset, num_workers=0, transform=Noise()))
    parts = [
        resume(state, loader(dataset, num_workers=0, transform=Noise(), batch_size=16, rank=rank, num_replicas=2))
        for rank in range(2)
    ]
    remaining = [[*rank0, *rank1] for rank0, rank1 in zip(*parts, strict=True)]
    assert [*consumed, *remaining] == uninterrupted(dataset)


def test_the_next_epochs_are_those_of_a_run_that_was_never_stopped(dataset: Path) -> None:
    consumed, state = state_after(4, loader(dataset, num_workers=0, transform=Noise()))
    resumed = loader(dataset, num_workers=0, transform=Noise())
    remaining = resume(state, resumed)
    assert [*consumed, *remaining, *seen(resumed), *seen(resumed)] == uninterrupted(dataset, epochs=3)


def test_the_length_stays_that_of_the_whole_epoch(dataset: Path) -> None:
    _, state = state_after(4, loader(dataset, num_workers=0))
    resumed = loader(dataset, num_workers=0)
    resumed.load_state_dict(state)
    assert len(resumed) == STEPS
    assert len(list(resumed)) == STEPS - 4
    assert len(resumed) == STEPS


def test_batches_that_workers_made_ahead_are_not_counted(dataset: Path) -> None:
    batches = loader(dataset, num_workers=2, prefetch_factor=4)
    iterator = iter(batches)
    for step in range(1, 4):
        next(iterator)
        assert (batches.state_dict()["epoch"], batches.state_dict()["images"]) == (0, 32 * step)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_before_the_first_batch_is_that_epochs_beginning(dataset: Path, workers: int) -> None:
    fresh = loader(dataset, num_workers=workers)
    started = loader(dataset, num_workers=workers)
    iterator = iter(started)
    assert started.state_dict() == fresh.state_dict()
    assert (fresh.state_dict()["epoch"], fresh.state_dict()["images"]) == (0, 0)
    list(iterator)
    iterator = iter(started)
    assert (started.state_dict()["epoch"], started.state_dict()["images"]) == (1, 0)


def test_a_state_at_the_end_of_an_epoch_goes_on_with_the_next(dataset: Path) -> None:
    batches = loader(dataset, num_workers=0, transform=Noise())
    list(batches)
    state = batches.state_dict()
    assert (state["epoch"], state["images"]) == (1, 0)
    assert resume(state, loader(dataset, num_workers=0, transform=Noise())) == uninterrupted(dataset, epochs=2)[STEPS:]


def test_a_state_after_the_last_batch_and_before_the_loops_end_goes_on_with_the_next_epoch(dataset: Path) -> None:
    consumed, state = state_after(STEPS, loader(dataset, num_workers=0, transform=Noise()))
    assert (len(consumed), state["epoch"], state["images"]) == (STEPS, 1, 0)


def test_a_state_can_be_stored_again_before_the_first_resumed_batch(dataset: Path) -> None:
    _, state = state_after(4, loader(dataset, num_workers=0))
    resumed = loader(dataset, num_workers=0)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    iterator = iter(resumed)
    assert resumed.state_dict() == state
    next(iterator)
    assert resumed.state_dict()["images"] == 5 * 32


def test_setting_the_epoch_that_is_due_keeps_the_place_and_another_one_starts_at_its_beginning(dataset: Path) -> None:
    all_batches = uninterrupted(dataset, epochs=3)
    _, state = state_after(4, loader(dataset, num_workers=0, transform=Noise()))
    for epoch, expected in ((0, all_batches[4:STEPS]), (2, all_batches[2 * STEPS :])):
        resumed = loader(dataset, num_workers=0, transform=Noise())
        resumed.load_state_dict(state)
        resumed.set_epoch(epoch)
        assert seen(resumed) == expected


def test_the_epoch_may_be_chosen_in_any_order_and_counts_on_from_there(dataset: Path) -> None:
    all_batches = uninterrupted(dataset, epochs=3)
    batches = loader(dataset, num_workers=0, transform=Noise())
    batches.set_epoch(2)
    assert seen(batches) == all_batches[2 * STEPS :]
    batches.set_epoch(0)
    assert seen(batches) == all_batches[:STEPS]
    assert seen(batches) == all_batches[STEPS : 2 * STEPS]


def test_an_epoch_that_was_broken_off_is_gone_on_with_and_its_state_may_be_loaded_again(dataset: Path) -> None:
    all_batches = uninterrupted(dataset, epochs=2)
    batches = loader(dataset, num_workers=1, transform=Noise())
    _, state = state_after(3, batches)
    assert seen(batches) == all_batches[3:STEPS]
    assert seen(batches) == all_batches[STEPS:]
    batches.load_state_dict(state)
    assert seen(batches) == all_batches[3:STEPS]


@pytest.mark.processes
def test_killed_in_mid_epoch_training_goes_on_with_exactly_the_batches_that_were_left(
    dataset: Path, tmp_path: Path
) -> None:
    training = start_training(dataset, tmp_path, num_workers=2)
    try:
        take_steps(training, 5)
    finally:
        training.kill()
        training.communicate()
    with (tmp_path / "steps.pickle").open("rb") as file:
        consumed = [batch for _ in range(5) for batch in pickle.load(file)]
    state = json.loads((tmp_path / "state.json").read_text())
    remaining = resume(state, loader(dataset, num_workers=1, transform=Noise()))
    assert [*consumed, *remaining] == uninterrupted(dataset)


@pytest.mark.parametrize(
    ("before", "after"),
    [((8, 4), (6, 4)), ((6, 4), (8, 4)), ((1, 32), (3, 10)), ((2, 16), (1, 7)), ((1, 100), (1, 1))],
    ids=lambda ranks: f"{ranks[0]}x{ranks[1]}",
)
@pytest.mark.parametrize(
    "options",
    [
        {}, {"shuffle": "window", "window_images": 128}, {"shuffle": False}, {"drop_last": True},
        {"balance": Weights({"real": 2.0})},
    ],
    ids=["full", "window", "unshuffled", "drop_last", "weights"],
)  # fmt: skip
def test_on_another_number_of_gpus_it_goes_on_with_the_images_that_were_left(
    before: tuple[int, int], after: tuple[int, int], options: dict[str, Any]
) -> None:
    def samplers_of(ranks: int, batch_size: int) -> list[EpochSampler]:
        rows = RowsOnly({"label": [number % 2 for number in range(500)]})
        return [order_of(rows, batch_size, rank=rank, num_replicas=ranks, **options) for rank in range(ranks)]

    stopped = samplers_of(*before)[0]
    stopped.position = 3, 4 * stopped.global_batch
    state = json.loads(json.dumps(stopped.state()))
    resumed = samplers_of(*after)
    for sampler in resumed:
        sampler.resume(state)
        assert len(sampler) == len(samplers_of(*after)[0])  # stays that of a whole epoch
    steps = list(zip(*[list(sampler) for sampler in resumed], strict=True))
    received = [int(row) for step in steps for request in step for row in request.rows]
    remaining = stopped.rows(3)[4 * stopped.global_batch :].tolist()
    if options.get("drop_last"):
        remaining = remaining[: len(remaining) // resumed[0].global_batch * resumed[0].global_batch]
    assert received[: len(remaining)] == remaining
    # What fills up the last step where it has fewer images than ranks.
    assert len(received) - len(remaining) <= after[0] - 1
    assert [step[0].step for step in steps] == list(range(len(resumed[0])))[-len(steps) :]
    middle = resumed[0]
    middle.position = 3, 4 * stopped.global_batch + 2 * middle.global_batch
    assert [request.rows.tolist() for request in middle] == [step[0].rows.tolist() for step in steps[2:]]


@pytest.mark.parametrize("balance", [Quotas({"real": 1, "fake": 3}), Pairs()], ids=["quotas", "pairs"])
def test_on_another_number_of_gpus_every_batch_keeps_its_shares(dataset: Path, balance: Any) -> None:
    options: dict[str, Any] = {"balance": balance, "num_workers": 0}
    consumed, state = state_after(3, loader(dataset, batch_size=32, **options))
    ranks = [loader(dataset, batch_size=8, rank=rank, num_replicas=3, **options) for rank in range(3)]
    remaining: list[Seen] = []
    for rank in ranks:
        rank.load_state_dict(state)
    for parts in zip(*ranks, strict=True):
        for part in parts[:3]:
            fakes = int(part["label"].sum())
            assert fakes * (4 if isinstance(balance, Quotas) else 2) == len(part["label"]) * (
                3 if isinstance(balance, Quotas) else 1
            )
        remaining += [[sample for part in parts for sample in seen([part])[0]]]
    received = [face for batch in [*consumed, *remaining] for face, _ in batch]
    all_faces = [face for batch in seen(loader(dataset, **options)) for face, _ in batch]
    assert received[: len(all_faces)] == all_faces


def test_resumed_with_another_batch_size_the_epochs_after_are_those_of_that_batch_size(dataset: Path) -> None:
    _, state = state_after(4, loader(dataset, num_workers=0))
    resumed = loader(dataset, num_workers=0, batch_size=50)
    assert len(resume(state, resumed)) == 5  # of 341 images 128 were seen
    assert seen(resumed) == seen_in_epoch(1, loader(dataset, num_workers=0, batch_size=50))


def seen_in_epoch(epoch: int, batches: FaceDataLoader) -> list[Seen]:
    batches.set_epoch(epoch)
    return seen(batches)
