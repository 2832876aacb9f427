"""The Dask cluster: starts a local one or joins a running one, and installs a `UnitWorker` in each worker process."""

from __future__ import annotations

import gc
import hashlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import cv2
import dask
from distributed import Client, LocalCluster, WorkerPlugin, get_worker

from ..dataset.manifest import InputOutcome, Receipt
from ..errors import FacefeedError, StoppedError
from ..machine import ROOT, memory_bytes, usable_cores
from ..planning.options import JobSpec
from ..planning.plan import Unit
from .unit_worker import UnitWorker

_WORKER_MEMORY_BYTES = 2 << 30  # torch, MTCNN and the decoder process, with a margin
_MAX_DECODERS = 8  # each with a source-frame cache and frames of three stages: 300 MB in the worst case
_CONNECT_SECONDS = 10.0
_JOIN_SECONDS = 60.0

# Silenced in the driver and its own workers: cluster failures reach the user as one message of ours.
_DASK_LOGGERS = (
    "asyncio",
    "bokeh",
    "distributed",
    "distributed.client",
    "tornado",
    "tornado.application",
    "tornado.general",
)

_DASK_CONFIG = {
    # Dask must not retry a unit whose worker dies: the driver halves it to find the input at fault.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.work-stealing": False,
    # No task returns large results, so there is nothing to spill; growing memory is a leak or a hostile file.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,  # a worker that waits for memory it holds itself would wait for ever
    "distributed.worker.memory.terminate": 0.95,
    "distributed.worker.multiprocessing-method": "spawn",
    # The scheduler's record of finished tasks takes the driver's memory: keep it short.
    "distributed.admin.log-length": 100,
    "distributed.admin.low-level-log-length": 100,
    "distributed.diagnostics.computations.max-history": 1,
    "distributed.comm.timeouts.connect": "60s",
    # By default a local cluster drops a worker that is not back after 15 s; loading its detector may take longer.
    "distributed.deploy.lost-worker-timeout": "10 minutes",
}


def visible_gpus() -> list[str]:
    """Names of the GPUs that workers may use, one worker each; without torch, which the driver need not import."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.isdigit() or name.startswith(("GPU-", "MIG-"))]
    return _machine_gpus()


def _machine_gpus() -> list[str]:
    return [path.name.removeprefix("nvidia") for path in sorted(Path("/dev").glob("nvidia[0-9]*"))]


def decoders_per_worker(workers_here: int | None, root: Path = ROOT) -> int:
    """Number of decoder processes for one worker: 1 without a GPU, else its share of the cores, at most 8.

    A GPU detects faces faster than one core decodes frames.
    `workers_here`: workers that share this machine's cores; None: unknown, taken as one per GPU.
    """
    if not visible_gpus():
        return 1
    cores = usable_cores(root)
    if workers_here is None:
        # A job that is limited to a part of the machine's cores shares them among its own GPUs only.
        has_all = cores >= (os.cpu_count() or 1)
        workers_here = max(len(_machine_gpus() if has_all else visible_gpus()), 1)
    return min(max(cores // workers_here, 1), _MAX_DECODERS)


def default_num_workers(root: Path = ROOT) -> int:
    """Number of workers: one per GPU or, without GPUs, one per core as far as memory allows."""
    return len(visible_gpus()) or max(1, min(usable_cores(root), memory_bytes(root) // _WORKER_MEMORY_BYTES))


@contextmanager
def local_client(num_workers: int) -> Iterator[Client]:
    """Starts a Dask cluster on this machine, bound to 127.0.0.1, with one single-threaded process per worker."""
    with dask.config.set(_DASK_CONFIG), _silenced_dask_loggers():
        _collect_garbage()
        threads = max(1, usable_cores() // num_workers)
        environment = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        cluster = None
        try:
            with dask.config.set({"distributed.nanny.pre-spawn-environ": environment}), _defer_interrupts():
                cluster = LocalCluster(
                    n_workers=num_workers,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    memory_limit=memory_bytes() // num_workers,
                )
            with Client(cluster) as client:
                yield client
        finally:
            if cluster is not None:
                # Late, on a machine that is busy, is no failure: the work is done, and workers end with their driver.
                with suppress(TimeoutError):
                    cluster.close(timeout=10)


def _collect_garbage() -> None:
    """Collects garbage now, not on Dask's thread, which must start within 10 s: a loader ends its workers then."""
    gc.collect()


def _silence_dask_loggers() -> None:
    for name in _DASK_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def _silenced_dask_loggers() -> Iterator[None]:
    """Silences Dask's loggers for the block; `distributed` configures them when it is imported, so by hand."""
    before = {name: logging.getLogger(name).level for name in _DASK_LOGGERS}
    _silence_dask_loggers()
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def stop_on_cluster_error() -> Iterator[None]:
    """Converts any error of the cluster to a resumable `StoppedError` that names the cause."""
    try:
        yield
    except FacefeedError:
        raise
    except Exception as error:
        if "Nanny failed to start" in str(error):
            raise StoppedError(
                "the worker processes ended as they started; a script of your own must call precompute below "
                "`if __name__ == '__main__':`, since they import it"
            ) from None
        raise StoppedError(
            f"the cluster failed ({type(error).__name__}: {error}); all finished units are kept; "
            "fix that and run the same command again"
        ) from error


def exit_if_imported_by_worker() -> None:
    """Ends a worker process that, as it starts, imports and runs the driver's script without a `__main__` guard.

    Silently: the driver reports it once.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        sys.exit(1)


@contextmanager
def _defer_interrupts() -> Iterator[None]:
    """Defers SIGINT, SIGTERM and SIGHUP until the cluster is up and can be shut down in order.

    Ctrl-C reaches the whole process group, but only the driver handles it: the worker processes, and the thread that
    restarts them, inherit a blocked SIGINT. Signals to the driver are recorded and raise `KeyboardInterrupt` later.
    """
    received: list[int] = []
    resource_tracker.ensure_running()  # started later, by the thread that starts processes, it would unblock SIGINT
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    handlers: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handlers[name] = signal.signal(name, lambda number, _: received.append(number))
    try:
        yield
    except Exception:
        if received:  # the workers received it too, and could not start
            raise KeyboardInterrupt from None
        raise
    finally:
        for name, handler in handlers.items():
            signal.signal(name, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
    if received:
        raise KeyboardInterrupt


@contextmanager
def remote_client(address: str) -> Iterator[Client]:
    """Joins a running cluster; its workers need facefeed installed, and SRC and OUT under the same paths."""
    with dask.config.set(_DASK_CONFIG), _silenced_dask_loggers():
        _collect_garbage()
        try:
            client = Client(address, timeout=_CONNECT_SECONDS)
        except (OSError, TimeoutError, ValueError) as error:
            raise StoppedError(f"--scheduler {address}: cannot be reached ({error}); is it running there?") from error
        with client:
            try:
                client.wait_for_workers(1, timeout=_JOIN_SECONDS)
            except TimeoutError as error:
                raise StoppedError(
                    f"--scheduler {address}: has no worker; start `dask worker {address}` and run this again"
                ) from error
            if multithreaded := sorted(address for address, threads in client.nthreads().items() if threads != 1):
                raise StoppedError(
                    f"--scheduler {address}: {len(multithreaded)} workers have several threads ({multithreaded[0]}); "
                    "a slot is a process: start them with --nthreads 1, one per core or GPU, and run this again"
                )
            before = client.run_on_scheduler(_set_allowed_failures, allowed=0)
            try:
                yield client
            finally:
                with suppress(Exception):  # the scheduler may be what has failed
                    client.run_on_scheduler(_set_allowed_failures, allowed=before)


def _set_allowed_failures(allowed: int, dask_scheduler: Any = None) -> int:
    before: int = dask_scheduler.allowed_failures
    dask_scheduler.allowed_failures = allowed
    return before


@contextmanager
def install_unit_workers(client: Client, job: JobSpec, gpus: list[str], *, local: bool) -> Iterator[str]:
    """Installs a `UnitWorker` for `job` in every worker, also in those that join later; yields the plugin's name.

    `gpus`: this machine's, assigned to `local` workers only; others keep the devices they were started with.
    """
    plugin = UnitWorkerPlugin(job, gpus, num_local_workers=len(client.nthreads()) if local else None)
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

    def __init__(self, job: JobSpec, gpus: list[str], *, num_local_workers: int | None) -> None:
        self.job, self.gpus, self.num_local_workers = job, gpus, num_local_workers
        # A shared cluster may run several jobs, but only one per OUT.
        self.name = f"facefeed-{hashlib.sha256(str(job.out).encode()).hexdigest()[:16]}"
        self.unit_worker: UnitWorker | None = None
        self.lock: threading.Lock | None = None

    def setup(self, worker: Any) -> None:
        """Called by Dask on each worker, also on those that join or restart later."""
        for folder in (*self.job.roots, self.job.paths.plan):
            if not folder.is_dir():
                raise StoppedError(
                    f"{folder}: is not there on {worker.address}; all workers must see SRC and OUT alike"
                )
        if self.num_local_workers is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
            _silence_dask_loggers()
            if self.gpus:
                os.environ["CUDA_VISIBLE_DEVICES"] = self.gpus[int(worker.name) % len(self.gpus)]
        cv2.setNumThreads(1)  # its thread pool would compete for the cores with torch's, which OMP_NUM_THREADS bounds
        load = getattr(self.job.detector, "load", None)
        if load is not None:
            load()
        self.unit_worker = UnitWorker(self.job, decoders=decoders_per_worker(self.num_local_workers))
        self.lock = threading.Lock()

    def teardown(self, worker: Any) -> None:  # noqa: ARG002
        """Called by Dask as the worker ends: ends its decoder processes."""
        if self.unit_worker is not None:
            self.unit_worker.close()


class UnitError(Exception):
    """A unit failed on a worker by no input's fault; holds plain text only, so that it can always be pickled.

    `worker`: its address. `kind`: the name of the exception's type.
    """

    def __init__(self, worker: str, kind: str, text: str) -> None:
        super().__init__(worker, kind, text)
        self.worker, self.kind, self.text = worker, kind, text

    def __str__(self) -> str:
        return self.text


def run_unit(unit: Unit, plugin_name: str) -> Receipt:
    """The Dask task: runs `unit` on this worker's `UnitWorker` and logs an event for each input, under `plugin_name`.

    Raises `StoppedError` where the whole run must stop, `UnitError` for any other error.
    """
    worker = get_worker()

    def log_outcome(outcome: InputOutcome) -> None:
        message = {"unit": unit.unit_id, "frames": outcome.frames_decoded, "faces": outcome.faces}
        worker.log_event(plugin_name, message)

    try:
        plugin: UnitWorkerPlugin = worker.plugins[plugin_name]
        assert plugin.unit_worker is not None
        assert plugin.lock is not None
        with plugin.lock:  # a Dask worker with several threads still runs one unit at a time
            return plugin.unit_worker.run(unit, log_outcome)
    except StoppedError:
        raise
    except Exception as error:
        raise UnitError(worker.address, type(error).__name__, _one_line(error)) from None


def _one_line(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {first} ({Path(last.filename).name}, line {last.lineno})"
