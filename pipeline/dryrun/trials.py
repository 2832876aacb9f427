"""Runs trials: probes a few families of inputs on the job's workers and measures the hosts' load."""

from __future__ import annotations

import hashlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from distributed import Client, Future, KilledWorker, as_completed, wait

from ..commit.publish import make_folders
from ..errors import StoppedError
from ..execution.unit_task import locked_unit_worker, start_unit_workers
from ..planning.failure_limit import Failure
from ..planning.options import JobSpec
from ..planning.plan import Unit
from ..planning.recorded import dry_run_prefix
from ..sources import Entry
from .machine_load import BackgroundLoad, background_load, read_host_load
from .probe import Probe, first_frame_seconds, probe_family

TOTAL_TRIAL_SECONDS = 45.0
"""No further family is started after this time."""
_TRIAL_SECONDS = 4.0  # of one input
_FAKES_PER_FAMILY = 2
_MIN_FAMILIES_PER_WORKER = 2  # so that each worker measures more than its start
_FIRST_FRAME_FAMILIES = 3  # of which one gives a worker its first frame


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What was tried on that number of `workers`: `families` of probes, and `lost`, inputs of families that gave none.

    `fixed_seconds`: starting the workers, each one's first frame, and ending them.
    """

    families: Sequence[Sequence[Probe]] = ()
    lost: Sequence[Failure] = ()
    workers: int = 0
    fixed_seconds: float = 0.0
    background: BackgroundLoad = field(default_factory=BackgroundLoad)

    @property
    def probes(self) -> list[Probe]:
        """Those of all families."""
        return [probe for family in self.families for probe in family]

    def failures(self) -> list[Failure]:
        """The inputs that failed, by name."""
        failed = [Failure(probe.video_id, probe.reason, probe.detail) for probe in self.probes if probe.reason]
        return sorted([*failed, *self.lost])


def sample_families(units: Sequence[Unit]) -> list[list[Entry]]:
    """Selects source videos with some of their fakes, shuffled by a hash of their names."""
    families: dict[tuple[str, str], list[Entry]] = {}
    for unit in units:
        for entry in unit.inputs_to_decode:
            families.setdefault((unit.unit_id, entry.source_id or entry.video_id), []).append(entry)
    shuffled = sorted(families, key=lambda key: hashlib.sha256("/".join(key).encode()).digest())
    return [_select_members(families[key]) for key in shuffled]


def _select_members(family: Sequence[Entry]) -> list[Entry]:
    originals = [entry for entry in family if entry.source_id is None]
    fakes = [entry for entry in family if entry.source_id is not None]
    return originals[:1] + fakes[:_FAKES_PER_FAMILY]


def try_families(job: JobSpec, families: Sequence[Sequence[Entry]], workers: int, scheduler: str | None) -> Trials:
    """Tries families (at least one) for about `TOTAL_TRIAL_SECONDS`; raises `StoppedError` if the cluster fails."""
    with _scratch(job, scheduler) as scratch:
        began = loads_at = time.monotonic()
        loads = [read_host_load()]
        with start_unit_workers(scratch, workers, scheduler) as (client, plugin):
            num_workers = len(client.nthreads())
            ready = time.monotonic()
            if scheduler is not None:  # other machines, and workers that started earlier
                loads, loads_at = list(client.run(read_host_load).values()), ready
            first_seconds = _measure_first_frames(client, plugin, families)
            probed, lost = _probe_families(client, plugin, families, num_workers)
            done = time.monotonic()
            background = background_load(loads, list(client.run(read_host_load).values()), done - loads_at)
        return Trials(
            families=probed, lost=lost, workers=num_workers, background=background,
            fixed_seconds=ready - began + first_seconds + time.monotonic() - done,
        )  # fmt: skip


def _measure_first_frames(client: Client, plugin: str, families: Sequence[Sequence[Entry]]) -> float:
    """Has every worker process its first frame, before trials are timed; returns its mean extra seconds."""
    workers = list(client.nthreads())
    futures = [
        client.submit(
            run_on_pipeline, plugin, first_frame_seconds,
            list(families[number % len(families) :: len(workers)][:_FIRST_FRAME_FAMILIES]),
            workers=[worker], allow_other_workers=True, pure=False, retries=0,
        )
        for number, worker in enumerate(workers)
    ]  # fmt: skip
    wait(futures)
    seconds = [future.result() for future in futures if not _is_lost(future)]
    return statistics.fmean(seconds) if seconds else 0.0


def _probe_families(
    client: Client, plugin: str, families: Sequence[Sequence[Entry]], num_workers: int
) -> tuple[list[list[Probe]], list[Failure]]:
    """Probes families until time is up, with all workers busy; returns probes, and inputs of families without one."""
    began = time.monotonic()
    waiting = iter(families)
    running = as_completed([], with_results=False)
    family_of: dict[Future, Sequence[Entry]] = {}
    probed: list[list[Probe]] = []
    lost: list[Failure] = []

    def submit(count: int) -> None:
        for family in islice(waiting, count):
            future = client.submit(
                run_on_pipeline, plugin, probe_family, list(family), _TRIAL_SECONDS, pure=False, retries=0
            )
            family_of[future] = family
            running.add(future)

    submit(num_workers * _MIN_FAMILIES_PER_WORKER)
    for future in running:
        family = family_of.pop(future)
        if _is_lost(future):
            error = future.exception()
            why = "took its worker down" if isinstance(error, KilledWorker) else f"{type(error).__name__}: {error}"
            lost += [Failure(entry.video_id, "crashed", why) for entry in family]
        else:
            probed.append(future.result())
        future.release()
        if time.monotonic() - began < TOTAL_TRIAL_SECONDS:
            submit(1)
    return probed, lost


def _is_lost(future: Future) -> bool:
    """Whether the family crashed its worker or met a bug, which the run deals with; raises `StoppedError`."""
    if future.status == "finished":
        return False
    if isinstance(error := future.exception(), StoppedError):
        raise error
    return True


def run_on_pipeline(plugin_name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """The Dask task: `function(pipeline, *arguments)` with the `InputPipeline` of the plugin of that name."""
    with locked_unit_worker(plugin_name) as worker:
        return function(worker.pipeline, *arguments)


@contextmanager
def _scratch(job: JobSpec, scheduler: str | None) -> Iterator[JobSpec]:
    """The job with a temporary OUT, on the disk of the real one where that is possible: it may hold whole videos."""
    parent = job.out if job.out_files.is_remote else _folder_for(job.out, scheduler)
    with tempfile.TemporaryDirectory(dir=parent, prefix=dry_run_prefix(job.out)) as folder:
        scratch = replace(job, out=Path(folder).resolve())  # no unit is published
        make_folders(scratch.paths)
        yield scratch


def _folder_for(out: Path, scheduler: str | None) -> Path | None:
    """The folder that OUT lies in.

    Where that may not be written to, as of a mounted volume: OUT, if a cluster's workers must see it, else None, for
    the temporary files of this machine.
    """
    parent = next(folder for folder in out.parents if folder.is_dir())
    if os.access(parent, os.W_OK) or not out.is_dir():
        return parent
    return None if scheduler is None else out
