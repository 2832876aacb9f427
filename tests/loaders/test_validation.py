"""What somebody notices who comes from torch's DataLoader: each of its arguments works, or says what to use instead."""

from __future__ import annotations

import gc
import inspect
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_rows import Marker, make_small, rows_seen, shown
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.pipeline.errors import FacefeedError, UsageError
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, WeightedRandomSampler

TORCHS = set(inspect.signature(DataLoader.__init__).parameters) - {"self"}
OURS = inspect.signature(FaceDataLoader.__init__).parameters
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "sampler": (
        lambda: WeightedRandomSampler([1.0] * 107, 107),
        r"sampler: use balance=, filters= and shuffle=, or torch's DataLoader\(FaceDataset\(\.\.\.\), sampler=\.\.\.\)",
    ),
    "batch_sampler": (
        lambda: BatchSampler(RandomSampler(range(107)), 8, drop_last=False),
        r"batch_sampler: use balance=, filters= and shuffle=, or torch's DataLoader\(.*batch_sampler=\.\.\.\)",
    ),
    "generator": (torch.Generator, "generator: the order is a pure function of seed=; give that"),
    "in_order": (lambda: False, "in_order: batches always come in the one order that can be resumed"),
    "pin_memory_device": (lambda: "cuda", "pin_memory_device: give device= to get batches on it"),
}
IN_PROCESSES = {
    "num_workers", "prefetch_factor", "persistent_workers", "worker_init_fn", "multiprocessing_context", "timeout"
}  # fmt: skip
IN_CALLING_THREAD = {"dataset", "batch_size", "shuffle", "drop_last", "collate_fn", "pin_memory"}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


def loader_of(out: Path | str, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(
        out, **{"num_workers": 0, "image_size": 8, "batch_size": 20, "fields": ("image", "row"), **options}
    )


def test_every_argument_of_torchs_loader_has_its_test_here() -> None:
    assert IN_CALLING_THREAD | IN_PROCESSES | set(REFUSED) == TORCHS
    assert TORCHS - set(REFUSED) | {"sampler"} <= set(OURS)


def test_what_torch_takes_by_position_means_the_same(dataset: Path) -> None:
    assert [len(batch[1]) for batch in FaceDataLoader(dataset, 50, num_workers=0, image_size=8)] == [50, 50, 7]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_hold_is_refused_with_what_to_use(dataset: Path, name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(UsageError, match=message):
        loader_of(dataset, **{name: make()})


@pytest.mark.parametrize("name", ["sampler", "batch_sampler", "generator", "prefetch_factor", "worker_init_fn",
                                  "multiprocessing_context", "collate_fn", "shuffle"])  # fmt: skip
def test_none_is_as_good_as_nothing_where_it_is_torchs_default(dataset: Path, name: str) -> None:
    assert len(rows_seen(loader_of(dataset, **{name: None}))) == 107


@pytest.mark.parametrize(("name", "default"), [("in_order", True), ("pin_memory_device", "")])
def test_torchs_default_spelled_out_is_taken(dataset: Path, name: str, default: Any) -> None:
    assert len(rows_seen(loader_of(dataset, **{name: default}))) == 107


def test_a_word_that_is_no_argument_is_a_type_error(dataset: Path) -> None:
    with pytest.raises(TypeError, match="FaceDataLoader has no argument 'bach_size'") as caught:
        loader_of(dataset, bach_size=3)
    assert isinstance(caught.value, FacefeedError)


def test_what_is_suggested_instead_of_a_sampler_works(dataset: Path) -> None:
    faces = FaceDataset(dataset, image_size=8)
    weights = [float(faces.info(position)["label"]) for position in range(len(faces))]
    sampler = WeightedRandomSampler(weights, 30, generator=torch.Generator().manual_seed(0))
    assert {label for _, labels in DataLoader(faces, 8, sampler=sampler) for label in labels.tolist()} == {1}
    batches = BatchSampler(SequentialSampler(faces), 50, drop_last=True)
    assert [len(labels) for _, labels in DataLoader(faces, batch_sampler=batches)] == [50, 50]


# ---- those that work in the calling thread


def test_the_dataset_may_be_a_path_a_text_or_a_face_dataset(dataset: Path) -> None:
    expected = rows_seen(loader_of(dataset))
    assert rows_seen(loader_of(str(dataset))) == expected
    faces = FaceDataset(dataset, image_size=8)
    assert rows_seen(FaceDataLoader(faces, num_workers=0, fields=("image", "row"))) == expected


def test_batches_have_the_batch_size_and_the_last_one_the_rest(dataset: Path) -> None:
    loader = loader_of(dataset, batch_size=30)
    assert loader.batch_size == 30
    assert [len(batch["row"]) for batch in loader] == [30, 30, 30, 17]


def test_shuffle_mixes_each_row_once_and_train_is_mixed_by_default(dataset: Path) -> None:
    assert rows_seen(loader_of(dataset, shuffle=False)) == FaceDataset(dataset).rows.tolist()
    mixed = rows_seen(loader_of(dataset, shuffle=True))
    assert sorted(mixed) == FaceDataset(dataset).rows.tolist() != mixed
    assert rows_seen(loader_of(dataset)) == mixed
    assert rows_seen(loader_of(dataset, split="val")) == FaceDataset(dataset, split="val").rows.tolist()
    assert rows_seen(loader_of(dataset, split="val", shuffle=True)) != FaceDataset(dataset, split="val").rows.tolist()


def test_drop_last_drops_the_smaller_batch(dataset: Path) -> None:
    loader = loader_of(dataset, drop_last=True)
    assert loader.drop_last is True
    assert [len(batch["row"]) for batch in loader] == [20] * 5
    assert len(loader) == 5


def test_a_collate_fn_makes_the_batch_and_refuses_what_it_would_not_get(dataset: Path) -> None:
    loader = loader_of(dataset, collate_fn=torch.utils.data.default_collate, fields=None)
    for (images, labels), (expected, expected_labels) in zip(loader, loader_of(dataset, fields=None), strict=True):
        assert torch.equal(images, expected)
        assert torch.equal(labels, expected_labels)
    for options, field in (({}, "fields"), ({"fields": None, "dtype": "uint8"}, "dtype")):
        with pytest.raises(UsageError, match=f"collate_fn: gets .* so {field} cannot hold; leave it out"):
            loader_of(dataset, collate_fn=torch.utils.data.default_collate, **options)


def test_a_collate_fn_for_a_gpu_is_refused_before_its_first_batch(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    message = "collate_fn: its output is delivered as it is, so device='cuda:0' cannot hold; .* in the training step"
    with pytest.raises(UsageError, match=message):
        loader_of(dataset, fields=None, collate_fn=list, device="cuda:0")
    with pytest.raises(UsageError, match=message):
        loader_of(dataset, fields=None, collate_fn=list).to("cuda:0")
    assert loader_of(dataset, fields=None, collate_fn=list, device="cpu").to("cpu")


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator is found")
def test_pin_memory_changes_no_image(dataset: Path) -> None:
    loader = loader_of(dataset, pin_memory=True)
    assert loader.pin_memory is True
    for batch, expected in zip(loader, loader_of(dataset), strict=True):
        assert batch["image"].is_pinned() == torch.cuda.is_available()
        assert torch.equal(batch["image"], expected["image"])


def test_without_workers_what_is_about_workers_is_refused_as_torch_does(dataset: Path) -> None:
    for options in ({"prefetch_factor": 2}, {"persistent_workers": True}):
        with pytest.raises(ValueError, match=next(iter(options))):
            loader_of(dataset, **options)


# ---- those that need processes


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module")
def shared(dataset: Path, marks: Path) -> Iterator[tuple[FaceDataLoader, list[bytes], list[int]]]:
    """A loader with two workers after an epoch: its images, and the numbers of the processes that made them."""
    loader = loader_of(
        dataset, num_workers=2, prefetch_factor=3, persistent_workers=True, timeout=120, worker_init_fn=Marker(marks),
        multiprocessing_context="forkserver",
    )  # fmt: skip
    images = shown(loader)
    yield loader, images, workers_of(marks)
    del loader
    gc.collect()


def workers_of(marks: Path) -> list[int]:
    return [int(path.read_text()) for path in sorted(marks.iterdir())]


Shared = tuple[FaceDataLoader, list[bytes], list[int]]


def test_workers_are_as_many_processes_and_change_no_image(dataset: Path, shared: Shared) -> None:
    loader, images, workers = shared
    assert loader.num_workers == 2
    assert images == shown(loader_of(dataset))
    assert len({*workers, os.getpid()}) == 3


def test_worker_init_fn_runs_once_in_each_worker(shared: Shared) -> None:
    assert len(shared[2]) == 2


def test_persistent_workers_live_through_the_next_epoch(shared: Shared, marks: Path) -> None:
    loader, images, workers = shared
    assert loader.persistent_workers is True
    loader.set_epoch(0)
    assert shown(loader) == images
    assert workers_of(marks) == workers
    assert all(Path(f"/proc/{worker}").exists() for worker in workers)


def test_prefetch_factor_sizes_the_shared_memory(shared: Shared) -> None:
    loader = shared[0]
    assert loader.prefetch_factor == 3
    assert loader.describe().shared_bytes == (2 * 3 + 3) * 20 * 8 * 8 * 3 * 4


def test_a_timeout_is_kept_and_a_negative_one_refused_as_torch_does(dataset: Path, shared: Shared) -> None:
    assert shared[0].timeout == 120
    with pytest.raises(ValueError, match="timeout"):
        loader_of(dataset, timeout=-1)


def test_workers_start_by_forkserver_or_spawn_and_never_by_fork(dataset: Path, shared: Shared) -> None:
    assert shared[0].multiprocessing_context.get_start_method() == "forkserver"
    spawning = loader_of(dataset, num_workers=1, multiprocessing_context=multiprocessing.get_context("spawn"))
    assert spawning.multiprocessing_context.get_start_method() == "spawn"
    for fork in ("fork", multiprocessing.get_context("fork")):
        with pytest.raises(UsageError, match=r"multiprocessing_context='fork': .*take 'forkserver'"):
            loader_of(dataset, num_workers=1, multiprocessing_context=fork)
    with pytest.raises(UsageError, match="multiprocessing_context='threads': must be 'forkserver' or 'spawn'"):
        loader_of(dataset, num_workers=1, multiprocessing_context="threads")
