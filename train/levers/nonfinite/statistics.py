"""Running statistics of BatchNorm that one batch which is not finite would make NaN for good."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase


class RunningStatistics:
    """The running means and variances of a module's normalisations, kept finite.

    One NaN or infinity in them never leaves: each batch only mixes a share of its own figures in. fp16's scaler skips
    the step of such a batch, but its forward pass has changed them by then. All on the device, without waiting for it.
    """

    def __init__(self, module: nn.Module) -> None:
        norms = [one for one in module.modules() if isinstance(one, _NormBase) and one.running_mean is not None]
        found = [buffer for one in norms for buffer in (one.running_mean, one.running_var) if buffer is not None]
        self._buffers = list({id(one): one for one in found}.values())
        self._sizes = [one.numel() for one in self._buffers]
        self._before = self._now() if self._buffers else None

    def keep_finite(self) -> torch.Tensor | None:
        """After a batch: unless each of them is finite, puts all back as they were before it.

        Returns whether it did, a bool tensor without dimensions; None of a module without such statistics.
        """
        if self._before is None:
            return None
        now = self._now()
        finite = now.isfinite().all()
        self._before = torch.where(finite, now, self._before)
        torch._foreach_copy_(self._buffers, torch.split(self._before, self._sizes))
        return ~finite

    def _now(self) -> torch.Tensor:
        """One after the other, flat."""
        return torch.cat(self._buffers)
