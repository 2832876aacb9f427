"""Scales the cluster of a run to the requested number of workers, and replaces jobs that ended."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Collection
from typing import Any, Protocol

from distributed import Status
from distributed.deploy import SpecCluster

from ..console import plural
from ..errors import StoppedError
from .batch_system import BATCH_SYSTEMS, RunFiles
from .workers import Worker

_CHECK_SECONDS = 10.0
_RESUBMIT_SECONDS = 300.0
_MAX_FAILED_STARTS = 3


class Reporter(Protocol):
    """Receives messages for the user."""

    def on_wait(self, reason: str) -> None:
        """Reports that the run waits for workers."""

    def warn(self, text: str) -> None:
        """Reports that some workers could not be started."""


class WorkerSupply:
    """Scales `cluster` to one worker per unfinished unit, within `limits` (minimum, maximum); None: never scales it.

    Dask's adaptive scaling counts the tasks of its scheduler, of which a run submits only one per worker.

    `files`: of a run whose jobs facefeed submits, for their logs.
    """

    def __init__(
        self,
        cluster: Any,
        limits: tuple[int, int] | None,
        reporter: Reporter,
        *,
        files: RunFiles | None = None,
    ) -> None:
        self._cluster, self._limits, self._reporter, self._files = cluster, limits, reporter, files
        if limits is not None and isinstance(cluster, SpecCluster) and cluster.new_spec is None:
            raise StoppedError(
                f"--cluster: {type(cluster).__name__} has a fixed set of workers; leave --workers out and run "
                "this again"
            )
        system_name = getattr(getattr(cluster, "job_cls", None), "config_name", None)
        self._batch_system = BATCH_SYSTEMS.get(str(system_name))
        self._seen: set[str] = set()
        self._num_failed_starts = 0
        self._target_workers = -1
        self._check_at = self._submit_at = -math.inf
        self._is_waiting = False

    @property
    def expects_workers(self) -> bool:
        """Whether workers may still join, however long that takes."""
        if self._limits is None:
            return not self._seen
        return not isinstance(self._cluster, SpecCluster) or bool(self._cluster.worker_spec)

    def adjust(self, num_units: int, workers: Collection[Worker], busy: Collection[Worker]) -> None:
        """Starts or stops workers; `num_units`: unfinished units; `busy`: workers that are processing one.

        Raises `StoppedError` where none can be started, or one has several threads.
        """
        if new := [worker for worker in workers if worker.name not in self._seen]:
            self._refuse_threads(new)
            self._seen |= {worker.name for worker in new}
            self._num_failed_starts = 0
        if self._limits is not None:
            minimum, maximum = self._limits
            self._scale(max(minimum, min(maximum, num_units)), workers, busy)
        if not workers and not self._is_waiting:
            self._reporter.on_wait(self._waiting_text())
        self._is_waiting = not workers

    def _waiting_text(self) -> str:
        if self._limits is None:
            return "waiting for the first worker of the cluster"
        wanted = f"{self._limits[0]}..{self._limits[1]}" if len({*self._limits}) == 2 else str(self._limits[0])
        shown = "" if self._batch_system is None else f"; {self._batch_system.list_command[0]} shows the jobs"
        logs = "" if self._files is None else f"; until the run ends, their logs are in {self._files.folder}"
        return f"waiting for workers: 0 of {wanted} started{shown}{logs}"

    def _refuse_threads(self, new: Collection[Worker]) -> None:
        known = self._cluster.scheduler_info["workers"]
        for worker in new:
            if (threads := known.get(worker.address, {}).get("nthreads", 1)) != 1:
                raise StoppedError(
                    f"--cluster: {worker} has {threads} threads; a worker process runs one unit at a time: start the "
                    "cluster's workers with one thread each and run this again"
                )

    def _scale(self, target_workers: int, workers: Collection[Worker], busy: Collection[Worker]) -> None:
        now = time.monotonic()
        if target_workers == self._target_workers and now < self._check_at:
            return
        if isinstance(self._cluster, SpecCluster):
            ended = self._ended_jobs(workers) if now >= self._check_at else set()
            self._count_failed_starts(ended, workers)
            self._scale_jobs(self._num_jobs(target_workers), ended, busy)
        elif target_workers != self._target_workers:
            self._cluster.scale(target_workers)
        self._target_workers, self._check_at = target_workers, now + _CHECK_SECONDS

    def _num_jobs(self, num_workers: int) -> int:
        """Number of jobs that `num_workers` workers need: a job may have several."""
        jobqueue = sys.modules.get("dask_jobqueue.core")
        is_jobqueue = jobqueue is not None and isinstance(self._cluster, jobqueue.JobQueueCluster)
        processes = self._cluster._dummy_job.worker_processes if is_jobqueue else 1  # noqa: SLF001 (nothing else has it)
        return math.ceil(num_workers / processes)

    def _ended_jobs(self, workers: Collection[Worker]) -> set[Any]:
        """Names of submitted jobs that are neither queued nor running; none where these cannot be listed."""
        if self._batch_system is None or (queued := self._batch_system.queued_job_ids()) is None:
            return set()
        ended = {name for name, job in self._cluster.workers.items() if job.job_id and job.job_id not in queued}
        present = {worker.name for worker in workers}  # overrides the list, which may lack a job that has just started
        return {name for name in ended if not _workers_of(name, present)}

    def _count_failed_starts(self, ended: set[str], workers: Collection[Worker]) -> None:
        """Raises `StoppedError` where several jobs in a row ended before any of their workers joined."""
        for name in ended:
            own = _workers_of(name, self._seen)
            self._num_failed_starts += not own
            self._seen -= own  # the name may be used again
        if self._num_failed_starts < _MAX_FAILED_STARTS:
            return
        text = f"{plural(self._num_failed_starts, 'job')} ended before a worker had started{self._reason_in_logs()}"
        if not workers:
            raise StoppedError(f"{text}; all finished units are kept: fix that and run the same command again")
        self._reporter.warn(f"{text}; going on with {plural(len(workers), 'worker')}")
        self._num_failed_starts, self._submit_at = 0, time.monotonic() + _RESUBMIT_SECONDS

    def _reason_in_logs(self) -> str:
        if self._files is None:
            return ""
        if line := self._files.last_log_line():
            return f"; the last line of their logs: {line}"
        return f"; they wrote no log into {self._files.folder}, which all nodes have to see"

    def _scale_jobs(self, num_jobs: int, ended: set[Any], busy: Collection[Worker]) -> None:
        names = ended | self._surplus_jobs(len(self._cluster.worker_spec) - len(ended) - num_jobs, ended, busy)
        error = self._cluster.sync(self._resize, names, num_jobs if time.monotonic() >= self._submit_at else 0)
        if error is None:
            return
        left = len(self._cluster.worker_spec)
        if not left:
            raise StoppedError(
                f"--cluster: no job could be submitted ({error}); all finished units are kept: fix that and run the "
                "same command again"
            )
        self._reporter.warn(f"submitted {left} of {plural(num_jobs, 'job')}; submitting the others failed ({error})")
        self._submit_at = time.monotonic() + _RESUBMIT_SECONDS

    def _surplus_jobs(self, count: int, ended: set[Any], busy: Collection[Worker]) -> set[Any]:
        """Names of up to `count` jobs without busy workers; those that have not started come first."""
        if count <= 0 or self._limits is None or self._limits[0] == self._limits[1]:
            return set()

        busy_names = {worker.name for worker in busy}
        idle = [name for name in self._cluster.worker_spec if name not in ended and not _workers_of(name, busy_names)]
        return set(sorted(idle, key=lambda name: bool(_workers_of(name, self._seen)))[:count])

    async def _resize(self, surplus: set[Any], num_jobs: int) -> str | None:
        """Cancels `surplus` jobs, submits new ones up to `num_jobs`; returns the error of submitting, if any."""
        cluster = self._cluster
        if surplus:
            await cluster.scale_down(surplus)
        # `scale` would submit in the background, where an error is lost.
        while len(cluster.worker_spec) < num_jobs:
            cluster.worker_spec.update(cluster.new_worker_spec())
        try:
            await cluster
        except Exception as error:
            text = _one_line(error)
        else:
            return None
        failed = {name for name, job in cluster.workers.items() if job.status == Status.created}
        for name in failed:
            cluster.workers[name].status = Status.failed
        await cluster.scale_down(failed)
        return text


def _workers_of(job: object, workers: Collection[str]) -> set[str]:
    """Names of those workers that belong to `job`: the job's own name, or that and a number where it has several."""
    return {worker for worker in workers if worker == str(job) or worker.startswith(f"{job}-")}


def _one_line(error: Exception) -> str:
    """Standard error of the submit command, or else the text of the error."""
    text = str(error)
    own = text.partition("stderr:\n")[2].strip() or text
    return "; ".join(line.strip() for line in own.splitlines() if line.strip())
