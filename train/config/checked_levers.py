"""The levers of a config, checked against its other settings."""

from __future__ import annotations

from ..levers.best_and_early_stop import EarlyStop
from ..levers.deterministic import Deterministic
from ..levers.lever import Lever, LeverError
from ..levers.registry import parse
from .recipes import Config


def checked_levers(config: Config) -> tuple[Lever, ...]:
    """Returns the levers of a config.

    Raises `LeverError` on one that has another seed than the run, and on a stop by `train/loss`, which is that of one
    batch on one rank.
    """
    parsed = parse(config.levers)
    for lever in parsed:
        if isinstance(lever, Deterministic) and lever.seed not in (None, config.seed):
            raise LeverError(
                f"{lever}: the run's seed={config.seed} is the one that counts, for initial weights, dropout and every "
                f"session's start; take deterministic, and --set seed={lever.seed} for that seed"
            )
        if isinstance(lever, EarlyStop) and lever.metric == "train/loss":
            raise LeverError(f"{lever}: 'train/loss' is that of an epoch's last batch, on one rank; take val/loss")
    return parsed
