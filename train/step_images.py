"""`images_in_step`: images of a training step over all ranks."""

from __future__ import annotations

from typing import Any

import torch


def images_in_step(trainer: Any, count: int) -> int:
    """Returns the images of the present step over all ranks; `count`: those of this rank.

    A collective call in an epoch's last step, of which ranks may have unlike parts.
    """
    if trainer.world_size == 1 or not trainer.is_last_batch:
        return count * int(trainer.world_size)
    strategy = trainer.strategy
    return int(strategy.reduce(torch.tensor(count, device=strategy.root_device), reduce_op="sum"))
