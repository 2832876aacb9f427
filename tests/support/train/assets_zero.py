"""DeepSpeed's ZeRO on CPU ranks: DeepSpeed runs there, and only Lightning and the lever ask for a GPU."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


def allow_zero_on_cpus() -> None:
    """Lets this process train under `zero` without a GPU, by gloo; for the rest of its life."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    import lightning.pytorch.strategies.deepspeed as strategies  # noqa: PLC0415 (the environment comes first)
    import torch  # noqa: PLC0415
    from facefeed.train.levers.ranks.sharded import Zero  # noqa: PLC0415
    from lightning.pytorch.accelerators import CPUAccelerator  # noqa: PLC0415

    def numbered(devices: int) -> list[torch.device]:
        return [torch.device("cpu", index) for index in range(devices)]

    changes: list[tuple[Any, str, Any]] = [
        (import_module("deepspeed.comm.torch"), "build_shm_op", lambda: None),  # it would be compiled
        (strategies, "CUDAAccelerator", CPUAccelerator),
        (strategies, "_validate_device_index_selection", lambda _: None),  # CUDA's
        (CPUAccelerator, "get_parallel_devices", staticmethod(numbered)),
        (Zero, "refusal", lambda *_: None),
    ]
    for owner, name, value in changes:
        setattr(owner, name, value)
