"""The same run twice is the same, bit for bit."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from lightning.pytorch import LightningModule, seed_everything

from .lever import Lever, require_int
from .process_setting import ProcessSetting


@dataclass(frozen=True)
class Deterministic(Lever):
    """Seeds Python, numpy, torch and workers with `seed`, and takes no algorithm whose result depends on timing.

    Gives: runs that can be compared, and a bug that comes again. Costs: 2 % of a BERT's epoch in the story (22.63 ->
    23.09 min), more where cuDNN would find a faster algorithm; an operation that has no deterministic form is an error
    that names it. Weights that were drawn before, when the module was made, are the user's to seed. Over other numbers
    of devices, other GPUs or other versions of torch results still differ. The process gets its settings back.
    """

    name: ClassVar[str] = "deterministic"
    kind: ClassVar[str] = "deterministic"
    form: ClassVar[str] = "deterministic[:seed]"

    seed: int = 0

    def __post_init__(self) -> None:
        require_int(self, "seed", minimum=0)

    def arguments(self) -> dict[str, Any]:
        """A callback, since the settings are the process's."""
        return {"callbacks": [Determinism(self.seed)]}

    def apply(self, module: LightningModule) -> LightningModule:
        """Sets what cuBLAS reads when it is first used (its documentation, section "Results reproducibility")."""
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        return module


class Determinism(ProcessSetting):
    """Seeds a fit and has it take deterministic algorithms."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def change(self) -> Callable[[], None]:
        """As `ProcessSetting` has it; what was drawn stays drawn."""
        enabled = torch.are_deterministic_algorithms_enabled()
        warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
        benchmark = torch.backends.cudnn.benchmark
        seed_everything(self._seed, workers=True, verbose=False)
        torch.use_deterministic_algorithms(mode=True)
        torch.backends.cudnn.benchmark = False

        def undo() -> None:
            torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
            torch.backends.cudnn.benchmark = benchmark

        return undo
