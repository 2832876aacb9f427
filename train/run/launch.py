"""Rank of this process from the environment of its launcher: torchrun, Slurm or Lightning."""

from __future__ import annotations

import os
from collections.abc import Mapping

_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
"""Variables with the rank, or the rank of its node; the first rank has 0 in each that is set."""


def is_first_rank(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is the first rank, or the only one; works before the process group exists.

    >>> is_first_rank({}), is_first_rank({"RANK": "4", "LOCAL_RANK": "0"}), is_first_rank({"SLURM_PROCID": "0"})
    (True, False, True)
    """
    return not any(environment.get(name, "0").strip("0") for name in _RANK_VARIABLES)
