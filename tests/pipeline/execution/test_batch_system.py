"""Workers as jobs of a batch system, with programs in place of the batch system's own, and clusters of a user's file.

tests/train/slurm/test_slurm_real.py has a real Slurm.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from socket import gethostname
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import dask
import fsspec
import pyarrow.dataset as pads
import pytest
from assets_docs import GUIDES, blocks
from assets_stores import s3_server
from click.testing import CliRunner, Result
from conftest import MakeSource
from distributed import Scheduler
from distributed.deploy.spec import ProcessInterface, SpecCluster
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dataset.stores.cache_space import IN_USE
from facefeed.pipeline.dataset.stores.writing.process_folder import process_folder
from facefeed.pipeline.errors import StoppedError, UsageError
from facefeed.pipeline.execution import worker_supply
from facefeed.pipeline.execution.batch_system import RunFiles, batch_client, check_batch_system
from facefeed.pipeline.execution.cluster import load_cluster
from facefeed.pipeline.execution.progress import Progress
from facefeed.pipeline.execution.worker_supply import WorkerSupply
from facefeed.pipeline.execution.workers import Worker

FRAMES = ("--frames", "1", "--min-face", "16", "--detector", "whole-frame")
OWN = """
from distributed import LocalCluster

def cluster():
    return LocalCluster(n_workers={n}, threads_per_worker={threads}, protocol="tcp", host="127.0.0.1",
                        dashboard_address="127.0.0.1:0")
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH for programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def write_program(path: Path, *lines: str) -> None:
    path.write_text("\n".join(["#!/bin/bash", *lines, ""]))
    path.chmod(0o755)


@pytest.fixture
def settings() -> Iterator[None]:
    """Jobs of one core, on this machine alone."""
    import dask_jobqueue  # noqa: F401, PLC0415 (its defaults first)

    names = ("slurm", "pbs", "sge")
    with dask.config.set({f"jobqueue.{name}.interface": "lo" for name in names}):
        yield


def run(source: Path, out: str | Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["precompute", str(source), str(out), *FRAMES, *options])


@pytest.mark.parametrize(
    ("name", "directives", "log"),
    [
        (
            "slurm",
            ["#SBATCH -n 1", "#SBATCH --cpus-per-task=4", "#SBATCH --mem=15G", "#SBATCH -p long"],
            "SLURM_JOB_ID",
        ),
        ("pbs", ["#PBS -l select=1:ncpus=4:mem=15GB", "#PBS -q long", "#PBS -j oe"], "PBS_JOBID"),
        ("sge", ["#$ -q long", "#$ -l h_rt=00:30:00", "#$ -j y", "#$ -o /dev/null"], "JOB_ID"),
    ],
)
@pytest.mark.usefixtures("settings")
def test_a_job_has_a_worker_for_each_core_and_the_certificate_of_the_run(
    tmp_path: Path, name: str, directives: list[str], log: str
) -> None:
    folder = tmp_path / 'it\'s $HOME "here" #1'
    folder.mkdir()
    resources = {"cores": 4, "memory": "16GB", "queue": "long", "job-script-prologue": ["module load gcc"]}
    with (
        dask.config.set({f"jobqueue.{name}.{key}": value for key, value in resources.items()}),
        batch_client(name, folder) as (client, files),
    ):
        script = client.cluster.job_script()
        assert client.scheduler.address.startswith("tls://")
        assert files.certificate.stat().st_mode & 0o777 == 0o600
        arguments = script.splitlines()[-1].partition(" -m ")[2]
        echo = ["bash", "-c", f"printf '%s\\n' {arguments}"]
        words = subprocess.run(echo, capture_output=True, text=True, check=True).stdout.splitlines()
    for directive in directives:
        assert directive in script.splitlines()
    assert f"-${log}.log 2>&1" in script
    assert "module load gcc" in script.splitlines()
    assert "export DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False" in script.splitlines()
    assert words[words.index("--nworkers") + 1] == "4"
    assert words[words.index("--nthreads") + 1] == "1"
    assert {words[words.index(f"--tls-{kind}") + 1] for kind in ("ca-file", "cert", "key")} == {str(files.certificate)}
    assert list(folder.iterdir()) == [], "nothing is left of the run"


def test_without_dask_jobqueue_the_way_to_get_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with pytest.raises(UsageError, match=re.escape("pip install 'facefeed[cluster]'")):
        check_batch_system("slurm")


@pytest.mark.parametrize("in_file", [False, True])
def test_an_interrupt_stays_an_interrupt_with_dask_jobqueue(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_file: bool
) -> None:
    """Its import sets a handler that ends the process with exit code 0."""
    for name in [name for name in sys.modules if name.startswith("dask_jobqueue")]:
        monkeypatch.delitem(sys.modules, name)
    before = signal.getsignal(signal.SIGINT)
    if in_file:
        (tmp_path / "own.py").write_text("import dask_jobqueue\ndef cluster():\n    pass")
        load_cluster(tmp_path / "own.py")
    else:
        write_program(programs / "sbatch")
        check_batch_system("slurm")
    assert "dask_jobqueue" in sys.modules
    assert signal.getsignal(signal.SIGINT) is before


def test_where_no_jobs_are_submitted_from_is_refused_before_anything_is_written(
    make_source: MakeSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run(make_source("real/a.mp4"), tmp_path / "out", "--cluster", "sge", "--workers", "2")
    assert (result.exit_code, (tmp_path / "out").exists()) == (2, False)
    assert "--cluster sge: qsub is not on the PATH; run this on a host that submits jobs" in result.stderr


def test_settings_that_cannot_be_used_are_refused_with_an_example(programs: Path) -> None:
    write_program(programs / "sbatch")
    import dask_jobqueue  # noqa: F401, PLC0415 (its defaults first)

    with dask.config.set({"jobqueue.slurm.memory": "lots"}), pytest.raises(UsageError) as raised:
        check_batch_system("slurm")
    assert "jobqueue:\n  slurm:\n    cores: 8" in str(raised.value)


@pytest.mark.usefixtures("settings")
def test_jobs_that_are_refused_are_one_clear_line(make_source: MakeSource, tmp_path: Path, programs: Path) -> None:
    write_program(programs / "sbatch", "echo 'sbatch: error: no such partition' >&2", "exit 1")
    result = run(make_source("real/a.mp4"), tmp_path / "out", "--cluster", "slurm", "--workers", "2..4")
    assert result.exit_code == 75
    message = result.stderr.splitlines()[-1]
    assert "no job could be submitted (sbatch: error: no such partition); all finished units are kept" in message


@pytest.mark.usefixtures("settings")
def test_jobs_that_end_before_a_worker_has_started_stop_the_run_with_what_they_said(
    make_source: MakeSource, tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the run would submit jobs for ever, and wait for them."""
    monkeypatch.setattr(worker_supply, "_CHECK_SECONDS", 0.0)
    calls = tmp_path / "calls"
    number = f'echo "sbatch" >> {calls}; echo "Submitted batch job $(wc -l < {calls})"'
    write_program(programs / "sbatch", "sed 's/^.* -m /no_such_program /' $1 | SLURM_JOB_ID=7 bash", number)
    write_program(programs / "squeue")
    write_program(programs / "scancel")
    result = run(make_source("real/a.mp4"), tmp_path / "out", "--cluster", "slurm", "--workers", "1")
    assert result.exit_code == 75, result.stderr
    assert "waiting for workers: 0 of 1 started; squeue shows the jobs" in result.stderr
    assert re.search(r"3 jobs ended before a worker had started; .*no_such_program: command not found", result.stderr)
    assert len(calls.read_text().splitlines()) == 3
    assert list((tmp_path / "out/_tmp").iterdir()) == [], "neither certificate nor logs are left"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_server(monkeypatch) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        fsspec.filesystem("s3", skip_instance_cache=True, **server.options).mkdir("jobs")
        yield "s3://jobs"


@pytest.mark.usefixtures("settings")
def test_with_out_in_a_store_what_jobs_need_is_in_a_private_folder_of_the_working_directory(
    make_source: MakeSource, tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch, bucket: str
) -> None:
    """What a killed run has left there goes; what another one uses at that time stays."""
    place = tmp_path / "place"
    killed = place / "facefeed-cluster-killed"
    killed.mkdir(parents=True)
    for name in ("cluster-1.pem", f"{IN_USE}-{gethostname()}"):
        (killed / name).touch()
    monkeypatch.chdir(place)
    seen = tmp_path / "seen"
    write_program(programs / "sbatch", f"stat --format '%A %n' {place}/* {place}/*/*.pem > {seen}; exit 1")
    with process_folder("facefeed-cluster-", place) as other:
        (other / "cluster-2.pem").touch(mode=0o600)
        result = run(make_source("real/a.mp4"), f"{bucket}/faces", "--cluster", "slurm", "--workers", "1")
        assert result.exit_code == 75, result.stderr
        assert [*place.iterdir()] == [other]
    modes = [(line.split()[0], Path(line).suffix) for line in seen.read_text().splitlines()]
    assert sorted(modes) == [("-rw-------", ".pem")] * 2 + [("drwx------", "")] * 2


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("place", ["/proc", "the working directory"])
def test_a_working_directory_that_cannot_have_files_for_jobs_is_one_clear_line(
    place: str, make_source: MakeSource, programs: Path, monkeypatch: pytest.MonkeyPatch, bucket: str, tmp_path: Path
) -> None:
    write_program(programs / "sbatch", "exit 1")
    source = make_source("real/a.mp4")
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(place if place.startswith("/") else removed)
    removed.rmdir()
    result = run(source, f"{bucket}/faces", "--cluster", "slurm", "--workers", "1")
    assert result.exit_code == 75, result.stderr
    assert re.search(
        f"^facefeed: {place}: No such .*run the same command in a folder that all nodes see", result.stderr,
        re.MULTILINE,
    )  # fmt: skip


class ListedJob(ProcessInterface):
    """A job with a number."""

    config_name = "slurm"

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()
        self.job_id = "4711"


def test_a_job_whose_worker_is_there_runs_whatever_the_batch_system_lists(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list may lack it, as one of another of several clusters; a job that has gone with its worker is replaced."""
    monkeypatch.setattr(worker_supply, "_CHECK_SECONDS", 0.0)
    write_program(programs / "squeue")
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "host": "127.0.0.1", "port": 0}}
    with SpecCluster({}, scheduler, worker={"cls": ListedJob, "options": {}}) as cluster:
        cluster.job_cls = ListedJob
        supply = WorkerSupply(cluster, (2, 2), Progress.silent())
        supply.adjust(6, [], [])
        jobs = dict(cluster.workers)
        started = [Worker(f"tcp://127.0.0.1:{number}", str(number), None, str(number)) for number in (0, 1)]
        supply.adjust(6, started, started)
        assert cluster.workers == jobs
        supply.adjust(6, started[:1], started[:1])
        assert cluster.workers[0] is jobs[0]
        assert jobs[1] not in cluster.workers.values()
        assert len(cluster.workers) == 2


def test_jobs_that_cannot_see_the_folder_of_their_logs_are_reported_with_it(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end at once, and say nothing."""
    monkeypatch.setattr(worker_supply, "_CHECK_SECONDS", 0.0)
    write_program(programs / "squeue")
    waits: list[str] = []
    reporter = cast("Any", SimpleNamespace(on_wait=waits.append))
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "host": "127.0.0.1", "port": 0}}
    with SpecCluster({}, scheduler, worker={"cls": ListedJob, "options": {}}) as cluster:
        cluster.job_cls = ListedJob
        supply = WorkerSupply(cluster, (1, 1), reporter, files=RunFiles(tmp_path / "cluster-1"))
        for _ in range(3):
            supply.adjust(1, [], [])
        with pytest.raises(StoppedError, match=f"3 jobs ended .*no log into {tmp_path}, which all nodes have to see"):
            supply.adjust(1, [], [])
    assert waits == [
        f"waiting for workers: 0 of 1 started; squeue shows the jobs; until the run ends, their logs are in {tmp_path}"
    ]


@pytest.mark.parametrize(("limits", "left"), [((1, 4), {0}), ((2, 4), {0, 1}), ((0, 4), {0}), ((4, 4), {0, 1, 2, 3})])
def test_towards_the_end_jobs_without_work_are_cancelled_down_to_the_least_number(
    limits: tuple[int, int], left: set[int]
) -> None:
    """Those first that wait in the queue, then idle ones, and none that is in the middle of a unit."""
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "host": "127.0.0.1", "port": 0}}
    with SpecCluster({}, scheduler, worker={"cls": ProcessInterface, "options": {}}) as cluster:
        supply = WorkerSupply(cluster, limits, Progress.silent())
        supply.adjust(6, [], [])
        assert set(cluster.worker_spec) == {0, 1, 2, 3}, "as many as there are units, but not more than four"
        started = [Worker(f"tcp://127.0.0.1:{number}", str(number), None, str(number)) for number in (0, 1)]
        supply.adjust(6, started, started)
        assert set(cluster.worker_spec) == {0, 1, 2, 3}
        supply.adjust(1, started, started[:1])
        assert set(cluster.worker_spec) == left


def test_the_guides_example_for_kubernetes_makes_workers_of_one_thread_that_see_the_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without Kubernetes: with the operator's functions replaced by ones that make specs of its form."""
    container: dict[str, Any] = {"args": ["dask-worker"]}
    spec = {"spec": {"worker": {"spec": {"containers": [container]}}}}
    operator = ModuleType("dask_kubernetes.operator")
    operator.make_cluster_spec = lambda *_, **__: spec  # type: ignore[attr-defined]
    operator.KubeCluster = lambda *, custom_cluster_spec: custom_cluster_spec  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dask_kubernetes", ModuleType("dask_kubernetes"))
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", operator)
    (example,) = blocks("python", GUIDES / "clusters.md")
    file = tmp_path / "kube.py"
    file.write_text(example)
    assert load_cluster(file)() is spec
    assert container["args"] == ["dask-worker", "--nthreads", "1"]
    assert container["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]


def test_a_cluster_of_a_fixed_size_is_not_asked_for_a_number(make_source: MakeSource, tmp_path: Path) -> None:
    """As an SSHCluster is."""
    own = tmp_path / "own.py"
    scheduler = '{"cls": Scheduler, "options": {"dashboard": False, "host": "127.0.0.1", "port": 0}}'
    lines = (
        "from distributed import Scheduler, SpecCluster",
        "def cluster():",
        f"    return SpecCluster({{}}, {scheduler})",
    )
    own.write_text("\n".join(lines))
    result = run(make_source("real/a.mp4"), tmp_path / "out", "--cluster", str(own), "--workers", "2")
    assert result.exit_code == 75
    assert "--cluster: SpecCluster has a fixed set of workers; leave --workers out" in result.stderr


@pytest.mark.processes
def test_the_cluster_of_a_users_file_makes_the_rows_of_a_local_run(make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source("real/a.mp4", "fake/b.mp4", "real/c.mp4")
    own = tmp_path / "own.py"
    own.write_text(OWN.format(n=0, threads=1))
    results = [
        run(source, tmp_path / "own", "--cluster", str(own), "--workers", "1..2"),
        run(source, tmp_path / "local", "--workers", "1"),
    ]
    assert [result.exit_code for result in results] == [0, 0], results[0].stderr
    assert "--cluster: its connections are not encrypted" in results[0].stderr
    tables = [pads.dataset(tmp_path / name / "faces").to_table().sort_by("video_id") for name in ("own", "local")]
    assert tables[0].num_rows == 3
    assert tables[0].equals(tables[1])
    assert Manifest.read(tmp_path / "own").inputs["total"] == 3


@pytest.mark.parametrize(
    ("lines", "code", "message"),
    [
        ("cluster = 3", 2, "it must define a function `cluster()` that returns a cluster"),
        ("import no_such_module", 2, "ModuleNotFoundError: No module named 'no_such_module' in line 1"),
        ("def cluster():\n    return 3", 75, "cluster() returned int; must be a Dask cluster object"),
        (
            "def cluster():\n    raise OSError('no quota')",
            75,
            "cluster() failed (OSError: no quota in line 2 of own.py)",
        ),
        (OWN.format(n=1, threads=2), 75, "has 2 threads; a worker process runs one unit at a time"),
    ],
)
def test_a_file_that_starts_no_fit_cluster_is_one_clear_line(
    make_source: MakeSource, tmp_path: Path, lines: str, code: int, message: str
) -> None:
    own = tmp_path / "own.py"
    own.write_text(lines)
    result = run(make_source("real/a.mp4"), tmp_path / "out", "--cluster", str(own))
    assert result.exit_code == code, result.stderr
    assert message in result.stderr.splitlines()[-1]
