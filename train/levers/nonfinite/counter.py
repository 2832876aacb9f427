"""Counts steps with NaN or infinity in device tensors, without synchronising in each step."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor


class StepCounts(NamedTuple):
    """Counts of the steps since the last `collect`, over all ranks.

    nonfinite: steps with a non-finite loss, or, without a scaler, gradient. skipped: steps skipped by the scaler
    alone. most_in_a_row, first_in_row: length of the longest series of such steps so far, and its first step, from 0.
    last_finite_loss: NaN if there was none. kept_statistics: batches that running statistics were protected from.
    """

    nonfinite: int
    skipped: int
    most_in_a_row: int
    first_in_row: int
    last_finite_loss: float
    kept_statistics: int


class NonFiniteCounter:
    """Counts non-finite steps of one rank.

    scaler: torch's GradScaler under fp16; the steps skipped by its initial search for a scale are not a series.
    """

    def __init__(self, device: torch.device, scaler: Any) -> None:
        self._device = device
        self._has_scaler = scaler is not None
        self._search_budget = self._tensor(_max_backoffs(scaler))
        self._in_a_row = self._tensor(0)
        self._first_in_row = self._tensor(0)
        self._last_loss = self._tensor(math.nan)
        self._loss_nonfinite = self._gradient_nonfinite = self._false()
        self._nonfinite = self._skipped = self._longest = self._longest_first = self._kept = self._tensor(0)

    def add_loss(self, loss: torch.Tensor | None) -> None:
        """Adds the loss of a batch, a scalar or None."""
        if loss is None or not torch.is_floating_point(loss) or loss.numel() != 1:
            return
        value = loss.detach().to(self._device, torch.float32).reshape(())
        finite = torch.isfinite(value)
        self._last_loss = torch.where(finite, value, self._last_loss)
        self._loss_nonfinite = self._loss_nonfinite | ~finite

    def add_gradients(self, gradients: list[torch.Tensor]) -> None:
        """Adds the gradients of an optimizer, by their total norm, which is finite only if all of them are."""
        if gradients:
            dense = [gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in gradients]
            norm = torch.nn.utils.get_total_norm(dense)
            norm = norm.full_tensor() if isinstance(norm, DTensor) else norm  # over the shards of all ranks
            self._gradient_nonfinite = self._gradient_nonfinite | ~torch.isfinite(norm).to(self._device)

    def add_statistics(self, kept: torch.Tensor | None) -> None:
        """Adds a batch. kept: bool tensor, whether running statistics were protected from it; None without any."""
        if kept is not None:
            self._kept = self._kept + kept.to(self._device)

    def end_step(self, number: int) -> None:
        """Ends step `number`, to which the losses and gradients since the last step belong."""
        nonfinite = self._loss_nonfinite | self._gradient_nonfinite
        skipped = self._gradient_nonfinite & ~self._loss_nonfinite & self._has_scaler
        searching = skipped & (self._search_budget > 0)
        # The search ends with a step that is taken, or at a scale of 1.
        self._search_budget = torch.where(
            self._gradient_nonfinite, self._search_budget - searching.float(), torch.zeros_like(self._last_loss)
        )
        counts = nonfinite & ~searching
        self._first_in_row = torch.where(counts & (self._in_a_row == 0), self._tensor(number), self._first_in_row)
        self._in_a_row = torch.where(counts, self._in_a_row + 1, self._in_a_row * searching)
        longer = self._in_a_row > self._longest
        self._longest = torch.where(longer, self._in_a_row, self._longest)
        self._longest_first = torch.where(longer, self._first_in_row, self._longest_first)
        self._skipped = self._skipped + skipped
        self._nonfinite = self._nonfinite + (nonfinite & ~skipped)
        self._loss_nonfinite = self._gradient_nonfinite = self._false()

    def collect(self, trainer: Any) -> StepCounts:
        """Returns the counts since the last call, maxima over ranks. Synchronises with the device and the ranks."""
        rows = torch.stack(
            [self._nonfinite, self._skipped, self._longest, self._longest_first, self._last_loss, self._kept]
        )
        self._nonfinite = self._skipped = self._kept = self._tensor(0)
        ranks = [rows] if trainer.world_size == 1 else list(trainer.strategy.all_gather(rows))
        by_rank = [rank.tolist() for rank in ranks]
        nonfinite, skipped, kept = (max(int(rank[column]) for rank in by_rank) for column in (0, 1, 5))
        longest = max(by_rank, key=lambda rank: rank[2])
        last = next((rank[4] for rank in by_rank if not math.isnan(rank[4])), math.nan)
        return StepCounts(nonfinite, skipped, int(longest[2]), int(longest[3]), last, kept)

    def _false(self) -> torch.Tensor:
        return torch.zeros((), dtype=torch.bool, device=self._device)

    def _tensor(self, value: float) -> torch.Tensor:
        """Returns a scalar filled on the device: copying one from the host would synchronise."""
        return torch.full((), float(value), device=self._device)


def _max_backoffs(scaler: Any) -> int:
    """Returns how often a scaler can reduce its scale until it is 1."""
    if scaler is None or not scaler.is_enabled():
        return 0
    return max(0, math.ceil(math.log(scaler.get_scale()) / -math.log(scaler.get_backoff_factor())))
