"""Workers as jobs of a batch system (Slurm, PBS, SGE), through dask-jobqueue and its configuration.

Resources of a job are Dask's settings `jobqueue.slurm.*` (`pbs`, `sge`), from ~/.config/dask/jobqueue.yaml or the
environment. The certificate of the run and the logs of its jobs are files in a folder that all nodes see.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from getpass import getuser
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Security

from ..console import plural
from ..dataset.stores.writing.process_folder import process_folder
from ..errors import StoppedError, UsageError
from ..interrupts import sigint_handler_kept
from .certificate import write_certificate
from .cluster import DASK_CONFIG, client_of, user_client

_CLOSE_TIMEOUT_SECONDS = 60.0
_LIST_TIMEOUT_SECONDS = 30.0
_WORKER_MEMORY_GB = 4


@dataclass(frozen=True)
class BatchSystem:
    """One batch system. `log_options`: directives that discard its own log of a job.

    `list_command`: prints the user's queued and running jobs, one per line, which begins with the job's number.
    """

    cluster_class: str
    submit_command: str
    list_command: tuple[str, ...]
    job_id_variable: str
    log_options: tuple[str, ...]

    def queued_job_ids(self) -> set[str] | None:
        """Numbers of the user's queued and running jobs; None where the command fails."""
        command = [word.format(user=getuser()) for word in self.list_command]
        try:
            listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_LIST_TIMEOUT_SECONDS)
        except (OSError, subprocess.SubprocessError):
            return None
        return set(re.findall(r"^\s*(\d+)", listed.stdout, flags=re.MULTILINE))


BATCH_SYSTEMS = {
    "slurm": BatchSystem(
        "SLURMCluster", "sbatch", ("squeue", "--noheader", "--user={user}", "--format=%A"), "SLURM_JOB_ID",
        ("--output=/dev/null",),
    ),
    "pbs": BatchSystem("PBSCluster", "qsub", ("qstat", "-u", "{user}"), "PBS_JOBID", ("-j oe", "-o /dev/null")),
    "sge": BatchSystem("SGECluster", "qsub", ("qstat", "-u", "{user}"), "JOB_ID", ("-o /dev/null",)),
}  # fmt: skip


@dataclass(frozen=True)
class RunFiles:
    """Files of one run, in a folder that all nodes see: its certificate, and one log per job."""

    stem: Path

    @property
    def folder(self) -> Path:
        """The folder that they are in."""
        return self.stem.parent

    @property
    def certificate(self) -> Path:
        """The certificate and its key; only this user may read it."""
        return self.stem.with_name(f"{self.stem.name}.pem")

    def last_log_line(self) -> str | None:
        """The last line of the newest log; None where all logs are empty or missing."""
        logs = sorted(self.folder.glob(f"{self.stem.name}-*.log"), key=lambda path: path.stat().st_mtime_ns)
        lines = [line for path in logs for line in path.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else None

    def remove(self) -> None:
        """Removes the certificate and the logs."""
        for path in self.folder.glob(f"{self.stem.name}*"):
            path.unlink(missing_ok=True)


def check_batch_system(name: str) -> None:
    """Raises `UsageError` where `name` is no batch system, is not installed here, or its settings are wrong."""
    if (system := BATCH_SYSTEMS.get(name)) is None:
        raise UsageError(f"--cluster {name}: must be {', '.join(BATCH_SYSTEMS)} or a Python file")
    try:
        _jobqueue()
    except ImportError as error:
        raise UsageError(
            f"--cluster {name}: dask-jobqueue is not installed; pip install 'facefeed[cluster]'"
        ) from error
    if shutil.which(system.submit_command) is None:
        raise UsageError(
            f"--cluster {name}: {system.submit_command} is not on the PATH; run this on a host that submits jobs"
        )
    try:
        job_description(name)
    except Exception as error:
        raise UsageError(
            f"--cluster {name}: its settings cannot be used ({' '.join(str(error).split())}); write them to "
            f"~/.config/dask/jobqueue.yaml, for example\n{_example(name)}"
        ) from error


def _example(name: str) -> str:
    return (
        f"jobqueue:\n  {name}:\n    cores: 8            # of a job, a worker each\n    memory: 32GB        # of a job\n"
        "    walltime: '04:00:00'\n    queue: normal"
    )


def job_description(name: str) -> str:
    """Describes the resources of one job, from the settings. Raises `ValueError` and others where these are wrong."""
    files = RunFiles(Path(os.devnull))
    job = _cluster_class(name).job_cls("tls://scheduler:0", name="worker", **_job_options(name, files))
    walltime = dask.config.get(f"jobqueue.{name}.walltime")
    return (
        f"each has {plural(job.worker_cores, 'core')} and {job.worker_memory / 1e9:.0f} GB for "
        f"{plural(job.worker_processes, 'worker')}, walltime {walltime} (settings: jobqueue.{name})"
    )


@contextmanager
def start_cluster(cluster: str | Callable[[], Any], folder: Path | None) -> Iterator[tuple[Client, RunFiles | None]]:
    """Starts a cluster whose workers come later; yields its client, and the files of its jobs.

    `cluster`: the name of a batch system, or a function that returns a cluster, which has no files. `folder`: see
    `batch_client`; None for one of this run alone in the working directory.
    """
    if isinstance(cluster, str):
        with ExitStack() as stack:
            folder = folder or stack.enter_context(_folder_in_working_directory())
            yield stack.enter_context(batch_client(cluster, folder))
    else:
        with user_client(cluster) as client:
            yield client, None


@contextmanager
def _folder_in_working_directory() -> Iterator[Path]:
    place = "the working directory"  # where it was removed, it has no name
    with ExitStack() as stack:
        try:
            place = str(Path.cwd())
            folder = stack.enter_context(process_folder("facefeed-cluster-", Path(place)))
        except OSError as error:
            raise StoppedError(
                f"{place}: {error.strerror}; the certificate of the workers' connections and the logs of their jobs "
                "are in the working directory: run the same command in a folder that all nodes see and that you may "
                "write to"
            ) from error
        yield folder


@contextmanager
def batch_client(name: str, folder: Path) -> Iterator[tuple[Client, RunFiles]]:
    """Starts a Dask scheduler whose workers are jobs, submitted later; cancels all jobs at the end of the block.

    Connections are TLS, with a certificate of this run alone. `folder`: for the certificate and the jobs' logs.
    """
    files = RunFiles(folder / f"cluster-{uuid.uuid4().hex[:12]}")
    try:
        write_certificate(files.certificate)
        with (
            client_of(partial(_start, name, files), close_seconds=_CLOSE_TIMEOUT_SECONDS) as client,
            # Dask would cancel jobs that were requeued for that long; `WorkerSupply` detects jobs that ended.
            dask.config.set({"distributed.deploy.lost-worker-timeout": "1000 days"}),
        ):
            yield client, files
    finally:
        files.remove()


def _start(name: str, files: RunFiles) -> Any:
    configured = dask.config.get(f"jobqueue.{name}.scheduler-options")
    return _cluster_class(name)(
        **_job_options(name, files),
        security=_security(files),
        # Dask's pages require no login.
        scheduler_options={"dashboard_address": "127.0.0.1:0", **configured, "dashboard": False},
        silence_logs=False,  # `client_of` does
    )


def _cluster_class(name: str) -> Any:
    return getattr(_jobqueue(), BATCH_SYSTEMS[name].cluster_class)


def _jobqueue() -> Any:
    with sigint_handler_kept():
        import dask_jobqueue  # noqa: PLC0415 (an optional dependency)
    return dask_jobqueue


def _job_options(name: str, files: RunFiles) -> dict[str, Any]:
    """Arguments of a job: defaults for what the settings omit, and what a worker of facefeed requires."""
    system = BATCH_SYSTEMS[name]

    def setting(key: str) -> Any:
        return dask.config.get(f"jobqueue.{name}.{key}")

    cores = setting("cores") or 1
    processes = setting("processes") or cores
    log_options = () if setting("log-directory") else system.log_options
    environment = [
        f"export DASK_{key.upper().replace('.', '__').replace('-', '_')}={shlex.quote(repr(value))}"
        for key, value in DASK_CONFIG.items()
    ]
    return {
        "cores": cores,
        "processes": processes,
        "memory": setting("memory") or f"{_WORKER_MEMORY_GB * processes}GB",
        "python": setting("python") or shlex.quote(sys.executable),
        "worker_extra_args": [*setting("worker-extra-args"), "--nthreads", "1", "--no-dashboard"],
        "job_extra_directives": [*log_options, *setting("job-extra-directives")],
        "job_script_prologue": [
            f"test -r {shlex.quote(str(files.certificate))} || exit 1",  # the run has ended
            f"exec >{shlex.quote(str(files.stem))}-${system.job_id_variable}.log 2>&1",
            *environment,
            *setting("job-script-prologue"),
        ],
    }


class _FileSecurity(Security):  # type: ignore[misc]  # distributed is untyped
    """A certificate in a file. The config of the role "worker" goes into the job script alone, so it is quoted."""

    def get_tls_config_for_role(self, role: str) -> dict[str, Any]:
        """Quotes the paths of the role "worker": dask-jobqueue writes them into the script unquoted."""
        config: dict[str, Any] = super().get_tls_config_for_role(role)
        if role != "worker":
            return config
        return {key: shlex.quote(value) if isinstance(value, str) else value for key, value in config.items()}


def _security(files: RunFiles) -> Security:
    path = str(files.certificate)
    roles = {f"tls_{role}_{kind}": path for role in ("scheduler", "worker", "client") for kind in ("cert", "key")}
    return _FileSecurity(require_encryption=True, tls_ca_file=path, **roles)
