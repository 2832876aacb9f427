"""The Dask task that runs a unit, and the plugin that installs a `UnitWorker` in each worker process."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import cv2
from distributed import Client, WorkerPlugin, get_worker

from ..dataset.manifest import InputOutcome, Receipt
from ..dataset.stores.remote_files import UnusableStoreError
from ..dataset.stores.writing import StoreFiles
from ..errors import StoppedError
from ..planning.job_share import JobShare
from ..planning.options import JobSpec
from ..planning.plan import Unit
from .capacity import decoders_per_worker, visible_gpus
from .cluster import local_client, remote_client, stop_on_cluster_error
from .unit_worker import UnitWorker


@contextmanager
def start_unit_workers(
    job: JobSpec, num_workers: int, scheduler: str | None, job_share: JobShare | None = None
) -> Iterator[tuple[Client, str]]:
    """Starts `num_workers` local workers or joins the cluster at `scheduler`; yields its client and the plugin's name.

    `job_share`: the share of the units that they process, None for all; parts of a job may have one cluster.

    Raises `StoppedError` where the cluster fails, also within the block.
    """
    with (
        stop_on_cluster_error(),
        local_client(num_workers) if scheduler is None else remote_client(scheduler) as client,
        install_unit_workers(client, job, visible_gpus(), local=scheduler is None, job_share=job_share) as plugin,
    ):
        yield client, plugin


@contextmanager
def install_unit_workers(
    client: Client, job: JobSpec, gpus: list[str], *, local: bool, job_share: JobShare | None = None
) -> Iterator[str]:
    """Installs a `UnitWorker` for `job` in every worker, also in those that join later; yields the plugin's name.

    `gpus`: this machine's, assigned to `local` workers only; others keep the devices they were started with.
    """
    plugin = UnitWorkerPlugin(
        job, gpus, num_local_workers=len(client.nthreads()) if local else None, job_share=job_share
    )
    try:
        with suppress(ValueError):  # ValueError: there is none; a killed driver of this OUT may have left one
            client.unregister_worker_plugin(plugin.name)
        client.register_plugin(plugin)
        yield plugin.name
    finally:
        with suppress(Exception):  # the cluster may be what has failed
            client.unregister_worker_plugin(plugin.name)


class UnitWorkerPlugin(WorkerPlugin):  # type: ignore[misc]  # distributed is untyped
    """A Dask plugin that creates each worker's `UnitWorker` before its first unit: a broken setup fails at once.

    `num_local_workers`: the number of workers, if the driver started them on this machine; else None.
    """

    def __init__(
        self, job: JobSpec, gpus: list[str], *, num_local_workers: int | None, job_share: JobShare | None
    ) -> None:
        self.job, self.gpus, self.num_local_workers = job, gpus, num_local_workers
        # A shared cluster may run several jobs, but only one per OUT, or one of each of its parts.
        self.name = f"facefeed-{hashlib.sha256(f'{job.paths.place} {job_share}'.encode()).hexdigest()[:16]}"
        self.unit_worker: UnitWorker | None = None
        self.lock: threading.Lock | None = None
        self.stack: ExitStack | None = None
        self.setup_error: UnitError | None = None

    def setup(self, worker: Any) -> None:
        """Called by Dask on each worker, also on those that join or restart later.

        Dask reports an error of those that are there; of later ones it drops it, so that each unit raises it instead.
        """
        try:
            self._set_up(worker, ExitStack())
        except Exception as error:
            self.setup_error = UnitError(worker.address, type(error).__name__, _one_line(error))
            raise

    def _set_up(self, worker: Any, stack: ExitStack) -> None:
        self.stack = stack
        for folder in self.job.shared_folders:
            if not folder.is_dir():
                raise StoppedError(
                    f"{folder}: does not exist on {worker.address}; all workers must see SRC and OUT alike"
                )
        if isinstance(self.job.out_files, StoreFiles):
            paths = stack.enter_context(self.job.out_files.copied_anew())
            self.job = replace(self.job, out=paths.root, out_files=paths.files)
        if self.num_local_workers is not None and self.gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.gpus[int(worker.name) % len(self.gpus)]
        # OpenCV's thread pool would compete for the cores with the detector's, which OMP_NUM_THREADS bounds.
        cv2.setNumThreads(1)
        load = getattr(self.job.detector, "load", None)
        if load is not None:
            load()
        if (torch := sys.modules.get("torch")) is not None:
            torch.backends.cudnn.allow_tf32 = False  # the default, which would move a GPU's boxes by tenths of a pixel
        self.unit_worker = UnitWorker(self.job, decoders=decoders_per_worker(self.num_local_workers))
        self.lock = threading.Lock()

    def teardown(self, worker: Any) -> None:  # noqa: ARG002
        """Called by Dask as the worker ends: ends its decoder processes."""
        if self.unit_worker is not None:
            self.unit_worker.close()
        if self.stack is not None:
            self.stack.close()


class UnitError(Exception):
    """A unit failed on a worker by no input's fault; holds plain text only, so that it can always be pickled.

    `worker`: its address. `kind`: the name of the exception's type.
    """

    def __init__(self, worker: str, kind: str, text: str) -> None:
        super().__init__(worker, kind, text)
        self.worker, self.kind, self.text = worker, kind, text

    def __str__(self) -> str:
        return self.text


class RefusedWorkerError(UnitError):
    """A unit failed since the store of OUT refuses its worker, as one without credentials: no input is at fault."""


@contextmanager
def locked_unit_worker(plugin_name: str) -> Iterator[UnitWorker]:
    """Yields the process's `UnitWorker` to one task at a time, even on a Dask worker with several threads.

    Raises `UnitError` where there is none, since it could not be made on this worker.
    """
    plugin: UnitWorkerPlugin = get_worker().plugins[plugin_name]
    if plugin.setup_error is not None:
        raise plugin.setup_error
    assert plugin.unit_worker is not None
    assert plugin.lock is not None
    with plugin.lock:
        yield plugin.unit_worker


class UnitResult(NamedTuple):
    """What a task returns: the unit's receipt as it is on disk.

    `work`: "done" here; "adopted": another attempt had published the unit; "in_vain": it did so while inputs were
    decoded here.
    """

    receipt: Receipt
    work: Literal["done", "adopted", "in_vain"] = "done"


def run_unit(unit: Unit, plugin_name: str) -> UnitResult:
    """The Dask task: runs `unit` on this worker's `UnitWorker` and logs an event for each input, under `plugin_name`.

    Raises `StoppedError` where the whole run must stop, `UnitError` for any other error, and of these
    `RefusedWorkerError` where the store refuses this worker: another one may have credentials.
    """
    worker, decoded = get_worker(), list[InputOutcome]()

    def log_outcome(outcome: InputOutcome) -> None:
        decoded.append(outcome)
        message = {"unit": unit.unit_id, "frames": outcome.frames_decoded, "faces": outcome.faces}
        worker.log_event(plugin_name, message)

    try:
        with locked_unit_worker(plugin_name) as unit_worker:
            receipt = unit_worker.run(unit, log_outcome)
        recorded = [outcome for outcome in receipt.inputs if not outcome.reused]
        return UnitResult(receipt, "done" if decoded == recorded else "in_vain" if decoded else "adopted")
    except (StoppedError, UnitError):
        raise
    except UnusableStoreError as error:
        text = f"host {socket.gethostname()}: {error}"
        raise RefusedWorkerError(worker.address, type(error).__name__, text) from None
    except Exception as error:
        raise UnitError(worker.address, type(error).__name__, _one_line(error)) from None


def _one_line(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {first} ({Path(last.filename).name}, line {last.lineno})"
