"""The generators of random numbers that training draws from: other ones on every rank, resumed where they were."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_warn


def states(trainer: Any) -> list[dict[str, Any]]:
    """Where each rank's generators are, by rank, as plain values and tensors. All ranks have to call it."""
    own = _state()
    if trainer.world_size == 1:
        return [own]
    every: list[Any] = [None] * trainer.world_size
    torch.distributed.all_gather_object(every, own)
    return every


def begin(trainer: Any, seed: int, saved: Sequence[dict[str, Any]]) -> None:
    """Has this rank draw from where `saved` has it, or else from what `seed`, the step and the rank give.

    So ranks drop other activations each, and a run that is the same again draws the same. `saved`: what `states` gave
    a checkpoint; of another number of ranks there is no going on from it: they are seeded anew, and a warning says so.
    """
    if len(saved) == trainer.world_size:
        _set_state(saved[trainer.global_rank])
        return
    if trainer.global_step:
        rank_zero_warn(
            f"the checkpoint has random states of {len(saved)} ranks and this run has {trainer.world_size}: random "
            "numbers, such as dropout's, are drawn anew from here, by seed, step and rank"
        )
    drawn = np.random.SeedSequence([seed, trainer.global_step, trainer.global_rank]).generate_state(3).tolist()
    random.seed(drawn[0])
    np.random.seed(drawn[1])  # the global one, which users' code draws from
    torch.manual_seed(drawn[2])  # CUDA's too


def _state() -> dict[str, Any]:
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
