"""The Dask cluster as the driver sees it: starts one or joins a running one."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import dask
import distributed.core
from distributed import Client, LocalCluster, SchedulerPlugin, Security, WorkerPlugin
from distributed.deploy import Cluster

from ..errors import FacefeedError, StoppedError, UsageError
from ..files import RAISE_FILES_LIMIT
from ..interrupts import sigint_handler_kept, signals_blocked_in_children, stop_signals_deferred
from ..machine import memory_bytes, usable_cores
from ..user_file import describe_error, run_user_file

_CONNECT_SECONDS = 10.0
_JOIN_SECONDS = 60.0
_CLOSE_SECONDS = 60.0
_FEWEST_FILES = 64  # a local cluster starts with these, and not with 40
_GUIDE = "docs/guides/clusters.md"

_DASK_LOGGERS = (
    "asyncio",
    "bokeh",
    "distributed",
    "distributed.client",
    "tornado",
    "tornado.application",
    "tornado.general",
)

DASK_CONFIG: dict[str, object] = {
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
    # Dask's pages ask nobody who they are: every user of the host could read them.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # By default a local cluster drops a worker that is not back after 15 s; loading its detector may take longer.
    "distributed.deploy.lost-worker-timeout": "10 minutes",
}


@contextmanager
def local_client(num_workers: int) -> Iterator[Client]:
    """Starts a Dask cluster on this machine, bound to 127.0.0.1, with one single-threaded process per worker.

    Whoever can submit to a Dask cluster runs code as its user. So all connections are TLS, with a certificate that is
    made for this cluster and that only its processes have, in memory: other users of the machine cannot connect.
    """
    threads = max(1, usable_cores() // num_workers)
    environment = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}

    def start() -> LocalCluster:
        with dask.config.set({"distributed.nanny.pre-spawn-environ": environment}):
            return LocalCluster(
                n_workers=num_workers,
                threads_per_worker=1,
                host="127.0.0.1",
                security=Security.temporary(),
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                memory_limit=memory_bytes() // num_workers,
            )

    with client_of(start) as client:
        client.register_plugin(_QuietWorker())
        yield client


class _QuietWorker(WorkerPlugin):  # type: ignore[misc]  # distributed is untyped
    """Leaves Ctrl-C and messages to the driver, in each worker process of its own, restarted ones too."""

    name = "facefeed-quiet"

    def setup(self, worker: Any) -> None:  # noqa: ARG002 (Dask's interface)
        """Called before the worker's first task."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        silence_dask_loggers()


@contextmanager
def client_of(start: Callable[[], Any], *, close_seconds: float = 10.0) -> Iterator[Client]:
    """Starts a cluster, yields its client, and closes both at the end, in order also after an interrupt."""
    with _configured_dask():
        cluster = None
        try:
            with _defer_interrupts():
                cluster = start()
            with Client(cluster) as client:
                yield client
        finally:
            with _defer_interrupts():  # a cluster that is left half closed makes Dask wait 10 s when the process ends
                if cluster is not None:
                    # Late, on a machine that is busy, is no failure: the work is done, workers end with their driver.
                    with suppress(TimeoutError):
                        cluster.close(timeout=close_seconds)
                _release_schedulers()


def _release_schedulers() -> None:
    """Frees the schedulers of clusters that are closed: else a process keeps one, some 500 objects, for each run.

    distributed caches for good which handlers, methods of a scheduler among them, take a connection; it asks anew.
    """
    if (cached := getattr(distributed.core, "_expects_comm", None)) is not None:
        cached.cache_clear()


def silence_dask_loggers() -> None:
    """In the driver and its own workers: cluster failures reach the user as one message of ours."""
    for name in _DASK_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def _configured_dask() -> Iterator[None]:
    """Configures Dask for the block and silences its loggers; `distributed` sets these up on import, so by hand."""
    before = {name: logging.getLogger(name).level for name in _DASK_LOGGERS}
    with dask.config.set(DASK_CONFIG):
        silence_dask_loggers()
        try:
            # Now, not on Dask's thread, which must start within 10 s: a loader in the garbage ends its workers then.
            gc.collect()
            yield
        finally:
            for name, level in before.items():
                logging.getLogger(name).setLevel(level)


@contextmanager
def stop_on_cluster_error(*, is_kept: bool = True) -> Iterator[None]:
    """Converts any error of the cluster to a resumable `StoppedError` that names the cause.

    is_kept: whether the work that is finished is kept, as of `precompute`.
    """
    try:
        yield
    except FacefeedError:
        raise
    except Exception as error:
        if "Nanny failed to start" in str(error):
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            if limit != resource.RLIM_INFINITY and limit < _FEWEST_FILES:
                raise StoppedError(
                    f"the worker processes ended as they started: {limit} open files are allowed to a process, which "
                    f"needs {_FEWEST_FILES} or more; {RAISE_FILES_LIMIT} and run the same command again"
                ) from None
            raise StoppedError(
                "the worker processes ended as they started; a script of your own must do its work below "
                "`if __name__ == '__main__':`, since they import it"
            ) from None
        kept = "all finished units are kept; " if is_kept else ""
        raise StoppedError(
            f"the cluster failed ({type(error).__name__}: {error}); {kept}fix that and run the same command again"
        ) from error


def exit_if_imported_by_worker() -> None:
    """Ends a worker process that, as it starts, imports and runs the driver's script without a `__main__` guard.

    Silently: the driver reports it once.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        sys.exit(1)


@contextmanager
def _defer_interrupts() -> Iterator[None]:
    """Defers SIGINT, SIGTERM and SIGHUP until the cluster is up and can be shut down in order, or is closed.

    Ctrl-C reaches the whole process group, but only the driver handles it: the worker processes, and the thread that
    restarts them, inherit a blocked SIGINT.
    """
    with signals_blocked_in_children(signal.SIGINT), stop_signals_deferred():
        yield


def load_cluster(file: Path) -> Callable[[], Any]:
    """Runs a Python file and returns the function `cluster` that it defines; raises `UsageError` where it does not."""
    if not file.is_file():
        raise UsageError(f"--cluster {file}: no such file; name a Python file that defines `cluster()`: {_GUIDE}")
    with sigint_handler_kept():
        start = getattr(run_user_file(file, f"--cluster {file}"), "cluster", None)
    if not callable(start):
        raise UsageError(f"--cluster {file}: it must define a function `cluster()` that returns a cluster: {_GUIDE}")
    return cast("Callable[[], Any]", start)


@contextmanager
def user_client(start: Callable[[], Any]) -> Iterator[Client]:
    """Starts a user's own cluster, yields its client, and closes both."""

    def start_checked() -> Any:
        try:
            with sigint_handler_kept():
                cluster = start()
        except Exception as error:
            raise StoppedError(f"--cluster: cluster() failed ({describe_error(error)}); fix the file") from error
        if not isinstance(cluster, Cluster):
            raise StoppedError(
                f"--cluster: cluster() returned {type(cluster).__name__}; must be a Dask cluster object: {_GUIDE}"
            )
        return cluster

    with client_of(start_checked, close_seconds=_CLOSE_SECONDS) as client:
        disable_retries(client)
        yield client


@contextmanager
def remote_client(address: str) -> Iterator[Client]:
    """Joins a running cluster; its workers need facefeed installed, and SRC and OUT under the same paths."""
    with _configured_dask():
        try:
            client = Client(address, timeout=_CONNECT_SECONDS)
        except (OSError, TimeoutError, ValueError) as error:
            raise StoppedError(f"--scheduler {address}: cannot be reached ({error}); is it running there?") from error
        except TypeError as error:  # Dask's for TLS without a certificate
            raise StoppedError(
                f"--scheduler {address}: needs the certificate of that cluster, in Dask's configuration or in "
                'DASK_DISTRIBUTED__COMM__TLS__* (see "A running Dask cluster" in docs/guides/clusters.md)'
            ) from error
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
                    "a worker process runs one unit at a time: start them with --nthreads 1, one per core or GPU, and "
                    "run this again"
                )
            disable_retries(client)
            yield client


def encryption_warning(client: Client, scheduler: str | None) -> str | None:
    """What to say where others can connect to the cluster; `scheduler`: the address that the user gave, if any."""
    if str(client.scheduler.address).startswith("tls://"):
        return None
    return (
        f"{'--cluster' if scheduler is None else f'--scheduler {scheduler}'}: its connections are not encrypted; "
        "whoever can reach it can run code as you; start it with TLS: docs/guides/clusters.md"
    )


def disable_retries(client: Client) -> None:
    """Makes a cluster that others have set up run no task again whose worker died, until `client` is gone."""
    client.run_on_scheduler(_disable_retries, client=client.id)


class _DisabledRetries(SchedulerPlugin):  # type: ignore[misc]  # distributed is untyped
    """Keeps `allowed_failures` of a shared scheduler at 0 until the last client that needs it is gone, killed or not.

    It lives in the scheduler's process: one job cannot know when another one on the same cluster ends.
    """

    name = "facefeed-disabled-retries"

    def __init__(self, allowed_failures: int) -> None:
        self._allowed_failures_before = allowed_failures
        self.clients: set[str] = set()

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Called by Dask when a client closes or its connection breaks."""
        self.clients.discard(client)
        if not self.clients:
            scheduler.allowed_failures = self._allowed_failures_before
            scheduler.remove_plugin(name=self.name)


def _disable_retries(client: str, dask_scheduler: Any = None) -> None:
    plugin = dask_scheduler.plugins.get(_DisabledRetries.name)
    if plugin is None:
        plugin = _DisabledRetries(dask_scheduler.allowed_failures)
        dask_scheduler.add_plugin(plugin)
        dask_scheduler.allowed_failures = 0
    plugin.clients.add(client)
