"""How many ranks of a training run share this host, so that each takes its part of the cores."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import torch

_LAUNCHERS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
"""Set for each rank by torchrun (and what builds on it), Open MPI, and MPICH or Intel MPI."""


def count_local_ranks(environment: Mapping[str, str] | None = None) -> int:
    """Ranks of this run on this host, at least 1, as the launcher says.

    torchrun, MPI and srun say it. Others, such as Lightning's own launcher, say only how many ranks there are in all
    (`WORLD_SIZE`, or torch.distributed): of these no more than the host has CUDA devices, where it has any. Several
    hosts without CUDA and without such a launcher are taken for one.
    """
    given = os.environ if environment is None else environment
    for name in _LAUNCHERS:
        if (ranks := _number(given.get(name))) is not None:
            return ranks
    if (ranks := _of_slurm(given)) is not None:
        return ranks
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        everywhere = torch.distributed.get_world_size()
    else:
        everywhere = _number(given.get("WORLD_SIZE")) or 1
    return everywhere if everywhere == 1 else min(everywhere, torch.cuda.device_count() or everywhere)


def _of_slurm(given: Mapping[str, str]) -> int | None:
    """Tasks of this step on this node: `SLURM_STEP_TASKS_PER_NODE` is `4`, or `2(x3),1` for nodes 0 to 2 and 3."""
    counts: list[int] = []
    for part in given.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        if (found := re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)) is None:
            return None
        counts += [int(found[1])] * int(found[2] or 1)
    node = given.get("SLURM_NODEID", "0")
    return counts[int(node)] if node.isdecimal() and int(node) < len(counts) else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and int(text) > 0 else None
