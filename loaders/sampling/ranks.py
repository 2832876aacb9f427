"""The rank of this process, and how many there are."""

from __future__ import annotations

import torch

from ...pipeline.errors import UsageError
from ..whole_numbers import require_int


def rank_and_world_size() -> tuple[int, int]:
    """Rank of this process and number of ranks in the default process group; (0, 1) where there is none."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def checked_ranks(rank: int | None, num_replicas: int | None) -> tuple[int | None, int | None]:
    """Rank and number of ranks as ints, or None for both; raises `UsageError` on any other."""
    if (rank is None) != (num_replicas is None):
        raise UsageError("rank and num_replicas: give both, or none to take torch.distributed's")
    if rank is None:
        return None, None
    rank = require_int("rank", rank, example=0)
    num_replicas = require_int("num_replicas", num_replicas, minimum=1, example=1)
    if rank >= num_replicas:
        raise UsageError(f"rank={rank}: must be in 0..{num_replicas - 1}")
    return rank, num_replicas
