"""What `verify` says of a dataset whose units are checked by several processes: the same as by one."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pytest
from assets_cluster import joinable_cluster
from assets_dataset import FILES, copy_dataset, make_dataset
from assets_task_pool import Completed, TasksInProcess, checked_by
from click.testing import CliRunner
from distributed import KilledWorker, LocalCluster
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import StoppedError, UsageError
from facefeed.pipeline.execution import cluster
from facefeed.pipeline.verify import check, workers
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.verify.findings import VerifyResult
from facefeed.pipeline.verify.unit_check import UnitToCheck


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("workers") / "out"
    make_dataset(out)
    return out


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    return copy_dataset(dataset, tmp_path / "out")


@pytest.fixture(autouse=True)
def _each_unit_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_CHUNK_BYTES", 1)


def by_workers(out: Path, pool: TasksInProcess | None = None, **arguments: Any) -> VerifyResult:
    with checked_by(pool or TasksInProcess()):
        return verify(out, workers=2, **arguments)


def files(out: Path) -> list[Path]:
    return sorted((out / "faces").rglob("*.parquet"))


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def damage_everything(out: Path) -> None:
    """Leaves hardly a unit as it was, in different ways."""
    first, second, third, *_ = files(out)
    flip(first, first.stat().st_size // 2)
    second.write_bytes(second.read_bytes()[:-100])
    third.unlink()
    shutil.copyfile(first, out / "faces" / "train" / "unknown.parquet")
    receipt = out / "receipts" / f"{files(out)[-1].stem}.json"
    if receipt.exists():
        receipt.unlink()


def code_out_of_range(index: Path) -> None:
    """Damages a code of a dictionary, so that it leads out of that."""
    table = pa.ipc.open_file(index).read_all()
    column = table["split"].chunk(0)
    codes = pa.array([1000, *column.indices.to_pylist()[1:]], pa.int32())
    damaged = pa.DictionaryArray.from_arrays(codes, column.dictionary, safe=False)
    table = table.set_column(table.schema.get_field_index("split"), table.schema.field("split"), damaged)
    index.unlink()
    with pa.ipc.new_file(index, table.schema) as writer:
        writer.write_table(table)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "everything": damage_everything,
    "the index": lambda out: flip(out / "index.arrow", (out / "index.arrow").stat().st_size // 2),
    "a code of the index": lambda out: code_out_of_range(out / "index.arrow"),
    "the end of the run": lambda out: (out / "manifest.json").unlink(),
    "the plan": lambda out: shutil.rmtree(out / "plan"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_workers_find_what_one_process_finds_in_the_same_order(copy: Path, damage: str) -> None:
    DAMAGES[damage](copy)
    alone, pool = verify(copy, workers=1), TasksInProcess()
    result = by_workers(copy, pool)
    assert (result.findings, result.figures()) == (alone.findings, alone.figures())
    assert damage == "the plan" or pool.most_waiting > 1


def test_files_are_announced_in_the_same_order(dataset: Path) -> None:
    announced: list[list[str]] = [[], []]
    verify(dataset, workers=1, on_file=announced[0].append)
    by_workers(dataset, on_file=announced[1].append)
    assert announced[0] == announced[1]
    assert len(announced[0]) == FILES


def test_small_units_share_a_task(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_CHUNK_BYTES", 1_000_000_000)
    pool = TasksInProcess()
    assert by_workers(dataset, pool).files == FILES
    assert pool.most_waiting == 1


def test_few_units_are_in_flight_at_a_time(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_TASKS_PER_WORKER", 2)
    pool = TasksInProcess(size=1)
    assert by_workers(dataset, pool).files == FILES
    assert pool.most_waiting == 2


@pytest.mark.parametrize("chunk_bytes", [1, 1_000_000_000])
def test_units_whose_worker_dies_are_checked_again(
    copy: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(check, "_CHUNK_BYTES", chunk_bytes)
    damage_everything(copy)
    deaths = iter([True, False, True])
    result = by_workers(copy, TasksInProcess(dies=lambda _: next(deaths, False)))
    assert result.figures() == verify(copy, workers=1).figures()


LOSSES: dict[str, Callable[[Completed], object]] = {
    "known": lambda future: setattr(future, "is_lost", True),
    "as it is fetched": lambda future: setattr(future, "fetch_error", TimeoutError()),
    "and its second worker dies": lambda future: setattr(future, "fetch_error", KilledWorker("task", None, 0)),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_units_whose_results_go_with_their_worker_are_checked_again(copy: Path, loss: str) -> None:
    damage_everything(copy)
    numbers = count()

    def loses(future: Completed) -> None:
        if next(numbers) < 10:  # more workers than a file may end
            LOSSES[loss](future)

    assert by_workers(copy, TasksInProcess(damages=loses)).figures() == verify(copy, workers=1).figures()


def test_a_worker_that_does_not_send_its_results_is_not_waited_for_without_end(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Completed, "status", "finished")
    pool = TasksInProcess(damages=lambda future: setattr(future, "fetch_error", TimeoutError()))
    with pytest.raises(StoppedError, match="has not sent its result in 120 s"):
        by_workers(dataset, pool)


def test_a_file_that_ends_each_of_its_workers_is_named(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_CHUNK_BYTES", 1_000_000_000)
    name = files(dataset)[2].relative_to(dataset).as_posix()

    def dies(steps: Sequence[Any]) -> bool:
        return any(isinstance(step, UnitToCheck) and step.location == name for step in steps)

    with pytest.raises(StoppedError, match=rf"^{name}: 3 workers ended while reading it"):
        by_workers(dataset, TasksInProcess(dies=dies))


def test_a_cluster_that_has_no_worker_is_not_waited_for_without_end(dataset: Path) -> None:
    pool = TasksInProcess(size=0)
    with pytest.raises(StoppedError, match="has had no worker for 120 s"):
        by_workers(dataset, pool)
    assert pool.clock.now < 200


def test_a_cluster_that_fails_does_not_claim_that_verify_keeps_units(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise RuntimeError("no port is free")

    monkeypatch.setattr(workers, "local_client", fail)
    with pytest.raises(StoppedError, match=r"no port is free\); fix that and run the same command again"):
        verify(dataset, workers=2)


def test_a_worker_that_does_not_see_the_dataset_does_not_call_its_files_missing(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(function: Any, paths: OutPaths, chunk: Any) -> Any:
        return real(function, OutPaths(Path("/nowhere")), chunk)

    real = workers.call_on_worker
    monkeypatch.setattr(workers, "get_worker", lambda: SimpleNamespace(address="tcp://far:1"))
    monkeypatch.setattr(workers, "call_on_worker", elsewhere)
    with pytest.raises(StoppedError, match="/nowhere: does not exist on tcp://far:1; all workers must see OUT alike"):
        by_workers(dataset)


def test_a_small_dataset_is_checked_without_workers(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "start_workers", lambda *_, **__: pytest.fail("started workers"))
    assert verify(dataset).findings == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0"], "must be at least 1"),
        (["--workers", "2..4"], "a range is for --cluster"),
        (["--workers", "2", "--scheduler", "tcp://host:1"], "--workers and --scheduler"),
        (["--scheduler", "host"], "must be an address with a port"),
        (["--cluster", "slurm"], "needs --workers"),
        (["--cluster", "condor", "--workers", "2"], "must be slurm, pbs, sge or a Python file"),
    ],
)
def test_options_that_do_not_go_together_are_refused(dataset: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["verify", str(dataset), *arguments])
    assert result.exit_code == UsageError.exit_code
    assert message in result.stderr


def test_a_scheduler_that_does_not_answer_is_named(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 0.1)
    with pytest.raises(StoppedError, match=r"--scheduler tcp://127.0.0.1:9: cannot be reached"):
        verify(dataset, scheduler="tcp://127.0.0.1:9")


# ---- real processes

SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from facefeed.pipeline.verify import unit_check

marker, real = Path(__file__).with_name("marker"), unit_check.sha256_of


def hash_or_fail(path):
    try:
        marker.open("x").close()
    except FileExistsError:
        return real(path)
    {failure}
    return real(path)


unit_check.sha256_of = hash_or_fail  # in worker processes too, which import this
if __name__ == "__main__":
    from facefeed.pipeline.__main__ import main

    main()
"""
PATIENCE_SECONDS = 60.0


def run_script(folder: Path, out: Path, failure: str) -> psutil.Popen:
    """`verify` with two workers, of which the first that hashes a file fails so; `folder`: where "marker" shows it."""
    (folder / "script.py").write_text(SCRIPT.format(failure=failure))
    arguments = [str(folder / "script.py"), "verify", str(out), "--json", "--workers", "2"]
    return psutil.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.processes
def test_a_running_cluster_reports_what_one_process_does(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage_everything(copy)
    monkeypatch.chdir(copy.parent)
    with joinable_cluster(tmp_path / "certificate.pem") as address:
        result = verify(copy.name, scheduler=address)
    assert result.figures() == verify(copy, workers=1).figures()


@pytest.mark.processes
@pytest.mark.parametrize("wanted", [None, (1, 2)])
def test_a_cluster_of_ones_own_reports_what_one_process_does(copy: Path, wanted: tuple[int, int] | None) -> None:
    def cluster() -> LocalCluster:
        return LocalCluster(
            n_workers=0 if wanted else 1, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        )  # fmt: skip

    damage_everything(copy)
    messages: list[str] = []
    result = verify(copy, cluster=cluster, workers=wanted, on_wait=messages.append)
    assert result.figures() == verify(copy, workers=1).figures()
    assert "not encrypted" in messages[0]


@pytest.mark.processes
def test_a_worker_process_that_is_killed_takes_no_finding_with_it(copy: Path, tmp_path: Path) -> None:
    damage_everything(copy)
    process = run_script(tmp_path, copy, "os.kill(os.getpid(), signal.SIGKILL)")
    stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1, stderr
    assert (tmp_path / "marker").exists()
    assert json.loads(stdout.splitlines()[-1]) == verify(copy, workers=1).figures()


@pytest.mark.processes
def test_ctrl_c_ends_the_command_and_its_workers(dataset: Path, tmp_path: Path) -> None:
    process = run_script(tmp_path, dataset, "time.sleep(600)")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (tmp_path / "marker").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    children = process.children(recursive=True)
    assert len(children) >= 2
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, json.loads(stdout.splitlines()[-1])["exit"]) == (130, 130)
    assert "distributed" not in stderr  # no messages of Dask
    assert psutil.wait_procs(children, timeout=PATIENCE_SECONDS)[1] == []
