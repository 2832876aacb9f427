"""Levers: settings that make training faster, smaller or better, each for any LightningModule.

In: a LightningModule and a text such as `bf16,accumulate:4`. Out: the module and a Trainer with them applied.
Must not know: `FaceClassifier`, datasets, runs.

    from facefeed.train import levers

    chosen = levers.parse("bf16,accumulate:4,freeze:net.conv1*|net.bn1*")
    module, trainer = levers.trainer(module, chosen, max_epochs=10)
    trainer.fit(module, data)

| text | what it does | module |
|---|---|---|
| `fp16`, `bf16` | most of the arithmetic in 16 bits | precision |
| `tf32` | matrix products in TF32 | precision |
| `compile` | torch.compile | compilation |
| `ddp[:devices[:nodes]]` | DDP: one process per device, gradients averaged | ranks.ddp |
| `zero:STAGE[:offload][:devices[:nodes]]` | DeepSpeed ZeRO: state, gradients, weights sharded | ranks.sharded |
| `fsdp[:devices[:nodes]]` | torch's FSDP2: all three | ranks.sharded |
| `accumulate:N` | gradients accumulated over N batches | accumulate |
| `freeze:PATTERN`, several separated by a bar | parameters that are not trained | freeze |
| `adamw8bit` | AdamW with 8-bit state | optimizers.eightbit |
| `fused` | the optimizer's step as one kernel | optimizers.fused |
| `checkpointing` | activations recomputed in the backward pass | activation_checkpointing |
| `clip:NORM` | gradients clipped to a norm | clip |
| `sync_batchnorm` | BatchNorm statistics over all ranks | ranks.sync_batchnorm |
| `channels_last` | NHWC memory format for convolutions | channels_last |
| `best:METRIC`, `early_stop:METRIC[:patience]` | best checkpoint; early stopping | best_and_early_stop |
| `deterministic[:seed]` | bitwise reproducible runs | deterministic |

Besides, `nonfinite.guard.FiniteGuard` counts steps with NaN or infinity and stops training after too many, and
`memory.peak_memory` reports memory. `registry` lists all levers. Importing this package is light: a lever's module is
imported on access.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .lever import Lever, LeverError
from .registry import LEVERS, parse

if TYPE_CHECKING:
    from .compatibility import metrics, refusals, trainer
    from .freeze import FrozenRow
    from .memory import optimizer_state_bytes, peak_memory
    from .nonfinite.guard import FiniteGuard, NonFiniteError

__all__ = [
    "LEVERS", "FiniteGuard", "FrozenRow", "Lever", "LeverError", "NonFiniteError", "metrics", "optimizer_state_bytes",
    "parse", "peak_memory", "refusals", "trainer",
]  # fmt: skip

_MODULE_OF = {
    "FiniteGuard": "nonfinite.guard", "FrozenRow": "freeze", "NonFiniteError": "nonfinite.guard",
    "metrics": "compatibility", "optimizer_state_bytes": "memory", "peak_memory": "memory",
    "refusals": "compatibility", "trainer": "compatibility",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
