"""What a launcher says of this process: torchrun, Slurm, or Lightning, which starts ranks of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping

_NUMBERS = ("RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
"""Of the rank, or of its node; whoever is first of all is first in each of them."""


def is_first_rank(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is the first rank of its run, or its only one; known before ranks can talk to each other.

    >>> is_first_rank({}), is_first_rank({"RANK": "4", "LOCAL_RANK": "0"}), is_first_rank({"SLURM_PROCID": "0"})
    (True, False, True)
    """
    return not any(environment.get(name, "0").strip("0") for name in _NUMBERS)
