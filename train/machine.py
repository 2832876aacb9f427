"""Hardware and optional libraries of a machine: GPUs, cores, compiler, packages."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Self

from ..pipeline.machine import usable_cores

PACKAGES = ("bitsandbytes", "deepspeed", "timm", "torchao", "transformers", "triton")
"""Optional libraries that levers may need."""

TENSOR_CORES, AMPERE = (7, 0), (8, 0)
"""Compute capabilities of the first GPUs with tensor cores, and of those with bf16 and TF32."""


@dataclass(frozen=True)
class Machine:
    """What levers need to know of a machine; tests construct machines other than this one.

    gpus: names of the CUDA devices visible to this process. gpu_memory_bytes: of each. compute_capability: the lowest
    of them, None without a GPU. cores: that this process may use. packages: which of `PACKAGES` are installed.
    compiler: path of a C++ compiler, which torch.compile needs; None if there is none.
    """

    gpus: tuple[str, ...] = ()
    gpu_memory_bytes: tuple[int, ...] = ()
    compute_capability: tuple[int, int] | None = None
    cores: int = 1
    packages: frozenset[str] = frozenset()
    compiler: str | None = None

    @classmethod
    def detect(cls) -> Self:
        """Returns the machine of this process; queries CUDA devices without initialising a context."""
        import torch  # noqa: PLC0415 (takes seconds; a description needs none)

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        devices = [torch.cuda.get_device_properties(number) for number in range(count)]
        return cls(
            gpus=tuple(device.name for device in devices),
            gpu_memory_bytes=tuple(device.total_memory for device in devices),
            compute_capability=min(((device.major, device.minor) for device in devices), default=None),
            cores=usable_cores(),
            packages=frozenset(name for name in PACKAGES if find_spec(name) is not None),
            compiler=next(filter(None, map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))), None),
        )

    def has(self, package: str) -> bool:
        """Whether a library of `PACKAGES` is installed."""
        return package in self.packages

    def is_older_than(self, compute_capability: tuple[int, int]) -> bool:
        """Whether one of its GPUs has a lower compute capability; False without GPUs."""
        return self.compute_capability is not None and self.compute_capability < compute_capability

    @property
    def compute_capability_text(self) -> str:
        """The compute capability in words, for a machine with GPUs."""
        return f"{self.gpus[0]} has compute capability {'.'.join(map(str, self.compute_capability or ()))}"

    def without_gpus(self) -> Self:
        """Returns the machine without its GPUs, as a run with `accelerator="cpu"` sees it."""
        return replace(self, gpus=(), gpu_memory_bytes=(), compute_capability=None)
