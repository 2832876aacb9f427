"""State of the random number generators of Python, numpy and torch: different on every rank, restored on resume."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..warning import warn


def gather_rng_states(trainer: Any) -> list[dict[str, Any]]:
    """Returns the generator states of all ranks, by rank, as plain values and tensors. A collective call."""
    own = _get_state()
    if trainer.world_size == 1:
        return [own]
    by_rank: list[Any] = [None] * trainer.world_size
    torch.distributed.all_gather_object(by_rank, own)
    return by_rank


def restore_or_seed(trainer: Any, seed: int, saved: Sequence[dict[str, Any]]) -> None:
    """Restores this rank's generators from `saved`, or else seeds them from `seed`, the step and the rank.

    Ranks thus draw different dropout masks, and a repeated run draws the same ones. `saved`: what
    `gather_rng_states` returned for a checkpoint. If it is of another number of ranks, the generators are seeded anew
    with a warning.
    """
    if len(saved) == trainer.world_size:
        _set_state(saved[trainer.global_rank])
        return
    if trainer.global_step:
        warn(
            f"the checkpoint has random states of {len(saved)} ranks and this run has {trainer.world_size}: random "
            "numbers, such as dropout's, are drawn anew from here, by seed, step and rank"
        )
    seeds = np.random.SeedSequence([seed, trainer.global_step, trainer.global_rank]).generate_state(3).tolist()
    random.seed(seeds[0])
    np.random.seed(seeds[1])  # the global generator, which users' code may draw from
    torch.manual_seed(seeds[2])  # seeds CUDA too


def _get_state() -> dict[str, Any]:
    name, keys, *rest = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(keys.astype(np.int64)), *rest),  # type: ignore[union-attr]
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def _set_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"].cpu())
