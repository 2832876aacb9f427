"""What a training loop notices when a worker dies or fails: soon, and by which worker and why; never a hang."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil
import pytest
from assets_dataset import make_dataset
from assets_loaders import (
    DEADLINE_SECONDS,
    FIELDS,
    BrokenBatch,
    FailingStart,
    FailWhileFileExists,
    StartsLate,
    has_ended,
    is_sending,
    lazily,
    loader,
    poisoned,
    seen,
    start_training,
    take_first_of_workers,
    take_steps,
    wait_until,
)
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.workers import processes
from facefeed.loaders.workers.processes import WorkerDiedError
from facefeed.pipeline.errors import UsageError

LARGE = (*FIELDS, "video_id", "hull", "regions", "landmarks")
SECONDS = 30


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("deaths") / "out"
    make_dataset(out)
    return out


def worker_pids(batches: FaceDataLoader) -> list[int]:
    assert batches._iterator is not None
    return [worker.pid for worker in batches._iterator._workers]


@contextmanager
def worker_dies(message: str) -> Iterator[None]:
    """The body has to raise `WorkerDiedError` with that in its message, within half a minute."""

    def hung(*_: object) -> None:
        pytest.fail(f"still waiting after {SECONDS} s")  # no Exception, which torch would take for a worker's end

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(SECONDS)
    try:
        with pytest.raises(WorkerDiedError, match=message):
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("start", ["forkserver", "spawn"])
def test_a_worker_that_is_killed_in_mid_epoch_ends_the_run_with_its_number_and_the_signal(
    dataset: Path, start: str
) -> None:
    batches = loader(dataset, num_workers=2, multiprocessing_context=start)
    iterator = iter(batches)
    take_first_of_workers(iterator)
    victim = worker_pids(batches)[1]
    with worker_dies(rf"worker {victim} was killed by signal 9"):
        os.kill(victim, signal.SIGKILL)
        list(iterator)


@pytest.mark.parametrize(("action", "message"), [("kill", "was killed by signal 9"), ("exit", "ended with code 7")])
def test_a_transform_that_ends_its_process_ends_the_run(dataset: Path, action: str, message: str) -> None:
    batches = loader(dataset, num_workers=2, transform=poisoned(action, dataset, 6))
    with worker_dies(rf"worker \d+ {message}"):
        list(batches)


def test_a_worker_that_was_killed_between_two_epochs_is_missed_at_the_next(dataset: Path) -> None:
    batches = loader(dataset, num_workers=2)
    list(batches)
    victim = worker_pids(batches)[0]
    os.kill(victim, signal.SIGKILL)
    with worker_dies(rf"worker {victim} was killed by signal 9"):
        list(batches)


def test_of_workers_that_have_made_an_epoch_it_is_not_asked_whether_they_can_start(
    dataset: Path, tmp_path: Path
) -> None:
    now = tmp_path / "now"
    # An image that the first batch of the next epoch has too.
    deadly = FailWhileFileExists(poisoned("kill", dataset, 1), now)
    batches = loader(dataset, num_workers=1, prefetch_factor=1, transform=deadly)
    for step, _ in enumerate(batches):
        if step == len(batches) - 2:
            now.touch()
    with pytest.raises(WorkerDiedError, match="was killed by signal 9") as caught:
        list(batches)
    assert processes.MAIN_GUARD_HINT not in str(caught.value)


def test_how_a_worker_ended_is_known_to_two_threads_that_ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = processes.worker_context(None).Process(target=signal.pause)  # type: ignore[attr-defined]
    worker.start()
    popen: Any = worker._popen
    read, answers = forkserver.read_signed, list[int | None]()
    other = threading.Thread(target=lambda: answers.append(popen.poll(0)))

    def read_while_the_other_asks(sentinel: int) -> int:
        if other.ident is None:
            other.start()
            other.join(0.1)  # it waits for this thread
        return read(sentinel)

    monkeypatch.setattr(forkserver, "read_signed", read_while_the_other_asks)
    worker.kill()
    answers.append(popen.poll(0))
    other.join()
    worker.join()
    assert answers == [-signal.SIGKILL, -signal.SIGKILL]


def test_a_worker_ends_where_torch_or_python_terminates_it_although_it_ignores_sigterm(dataset: Path) -> None:
    batches = loader(dataset, num_workers=1)
    expected = seen(batches)
    assert batches._iterator is not None
    (worker,) = batches._iterator._workers
    os.kill(worker.pid, signal.SIGTERM)
    batches.set_epoch(0)
    assert seen(batches) == expected
    assert worker.is_alive()
    worker.terminate()
    worker.join(SECONDS)
    assert worker.exitcode == -signal.SIGKILL


@pytest.mark.parametrize(
    "start",
    [
        "forkserver",
        pytest.param("a fork server that others started", marks=pytest.mark.processes),
        pytest.param("spawn", marks=pytest.mark.processes),
    ],
)
def test_after_a_ctrl_c_that_the_script_caught_the_next_epoch_goes_on_with_the_same_workers(
    dataset: Path, start: str
) -> None:
    if start.endswith("others started"):
        forkserver._forkserver._stop()  # type: ignore[attr-defined]
        forkserver.ensure_running()
        start = "forkserver"
    batches = loader(dataset, num_workers=2, multiprocessing_context=start)
    expected = seen(batches)
    iterator = iter(batches)
    next(iterator)
    iterator.close()
    pids = worker_pids(batches)
    for pid in pids:
        os.kill(pid, signal.SIGINT)  # as the terminal does to all processes of the group
    batches.set_epoch(0)
    assert seen(batches) == expected
    assert worker_pids(batches) == pids


def test_new_workers_take_the_place_of_those_that_died_and_the_epoch_goes_on_where_it_stood(dataset: Path) -> None:
    batches = loader(dataset, num_workers=2)
    iterator = iter(batches)
    received = seen(take_first_of_workers(iterator))
    os.kill(worker_pids(batches)[0], signal.SIGKILL)
    with worker_dies("was killed"):
        for batch in iterator:  # what was made before comes yet
            received += seen([batch])
    assert [*received, *seen(batches)] == seen(loader(dataset, num_workers=0))


def kill_for_good(pid: int) -> None:
    """Kills a process and waits for its end: until then, the kernel sends more of its message wherever there is room.

    Nothing else may notice meanwhile, so torch's handler of SIGCHLD, which raises wherever it is, is off.
    """
    process = psutil.Process(pid)
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        process.kill()
        wait_until(lambda: has_ended(process), "the worker's end")
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize("start", ["forkserver", pytest.param("spawn", marks=pytest.mark.processes)])
def test_a_worker_that_is_killed_while_it_sends_leaves_nobody_waiting(dataset: Path, start: str) -> None:
    # What either worker makes ahead fills the pipe by its columns alone, whatever the other has sent, and does not end
    # the epoch: the kernel may still bring over what a killed process was sending, and then nothing would be missing.
    # Each takes three of its 16 pages, so that it is full in the middle of one.
    ahead = {"split": None, "batch_size": 24, "prefetch_factor": 7}
    options = {**ahead, "fields": LARGE, "multiprocessing_context": start}
    batches = loader(dataset, num_workers=2, **options)
    iterator = iter(batches)
    take_first_of_workers(iterator)
    workers = worker_pids(batches)
    stuck: Counter[int] = Counter()

    def worker_is_stuck() -> bool:  # and not just passing through, perhaps with its last batch
        for pid in workers:
            stuck[pid] = stuck[pid] + 1 if is_sending(pid) else 0
        return max(stuck.values()) >= 20

    wait_until(worker_is_stuck, "a full pipe")
    victim = stuck.most_common(1)[0][0]
    kill_for_good(victim)
    with worker_dies(rf"worker {victim} was killed by signal 9"):
        list(iterator)


@pytest.mark.chaos
@pytest.mark.parametrize("worker_init_fn", [None, StartsLate()], ids=["all", "but for one"])
def test_when_the_fork_server_is_killed_the_run_ends(dataset: Path, worker_init_fn: StartsLate | None) -> None:
    """Python takes its workers for dead then, and torch's look for the server that is there when they have started."""
    batches = loader(dataset, num_workers=2, worker_init_fn=worker_init_fn)
    iterator = iter(batches)
    next(iterator)
    if worker_init_fn is None:
        next(iterator)  # the first may not come from a worker; of the other two, one makes none
    workers = [psutil.Process(pid) for pid in worker_pids(batches)]
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
    assert psutil.wait_procs(workers, timeout=SECONDS)[1] == []
    with worker_dies(r"worker \d+ ended"):
        list(iterator)
    assert len(list(loader(dataset, num_workers=1))) == 11


# ---- exceptions


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_in_a_transform_comes_with_its_own_type_and_text(dataset: Path, workers: int) -> None:
    batches = loader(dataset, num_workers=workers, transform=poisoned("raise", dataset, 6))
    iterator = iter(batches)
    received = [next(iterator) for _ in range(6)]
    assert len(received) == 6
    with pytest.raises(ZeroDivisionError, match="a bug in the transform"):
        next(iterator)


def test_after_an_exception_the_rest_of_the_epoch_is_not_passed_over_in_silence(dataset: Path, tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    fault.touch()
    transform = FailWhileFileExists(poisoned("raise", dataset, 4), fault)
    batches = loader(dataset, num_workers=0, dtype="uint8", transform=transform)
    iterator = iter(batches)
    received = seen([next(iterator) for _ in range(4)])
    with pytest.raises(ZeroDivisionError):
        next(iterator)
    for _ in range(2):
        with pytest.raises(UsageError, match=r"ended with ZeroDivisionError, .* iterate the loader again"):
            next(iterator)
    fault.unlink()
    assert [*received, *seen(batches)] == seen(loader(dataset, num_workers=0, dtype="uint8"))


def test_workers_that_a_kept_exception_keeps_do_not_write_to_the_batches_of_the_next_epoch(
    dataset: Path, tmp_path: Path
) -> None:
    fault = tmp_path / "fault"
    fault.touch()
    transform = FailWhileFileExists(poisoned("raise", dataset, 4), fault)
    batches = loader(dataset, num_workers=2, persistent_workers=False, dtype="uint8", transform=transform)
    others = multiprocessing.active_children()  # those of loaders that other tests' exceptions keep
    with pytest.raises(ZeroDivisionError) as kept:  # as a notebook keeps the last one
        list(batches)
    earlier = [worker for worker in multiprocessing.active_children() if worker not in others]
    assert len(earlier) == 2
    fault.unlink()
    batches.set_epoch(0)
    iterator = iter(batches)
    received = seen([next(iterator)])
    assert [worker for worker in earlier if worker.is_alive()] == []
    assert [*received, *seen(iterator)] == seen(loader(dataset, num_workers=0, dtype="uint8"))
    assert kept.tb


def test_an_exception_that_cannot_be_made_of_a_text_still_says_what_it_was(dataset: Path) -> None:
    batches = loader(dataset, num_workers=1, transform=poisoned("raise own", dataset, 2))
    with pytest.raises(RuntimeError, match=r"TwoPartError[^$]*one and two"):
        list(batches)


def test_an_exception_of_a_class_that_the_training_process_cannot_import_still_comes(dataset: Path) -> None:
    batches = loader(dataset, num_workers=1, timeout=SECONDS, transform=poisoned("raise local", dataset, 2))
    with pytest.raises(RuntimeError, match=r"LocalError: known here alone"):
        list(batches)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stop_iteration_in_a_transform_is_an_error_of_the_transform(dataset: Path, workers: int) -> None:
    batches = loader(dataset, num_workers=workers, transform=poisoned("raise StopIteration", dataset, 2))
    with pytest.raises(RuntimeError, match="StopIteration was raised in a transform or in collate_fn"):
        list(batches)


def test_a_batch_of_a_collate_fn_that_cannot_be_sent_is_refused_by_its_name(dataset: Path) -> None:
    batches = loader(dataset, num_workers=1, timeout=SECONDS, fields=None, collate_fn=lazily)
    for _ in range(9):  # also of workers that have answers to earlier requests under way
        with pytest.raises(UsageError, match="collate_fn: its batch cannot be sent from a worker: cannot pickle 'gen"):
            next(iter(batches))
    assert len(list(next(iter(loader(dataset, num_workers=0, fields=None, collate_fn=lazily))))) == 32


def test_an_index_error_as_a_batch_is_sent_is_no_endless_wait(dataset: Path) -> None:
    """Python's queue would drop the batch without a word."""
    batches = loader(dataset, num_workers=1, timeout=SECONDS, fields=None, collate_fn=BrokenBatch)
    with pytest.raises(
        UsageError, match="collate_fn: its batch cannot be sent from a worker: IndexError: no such page"
    ):
        next(iter(batches))


def test_an_exception_in_the_users_own_start_comes_with_its_own_type_and_text(dataset: Path) -> None:
    with pytest.raises(LookupError, match="no such camera"):
        list(loader(dataset, num_workers=1, worker_init_fn=FailingStart()))


# ---- the whole script

MAIN_GUARD_HINT = """
from facefeed.loaders import FaceDataLoader
for batch in FaceDataLoader({out!r}, image_size=32, num_workers=1):
    print("a step")
"""


@pytest.mark.chaos
def test_a_script_without_a_main_guard_is_pointed_to_it(dataset: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(MAIN_GUARD_HINT.format(out=str(dataset)))
    process = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120)
    assert process.returncode != 0
    assert process.stdout == "a step\n"  # none in the worker that imports the script
    assert "if __name__ == '__main__':" in process.stderr
    assert "worker" in process.stderr.splitlines()[-1]


@pytest.mark.chaos
@pytest.mark.parametrize("start", ["forkserver", "spawn"])
def test_ctrl_c_ends_all_processes_without_a_word_from_the_workers(dataset: Path, tmp_path: Path, start: str) -> None:
    training = start_training(dataset, tmp_path, num_workers=2, multiprocessing_context=start)
    take_steps(training, 2)
    processes = training.children(recursive=True)
    os.killpg(training.pid, signal.SIGINT)
    _, errors = training.communicate(timeout=DEADLINE_SECONDS)
    assert errors.count("KeyboardInterrupt") == 1
    assert psutil.wait_procs(processes, timeout=DEADLINE_SECONDS)[1] == []


@pytest.mark.processes
@pytest.mark.parametrize("start", ["forkserver", "spawn"])
def test_a_signal_to_all_processes_that_the_script_handles_costs_none_of_its_batches(
    dataset: Path, tmp_path: Path, start: str
) -> None:
    numbers = [signal.SIGHUP, signal.SIGUSR1, *([signal.SIGTERM] if start == "forkserver" else [])]
    options = {"num_workers": 1, "multiprocessing_context": start, "handled": numbers}
    with start_training(dataset, tmp_path, **options) as training:
        take_steps(training, 2)
        processes = training.children(recursive=True)
        for number in numbers:
            os.killpg(training.pid, number)
        take_steps(training, 9)
        assert [process for process in processes if has_ended(process)] == []
        _, errors = training.communicate(timeout=DEADLINE_SECONDS)
    assert (training.returncode, errors) == (0, "")
    assert psutil.wait_procs(processes, timeout=DEADLINE_SECONDS)[1] == []
