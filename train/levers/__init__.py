"""Levers: what makes training faster, smaller or better, each on any LightningModule.

In: a LightningModule and a text such as `bf16,accumulate:4`. Out: the module and a Trainer that has them all.
Must not know: `FaceClassifier`, datasets, runs.

    from facefeed.train import levers

    taken = levers.parse("bf16,accumulate:4,freeze:net.conv1*|net.bn1*")
    module, trainer = levers.trainer(module, taken, max_epochs=10)
    trainer.fit(module, data)

| text | what it does | module |
|---|---|---|
| `fp16`, `bf16` | most of the arithmetic in 16 bits | precision |
| `tf32` | matrix products in TF32 | precision |
| `compile` | one kernel for many operations | compilation |
| `ddp[:devices[:nodes]]` | a process a device, gradients averaged | ranks.ddp |
| `zero:STAGE[:offload][:devices[:nodes]]` | DeepSpeed: state, gradients, weights sharded | ranks.sharded |
| `fsdp[:devices[:nodes]]` | torch's FSDP2: all three | ranks.sharded |
| `accumulate:N` | the gradient of N batches a step | accumulate |
| `freeze:PATTERN` or more, with a bar between | these parameters stay as they are | freeze |
| `adamw8bit` | AdamW with 8 bits of state a number | optimizers.eightbit |
| `fused` | the optimizer's step as one kernel | optimizers.fused |
| `checkpointing` | activations computed again instead of kept | activation_checkpointing |
| `clip:NORM` | no gradient longer than that | clip |
| `sync_batchnorm` | BatchNorm over all ranks' batches | ranks.sync_batchnorm |
| `channels_last` | images laid out as tensor cores take them | channels_last |
| `best:METRIC`, `early_stop:METRIC[:patience]` | keep the best weights; stop without new ones | best_and_early_stop |
| `deterministic[:seed]` | the same run twice is the same, bit for bit | deterministic |

Beside them: `nonfinite.guard.FiniteGuard` counts and stops steps that are not finite, `memory.peak_memory` reports
memory.
Importing this package is light: each lever comes with its name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .lever import Lever, LeverError
from .registry import LEVERS, parse

if TYPE_CHECKING:
    from .compatibility import figures, refusals, trainer
    from .freeze import FrozenRow
    from .memory import optimizer_state_bytes, peak_memory
    from .nonfinite.guard import FiniteGuard, NonFiniteError

__all__ = [
    "LEVERS", "FiniteGuard", "FrozenRow", "Lever", "LeverError", "NonFiniteError", "figures", "optimizer_state_bytes",
    "parse", "peak_memory", "refusals", "trainer",
]  # fmt: skip

_WHERE = {
    "FiniteGuard": "nonfinite.guard", "FrozenRow": "freeze", "NonFiniteError": "nonfinite.guard",
    "figures": "compatibility", "optimizer_state_bytes": "memory", "peak_memory": "memory",
    "refusals": "compatibility", "trainer": "compatibility",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
