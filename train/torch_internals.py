"""All use of torch's private parts by `train`. Checked with `CHECKED_TORCH`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._dynamo.utils import counters as dynamo_counters
from torch.nn.modules.batchnorm import _BatchNorm as BatchNormBase
from torch.nn.modules.batchnorm import _NormBase as NormBase

CHECKED_TORCH = "2.15"
"""The version with which these parts were last read in torch's source."""

__all__ = [
    "CHECKED_TORCH",
    "BatchNormBase",
    "NormBase",
    "choose_calls_to_compile",
    "disable_fused_unscaling",
    "dynamo_counters",
    "foreach_copy_",
    "foreach_mul_",
    "has_forward_pre_hook",
    "has_workers",
    "is_in_backward_pass",
    "raising_memory_errors",
    "unsaved_buffers",
]


foreach_copy_ = torch._foreach_copy_
foreach_mul_ = torch._foreach_mul_


def has_forward_pre_hook(module: torch.nn.Module, hook: Callable[..., Any]) -> bool:
    """Whether a hook is registered; torch has no public accessor."""
    return hook in module._forward_pre_hooks.values()  # noqa: SLF001


def choose_calls_to_compile(module: torch.nn.Module, is_compiled: Callable[..., bool]) -> None:
    """Has a module on which `compile()` was called use that only where `is_compiled`, of the inputs, holds."""
    compiled, uncompiled = module._compiled_call_impl, module._call_impl  # noqa: SLF001
    assert compiled is not None

    def call(*inputs: Any, **options: Any) -> Any:
        return (compiled if is_compiled(*inputs, **options) else uncompiled)(*inputs, **options)

    module._compiled_call_impl = call  # noqa: SLF001


def unsaved_buffers(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Returns a module's own buffers that are no part of its state dict, by name: constants that it computes itself."""
    own = module._non_persistent_buffers_set  # noqa: SLF001
    return [(name, buffer) for name, buffer in module.named_buffers(recurse=False) if name in own]


def has_workers(iterator: Any) -> bool:
    """Whether an iterator is that of a DataLoader with worker processes."""
    return hasattr(iterator, "_worker_result_queue")


@contextmanager
def raising_memory_errors() -> Iterator[None]:
    """Context, or decorator, in which a lack of the host's memory is a `MemoryError`; torch's is known by its text."""
    try:
        yield
    except RuntimeError as error:
        if "DefaultCPUAllocator" not in str(error):
            raise
        raise MemoryError(str(error).splitlines()[0]) from error


def is_in_backward_pass() -> bool:
    """Whether this thread computes a graph's gradients, as where activations are recomputed."""
    return bool(torch._C._current_graph_task_id() != -1)  # noqa: SLF001


def disable_fused_unscaling(optimizer: torch.optim.Optimizer) -> None:
    """Clears the flag by which GradScaler leaves unscaling to an optimizer, and Lightning refuses to clip."""
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]  # noqa: SLF001
