"""A real Slurm cluster of two nodes on this machine, and training that records its faces.

Recipe of the cluster: munged, slurmctld and two slurmd as this user's own processes, in one folder and on free ports of
127.0.0.1; nothing of the machine's own Slurm is read or changed. Run as a script, this is `python -m <module> ...` with
a recorder of faces added to the training.
"""

from __future__ import annotations

import functools
import getpass
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "srun")
PATIENCE_SECONDS = 240.0
GRACE_SECONDS = 60
ENDS = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}

_CONF = """
ClusterName=onemachine
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldDebug=debug
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobs.txt
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=30
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=spare Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime={grace_seconds} OverSubscribe=EXCLUSIVE
PartitionName=urgent Nodes=ALL PriorityTier=2 PreemptMode=OFF OverSubscribe=EXCLUSIVE
"""
"""cred_expire: how long a job that was requeued waits; Slurm takes no less. Jobs have both nodes to themselves."""


class Slurm:
    """Two nodes, n1 and n2. Jobs in the partition `urgent` preempt those in `spare`, which are requeued."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._folders: dict[str, Path] = {}
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "SRUN"))},
            "SLURM_CONF": str(folder / "slurm.conf"),
            "MASTER_ADDR": "127.0.0.1",  # n1 is a name that nobody else knows
        }

    def run(self, *command: str, **variables: str) -> str:
        """Returns the output of one of Slurm's commands; fails with its errors."""
        completed = subprocess.run(
            command, env={**self.environment, **variables}, capture_output=True, text=True, check=False, timeout=60
        )
        assert completed.returncode == 0, f"{command}: {completed.stderr}"
        return completed.stdout

    def submit(self, script: Path, *options: str, **variables: str) -> str:
        """Queues a script that `facefeed slurm` wrote into the folder where it stands; returns the job's number."""
        number = self.run("sbatch", "--parsable", *options, str(script), **variables).strip()
        self._folders[number] = script.parent
        return number

    def job(self, number: str) -> dict[str, str]:
        """Returns the fields of a job in scontrol."""
        output = self.run("scontrol", "show", "job", "-o", number)
        return dict(word.split("=", 1) for word in output.split() if "=" in word)

    def until(self, met: Callable[[], bool], what: str, job: str | None = None) -> None:
        """Waits until a condition is met; fails after a timeout, or when the job has ended."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not met():
            if time.monotonic() > deadline or (job is not None and self.job(job)["JobState"] in ENDS):
                raise AssertionError(f"{what}\n{self.log(job)}")
            time.sleep(0.1)

    def until_ended(self, number: str) -> dict[str, str]:
        """Waits until a job has ended."""
        self.until(lambda: self.job(number)["JobState"] in ENDS, f"job {number} goes on")
        return self.job(number)

    def log(self, job: str | None) -> str:
        """Returns the log of a job, or of the controller."""
        paths = self._folders[job].glob(f"*-{job}.log") if job else [self.folder / "slurmctld.log"]
        return "".join(path.read_text(errors="replace") for path in paths)

    def history(self) -> str:
        """Returns what the controller did with its jobs, and how each run of them ended."""
        actions = re.compile(r"submit_batch|[Aa]llocate|preempt|[Rr]equeu|_job_complete")
        events = [line for line in self.log(None).splitlines() if actions.search(line) and "JobId" in line]
        ended = (self.folder / "jobs.txt").read_text().splitlines()
        columns = ("JobId", "Name", "JobState", "Partition", "StartTime", "EndTime", "NodeList")
        ends = [" ".join(word for word in line.split() if word.partition("=")[0] in columns) for line in ended]
        return "\n".join(["slurmctld.log", *events, "jobs.txt", *ends])


@contextmanager
def running_slurm() -> Iterator[Slurm]:
    """Starts the cluster; at the end stops it with all its jobs."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # short: a socket's path has 107 characters
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        slurm = Slurm(folder)
        _configure(folder)
        stack.enter_context(_daemon(slurm, "munged", "--foreground", "--force", *_munge_files(folder)))
        slurm.until((folder / "munge.socket").exists, "munged does not start")
        stack.enter_context(_daemon(slurm, "slurmctld", "-D"))
        for node in ("n1", "n2"):
            stack.enter_context(_daemon(slurm, "slurmd", "-D", "-N", node))
        slurm.until(lambda: _idle_nodes(slurm) == 2, "the nodes do not come up")
        stack.callback(_cancel_all, slurm)
        yield slurm


def _configure(folder: Path) -> None:
    (folder / "state").mkdir()
    (folder / "munge.key").touch(mode=0o600)
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    text = _CONF.format(
        folder=folder, user=getpass.getuser(), host=socket.gethostname().partition(".")[0], ports=_free_ports(3),
        grace_seconds=GRACE_SECONDS,
    )  # fmt: skip
    (folder / "slurm.conf").write_text(text)


def _munge_files(folder: Path) -> list[str]:
    kinds = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "log-file": "munged.log"}
    return [f"--{option}={folder / name}" for option, name in {**kinds, "seed-file": "munged.seed"}.items()]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]


@contextmanager
def _daemon(slurm: Slurm, *command: str) -> Iterator[None]:
    with (slurm.folder / f"{command[0]}.out").open("ab") as out:
        process = subprocess.Popen(command, env=slurm.environment, stdout=out, stderr=out, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _idle_nodes(slurm: Slurm) -> int:
    completed = subprocess.run(
        ["sinfo", "-h", "-N", "-p", "spare", "-o", "%T"], env=slurm.environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return completed.stdout.split().count("idle")


def _cancel_all(slurm: Slurm) -> None:
    """Cancels jobs left behind by a failed test, so that no process outlives the cluster."""
    slurm.run("scancel", "--user", getpass.getuser())
    slurm.run("scancel", "--user", getpass.getuser(), "--signal=KILL", "--full")
    slurm.until(lambda: not slurm.run("squeue", "-h"), "jobs do not end")


class FaceRecorder:
    """Records the faces of every step in RANK.jsonl; in one step of the job's first run, waits for a signal."""

    def __init__(self, folder: Path, *, wait_at: int | None) -> None:
        self._folder, self._wait_at = folder, wait_at
        self._run_number = int(os.environ.get("SLURM_RESTART_COUNT", "0"))

    def callback(self) -> Any:
        """Returns a callback for a Trainer."""
        from lightning.pytorch import Callback  # noqa: PLC0415

        return type("RecordFaces", (Callback,), {"on_train_batch_end": self._record})()

    def _record(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        line = json.dumps({"step": trainer.global_step, "life": self._run_number, "faces": batch["face_id"]})
        with (self._folder / f"{trainer.global_rank}.jsonl").open("a") as file:
            file.write(line + "\n")
        if not self._run_number and trainer.global_step == self._wait_at:
            _wait_for_signal()

    @staticmethod
    def read(folder: Path, rank: int) -> list[dict[str, Any]]:
        """Returns the records of one rank, over all runs of the job."""
        path = folder / f"{rank}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _wait_for_signal() -> None:
    """Waits until SIGTERM or SIGUSR1 has been received and handled."""
    received = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        before[number](number, frame)
        received.set()

    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    for number in before:
        signal.signal(number, note)
    assert received.wait(PATIENCE_SECONDS)
    for number, handler in before.items():
        signal.signal(number, handler)


def main() -> None:
    """Runs `python -m facefeed.pipeline train ...` with the recorder."""
    import torch  # noqa: PLC0415
    from facefeed.pipeline import cli  # noqa: PLC0415
    from facefeed.train.run import runner  # noqa: PLC0415

    torch.set_num_threads(1)
    folder, wait_at = os.environ.get("ONLOOKER_FOLDER"), os.environ.get("ONLOOKER_WAITS_AT")
    recorder = FaceRecorder(Path(folder or "."), wait_at=int(wait_at) if wait_at else None)
    runner.train = functools.partial(runner.train, callbacks=[recorder.callback()])
    del sys.argv[1:3]
    cli.main()


if __name__ == "__main__":
    main()
