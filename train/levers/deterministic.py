"""Bitwise reproducible training."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import LightningModule, seed_everything

from .lever import Lever, require_int
from .process_setting import ProcessSetting


@dataclass(frozen=True)
class Deterministic(Lever, name="deterministic", form="deterministic[:seed]"):
    """Seeds Python, numpy, torch and workers with `seed` (None: 0), and uses deterministic algorithms only.

    A run of `facefeed train` is seeded by its own `seed`, which this one must equal if it is given.
    Gives: comparable runs and reproducible bugs. Costs: 2 % of a BERT's epoch (22.63 -> 23.09 min), more where cuDNN
    benchmarking would find a faster algorithm; an operation without a deterministic algorithm raises an error that
    names it. Initial weights, drawn when the module is constructed, are for the user to seed. Results still differ
    between numbers of devices, GPU models and versions of torch. The process's settings are restored after the fit.
    """

    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            require_int(self, "seed", minimum=0)

    def arguments(self) -> dict[str, Any]:
        """Returns a callback that changes the process's settings during the fit."""
        return {"callbacks": [DeterministicAlgorithms(self.seed or 0)]}

    def apply(self, module: LightningModule) -> LightningModule:
        """Sets the variable that cuBLAS reads at its first use (its documentation, "Results reproducibility")."""
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        return module


class DeterministicAlgorithms(ProcessSetting):
    """Seeds a fit and enables deterministic algorithms during it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def change(self) -> Callable[[], None]:
        """Seeds and enables deterministic algorithms; seeds are not restored."""
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
