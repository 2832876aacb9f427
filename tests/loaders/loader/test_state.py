"""What a training run notices of its state: a few numbers that say which batch is next, and refuse another order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
import torch
from assets_dataset import Clip, make_dataset
from assets_rows import make_small, rows_seen
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.sampling.balance import Quotas, Weights
from facefeed.pipeline.errors import UsageError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


def loader_of(out: Path, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(
        out, **{"num_workers": 0, "image_size": 8, "batch_size": 10, "fields": ("image", "row"), **options}
    )


def position(loader: FaceDataLoader) -> tuple[int, int]:
    state = loader.state_dict()
    return state["epoch"], state["images"]


def rest_after(dataset: Path, state: dict[str, Any]) -> list[int]:
    """What a new loader hands out in the first epoch after it was given a state."""
    resumed = loader_of(dataset)
    resumed.load_state_dict(state)
    return rows_seen(resumed)


def test_it_counts_the_batches_that_were_handed_out(dataset: Path) -> None:
    loader = loader_of(dataset)
    assert position(loader) == (0, 0)
    batches = iter(loader)
    positions = []
    for _ in range(len(loader)):
        next(batches)
        positions.append(position(loader))
    assert positions == [(0, 10 * step) for step in range(1, 11)] + [(1, 0)]
    assert next(batches, None) is None
    assert position(loader) == (1, 0)


def test_before_the_first_batch_of_an_epoch_it_stands_at_its_start(dataset: Path) -> None:
    loader = loader_of(dataset)
    batches = iter(loader)
    assert position(loader) == (0, 0)
    first = rows_seen([next(batches)])
    assert position(loader) == (0, 10)
    list(batches)
    batches = iter(loader)
    assert position(loader) == (1, 0)
    assert rest_after(dataset, loader.state_dict())[:10] == rows_seen([next(batches)]) != first


@pytest.mark.parametrize("step", [0, 1, 5, 10, 11])
def test_loading_goes_on_with_the_batch_that_was_due(dataset: Path, step: int) -> None:
    loader = loader_of(dataset)
    all_rows, next_epoch = rows_seen(loader), rows_seen(loader)
    loader = loader_of(dataset)
    batches = iter(loader)
    for _ in range(step):
        next(batches)
    state = loader.state_dict()
    resumed = loader_of(dataset)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    assert resumed.state_dict() == state
    assert rows_seen(resumed) == (all_rows[10 * step :] or next_epoch)
    assert position(resumed) == ((1, 0) if step < 11 else (2, 0))
    assert len(rows_seen(resumed)) == 107


def interrupted(loader: FaceDataLoader, steps: int) -> FaceDataLoader:
    for number, _ in enumerate(loader, 1):
        if number == steps:
            break
    return loader


def test_after_a_break_the_rest_of_the_epoch_comes_here_and_in_a_resumed_run(dataset: Path) -> None:
    loader = interrupted(loader_of(dataset), 3)
    assert position(loader) == (0, 30)
    remaining = rest_after(dataset, loader.state_dict())
    assert rows_seen(loader) == remaining == rows_seen_in_epoch(dataset, 0)[30:]
    assert rows_seen(interrupted(loader, 2)) == rows_seen_in_epoch(dataset, 1)[20:]
    assert position(loader) == (2, 0)


def test_after_a_break_at_the_last_batch_the_next_epoch_comes(dataset: Path) -> None:
    loader = interrupted(loader_of(dataset), 11)
    assert position(loader) == (1, 0)
    assert rows_seen(loader) == rows_seen_in_epoch(dataset, 1)


def test_after_a_break_set_epoch_begins_any_epoch_anew(dataset: Path) -> None:
    for epoch in (0, 1):
        loader = interrupted(loader_of(dataset), 3)
        loader.set_epoch(epoch)
        assert position(loader) == (epoch, 0)
        assert rows_seen(loader) == rows_seen_in_epoch(dataset, epoch)


@pytest.mark.parametrize(
    "balance", [None, Quotas({"real": 1, "fake": 1}), Weights({"fake": 3.0})], ids=["all", "quotas", "weights"]
)
def test_after_a_break_an_order_that_is_not_shuffled_begins_anew_here_and_in_a_resumed_run(
    dataset: Path, balance: Any
) -> None:
    options: dict[str, Any] = {"split": "val", "batch_size": 4, "balance": balance}
    all_rows = rows_seen(loader_of(dataset, **options))
    loader = interrupted(loader_of(dataset, **options), 2)
    assert position(loader) == (0, 0)
    resumed = loader_of(dataset, **options)
    resumed.load_state_dict(loader.state_dict())
    assert rows_seen(loader) == rows_seen(resumed) == all_rows


@pytest.mark.parametrize("shuffle", [True, False])
def test_set_epoch_begins_an_epoch_anew_also_while_an_iterator_of_a_glance_is_kept(
    dataset: Path, shuffle: bool
) -> None:
    loader = loader_of(dataset, shuffle=shuffle)
    glance = iter(loader)
    first = rows_seen([next(glance)])
    for epoch in (0, 0, 1):
        loader.set_epoch(epoch)
        batches = zip(range(len(loader)), loader, strict=False)  # never asks for the end: its iterator stays
        seen = rows_seen(batch for _, batch in batches)
        assert set(first) <= set(seen)
        assert len(seen) == 107
        loader.set_epoch(epoch)
        glance = iter(loader)
        next(glance)
    assert glance


def test_the_epoch_that_a_kept_iterator_is_in_may_be_set_again_and_gone_on_with(dataset: Path) -> None:
    loader = loader_of(dataset)
    batches = iter(loader)
    next(batches)
    loader.set_epoch(0)
    assert position(loader) == (0, 10)
    next(batches)
    assert rows_seen(loader) == rows_seen_in_epoch(dataset, 0)[20:]


def test_an_epoch_that_is_set_within_the_loop_is_the_next_one(dataset: Path) -> None:
    loader = loader_of(dataset)
    for number, _ in enumerate(loader):
        if number == 3:
            loader.set_epoch(0)  # the one that is under way: nothing changes
            assert position(loader) == (0, 40)
        if number == 5:
            loader.set_epoch(7)
    assert position(loader) == (7, 0)
    assert rows_seen(loader) == rows_seen_in_epoch(dataset, 7)


def test_a_state_is_of_the_epoch_that_is_due_not_of_one_that_was_broken_off(dataset: Path) -> None:
    loader = loader_of(dataset)
    next(iter(loader))
    loader.set_epoch(1)
    assert position(loader) == (1, 0)
    next(iter(loader))
    assert position(loader) == (1, 10)
    loader.set_epoch(2)
    iterator = iter(loader)
    assert position(loader) == (2, 0)
    next(iterator)
    assert position(loader) == (2, 10)
    assert rest_after(dataset, loader.state_dict()) == rows_seen_in_epoch(dataset, 2)[10:]


def rows_seen_in_epoch(dataset: Path, epoch: int) -> list[int]:
    loader = loader_of(dataset)
    loader.set_epoch(epoch)
    return rows_seen(loader)


def test_set_epoch_decides_and_the_one_that_is_due_keeps_its_place(dataset: Path) -> None:
    loader = loader_of(dataset)
    epochs = [rows_seen(loader) for _ in range(3)]
    assert [rows_seen_in_epoch(dataset, number) for number in range(3)] == epochs
    resumed = loader_of(dataset)
    resumed.load_state_dict({**loader.state_dict(), "epoch": 1, "images": 40})
    resumed.set_epoch(1)  # as trainers do before each epoch
    assert rows_seen(resumed) == epochs[1][40:]
    resumed.load_state_dict({**loader.state_dict(), "epoch": 1, "images": 40})
    resumed.set_epoch(2)
    assert rows_seen(resumed) == epochs[2]


def test_a_state_may_be_loaded_by_other_ranks_of_the_same_global_batch(dataset: Path) -> None:
    all_rows = rows_seen(loader_of(dataset, batch_size=12))
    loader = loader_of(dataset, batch_size=12)
    next(iter(loader))
    state = loader.state_dict()
    parts = []
    for rank in range(3):
        resumed = loader_of(dataset, batch_size=4, rank=rank, num_replicas=3)
        resumed.load_state_dict(state)
        parts.append(list(resumed))
    assert [rows_seen(step) for step in zip(*parts, strict=True)] == [
        all_rows[start : start + 12] for start in range(12, 107, 12)
    ]


def test_where_drop_last_leaves_no_step_of_the_states_epoch_the_next_one_comes(dataset: Path) -> None:
    state = interrupted(loader_of(dataset, drop_last=True), 9).state_dict()
    assert state["images"] == 90
    resumed = loader_of(dataset, drop_last=True, batch_size=32)
    resumed.load_state_dict(state)
    assert position(resumed) == (1, 0)
    assert rows_seen(resumed) == rows_seen_in_epoch(dataset, 1)[:96]
    assert position(resumed) == (2, 0)


def test_the_state_of_any_loader_is_less_than_a_kilobyte_of_plain_numbers_and_words(dataset: Path) -> None:
    long_filter = [("video_id", "not in", [f"real/{number}.mp4" for number in range(1000)])]
    for options in ({}, {"filters": long_filter}, {"balance": Quotas({"real": 1, "fake": 4})},
                    {"shuffle": "window", "max_per_video": 9, "frames_per_video": 9}):  # fmt: skip
        loader = loader_of(dataset, **options)
        next(iter(loader))
        state = loader.state_dict()
        assert len(json.dumps(state)) < 1000
        assert torch.load(saved(state), weights_only=True) == state
        loader_of(dataset, **options).load_state_dict(state)


def saved(state: dict[str, Any]) -> Any:
    import io  # noqa: PLC0415

    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


LONG = [number for number in range(1000) if number != 30]  # its text, as pyarrow shortens it, leaves most out


@pytest.mark.parametrize(
    ("stored", "loaded", "field"),
    [
        ({}, {"seed": 1}, "seed"),
        ({}, {"split": "val", "shuffle": True}, "rows"),
        ({}, {"filters": [("label", "==", 1)]}, "rows"),
        ({"filters": pc.field("label") == 0}, {"filters": pc.field("label") == 1}, "rows"),
        ({"filters": [("frame_index", "in", LONG)]}, {"filters": [("frame_index", "in", [*LONG, 30])]}, "rows"),
        ({}, {"frames_per_video": 8}, "rows"),
        ({}, {"shuffle": "window"}, "order"),
        ({}, {"shuffle": False}, "order"),
        ({"shuffle": "window"}, {"shuffle": "window", "window_images": 128}, "order"),
        ({}, {"balance": Quotas({"real": 1, "fake": 1})}, "order"),
        ({}, {"max_per_video": 9}, "order"),
        ({}, {"drop_last": True}, "order"),
    ],
    ids=str,
)  # fmt: skip
def test_a_state_of_another_order_is_refused_by_the_name_of_what_differs(
    dataset: Path, stored: dict[str, Any], loaded: dict[str, Any], field: str
) -> None:
    state = loader_of(dataset, **stored).state_dict()
    with pytest.raises(UsageError, match=rf"load_state_dict: the state has {field}=.*, this loader .*same data"):
        loader_of(dataset, **loaded).load_state_dict(state)


@pytest.mark.processes
@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_same_rows_are_the_same_order_however_a_filter_is_written(dataset: Path, seed: str) -> None:
    names = [f"real/{number}.mp4" for number in range(5)]
    state = loader_of(dataset, filters=[("video_id", "not in", set(names))]).state_dict()
    loader_of(dataset, filters=~pc.field("video_id").isin(names[::-1])).load_state_dict(state)
    script = f"""
from facefeed.loaders import FaceDataLoader
loader = FaceDataLoader({str(dataset)!r}, 10, num_workers=0, filters=[("video_id", "not in", set({names!r}))])
loader.load_state_dict({state!r})
"""
    environment = {**os.environ, "PYTHONHASHSEED": seed}  # sets have another order in each process
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=120)


def test_a_state_of_another_dataset_is_refused(dataset: Path, tmp_path: Path) -> None:
    make_dataset(tmp_path / "other", (("train", (Clip("real/anna.mp4", 107),)),))
    with pytest.raises(UsageError, match="the state has fingerprint="):
        loader_of(dataset).load_state_dict(loader_of(tmp_path / "other").state_dict())


@pytest.mark.parametrize(
    "change",
    [
        {"images": 108},
        {"images": -1},
        {"images": "3"},
        {"images": None},
        {"epoch": -1},
        {"epoch": 1.5},
        {"global_batch": 0},
        {"global_batch": 2.5},
        {"global_batch": True},
        {"global_batch": None},
        {"version": 3},
        {"version": 1, "step": 12},
        {"version": 1, "step": "3"},
        {"version": 1},
    ],
    ids=str,
)
def test_a_state_that_is_no_place_in_an_epoch_is_refused(dataset: Path, change: dict[str, Any]) -> None:
    loader = loader_of(dataset)
    with pytest.raises(UsageError, match="load_state_dict: "):
        loader.load_state_dict({**loader.state_dict(), **change})
    assert position(loader) == (0, 0)


def test_loading_while_an_epoch_is_under_way_is_refused_and_changes_nothing(dataset: Path) -> None:
    loader = loader_of(dataset)
    state = loader.state_dict()
    batches = iter(loader)
    next(batches)
    with pytest.raises(UsageError, match=r"an iteration is under way; load before iter\(\)"):
        loader.load_state_dict(state)
    assert sum(1 for _ in batches) == 10
    loader.load_state_dict(state)
    assert sum(1 for _ in loader) == 11


@pytest.mark.parametrize("batches", [0, 3])
def test_loading_after_an_iteration_was_let_go_is_fine(dataset: Path, batches: int) -> None:
    loader = loader_of(dataset)
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator)
    del iterator
    loader.load_state_dict({**loader.state_dict(), "epoch": 0, "images": 30})
    assert rows_seen(loader) == rows_seen_in_epoch(dataset, 0)[30:]


@pytest.mark.parametrize("options", [{"batch_size": 20}, {"rank": 0, "num_replicas": 2}], ids=str)
def test_where_the_order_depends_on_the_batch_another_one_is_refused(dataset: Path, options: dict[str, Any]) -> None:
    limited: dict[str, Any] = {"max_per_video": 9, "frames_per_video": 9}
    state = loader_of(dataset, **limited).state_dict()
    with pytest.raises(
        UsageError, match=r"global_batch=10, this loader 20; with max_per_video the order depends on it"
    ):
        loader_of(dataset, **limited, **options).load_state_dict(state)


def test_a_state_that_counted_steps_still_goes_on_at_its_image(dataset: Path) -> None:
    loader = loader_of(dataset)
    old_state = {**loader.state_dict(), "version": 1, "epoch": 0, "step": 4}
    del old_state["images"]
    loader.load_state_dict(old_state)
    assert rows_seen(loader) == rows_seen_in_epoch(dataset, 0)[40:]
    larger_batches = loader_of(dataset, batch_size=20)
    larger_batches.load_state_dict(old_state)
    assert rows_seen(larger_batches) == rows_seen_in_epoch(dataset, 0)[40:]
    finished = {**old_state, "step": 11}
    loader.load_state_dict(finished)
    assert rows_seen(loader) == []
    assert position(loader) == (1, 0)
