"""What a user notices of the cluster: one on their own machine, and a running one that several jobs share."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import dask
import pytest
from assets_cluster import certificate_in_configuration
from distributed import Client, LocalCluster, Security
from distributed.core import Status
from facefeed.pipeline.errors import StoppedError
from facefeed.pipeline.execution.cluster import local_client, remote_client, stop_on_cluster_error

PATIENCE_SECONDS = 60.0
JOB = """
import sys
from facefeed.pipeline.execution.cluster import remote_client
with remote_client(sys.argv[1]) as client:
    print(client.id, flush=True)
    sys.stdin.read()
"""

NOBODY = 65534
INTRUDER = """
import json, os, sys
from distributed import Client, Security
attempts, user = json.load(sys.stdin)
os.setuid(user)
for address, certificate in attempts:
    security = Security(require_encryption=True, **certificate) if certificate else None
    try:
        with Client(address, security=security, timeout=5, set_as_default=False) as client:
            print(client.submit(os.getuid).result())
    except OSError:
        print("refused")
"""
"""Submits a task to each cluster as another user, and prints as whom it ran."""


def as_another_user(*attempts: tuple[str, Security | None]) -> list[str]:
    """What another user of the machine gets who submits to the clusters at these addresses."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    names = ("tls_ca_file", "tls_client_cert", "tls_client_key")
    certificates = [security and {name: getattr(security, name) for name in names} for _, security in attempts]
    asked = json.dumps([list(zip((address for address, _ in attempts), certificates, strict=True)), NOBODY])
    result = subprocess.run(
        [sys.executable, "-c", INTRUDER], input=asked, capture_output=True, text=True, check=True, timeout=120
    )
    return result.stdout.splitlines()


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with local_client(1) as client:
        yield client


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_cluster_that_closes_too_slowly_takes_nothing_from_a_run_that_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    close, closed = LocalCluster.close, []

    def too_slow(cluster: LocalCluster, timeout: float | None = None) -> None:
        close(cluster)
        closed.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(LocalCluster, "close", too_slow)
    with stop_on_cluster_error(), local_client(1) as client:
        result = client.submit(sum, [1, 2]).result()
    assert result == 3
    assert closed


@pytest.mark.processes
def test_an_interrupt_while_the_cluster_closes_comes_after_that_so_that_nothing_is_left_to_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    close, clusters = LocalCluster.close, list[LocalCluster]()

    def close_interrupted(cluster: LocalCluster, timeout: float | None = None) -> None:
        clusters.append(cluster)
        if len(clusters) == 1:  # a cluster that is left open is closed when it is deleted
            os.kill(os.getpid(), signal.SIGINT)
        close(cluster, timeout=timeout)

    with monkeypatch.context() as patch:
        patch.setattr(LocalCluster, "close", close_interrupted)
        with pytest.raises(KeyboardInterrupt), local_client(1):
            pass
    assert [cluster.status for cluster in clusters] == [Status.closed]


@pytest.mark.processes
def test_a_process_that_runs_again_and_again_keeps_no_scheduler() -> None:
    schedulers = []
    for _ in range(3):
        with local_client(1) as client:
            schedulers.append(weakref.ref(client.cluster.scheduler))
    del client
    gc.collect()
    assert [scheduler() for scheduler in schedulers[:-1]] == [None, None]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_job_that_ends_takes_no_promise_from_another_on_the_same_cluster(*, is_killed: bool) -> None:
    """That Dask tries no unit again whose worker died. After both jobs the cluster is as its owner set it up."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 3}),
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
    ):
        address, scheduler = cluster.scheduler_address, cluster.scheduler
        command = [sys.executable, "-c", JOB, address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
            assert first.stdout is not None
            client_id = first.stdout.readline().strip()
            assert client_id in scheduler.clients
            with remote_client(address):
                if is_killed:
                    first.kill()
                first.communicate()
                wait_until(lambda: client_id not in scheduler.clients)
                assert scheduler.allowed_failures == 0
        wait_until(lambda: scheduler.allowed_failures == 3)


def test_another_user_of_the_machine_can_not_submit_to_the_cluster_of_a_run(client: Client) -> None:
    addresses = [client.scheduler.address, *client.scheduler_info()["workers"]]
    assert len(addresses) == 2
    other, none = Security.temporary(), None
    attempts = [
        attempt for address in addresses for attempt in ((address, other), (address.replace("tls", "tcp"), none))
    ]
    # The certificate alone makes the difference.
    assert as_another_user(*attempts, (addresses[0], client.security)) == ["refused"] * 4 + [str(os.getuid())]


def test_another_user_of_the_machine_can_not_read_what_a_run_does(client: Client) -> None:
    """From the pages that Dask serves, without asking who reads them."""
    scheduler = client.scheduler_info()
    ports = [scheduler["services"]["dashboard"]]
    ports += [worker["services"]["dashboard"] for worker in scheduler["workers"].values()]
    for port in ports:
        for page in ("", "status", "info/main/workers.html", "json/counts.json", "metrics", "health"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=10)


def test_a_certificate_in_a_file_lets_in_who_may_read_it_and_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "certificate.pem"
    path.write_text("from a job that was killed")
    path.chmod(0o644)
    with certificate_in_configuration(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
        security = Security(require_encryption=True)
        with (
            LocalCluster(host="127.0.0.1", security=security, **options) as cluster,
            remote_client(cluster.scheduler_address) as client,
        ):
            assert client.submit(sum, [1, 2]).result() == 3
            assert as_another_user((cluster.scheduler_address, Security.temporary())) == ["refused"]


def test_a_cluster_whose_certificate_nobody_configured_is_refused_with_what_is_missing(client: Client) -> None:
    names = ("ca-file", "scheduler.cert", "worker.cert", "client.cert")
    with (
        dask.config.set({f"distributed.comm.tls.{name}": None for name in names}),
        pytest.raises(StoppedError, match=r"needs the certificate of that cluster, in Dask's configuration"),
        remote_client(client.scheduler.address),
    ):
        pass


def test_workers_that_may_open_too_few_files_are_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (20, 4096))
    with pytest.raises(StoppedError, match=r"20 open files are allowed .* \(ulimit -n\)"), stop_on_cluster_error():
        raise RuntimeError("Nanny failed to start.")
