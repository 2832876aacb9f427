"""Counts the ranks of a training run on this host, so that each uses its part of the cores."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import torch

_LOCAL_SIZE_VARIABLES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
"""Set for each rank by torchrun (and what builds on it), Open MPI, and MPICH or Intel MPI."""


def count_local_ranks(environment: Mapping[str, str] | None = None) -> int:
    """Ranks of this run on this host, at least 1, from the launcher's environment variables.

    torchrun, MPI and srun set them. Other launchers, such as Lightning's own, provide only the world size
    (`WORLD_SIZE`, or torch.distributed): it is limited to the number of CUDA devices of the host, where it has any.
    Without CUDA and without such a launcher, all ranks are assumed to be on one host.
    """
    variables = os.environ if environment is None else environment
    for name in _LOCAL_SIZE_VARIABLES:
        if (ranks := _positive_int(variables.get(name))) is not None:
            return ranks
    if (ranks := _slurm_tasks_on_node(variables)) is not None:
        return ranks
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        world_size = torch.distributed.get_world_size()
    else:
        world_size = _positive_int(variables.get("WORLD_SIZE")) or 1
    return world_size if world_size == 1 else min(world_size, torch.cuda.device_count() or world_size)


def share_of_cores(cores: int, local_ranks: int | None = None) -> int:
    """How many of the `cores` that this process may use are its rank's, at least 1.

    Ranks share them; except where srun has bound each to its own, so that it may use fewer than all tasks of the step
    on this host have together. `local_ranks=None`: see `count_local_ranks`.
    """
    ranks = count_local_ranks() if local_ranks is None else local_ranks
    cores_per_task = _positive_int(os.environ.get("SLURM_CPUS_PER_TASK")) or 0  # set where it is requested
    are_tasks = _slurm_tasks_on_node(os.environ) == ranks
    is_bound = are_tasks and cores < ranks * cores_per_task
    return max(cores if is_bound else cores // ranks, 1)


def _slurm_tasks_on_node(variables: Mapping[str, str]) -> int | None:
    """Tasks of this step on this node: `SLURM_STEP_TASKS_PER_NODE` is `4`, or `2(x3),1` for nodes 0 to 2 and 3."""
    counts: list[int] = []
    for part in variables.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        if (match := re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)) is None:
            return None
        counts += [int(match[1])] * int(match[2] or 1)
    node = variables.get("SLURM_NODEID", "0")
    return counts[int(node)] if node.isdecimal() and int(node) < len(counts) else None


def _positive_int(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and int(text) > 0 else None
