"""What is finite of each step, told on the device itself, so that no step waits for the host."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor


class Seen(NamedTuple):
    """Of the steps since the last look, over all ranks.

    nonfinite: steps whose loss, or whose gradient without a scaler, was not finite. skipped: steps that only the scaler
    left out. most_in_a_row and began: the longest row that ends in one of them, and its first step, from 0.
    last_finite_loss: NaN where none was. kept_statistics: batches that running statistics were kept from.
    """

    nonfinite: int
    skipped: int
    most_in_a_row: int
    began: int
    last_finite_loss: float
    kept_statistics: int


class WatchedSteps:
    """The steps of one rank. scaler: torch's GradScaler under fp16, whose search is no row of bad steps."""

    def __init__(self, device: torch.device, scaler: Any) -> None:
        self._device = device
        self._scaled = scaler is not None
        self._may_skip = self._tensor(_halvings(scaler))
        self._in_a_row = self._tensor(0)
        self._began = self._tensor(0)
        self._last = self._tensor(math.nan)
        self._loss_bad = self._gradient_bad = self._no()
        self._nonfinite = self._skipped = self._most = self._most_began = self._kept = self._tensor(0)

    def loss(self, loss: torch.Tensor | None) -> None:
        """A batch's loss is there, one number or none."""
        if loss is None or not torch.is_floating_point(loss) or loss.numel() != 1:
            return
        value = loss.detach().to(self._device, torch.float32).reshape(())
        finite = torch.isfinite(value)
        self._last = torch.where(finite, value, self._last)
        self._loss_bad = self._loss_bad | ~finite

    def gradients(self, gradients: list[torch.Tensor]) -> None:
        """An optimizer's gradients are there. Their norm is finite where all of them are."""
        if gradients:
            dense = [one.coalesce().values() if one.is_sparse else one for one in gradients]
            norm = torch.nn.utils.get_total_norm(dense)
            norm = norm.full_tensor() if isinstance(norm, DTensor) else norm  # of all ranks' parts
            self._gradient_bad = self._gradient_bad | ~torch.isfinite(norm).to(self._device)

    def statistics(self, kept: torch.Tensor | None) -> None:
        """A batch is done; kept: whether running statistics were kept from it, a bool tensor; None: there are none."""
        if kept is not None:
            self._kept = self._kept + kept.to(self._device)

    def step(self, number: int) -> None:
        """The batches and gradients since the last step belong to this one."""
        bad = self._loss_bad | self._gradient_bad
        skipped = self._gradient_bad & ~self._loss_bad & self._scaled
        searching = skipped & (self._may_skip > 0)
        # A step that was taken ends the search, as does a scale of 1.
        self._may_skip = torch.where(
            self._gradient_bad, self._may_skip - searching.float(), torch.zeros_like(self._last)
        )
        counts = bad & ~searching
        self._began = torch.where(counts & (self._in_a_row == 0), self._tensor(number), self._began)
        self._in_a_row = torch.where(counts, self._in_a_row + 1, self._in_a_row * searching)
        longer = self._in_a_row > self._most
        self._most = torch.where(longer, self._in_a_row, self._most)
        self._most_began = torch.where(longer, self._began, self._most_began)
        self._skipped = self._skipped + skipped
        self._nonfinite = self._nonfinite + (bad & ~skipped)
        self._loss_bad = self._gradient_bad = self._no()

    def take(self, trainer: Any) -> Seen:
        """What was seen since the last call, on whichever rank saw most of it. Waits for the device and the ranks."""
        rows = torch.stack([self._nonfinite, self._skipped, self._most, self._most_began, self._last, self._kept])
        self._nonfinite = self._skipped = self._most = self._most_began = self._kept = self._tensor(0)
        ranks = [rows] if trainer.world_size == 1 else list(trainer.strategy.all_gather(rows))
        told = [rank.tolist() for rank in ranks]
        nonfinite, skipped, kept = (max(int(rank[column]) for rank in told) for column in (0, 1, 5))
        worst = max(told, key=lambda rank: rank[2])
        last = next((rank[4] for rank in told if not math.isnan(rank[4])), math.nan)
        return Seen(nonfinite, skipped, int(worst[2]), int(worst[3]), last, kept)

    def _no(self) -> torch.Tensor:
        return torch.zeros((), dtype=torch.bool, device=self._device)

    def _tensor(self, value: float) -> torch.Tensor:
        """Made on the device: a value that comes from the host would be waited for."""
        return torch.full((), float(value), device=self._device)


def _halvings(scaler: Any) -> int:
    """How often a scaler may make its scale smaller until it is 1."""
    if scaler is None or not scaler.is_enabled():
        return 0
    return max(0, math.ceil(math.log(scaler.get_scale()) / -math.log(scaler.get_backoff_factor())))
