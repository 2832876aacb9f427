"""What a training loop notices of the processes that make its batches: nothing, until one of them dies."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest
from assets_dataset import LONG, VAL, copy_dataset, make_dataset
from assets_loaders import (
    DEADLINE_SECONDS,
    FIELDS,
    BlockUntilFileExists,
    CountedImages,
    Noise,
    NoteStart,
    Seen,
    end_a_program,
    has_ended,
    ids,
    loader,
    poisoned,
    seen,
    take_first_of_workers,
    wait_until,
)  # fmt: skip
from facefeed.loaders import FaceDataLoader, Quotas
from facefeed.loaders.loader.epoch_iterator import BatchOrderError
from facefeed.loaders.sampling.batch_request import BatchRequest
from facefeed.loaders.sampling.epoch_sampler import EpochSampler
from facefeed.loaders.workers.processes import WorkerDiedError, worker_context
from facefeed.loaders.workers.worker_process import WorkerContext
from facefeed.pipeline.errors import CorruptDataError, UsageError
from facefeed.pipeline.machine import usable_cores
from torch.utils.data._utils import signal_handling

STEPS = 11
LARGE = (*FIELDS, "video_id", "hull", "regions", "landmarks")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("workers") / "out"
    make_dataset(out)
    return out


@pytest.fixture(scope="module")
def uninterrupted(dataset: Path) -> list[list[Seen]]:
    """The first epochs, made without workers."""
    batches = loader(dataset, num_workers=0, transform=Noise())
    return [seen(batches) for _ in range(6)]


def processes(batches: FaceDataLoader) -> list[psutil.Process]:
    assert batches._iterator is not None
    return [psutil.Process(worker.pid) for worker in batches._iterator._workers]


# ---- the same batches


@pytest.mark.parametrize(("start", "persistent"), [("forkserver", True), ("forkserver", False), ("spawn", True)])
def test_workers_give_the_batches_that_no_workers_give(
    dataset: Path, uninterrupted: list[list[Seen]], start: str, persistent: bool
) -> None:
    batches = loader(
        dataset, num_workers=2, transform=Noise(), multiprocessing_context=start, persistent_workers=persistent
    )
    epochs = 2 if start == "forkserver" else 1
    assert [seen(batches) for _ in range(epochs)] == uninterrupted[:epochs]


@pytest.mark.parametrize("start_method", ["fork", multiprocessing.get_context("fork"), "thread"])
def test_fork_is_refused_with_what_to_take(dataset: Path, start_method: Any) -> None:
    with pytest.raises(UsageError, match=r"'forkserver'.* or 'spawn'"):
        loader(dataset, num_workers=1, multiprocessing_context=start_method)


@pytest.mark.parametrize(("persistent", "steps_of_epochs"), [(True, (1, 7, 2, 3)), (False, (1, 7))])
def test_epochs_that_are_broken_off_leave_no_trace_in_the_next(
    dataset: Path, uninterrupted: list[list[Seen]], persistent: bool, steps_of_epochs: tuple[int, ...]
) -> None:
    batches = loader(dataset, num_workers=2, transform=Noise(), persistent_workers=persistent)
    kept: list[Any] = []
    for epoch, steps in enumerate(steps_of_epochs):
        batches.set_epoch(epoch)
        iterator: Any = iter(batches)
        kept.append([next(iterator) for _ in range(steps)])
        assert seen(kept[epoch]) == uninterrupted[epoch][:steps]
        if epoch % 2:
            iterator = None  # as `break` does; else the next iter() ends it
    iterator = None
    batches.set_epoch(len(kept))
    assert seen(batches) == uninterrupted[len(kept)]
    assert [seen(received) for received in kept] == [
        uninterrupted[epoch][: len(received)] for epoch, received in enumerate(kept)
    ]


def test_batches_that_are_kept_stay_as_they_were(dataset: Path, uninterrupted: list[list[Seen]]) -> None:
    batches = loader(dataset, num_workers=2, transform=Noise())
    kept = [list(batches) for _ in range(2)]
    assert [seen(epoch) for epoch in kept] == uninterrupted[:2]
    del kept[0][::2]
    kept.append(list(batches))
    assert [seen(kept[0]), seen(kept[1]), seen(kept[2])] == [uninterrupted[0][1::2], uninterrupted[1], uninterrupted[2]]


def test_two_loaders_at_once_do_not_disturb_each_other(dataset: Path, uninterrupted: list[list[Seen]]) -> None:
    train = loader(dataset, num_workers=1, transform=Noise())
    val = loader(dataset, split="val", batch_size=5, num_workers=1)
    expected = seen(loader(dataset, split="val", batch_size=5, num_workers=0))
    for epoch in range(2):
        received = []
        for step, batch in enumerate(train):
            received += seen([batch])
            if step % 5 == 2:
                assert seen(val) == expected
        assert received == uninterrupted[epoch]


def test_two_iterations_of_one_loader_at_once_are_not_taken_for_a_short_epoch(dataset: Path) -> None:
    batches = loader(dataset, num_workers=0)
    with pytest.raises((UsageError, RuntimeError)):
        list(zip(batches, batches, strict=True))


# ---- from one epoch to the next


def note_requests(batches: FaceDataLoader) -> list[tuple[int, int]]:
    """Epoch and step of each batch that workers are asked for from now on."""
    asked = []
    prepare = batches._request_preparer  # not `batches`: in a cycle, torch would wait 5 s for the ends of its workers

    def note(sampler: EpochSampler, request: BatchRequest) -> BatchRequest:
        asked.append((request.epoch, request.step))
        return prepare(sampler, request)

    batches._epoch_sampler.prepare_requests_with(note)
    return asked


def test_the_first_batches_of_an_epoch_are_made_before_it_begins(
    dataset: Path, tmp_path: Path, uninterrupted: list[list[Seen]]
) -> None:
    counted = CountedImages(tmp_path / "images")
    batches = loader(dataset, num_workers=1, prefetch_factor=2, transform=counted)
    images = sum(map(len, uninterrupted[0]))
    for epoch in range(3):
        assert [ids(batch) for batch in batches] == [[face for face, _ in batch] for batch in uninterrupted[epoch]]
        made = images * (epoch + 1) + 2 * 32
        wait_until(lambda: counted.images >= made, "batches of the next epoch")  # noqa: B023
        assert counted.images == made


def test_they_are_made_too_for_a_loop_that_counts_the_batches(dataset: Path, uninterrupted: list[list[Seen]]) -> None:
    batches = loader(dataset, num_workers=2, prefetch_factor=1, transform=Noise())
    asked = note_requests(batches)
    for epoch in range(3):
        iterator = iter(batches)
        assert seen(next(iterator) for _ in range(STEPS)) == uninterrupted[epoch]
    assert asked == [*((epoch, step) for epoch in range(3) for step in range(STEPS)), (3, 0), (3, 1)]


@pytest.mark.parametrize("options", [{"shuffle": False}, {"persistent_workers": False}], ids=str)
def test_none_are_made_where_the_next_epoch_may_not_come_or_would_have_other_workers(
    dataset: Path, options: dict[str, bool]
) -> None:
    batches = loader(dataset, num_workers=1, **options)
    asked = note_requests(batches)
    list(batches)
    list(batches)
    assert asked == [(epoch, step) for epoch in range(2) for step in range(STEPS)]


def test_where_a_script_goes_to_other_epochs_than_the_next_they_are_not_made_again(
    dataset: Path, uninterrupted: list[list[Seen]]
) -> None:
    batches = loader(dataset, num_workers=1, prefetch_factor=1, transform=Noise())
    asked = note_requests(batches)
    epochs = (0, 3, 3, 3, 4, 5)
    for epoch in epochs:
        batches.set_epoch(epoch)
        assert seen(batches) == uninterrupted[epoch]
    in_vain = [number for number, (epoch, step) in enumerate(asked) if step == 0 and epoch not in epochs]
    assert [asked[number] for number in in_vain] == [(1, 0), (6, 0)]
    assert len(asked) == STEPS * len(epochs) + len(in_vain)


def test_faces_made_ahead_are_not_taken_for_those_of_an_epoch_that_was_changed_since(
    dataset: Path, uninterrupted: list[list[Seen]]
) -> None:
    batches = loader(dataset, num_workers=2, transform=Noise())
    expected = loader(dataset, num_workers=0, transform=Noise())
    assert seen(batches) == uninterrupted[0]
    expected.set_epoch(1)
    for each in (batches, expected):
        each.sampler.balance = Quotas({"real": 1, "fake": 1})
    assert seen(batches) == seen(expected) != uninterrupted[1]


def test_nor_for_those_of_another_seed(dataset: Path) -> None:
    batches, expected = loader(dataset, num_workers=1), loader(dataset, num_workers=0)
    list(batches)
    expected.set_epoch(1)
    for each in (batches, expected):
        each.sampler.seed = 7
    assert [ids(batch) for batch in batches] == [ids(batch) for batch in expected]


def test_an_epoch_comes_to_its_end_where_the_next_one_cannot_be_ordered(
    dataset: Path, uninterrupted: list[list[Seen]], monkeypatch: pytest.MonkeyPatch
) -> None:
    order = EpochSampler.order

    def order_of_some(sampler: EpochSampler, epoch: int) -> Any:
        if epoch == 1:
            raise UsageError("no order of epoch 1")
        return order(sampler, epoch)

    monkeypatch.setattr(EpochSampler, "order", order_of_some)
    batches = loader(dataset, num_workers=1, prefetch_factor=2, transform=Noise())
    assert seen(batches) == uninterrupted[0]
    for _ in range(2):
        with pytest.raises(UsageError, match="no order of epoch 1"):
            list(batches)
    batches.set_epoch(2)
    assert seen(batches) == uninterrupted[2]


def test_an_epoch_whose_iterator_ends_early_is_no_shorter_epoch(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = loader(dataset, num_workers=0)
    monkeypatch.setattr(EpochSampler, "__iter__", lambda sampler: iter([sampler.request(0, 0), sampler.request(0, 1)]))
    with pytest.raises(BatchOrderError, match=f"2 of {STEPS} batches came"):
        list(batches)


def test_workers_that_are_given_up_between_two_epochs_write_to_no_later_batch(
    dataset: Path, tmp_path: Path, uninterrupted: list[list[Seen]]
) -> None:
    batches = loader(dataset, num_workers=2, transform=Noise())
    assert seen(batches) == uninterrupted[0]
    workers = processes(batches)
    batches.num_workers = 0
    assert [seen(batches) for _ in range(2)] == uninterrupted[1:3]
    assert all(has_ended(worker) for worker in workers)


def test_an_iteration_that_was_interrupted_as_it_began_is_followed_by_a_whole_one(
    dataset: Path, uninterrupted: list[list[Seen]], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = loader(dataset, num_workers=2, transform=Noise())
    list(batches)
    batches.set_epoch(5)
    iterator: Any = batches._iterator

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(iterator, "_get_data", interrupted)  # while it takes back what was asked of the workers
    with pytest.raises(KeyboardInterrupt):
        next(iter(batches))
    del iterator
    assert seen(batches) == uninterrupted[5]


def test_after_a_death_none_are_made_for_the_rest_of_the_epoch_lest_they_cause_it_again(
    dataset: Path, uninterrupted: list[list[Seen]]
) -> None:
    batches = loader(dataset, num_workers=1, transform=Noise())
    iterator = iter(batches)
    received = seen(take_first_of_workers(iterator))
    (worker,) = processes(batches)
    worker.kill()
    with pytest.raises(WorkerDiedError):
        received.extend(seen([batch])[0] for batch in iterator)
    asked = note_requests(batches)
    assert [*received, *seen(batches)] == uninterrupted[0]
    assert {epoch for epoch, _ in asked} == {0}
    assert seen(batches) == uninterrupted[1]
    assert {epoch for epoch, _ in asked} == {0, 1, 2}


def test_a_state_that_is_loaded_between_two_epochs_is_gone_on_from(
    dataset: Path, uninterrupted: list[list[Seen]]
) -> None:
    batches = loader(dataset, num_workers=2, transform=Noise())
    iterator = iter(batches)
    assert seen(next(iterator) for _ in range(4)) == uninterrupted[0][:4]
    state = batches.state_dict()
    assert seen(iterator) == uninterrupted[0][4:]
    batches.load_state_dict(state)
    assert seen(batches) == uninterrupted[0][4:]
    assert seen(copy.deepcopy(batches)) == uninterrupted[1]
    assert [seen(batches) for _ in range(2)] == uninterrupted[1:3]


# ---- their settings


@pytest.mark.parametrize(
    ("num_epochs", "is_mixture"), [(0, False), (1, False), (0, True)],
    ids=["before the first epoch", "between two epochs", "of a mixture"],
)  # fmt: skip
def test_workers_that_start_once_the_dataset_has_another_state_deliver_none_of_its_faces(
    tmp_path: Path, num_epochs: int, is_mixture: bool
) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    make_dataset(out)
    make_dataset(other, (("train", VAL), ("train", LONG)))
    same = copy_dataset(out, tmp_path / "same")
    batches = loader([str(same), str(out)] if is_mixture else out, num_workers=1, persistent_workers=False)
    for _ in range(num_epochs):
        list(batches)
    shutil.rmtree(out)
    other.rename(out)
    with pytest.raises(CorruptDataError, match="has changed since it was opened; open it again"):
        list(batches)
    assert list(loader(out, num_workers=1))


def test_the_users_own_start_runs_in_each_worker_which_has_one_thread_to_work_with(
    dataset: Path, tmp_path: Path
) -> None:
    list(loader(dataset, num_workers=2, worker_init_fn=NoteStart(tmp_path)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    assert {path.read_text() for path in tmp_path.iterdir()} == {"torch 1, cv2 1"}


@pytest.mark.parametrize("ahead", [1, 3])
def test_a_worker_makes_as_many_batches_ahead_as_it_is_set_to(dataset: Path, tmp_path: Path, ahead: int) -> None:
    counted = CountedImages(tmp_path / "images")
    batches = loader(dataset, num_workers=1, prefetch_factor=ahead, transform=counted)
    for taken, _ in enumerate(batches, start=1):
        if taken == 1:  # maybe before there is a worker
            continue
        if taken > STEPS - 1 - ahead:
            break
        wait_until(lambda: counted.images >= 32 * (taken + ahead), "a batch made ahead")  # noqa: B023
        assert counted.images == 32 * (taken + ahead)


def test_a_batch_that_does_not_come_in_time_is_an_error(dataset: Path, tmp_path: Path) -> None:
    go_file = tmp_path / "go on"
    batches = loader(
        dataset, num_workers=1, timeout=1, transform=BlockUntilFileExists(poisoned("hold", dataset, 5), go_file)
    )
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        list(batches)
    go_file.touch()


def test_workers_end_with_the_loader_that_is_released(dataset: Path) -> None:
    batches = loader(dataset, num_workers=2)
    iterator = iter(batches)
    take_first_of_workers(iterator)
    workers = processes(batches)
    del batches, iterator
    gc.collect()
    wait_until(lambda: all(map(has_ended, workers)), "the end of the workers")


def test_workers_end_with_a_loader_whose_transform_failed_before_any_garbage_collection(
    dataset: Path,
) -> None:
    batches = loader(dataset, num_workers=1, transform=poisoned("raise", dataset, 1))
    others = {child.pid for child in multiprocessing.active_children()}
    gc.disable()
    try:
        with pytest.raises(ZeroDivisionError) as raised:
            list(batches)
        (worker,) = [child for child in multiprocessing.active_children() if child.pid not in others]
        del raised, batches
        wait_until(lambda: not worker.is_alive(), "the end of the worker")
    finally:
        gc.enable()


# ---- how many there are


def default_workers_with(cores: set[int], **environment: str) -> int:
    """The default number of workers of a process that may run on some cores."""
    code = f"import os; os.sched_setaffinity(0, {cores})\n"
    code += "from facefeed.loaders.workers.processes import default_num_workers; print(default_num_workers())"
    environment = {**{name: value for name, value in os.environ.items() if name != "LOCAL_WORLD_SIZE"}, **environment}
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return int(process.stdout)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (multiprocessing.context.ForkServerContext, "Queue"),
        (multiprocessing.context.ForkServerContext, "Event"),
        (WorkerContext, "Process"),
        (signal_handling, "_set_worker_pids"),
        (signal_handling, "_set_SIGCHLD_handler"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_ctrl_c_while_workers_are_started_prints_nothing_and_leaves_none(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, persistent: bool, owner: Any, name: str
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    printed: list[Any] = []
    before = {*multiprocessing.active_children()}
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    monkeypatch.setattr(owner, name, interrupted)
    batches = loader(dataset, num_workers=1, persistent_workers=persistent)
    received: list[Seen] = []
    with pytest.raises(KeyboardInterrupt):
        received.extend(seen([batch])[0] for batch in batches)
    gc.collect()
    for worker in {*multiprocessing.active_children()} - before:
        worker.join(DEADLINE_SECONDS)
        assert worker.exitcode == -signal.SIGKILL
    assert printed == []
    monkeypatch.undo()
    assert [*received, *seen(batches)] == seen(loader(dataset, num_workers=0))


def test_a_context_of_the_users_own_is_used() -> None:
    class Own(multiprocessing.context.ForkServerContext): ...

    own = Own()
    assert worker_context(own) is own
    assert type(worker_context(multiprocessing.get_context("forkserver"))) is WorkerContext


@pytest.mark.processes
def test_there_is_a_worker_a_core_that_the_process_may_use() -> None:
    allowed = os.sched_getaffinity(0)
    assert default_workers_with({min(allowed)}) == 1
    assert default_workers_with(allowed) == min(len(allowed), usable_cores())


BLOCKED = """
import os, psutil, signal
from facefeed.loaders.workers.processes import worker_context

def takes(pid):
    lines = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
    kept = int(lines["SigBlk"], 16) | int(lines["SigIgn"], 16)
    return [number.name for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM) if not kept >> number - 1 & 1]

worker_context("forkserver")
print(takes(os.getpid()), *(takes(one.pid) for one in psutil.Process().children()))
"""


@pytest.mark.processes
def test_signals_of_a_terminal_reach_the_loaders_process_and_none_that_it_starts() -> None:
    process = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=True)
    # besides its own: the fork server, and Python's resource tracker
    assert process.stdout == "['SIGHUP', 'SIGINT', 'SIGTERM'] [] []\n"


OTHER_PROCESS = """
import multiprocessing, signal
from facefeed.loaders.workers.processes import worker_context
worker_context("forkserver")
other = multiprocessing.get_context("forkserver").Process(target=signal.pause)
other.start()
other.terminate()
other.join()
print(other.exitcode)
"""


@pytest.mark.processes
def test_a_process_that_the_script_starts_from_the_same_fork_server_ends_by_terminate(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS], capture_output=True, text=True, check=True, timeout=DEADLINE_SECONDS
    )
    assert process.stdout == f"{-signal.SIGTERM}\n"


ENDED_LOADER = """
import _multiprocessing
from facefeed.loaders.workers.processes import worker_context
context = worker_context("forkserver")
lock = context.Lock()
_multiprocessing.sem_unlink(lock._semlock.name)  # as where the loader ends while its worker starts
for arguments in ((lock,), (1, 2)):
    process = context.Process(target=len, args=arguments)
    process.start()
    process.join()
"""


def test_a_program_that_a_worker_starts_ends_by_terminate(dataset: Path) -> None:
    batches = loader(dataset, num_workers=1, collate_fn=end_a_program, fields=None)
    assert next(iter(batches)) == -signal.SIGTERM


@pytest.mark.processes
def test_a_worker_that_starts_as_its_loader_ends_prints_no_traceback(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"if __name__ == '__main__':\n{textwrap.indent(ENDED_LOADER, '    ')}")
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert "_rebuild" not in result.stderr  # of the lock
    assert "TypeError: len() takes exactly one argument (2 given)" in result.stderr


@pytest.mark.processes
def test_what_the_script_has_set_the_fork_server_to_import_is_imported_too(tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text("")
    code = """
import multiprocessing, sys
from multiprocessing import forkserver
from facefeed.loaders.workers.processes import worker_context
multiprocessing.set_forkserver_preload(["slow_to_import"])
for _ in range(2):
    worker_context(None)
print(forkserver._forkserver._preload_modules)
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "['facefeed.loaders.workers.preload', 'slow_to_import']"


@pytest.mark.processes
def test_a_fork_server_that_is_started_before_torch_is_imported_is_that_of_the_loader() -> None:
    code = """
import sys
from multiprocessing import forkserver
from facefeed.loaders.workers.fork_server import start_fork_server
start_fork_server("albumentations")
early = forkserver._forkserver._forkserver_pid, "torch" in sys.modules
from facefeed.loaders.workers.processes import worker_context
worker_context(None)
print(*early, forkserver._forkserver._forkserver_pid, forkserver._forkserver._preload_modules)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    started, has_torch, used, modules = process.stdout.strip().split(maxsplit=3)
    assert (has_torch, used) == ("False", started)
    assert modules == "['facefeed.loaders.workers.preload', 'albumentations']"


@pytest.mark.processes
def test_a_temporary_folder_whose_path_is_too_long_for_a_socket_is_named_with_the_way_out(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 100)
    folder.mkdir()
    code = "from facefeed.loaders.workers.processes import worker_context; worker_context(None)"
    environment = {**os.environ, "TMPDIR": str(folder)}
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert process.stderr.splitlines()[-1].startswith(f"facefeed.pipeline.errors.UsageError: TMPDIR={folder}: too long")
