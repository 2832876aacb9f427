"""Validates the options that say where units are processed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..errors import UsageError


def check_cluster_options(
    workers: int | tuple[int, int] | None,
    scheduler: str | None,
    cluster: str | Callable[[], Any] | None = None,
    part: str | None = None,
) -> None:
    """Validates `--workers`, `--scheduler`, `--cluster` and `--part` together; raises `UsageError`."""
    if scheduler is not None and cluster is not None:
        raise UsageError("--scheduler and --cluster: one joins a cluster, the other starts one; use one of the two")
    if part is not None and cluster is not None:
        raise UsageError("--part and --cluster: a cluster processes the whole job; use one of the two")
    if workers is not None and scheduler is not None:
        raise UsageError("--workers and --scheduler: a running cluster has its own workers; use one of the two")
    if scheduler is not None and not re.search(r"[^:/]:\d+$", scheduler):
        raise UsageError(f"--scheduler {scheduler}: must be an address with a port; try tcp://127.0.0.1:8786")
    if isinstance(cluster, str) and workers is None:
        raise UsageError(f"--cluster {cluster}: needs --workers, such as 8, or 4..64 for as many as there is work for")
    if isinstance(workers, tuple):
        _check_range(workers, cluster)
    elif workers is not None and not (type(workers) is int and workers >= 1):
        raise UsageError(f"workers={workers!r}: must be at least 1; leave it out for the default for this machine")


def _check_range(workers: tuple[int, ...], cluster: object) -> None:
    if [type(number) for number in workers] != [int, int]:
        raise UsageError(f"workers={workers!r}: must be two whole numbers, the least and the largest; try (4, 64)")
    minimum, maximum = workers
    if cluster is None:
        raise UsageError(f"workers={minimum}..{maximum}: a range is for --cluster; give one number")
    if not 0 <= minimum <= maximum or maximum < 1:
        raise UsageError(f"workers={minimum}..{maximum}: must go from a smaller number to a larger one; try 4..64")
