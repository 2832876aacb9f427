"""All use of DeepSpeed's private parts. Checked with `CHECKED_DEEPSPEED`."""

from __future__ import annotations

from typing import Any

CHECKED_DEEPSPEED = "0.19"
"""The version with which this part was last read in DeepSpeed's source."""


def let_load_without_optimizer(engine: Any) -> None:
    """Lets an engine of ZeRO stage 3 that only tests load a checkpoint, which it would fail to do at the very end.

    The loaded weights become those of the optimizer, by a method that the stand-in of an engine without one lacks
    (deepspeedai/DeepSpeed#7272).
    """
    if engine.optimizer is not None and not hasattr(engine.optimizer, "_restore_from_bit16_weights"):
        engine.optimizer._restore_from_bit16_weights = _do_nothing  # noqa: SLF001


def _do_nothing() -> None:
    pass
