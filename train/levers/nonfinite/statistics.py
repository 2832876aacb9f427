"""Protects running statistics of BatchNorm, which one non-finite batch would make NaN for good."""

from __future__ import annotations

import torch
from torch import nn

from ...torch_internals import NormBase, foreach_copy_


class RunningStatistics:
    """Keeps the running means and variances of a module's normalisation layers finite.

    They are moving averages, which NaN or infinity never leaves. fp16's scaler skips the step of such a batch, but its
    forward pass has updated them by then. Runs on the device without synchronising.
    """

    def __init__(self, module: nn.Module) -> None:
        norms = [layer for layer in module.modules() if isinstance(layer, NormBase) and layer.running_mean is not None]
        buffers = [buffer for norm in norms for buffer in (norm.running_mean, norm.running_var) if buffer is not None]
        self._buffers = list({id(buffer): buffer for buffer in buffers}.values())
        self._sizes = [buffer.numel() for buffer in self._buffers]
        self._before = self._flattened() if self._buffers else None

    def keep_finite(self) -> torch.Tensor | None:
        """Restores all statistics as they were before the last batch, unless all are finite.

        Returns whether it did, a bool scalar tensor; None for a module without running statistics.
        """
        if self._before is None:
            return None
        current = self._flattened()
        finite = current.isfinite().all()
        self._before = torch.where(finite, current, self._before)
        foreach_copy_(self._buffers, torch.split(self._before, self._sizes))
        return ~finite

    def _flattened(self) -> torch.Tensor:
        """Returns all statistics as one flat tensor."""
        return torch.cat(self._buffers)
