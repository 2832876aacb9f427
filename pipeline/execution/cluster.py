"""The Dask side: a cluster of single-slot workers, each holding one `UnitWorker`, and how to get and tune one."""

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

_SLOT_BYTES = 2 << 30  # torch, MTCNN and the decoder's child, with room
_MOST_DECODERS = 8  # each with an original in hand and frames of three stages: 300 MB in the worst case
_CONNECT_SECONDS = 10.0
_JOIN_SECONDS = 60.0

# What goes wrong on a cluster reaches the user as one sentence of ours, from the driver and its own workers.
_TALKERS = (
    "asyncio",
    "bokeh",
    "distributed",
    "distributed.client",
    "tornado",
    "tornado.application",
    "tornado.general",
)

_CONFIG = {
    # A unit whose worker dies is not tried again by Dask: the driver halves it to find the culprit.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.work-stealing": False,
    # Nothing here holds results, so there is nothing to spill; what grows is a leak or a hostile file.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,  # a slot that waits for memory it holds itself would wait for ever
    "distributed.worker.memory.terminate": 0.95,
    "distributed.worker.multiprocessing-method": "spawn",
    # What the scheduler remembers of finished tasks is memory of the driver: keep it short.
    "distributed.admin.log-length": 100,
    "distributed.admin.low-level-log-length": 100,
    "distributed.diagnostics.computations.max-history": 1,
    "distributed.comm.timeouts.connect": "60s",
    # A local cluster gives up a worker whose new process is not there after 15 s: its detector may take longer.
    "distributed.deploy.lost-worker-timeout": "10 minutes",
}


def visible_gpus() -> list[str]:
    """The GPUs that slots may use, one slot each; torch is not asked, since the driver need not load it."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.isdigit() or name.startswith(("GPU-", "MIG-"))]
    return _gpus_of_machine()


def _gpus_of_machine() -> list[str]:
    return [path.name.removeprefix("nvidia") for path in sorted(Path("/dev").glob("nvidia[0-9]*"))]


def decoders_of_slot(slots_here: int | None, root: Path = ROOT) -> int:
    """How many decoders feed this process's slot: one where a slot is a core.

    Where it is a GPU, as many as it has cores, at most 8: a GPU looks at frames faster than one core decodes them.
    `slots_here`: how many slots share the cores; None where that is not known: then it is taken for one a GPU.
    """
    if not visible_gpus():
        return 1
    cores = usable_cores(root)
    if slots_here is None:
        # A job that was given a part of the machine's cores has them for its own GPUs alone.
        has_all = cores >= (os.cpu_count() or 1)
        slots_here = max(len(_gpus_of_machine() if has_all else visible_gpus()), 1)
    return min(max(cores // slots_here, 1), _MOST_DECODERS)


def default_slots(root: Path = ROOT) -> int:
    """One slot per GPU; without one, a slot per core as far as memory goes."""
    return len(visible_gpus()) or max(1, min(usable_cores(root), memory_bytes(root) // _SLOT_BYTES))


@contextmanager
def local_client(slots: int) -> Iterator[Client]:
    """A cluster on this machine, bound to 127.0.0.1, one process a slot."""
    with dask.config.set(_CONFIG), _quiet():
        _collect_garbage()
        threads = max(1, usable_cores() // slots)
        environment = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        cluster = None
        try:
            with dask.config.set({"distributed.nanny.pre-spawn-environ": environment}), _interrupts_held():
                cluster = LocalCluster(
                    n_workers=slots,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    memory_limit=memory_bytes() // slots,
                )
            with Client(cluster) as client:
                yield client
        finally:
            if cluster is not None:
                cluster.close(timeout=10)


def _collect_garbage() -> None:
    """Else Dask's thread, which must start within 10 s, may be the one that collects it: a loader ends its workers."""
    gc.collect()


def _turn_down() -> None:
    for name in _TALKERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def _quiet() -> Iterator[None]:
    """Distributed sets its loggers up when it is imported, so in this process they are turned down by hand."""
    before = {name: logging.getLogger(name).level for name in _TALKERS}
    _turn_down()
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def failures_as_stops() -> Iterator[None]:
    """What Dask throws when a cluster cannot start, be set up or go on is a stop with its reason, and no trace."""
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


def end_if_imported_by_worker() -> None:
    """Ends a process without a word that is started for a worker and, on its way, runs the driver's unguarded script.

    The driver reports it, once.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        sys.exit(1)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Puts off what would stop the driver until the cluster stands, and can be taken down in order.

    Ctrl-C reaches the whole process group, but is the driver's to answer: processes (and the thread that will
    restart them) inherit that it is blocked. A request to end that only the driver gets is noted.
    """
    noted: list[int] = []
    resource_tracker.ensure_running()  # started later, by the thread that starts processes, it would lift the block
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    handlers: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handlers[name] = signal.signal(name, lambda number, _: noted.append(number))
    try:
        yield
    except Exception:
        if noted:  # the workers got it too, and could not start
            raise KeyboardInterrupt from None
        raise
    finally:
        for name, handler in handlers.items():
            signal.signal(name, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
    if noted:
        raise KeyboardInterrupt


@contextmanager
def remote_client(address: str) -> Iterator[Client]:
    """Joins a running cluster; its workers must see SRC and OUT under the same paths, and have facefeed."""
    with dask.config.set(_CONFIG), _quiet():
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
            if wide := sorted(address for address, threads in client.nthreads().items() if threads != 1):
                raise StoppedError(
                    f"--scheduler {address}: {len(wide)} workers have several threads ({wide[0]}); "
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
def slots(client: Client, job: JobSpec, gpus: list[str], *, local: bool) -> Iterator[str]:
    """Gives every worker, also those that join later, a slot for `job`; yields the plugin's name.

    `gpus` are this machine's, dealt out to `local` workers alone: others keep the devices they were started with.
    """
    plugin = SlotPlugin(job, gpus, local_slots=len(client.nthreads()) if local else None)
    try:
        with suppress(ValueError):  # a driver of this OUT that was killed has left one: there is none
            client.unregister_worker_plugin(plugin.name)
        client.register_plugin(plugin)
        yield plugin.name
    finally:
        with suppress(Exception):  # the cluster may be what has failed
            client.unregister_worker_plugin(plugin.name)


class SlotPlugin(WorkerPlugin):  # type: ignore[misc]  # distributed is untyped
    """Gives each worker process its `UnitWorker` before the first unit, so that a broken set-up fails at once.

    `local_slots`: how many workers there are, where all of them are of this machine and the driver's own.
    """

    def __init__(self, job: JobSpec, gpus: list[str], *, local_slots: int | None) -> None:
        self.job, self.gpus, self.local_slots = job, gpus, local_slots
        # A shared cluster may work on several jobs, but on one OUT only one.
        self.name = f"facefeed-{hashlib.sha256(str(job.out).encode()).hexdigest()[:16]}"
        self.slot: UnitWorker | None = None
        self.turn: threading.Lock | None = None

    def setup(self, worker: Any) -> None:
        """Called by Dask on each worker, also on those that join or restart later."""
        for folder in (*self.job.roots, self.job.paths.plan):
            if not folder.is_dir():
                raise StoppedError(
                    f"{folder}: is not there on {worker.address}; all workers must see SRC and OUT alike"
                )
        if self.local_slots is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver answers Ctrl-C
            _turn_down()
            if self.gpus:
                os.environ["CUDA_VISIBLE_DEVICES"] = self.gpus[int(worker.name) % len(self.gpus)]
        cv2.setNumThreads(1)  # its pool would fight with torch's, which OMP_NUM_THREADS bounds, for the slot's cores
        load = getattr(self.job.detector, "load", None)
        if load is not None:
            load()
        self.slot = UnitWorker(self.job, decoders=decoders_of_slot(self.local_slots))
        self.turn = threading.Lock()

    def teardown(self, worker: Any) -> None:  # noqa: ARG002
        """Ends the decoders' children with their worker."""
        if self.slot is not None:
            self.slot.close()


class UnitError(Exception):
    """What a unit failed with on a worker, where no input is to blame; plain text, so that it can always be sent.

    `worker`: its address. `kind`: the exception's type.
    """

    def __init__(self, worker: str, kind: str, text: str) -> None:
        super().__init__(worker, kind, text)
        self.worker, self.kind, self.text = worker, kind, text

    def __str__(self) -> str:
        return self.text


def run_unit(unit: Unit, plugin: str) -> Receipt:
    """The task itself, on a worker that has the plugin of that name; logs an event for each input under it.

    Raises `StoppedError` where the whole run is to stop, `UnitError` for whatever else goes wrong.
    """
    worker = get_worker()

    def tell(outcome: InputOutcome) -> None:
        message = {"unit": unit.unit_id, "frames": outcome.frames_decoded, "faces": outcome.faces}
        worker.log_event(plugin, message)

    try:
        held: SlotPlugin = worker.plugins[plugin]
        assert held.slot is not None
        assert held.turn is not None
        with held.turn:  # a worker of several threads is still one slot
            return held.slot.run(unit, tell)
    except StoppedError:
        raise
    except Exception as error:
        raise UnitError(worker.address, type(error).__name__, _in_a_line(error)) from None


def _in_a_line(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {first} ({Path(last.filename).name}, line {last.lineno})"
