"""What a user notices of the cluster: one on their own machine, and a running one that several jobs share."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import dask
import pytest
from distributed import LocalCluster
from facefeed.pipeline.execution.cluster import local_client, remote_client, stop_on_cluster_error

PATIENCE_SECONDS = 60.0
JOB = """
import sys
from facefeed.pipeline.execution.cluster import remote_client
with remote_client(sys.argv[1]) as client:
    print(client.id, flush=True)
    sys.stdin.read()
"""


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


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_job_that_ends_takes_no_promise_from_another_on_the_same_cluster(*, is_killed: bool) -> None:
    """That Dask tries no unit again whose worker died. After both jobs the cluster is as its owner set it up."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 3}),
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address=None
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
