"""Levers: what makes training faster, smaller or better, each on any LightningModule.

    from facefeed.train import levers

    taken = levers.parse("bf16,accumulate:4,freeze:net.conv1*|net.bn1*")
    module, trainer = levers.trainer(module, taken, max_epochs=10)
    trainer.fit(module, data)

| text | what it does | module |
|---|---|---|
| `fp16`, `bf16` | most of the arithmetic in 16 bits | precision |
| `tf32` | matrix products in TF32 | precision |
| `compile` | one kernel for many operations | compilation |
| `ddp[:devices[:nodes]]` | a process a device, gradients averaged | ddp |
| `zero:STAGE[:offload][:devices[:nodes]]` | DeepSpeed: state, gradients, weights sharded | sharded |
| `fsdp[:devices[:nodes]]` | torch's FSDP2: all three | sharded |
| `accumulate:N` | the gradient of N batches a step | accumulate |
| `freeze:PATTERN` or more, with a bar between | these parameters stay as they are | freeze |
| `adamw8bit` | AdamW with 8 bits of state a number | eightbit |
| `fused` | the optimizer's step as one kernel | optimizers |
| `checkpointing` | activations computed again instead of kept | checkpointing |
| `clip:NORM` | no gradient longer than that | clip |
| `sync_batchnorm` | BatchNorm over all ranks' batches | sync_batchnorm |
| `channels_last` | images laid out as tensor cores take them | layout |
| `best:METRIC`, `early_stop:METRIC[:patience]` | keep the best weights; stop when they no longer come | watch |
| `deterministic[:seed]` | the same run twice is the same, bit for bit | deterministic |

Beside them: `finite.FiniteGuard` counts and stops steps that are not finite, `memory.peak_memory` says what was used.
Importing this package is light: each lever comes with its name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .lever import Lever, LeverError
from .names import LEVERS, parse

if TYPE_CHECKING:
    from .combine import figures, refusals, trainer
    from .finite import FiniteGuard, NonFiniteError
    from .freeze import FrozenRow
    from .memory import optimizer_state_bytes, peak_memory

__all__ = [
    "LEVERS", "FiniteGuard", "FrozenRow", "Lever", "LeverError", "NonFiniteError", "figures", "optimizer_state_bytes",
    "parse", "peak_memory", "refusals", "trainer",
]  # fmt: skip

_WHERE = {
    "FiniteGuard": "finite", "FrozenRow": "freeze", "NonFiniteError": "finite", "figures": "combine",
    "optimizer_state_bytes": "memory", "peak_memory": "memory", "refusals": "combine", "trainer": "combine",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
