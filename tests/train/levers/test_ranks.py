"""What a user notices of several ranks: two train as one does on both their batches, and stop together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_levers import Foreign, fit, images, perceptron, weights
from assets_processes import in_processes
from facefeed.train.levers import FiniteGuard, NonFiniteError
from torch.utils.data import DataLoader, Subset

STEPS = 5


class Trained(Foreign):
    """Keeps its weights after some steps; later, with several ranks, the second one has no loss that is a number."""

    def __init__(self) -> None:
        super().__init__(perceptron().double(), lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9))

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        if self.global_step == STEPS:
            self.kept = weights(self)
        loss = super().training_step(batch, number)
        return loss * torch.nan if self.global_step > STEPS and self.global_rank else loss


def on_a_rank(folder: str) -> None:
    """Runs in both processes."""
    module, message = Trained(), ""
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    loader = DataLoader(Subset(images(96, 8, torch.float64).dataset, range(rank, 96, 2)), 4)
    try:
        fit(module, "ddp:2", loader, callbacks=[FiniteGuard(patience=4)], use_distributed_sampler=False)
    except NonFiniteError as error:
        message = str(error)
    report = {"weights": module.kept, "losses": module.losses, "told": message}
    torch.save(report, Path(folder, f"rank{rank}.pt"))


@pytest.mark.processes
def test_two_ranks_are_one_with_both_their_batches_and_stop_together_where_one_is_lost(tmp_path: Path) -> None:
    """In float64: the same weights to 1e-12.

    The steps are looked at every 4: from step 6 on, counted from 0, they are not finite on either rank, since the
    gradient is both ranks'; at the eighth there are two in a row, at the twelfth six.
    """
    stage = {"run": f"{__file__}:on_a_rank", "ranks": 2, "arguments": {"folder": str(tmp_path)}}
    assert in_processes(stage) == [[0, 0]]
    first, second = (torch.load(tmp_path / f"rank{rank}.pt") for rank in (0, 1))

    single_process = Trained()
    fit(single_process, "", images(96, 8, torch.float64))
    for name, weight in single_process.kept.items():
        assert torch.equal(first["weights"][name], second["weights"][name])
        torch.testing.assert_close(first["weights"][name], weight, rtol=0, atol=1e-12)
    means = [(a + b) / 2 for a, b in zip(first["losses"], second["losses"], strict=True)]
    torch.testing.assert_close(means[: STEPS + 1], single_process.losses[: STEPS + 1], rtol=0, atol=1e-12)

    assert len(first["losses"]) == len(second["losses"]) == 12
    assert first["told"].startswith("loss or gradient is NaN or infinite in 6 steps in a row, from step 6 on; the last")
    assert second["told"] == first["told"]
