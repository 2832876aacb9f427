"""Runs the units of a job on workers of this machine, of a cluster that is started for it, or of a running one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from ..console import plural
from ..planning.job_share import JobShare
from ..planning.options import JobSpec
from ..planning.plan import Unit
from .batch_system import job_description, start_cluster
from .capacity import default_num_workers
from .cluster import encryption_warning, stop_on_cluster_error
from .progress import Progress
from .unit_scheduler import UnitScheduler
from .unit_task import install_unit_workers, start_unit_workers
from .worker_supply import WorkerSupply
from .workers import WorkerPool


def run_units(
    job: JobSpec,
    units: Iterable[Unit],
    *,
    finished: int,
    workers: int | tuple[int, int] | None,
    scheduler: str | None,
    cluster: str | Callable[[], Any] | None,
    job_share: JobShare | None,
    progress: Progress,
) -> None:
    """Runs `units`; `finished`: number of units that earlier runs have finished. The others: see `precompute`.

    Raises `StoppedError` where the cluster, the disk or nearly every unit fails.
    """
    supply = None
    with ExitStack() as stack:
        if cluster is not None:
            if isinstance(cluster, str):
                progress.announce(f"starting workers as jobs of {cluster}: {job_description(cluster)}")
            stack.enter_context(stop_on_cluster_error())
            folder = None if job.out_files.is_remote else job.paths.temporary
            client, files = stack.enter_context(start_cluster(cluster, folder))
            plugin = stack.enter_context(install_unit_workers(client, job, [], local=False))
            limits = (workers, workers) if isinstance(workers, int) else workers
            supply = WorkerSupply(client.cluster, limits, progress, files=files)
        else:
            assert not isinstance(workers, tuple)
            count = workers or default_num_workers()
            progress.announce(f"starting {plural(count, 'worker')}" if scheduler is None else f"joining {scheduler}")
            client, plugin = stack.enter_context(start_unit_workers(job, count, scheduler, job_share))
        stack.enter_context(progress)
        client.subscribe_topic(plugin, progress.on_event)
        if scheduler is not None:
            progress.dashboard = client.dashboard_link
            progress.announce(f"dashboard: {client.dashboard_link}")
        if (warning := encryption_warning(client, scheduler)) is not None:
            progress.warn(warning)
        UnitScheduler(WorkerPool(client, plugin), job, progress, finished=finished, supply=supply).run(units)
