"""What a script notices of its first batch: it comes without workers, and is the one that they would make."""

from __future__ import annotations

import copy
import multiprocessing
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from assets_dataset import copy_dataset, make_dataset
from assets_loaders import (
    FailWhileFileExists,
    Noise,
    NoteStart,
    OpensAtFirstImage,
    Seen,
    StampProcess,
    loader,
    poisoned,
    seen,
)
from assets_rows import damage
from facefeed.loaders import Clip, FaceDataLoader
from facefeed.loaders.transfer.postprocessor import BatchPostprocessor
from facefeed.loaders.transfer.prefetch import one_ahead
from facefeed.loaders.workers.processes import worker_context, workers_import_first
from facefeed.loaders.workers.worker_copy import worker_copy

STEPS = 11


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("first") / "out"
    make_dataset(out)
    return out


@pytest.fixture(scope="module")
def without_workers(dataset: Path) -> list[list[Seen]]:
    """The first epochs, made without workers."""
    batches = loader(dataset, num_workers=0, transform=Noise())
    return [seen(batches) for _ in range(2)]


@pytest.fixture
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a script that just starts: its fork server may still import torch."""
    monkeypatch.setattr("facefeed.loaders.workers.processes.fork_server_is_ready", lambda: False)


def are_made_here(batches: Any) -> list[bool]:
    """Of each batch that went through `StampProcess`, whether this process has made it."""
    return [int(batch["image"][0, 0, 0, 0]) == os.getpid() % 251 for batch in batches]


# ---- who makes it


@pytest.mark.usefixtures("fresh_process")
@pytest.mark.parametrize("start", ["forkserver", "spawn"])
def test_the_first_batch_needs_no_worker(dataset: Path, without_workers: list[list[Seen]], start: str) -> None:
    before = multiprocessing.active_children()
    batches = loader(dataset, num_workers=2, transform=Noise(), multiprocessing_context=start)
    assert seen([next(iter(batches))]) == without_workers[0][:1]
    assert multiprocessing.active_children() == before


PEEK = """
import multiprocessing
from facefeed.loaders import FaceDataLoader
images, labels = next(iter(FaceDataLoader({out!r}, image_size=32, num_workers=1)))
print(len(images), multiprocessing.active_children())
"""


@pytest.mark.processes
def test_a_script_that_looks_at_one_batch_needs_no_main_guard(dataset: Path, tmp_path: Path) -> None:
    script = tmp_path / "look.py"
    script.write_text(PEEK.format(out=str(dataset)))
    process = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert process.stdout == "64 []\n"


@pytest.mark.usefixtures("fresh_process")
def test_all_others_come_from_workers(dataset: Path) -> None:
    batches = loader(dataset, num_workers=1, dtype="uint8", transform=StampProcess())
    for made_here in ([True] + [False] * (STEPS - 1), [False] * STEPS):
        assert are_made_here(batches) == made_here


def test_where_a_worker_was_started_before_the_next_one_comes_at_once_and_makes_the_first_batch(dataset: Path) -> None:
    for _ in range(2):
        batches = loader(dataset, num_workers=1, dtype="uint8", transform=StampProcess())
        made_here = are_made_here(batches)
    assert made_here == [False] * STEPS
    assert not workers_import_first(worker_context(None))


@pytest.mark.usefixtures("fresh_process")
@pytest.mark.parametrize("option", ["worker_init_fn", "timeout"])
def test_workers_make_it_where_the_user_initializes_them_or_it_has_to_come_in_time(
    dataset: Path, tmp_path: Path, option: str
) -> None:
    value = {"worker_init_fn": NoteStart(tmp_path), "timeout": 60}[option]
    batches = loader(dataset, num_workers=1, dtype="uint8", transform=StampProcess(), **{option: value})
    assert are_made_here([next(iter(batches))]) == [False]


@pytest.mark.usefixtures("fresh_process")
def test_a_loader_of_one_batch_starts_no_workers(dataset: Path) -> None:
    options = {"batch_size": 1000, "transform": Noise()}
    before = multiprocessing.active_children()
    batches, expected = loader(dataset, num_workers=2, **options), loader(dataset, num_workers=0, **options)
    for _ in range(3):
        assert seen(batches) == seen(expected)
    assert batches.state_dict() == expected.state_dict()
    assert multiprocessing.active_children() == before


@pytest.mark.usefixtures("fresh_process")
def test_one_for_a_device_does_not_wait_for_the_next_one(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA batches run one ahead."""
    monkeypatch.setattr(
        BatchPostprocessor, "__call__", lambda self, batches: one_ahead(batches, self._finalize, lambda batch: batch)
    )
    before = multiprocessing.active_children()
    batches = loader(dataset, num_workers=1)
    iterator = iter(batches)
    received = [next(iterator)]
    assert multiprocessing.active_children() == before
    assert seen([*received, *iterator]) == seen(loader(dataset, num_workers=0))


# ---- the same batches


@pytest.mark.usefixtures("fresh_process")
@pytest.mark.parametrize(
    "options",
    [{"persistent_workers": False}, {"clip": Clip(frames=2), "batch_size": 8, "fields": None}, {"shuffle": "window"}],
    ids=str,
)
def test_epochs_are_those_that_no_workers_make(dataset: Path, options: dict[str, Any]) -> None:
    batches, expected = (loader(dataset, num_workers=number, transform=Noise(), **options) for number in (2, 0))
    for _ in range(2):
        kept = list(batches)  # no slot is written to again
        assert torch.equal(torch.cat([_images(one) for one in kept]), torch.cat([_images(one) for one in expected]))


def _images(batch: Any) -> torch.Tensor:
    images: torch.Tensor = batch["image"] if isinstance(batch, dict) else batch[0]
    return images


@pytest.mark.usefixtures("fresh_process")
def test_states_are_those_of_a_loader_without_workers_and_resume_exactly(
    dataset: Path, without_workers: list[list[Seen]]
) -> None:
    batches = loader(dataset, num_workers=1, transform=Noise())
    expected = loader(dataset, num_workers=0, transform=Noise())
    for step, _ in enumerate(zip(batches, expected, strict=True), start=1):
        state = batches.state_dict()
        assert state == expected.state_dict()
        if step in (1, 5):
            resumed = loader(dataset, num_workers=1, transform=Noise())
            resumed.load_state_dict(state)
            assert seen(resumed) == without_workers[0][step:]


@pytest.mark.usefixtures("fresh_process")
def test_an_iteration_that_ended_after_it_is_gone_on_from(dataset: Path, without_workers: list[list[Seen]]) -> None:
    batches = loader(dataset, num_workers=2, transform=Noise())
    received = [seen([next(iter(batches))])[0] for _ in range(2)]
    assert [*received, *seen(copy.deepcopy(batches))] == without_workers[0]
    assert [*received, *seen(batches)] == without_workers[0]
    assert seen(batches) == without_workers[1]


@pytest.mark.usefixtures("fresh_process")
def test_a_damaged_image_in_it_is_replaced_and_counted(dataset: Path, tmp_path: Path) -> None:
    out = copy_dataset(dataset, tmp_path / "out")
    damage(out, int(loader(out, num_workers=0).sampler.rows(0)[3]))
    batches, expected = loader(out, num_workers=1), loader(out, num_workers=0)
    assert seen(batches) == seen(expected)
    assert batches.stats().replaced == expected.stats().replaced != ()


# ---- what it leaves behind


@pytest.mark.usefixtures("fresh_process")
def test_the_scripts_own_random_numbers_are_those_without_it(dataset: Path) -> None:
    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.random()), float(torch.rand(()))

    def seed() -> None:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)

    seed()
    expected = drawn()
    seed()
    next(iter(loader(dataset, num_workers=1, transform=Noise())))
    assert drawn() == expected


@pytest.mark.usefixtures("fresh_process")
def test_a_transform_that_opens_something_at_its_first_image_can_still_be_sent_to_workers(
    dataset: Path, without_workers: list[list[Seen]]
) -> None:
    transform = OpensAtFirstImage(multiprocessing.get_context("forkserver").Value("i", 0))
    batches = loader(dataset, num_workers=1, transform=transform)
    num_images = sum(map(len, seen(batches)))
    assert num_images == sum(map(len, without_workers[0]))
    assert transform.opened is None
    assert transform.num_images.value >= num_images  # which all processes share, besides the next epoch's


@pytest.mark.usefixtures("fresh_process")
@pytest.mark.parametrize(("deed", "error"), [("raise", ZeroDivisionError), ("interrupt", KeyboardInterrupt)])
def test_after_an_error_in_it_the_epoch_is_iterated_again(
    dataset: Path, tmp_path: Path, deed: str, error: type[BaseException]
) -> None:
    fault = tmp_path / "fault"
    fault.touch()
    transform = FailWhileFileExists(poisoned(deed, dataset, 0), fault)
    batches: FaceDataLoader = loader(dataset, num_workers=1, transform=transform)
    for _ in range(9):  # more often than there is memory for batches
        with pytest.raises(error):
            next(iter(batches))
    fault.unlink()
    assert seen(batches) == seen(loader(dataset, num_workers=0))


def test_generators_of_transforms_are_copied_for_it_and_tensors_are_shared_as_with_a_worker() -> None:
    generator, tensor = torch.Generator().manual_seed(1), torch.zeros(3)
    before = generator.get_state()
    copied_generator, copied_tensor = worker_copy((generator, tensor))
    assert torch.rand(1, generator=copied_generator) == torch.rand(1, generator=torch.Generator().manual_seed(1))
    assert torch.equal(generator.get_state(), before)
    assert copied_tensor is tensor
