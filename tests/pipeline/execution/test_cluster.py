"""What a user notices of the cluster on their own machine."""

from __future__ import annotations

import pytest
from distributed import LocalCluster
from facefeed.pipeline.execution.cluster import local_client, stop_on_cluster_error


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
