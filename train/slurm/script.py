"""Complete batch scripts: #SBATCH lines, assignments of the user's values, and fixed shell parts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib.resources import files

from .allocation import Allocation

_HEAD = """#!/bin/bash
# {title}
# sbatch queues it, squeue --me shows it, scancel ends it for good; its log, NAME-JOB.log, lies in the folder below."""


def train_script(
    allocation: Allocation, arguments: Sequence[str], *, python: Sequence[str], interface: str | None = None
) -> str:
    """Returns a script that runs `facefeed train` with `arguments`: one task, and rank, per GPU on every node.

    python: command of the Python that has facefeed, on the nodes. interface: network between ranks, such as `ib0`;
    None: NCCL and gloo choose.
    """
    network_variables = (
        [] if interface is None else [("NCCL_SOCKET_IFNAME", interface), ("GLOO_SOCKET_IFNAME", interface)]
    )
    assignments = [
        _bash_array("python", python), _bash_array("arguments", arguments), f"cpus_per_task={allocation.cpus_per_task}",
        *(f"export {name}={shlex.quote(value)}" for name, value in network_variables),
    ]  # fmt: skip
    return _script("facefeed train, a rank a GPU", allocation, assignments, "train.sh")


def precompute_script(
    allocation: Allocation, arguments: Sequence[str], *, python: Sequence[str], interface: str | None = None
) -> str:
    """Returns a script that runs `facefeed precompute` with `arguments` on its own Dask cluster, one worker per task.

    The scheduler and the command itself run beside the workers of the first node. python, interface: as for
    `train_script`; the network is Dask's.
    """
    assignments = [
        _bash_array("python", python), _bash_array("arguments", arguments), f"cpus_per_task={allocation.cpus_per_task}",
        # Without CPU binding: a worker divides the cores it may use by the node's GPUs.
        _bash_array("gpus_per_task", ["--gpus-per-task=1", "--cpu-bind=none"] if allocation.gpus_per_node else []),
        _bash_array("interface", [] if interface is None else ["--interface", interface]),
    ]  # fmt: skip
    title = f"facefeed precompute on a Dask cluster of a worker a {'GPU' if allocation.gpus_per_node else 'core'}"
    return _script(title, allocation, assignments, "precompute.sh")


def ladder_script(allocation: Allocation, arguments: Sequence[str], *, python: Sequence[str]) -> str:
    """Returns a script that runs `facefeed ladder` with `arguments`, which starts the processes of rungs itself."""
    assignments = [_bash_array("python", python), _bash_array("arguments", arguments)]
    return _script("facefeed ladder, on one node", allocation, assignments, "ladder.sh")


def _script(title: str, allocation: Allocation, assignments: list[str], body: str) -> str:
    package = files(__package__)
    head = [_HEAD.format(title=title), *allocation.lines()]
    values = [*assignments, f"warn_seconds={allocation.warn_seconds or 0}"]
    shell_parts = [(package / name).read_text(encoding="utf-8").rstrip() for name in ("requeue.sh", body)]
    return "\n\n".join(["\n".join(head), "\n".join(values), *shell_parts]) + "\n"


def _bash_array(name: str, words: Sequence[str]) -> str:
    return f"{name}=({shlex.join(words)})"
