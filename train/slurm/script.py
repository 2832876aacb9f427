"""Whole batch scripts: what is asked of Slurm, what a user gave, and the fixed parts that run it."""

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
    """A script that runs `facefeed train` with `arguments`: one task a GPU on every node, each of them a rank.

    python: the command that starts the Python which has facefeed, on the nodes. interface: the network that ranks talk
    over, as `ib0`; None: NCCL and gloo choose.
    """
    chosen = [] if interface is None else [("NCCL_SOCKET_IFNAME", interface), ("GLOO_SOCKET_IFNAME", interface)]
    assignments = [
        _list("python", python), _list("arguments", arguments), f"cpus_per_task={allocation.cpus_per_task}",
        *(f"export {name}={shlex.quote(value)}" for name, value in chosen),
    ]  # fmt: skip
    return _script("facefeed train, a rank a GPU", allocation, assignments, "train.sh")


def precompute_script(
    allocation: Allocation, arguments: Sequence[str], *, python: Sequence[str], interface: str | None = None
) -> str:
    """A script that runs `facefeed precompute` with `arguments` on a Dask cluster of its own, a worker a task.

    The cluster's scheduler and the command itself run beside the workers of the first node. python, interface: as for
    `train_script`; the network is Dask's.
    """
    assignments = [
        _list("python", python), _list("arguments", arguments), f"cpus_per_task={allocation.cpus_per_task}",
        # Not bound to cores of its own: a worker counts those it may use, and shares them by the node's GPUs.
        _list("gpus_per_task", ["--gpus-per-task=1", "--cpu-bind=none"] if allocation.gpus_per_node else []),
        _list("interface", [] if interface is None else ["--interface", interface]),
    ]  # fmt: skip
    title = f"facefeed precompute on a Dask cluster of a worker a {'GPU' if allocation.gpus_per_node else 'core'}"
    return _script(title, allocation, assignments, "precompute.sh")


def ladder_script(allocation: Allocation, arguments: Sequence[str], *, python: Sequence[str]) -> str:
    """A script that runs `facefeed ladder` with `arguments`, a process that starts those of its rungs itself."""
    assignments = [_list("python", python), _list("arguments", arguments)]
    return _script("facefeed ladder, on one node", allocation, assignments, "ladder.sh")


def _script(title: str, allocation: Allocation, assignments: list[str], body: str) -> str:
    here = files(__package__)
    head = [_HEAD.format(title=title), *allocation.lines()]
    given = [*assignments, f"warn_seconds={allocation.warn_seconds}"]
    fixed = [(here / name).read_text(encoding="utf-8").rstrip() for name in ("again.sh", body)]
    return "\n\n".join(["\n".join(head), "\n".join(given), *fixed]) + "\n"


def _list(name: str, words: Sequence[str]) -> str:
    return f"{name}=({shlex.join(words)})"
