"""What code written for torchdata's StatefulDataLoader notices: the promises of its protocol, and where they differ."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from assets_rows import make_small, rows_seen
from facefeed.loaders import Clip, FaceDataLoader
from facefeed.pipeline.errors import UsageError
from torch.distributed.checkpoint.stateful import Stateful

COPIES = [copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))]
STEPS = 6  # of 20 rows; the last has 7


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("stateful") / "out")


def loader_of(dataset: Path, workers: int = 0, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(dataset, 20, num_workers=workers, image_size=8, fields=("image", "row"), **options)


def steps_of(batches: Any) -> list[list[int]]:
    return [rows_seen([batch]) for batch in batches]


@pytest.fixture(scope="module")
def epochs(dataset: Path) -> list[list[list[int]]]:
    """The rows of each step of four epochs that nobody asked for a state."""
    loader = loader_of(dataset)
    return [steps_of(loader) for _ in range(4)]


@pytest.fixture(scope="module", params=[0, 2], ids=["in this process", "two workers"])
def loaders(dataset: Path, request: pytest.FixtureRequest) -> tuple[FaceDataLoader, FaceDataLoader]:
    """A loader that is saved, and another that its states are loaded into; both are used by many tests."""
    return loader_of(dataset, request.param), loader_of(dataset, request.param)


def begin(loader: FaceDataLoader, epoch: int = 0) -> Any:
    """An iteration from the beginning of an epoch."""
    loader.set_epoch(epoch)
    return iter(loader)


def test_it_is_what_torchs_distributed_checkpoints_call_stateful(dataset: Path) -> None:
    assert isinstance(loader_of(dataset), Stateful)


@pytest.mark.parametrize("steps", [0, 1, 3, STEPS - 1])
def test_a_state_taken_after_some_batches_gives_another_loader_the_rest_and_then_the_next_epoch(
    loaders: tuple[FaceDataLoader, FaceDataLoader], epochs: list[list[list[int]]], steps: int
) -> None:
    saved, fresh = loaders
    iterator = begin(saved)
    assert steps_of(next(iterator) for _ in range(steps)) == epochs[0][:steps]
    state = json.loads(json.dumps(saved.state_dict()))
    assert steps_of(iterator) == epochs[0][steps:], "the saved loader goes on as if nobody had asked"
    fresh.load_state_dict(state)
    assert fresh.state_dict() == state
    assert steps_of(fresh) == epochs[0][steps:]
    assert steps_of(fresh) == epochs[1]


def test_a_state_is_a_copy_and_taking_it_twice_or_in_every_step_changes_nothing(
    loaders: tuple[FaceDataLoader, FaceDataLoader], epochs: list[list[list[int]]]
) -> None:
    saved, fresh = loaders
    states, steps = [], []
    for batch in begin(saved):
        states.append(saved.state_dict())
        assert saved.state_dict() == states[-1]
        steps.append(rows_seen([batch]))
    assert steps == epochs[0]
    kept = copy.deepcopy(states)
    list(saved)
    assert states == kept
    assert [state["images"] for state in states] == [20, 40, 60, 80, 100, 0]
    states[2]["images"] = 0  # somebody else's copy
    fresh.load_state_dict(kept[2])
    assert steps_of(fresh) == epochs[0][3:]


def test_a_state_taken_soon_after_a_resume_is_right_although_workers_have_prefetched(
    loaders: tuple[FaceDataLoader, FaceDataLoader], epochs: list[list[list[int]]]
) -> None:
    saved, fresh = loaders
    iterator = begin(saved, 1)
    next(iterator)
    state = saved.state_dict()
    iterator.close()
    fresh.load_state_dict(state)
    iterator = iter(fresh)
    assert steps_of([next(iterator)]) == epochs[1][1:2]
    state = fresh.state_dict()
    iterator.close()
    saved.load_state_dict(state)
    assert steps_of(saved) == epochs[1][2:]


def test_the_state_from_before_the_first_batch_starts_the_same_loader_again(
    loaders: tuple[FaceDataLoader, FaceDataLoader], epochs: list[list[list[int]]]
) -> None:
    loader, _ = loaders
    iterator = begin(loader)
    state = loader.state_dict()
    assert steps_of(iterator) == epochs[0]
    loader.load_state_dict(state)
    assert steps_of(loader) == epochs[0]


def test_two_epochs_a_state_and_two_more_are_four_epochs(
    loaders: tuple[FaceDataLoader, FaceDataLoader], epochs: list[list[list[int]]]
) -> None:
    saved, fresh = loaders
    before = [steps_of(begin(saved)), steps_of(saved)]
    fresh.load_state_dict(saved.state_dict())
    assert [*before, steps_of(fresh), steps_of(fresh)] == epochs


def test_the_state_of_the_last_batch_is_that_after_the_epoch_so_that_no_epoch_is_empty(
    loaders: tuple[FaceDataLoader, FaceDataLoader], epochs: list[list[list[int]]]
) -> None:
    saved, fresh = loaders
    states = [saved.state_dict() for _ in begin(saved)]
    assert states[-1] == saved.state_dict()
    fresh.load_state_dict(states[-1])
    assert steps_of(fresh) == steps_of(saved) == epochs[1]


def test_loading_into_an_iteration_under_way_is_refused_and_fine_once_it_is_gone(
    loaders: tuple[FaceDataLoader, FaceDataLoader], epochs: list[list[list[int]]]
) -> None:
    saved, fresh = loaders
    iterator = begin(saved)
    next(iterator)
    state = saved.state_dict()
    running = begin(fresh, 2)
    next(running)
    with pytest.raises(UsageError, match=r"load before iter\(\)"):
        fresh.load_state_dict(state)
    assert steps_of(running) == epochs[2][1:]
    fresh.load_state_dict(state)
    assert steps_of(fresh) == epochs[0][1:] == steps_of(iterator)


def test_two_loaders_at_once_do_not_disturb_each_other(
    loaders: tuple[FaceDataLoader, FaceDataLoader], epochs: list[list[list[int]]]
) -> None:
    first, second = loaders
    pairs = list(zip(begin(first), begin(second, 3), strict=True))
    assert steps_of(pair[0] for pair in pairs) == epochs[0]
    assert steps_of(pair[1] for pair in pairs) == epochs[3]


@pytest.mark.parametrize("copied", COPIES, ids=["deepcopy", "pickle"])
def test_a_copy_of_a_loader_in_mid_epoch_or_after_it_goes_on_where_that_one_would(
    loaders: tuple[FaceDataLoader, FaceDataLoader], epochs: list[list[list[int]]], copied: Any
) -> None:
    loader, _ = loaders
    iterator = begin(loader)
    next(iterator)
    in_mid_epoch = copied(loader)
    assert in_mid_epoch.state_dict() == loader.state_dict()
    assert steps_of(iterator) == epochs[0][1:] == steps_of(in_mid_epoch)
    after_it = copied(loader)
    assert steps_of(after_it) == steps_of(loader) == epochs[1] == steps_of(in_mid_epoch)


@pytest.mark.parametrize("copied", COPIES, ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("mixed", [False, True], ids=["one dataset", "a mixture"])
def test_a_loader_of_clips_in_windows_is_copied_too(dataset: Path, tmp_path: Path, copied: Any, mixed: bool) -> None:
    data: Any = {"one": dataset, "other": shutil.copytree(dataset, tmp_path / "other")} if mixed else dataset
    fields = ("image", "row")
    loader = FaceDataLoader(data, 2, clip=Clip(frames=2), shuffle="window", num_workers=0, image_size=8, fields=fields)
    iterator = iter(loader)
    next(iterator)
    rest = [batch["row"].tolist() for batch in copied(loader)]
    assert rest == [batch["row"].tolist() for batch in iterator]
