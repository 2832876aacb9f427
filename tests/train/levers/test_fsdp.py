"""What a user notices of FSDP: two ranks with a part of the weights each train, stop and resume as one process does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from assets_levers import cpu, fit, images, quietly
from assets_processes import in_processes
from facefeed.train import levers
from facefeed.train.checkpoints import plain
from facefeed.train.levers import FiniteGuard, NonFiniteError
from facefeed.train.model.schedule import decay_groups, decaying_parameters
from torch import nn
from torch.utils.data import DataLoader, Subset

LEVERS = "clip:0.05,accumulate:2,freeze:net.frozen*,checkpointing,fused"


class _Net(nn.Module):
    """Odd sizes, of which the second rank has less or nothing; a weight with two names; a part that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 3, 3, padding=1)
        self.frozen = nn.Linear(192, 9)
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(9, 9), nn.LayerNorm(9), nn.GELU()) for _ in range(3)))
        self.tied = nn.Linear(9, 9)
        self.tied.weight = self.blocks[0][0].weight
        self.gain = nn.Parameter(torch.ones(1))
        self.head = nn.Linear(9, 2)
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen.add_(batch.mean().detach())
        return self.head(self.gain * self.tied(self.blocks(self.frozen(self.stem(batch).flatten(1)))))


class _Module(lightning.LightningModule):
    """Keeps its losses; with `lose`, the second rank's loss is no number from that step on."""

    def __init__(self, lose: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0 if int(os.environ.get("LOCAL_RANK", "0")) == 0 else 7)
        self.net = _Net().double()
        self.losses: list[float] = []
        self.seen: list[float] = []
        self.lose = lose

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(float(loss.detach()))
        return (
            loss * torch.nan if self.lose is not None and self.global_step >= self.lose and self.global_rank else loss
        )

    def validation_step(self, batch: Any, _: int) -> None:
        self.seen.append(float(self.net.seen))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(decay_groups(self, 0.5, decaying_parameters(self)), 0.05)


class _Save(lightning.Callback):
    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.current_epoch == 0:
            trainer.save_checkpoint(self.path)


def _run(strategy: str, data: Any, folder: Path, name: str, ckpt_path: Path | None = None) -> dict[str, Any]:
    """A fit, with a validation after it, and what it left."""
    module = _Module()
    extra = {"callbacks": [_Save(folder / f"{name}.ckpt")], "use_distributed_sampler": False, "num_sanity_val_steps": 0}
    trainer = fit(module, f"{strategy}{LEVERS}", data, val=data, ckpt_path=ckpt_path, max_epochs=2, **extra)
    trainer.save_checkpoint(folder / f"{name}-end.ckpt")
    for saved in (None, folder / f"{name}-end.ckpt"):  # loads while the weights are gathered for the validation before
        quietly(trainer.validate, module, data, ckpt_path=saved, verbose=False)
    (optimizer,) = trainer.strategy.optimizers
    return {
        "losses": module.losses, "seen": module.seen, "gathered": trainer.strategy.lightning_module_state_dict(),
        "held": sum(tensor.numel() for tensor in map(_local, module.parameters())),
        "decaying": [len(group["params"]) for group in optimizer.param_groups if group["weight_decay"]],
    }  # fmt: skip


def _local(parameter: Any) -> torch.Tensor:
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


def on_a_rank(folder: str) -> None:
    """Runs in both processes: a fit; one resumed in its middle; one resumed from a single process; one that is lost."""
    from facefeed.train.levers.ranks import fsdp_strategy  # noqa: PLC0415

    fsdp_strategy.MIN_UNIT_PARAMETERS = 90  # of a network this small
    path, rank = Path(folder), int(os.environ["LOCAL_RANK"])
    data = DataLoader(Subset(images(48, 8, torch.float64).dataset, range(rank, 48, 2)), 4)
    report = {
        "whole": _run("fsdp:2,", data, path, "whole"),
        "resumed": _run("fsdp:2,", data, path, "resumed", path / "whole.ckpt"),
        "from alone": _run("fsdp:2,", data, path, "from alone", path / "alone.ckpt"),
        "lost": "",
    }
    try:
        fit(_Module(lose=2), "fsdp:2", data, callbacks=[FiniteGuard(patience=4)], use_distributed_sampler=False)
    except NonFiniteError as error:
        report["lost"] = str(error)
    torch.save(report, path / f"rank{rank}.pt")


@pytest.fixture(scope="module")
def single_process(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """What one process comes to, with the batches of both ranks, and weights in a layout that fsdp takes none of; and
    the folder.
    """
    path = tmp_path_factory.mktemp("fsdp")
    return _run("channels_last,", images(48, 8, torch.float64), path, "alone"), path


@pytest.fixture(scope="module")
def ranks(single_process: tuple[dict[str, Any], Path]) -> list[dict[str, Any]]:
    """What two ranks come to, by rank."""
    folder = single_process[1]
    stage = {"run": f"{__file__}:on_a_rank", "ranks": 2, "arguments": {"folder": str(folder)}}
    assert in_processes(stage) == [[0, 0]]
    return [torch.load(folder / f"rank{rank}.pt") for rank in (0, 1)]


def _same(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Weights are, to 1e-12; the buffer is of the rank's own batches."""
    assert actual.keys() == expected.keys()
    for name in actual.keys() - {"net.seen"}:
        torch.testing.assert_close(actual[name], expected[name], rtol=0, atol=1e-12)


@pytest.mark.processes
def test_losses_and_weights_are_those_of_one_process_with_decay_clipping_and_accumulation(
    single_process: tuple[dict[str, Any], Path], ranks: list[dict[str, Any]]
) -> None:
    """In float64. Rank 1 begins with other weights than rank 0, whose weights count."""
    first, second = (report["whole"] for report in ranks)
    _same(first["gathered"], single_process[0]["gathered"])
    assert first["decaying"] == single_process[0]["decaying"] == [5]
    means = [(a + b) / 2 for a, b in zip(first["losses"], second["losses"], strict=True)]
    assert means == pytest.approx(single_process[0]["losses"], abs=1e-12)
    assert first["losses"] != second["losses"]


@pytest.mark.processes
def test_each_rank_keeps_a_part_and_validates_with_the_buffers_of_rank_0(
    single_process: tuple[dict[str, Any], Path], ranks: list[dict[str, Any]]
) -> None:
    first, second = (report["whole"] for report in ranks)
    assert first["held"] + second["held"] == single_process[0]["held"]
    assert second["held"] > 0.4 * single_process[0]["held"]
    assert second["gathered"] == {}
    assert first["seen"] == second["seen"] != single_process[0]["seen"]
    assert float(first["gathered"]["net.seen"]) == first["seen"][-1] != 0


@pytest.mark.processes
def test_one_checkpoint_file_resumes_on_two_ranks_and_on_one_process(
    single_process: tuple[dict[str, Any], Path], ranks: list[dict[str, Any]]
) -> None:
    """The second epoch, from the file that the first one left: every way comes to the same weights."""
    undisturbed, folder = single_process
    assert ranks[0]["resumed"]["losses"] == ranks[0]["whole"]["losses"][6:]
    for name, weight in ranks[0]["whole"]["gathered"].items():
        assert torch.equal(ranks[0]["resumed"]["gathered"][name], weight)
    _same(ranks[0]["from alone"]["gathered"], undisturbed["gathered"])
    continued = _run("channels_last,", images(48, 8, torch.float64), folder, "back", folder / "whole.ckpt")
    _same(continued["gathered"], undisturbed["gathered"])
    saved, expected = (
        plain.read_checkpoint(folder / f"{name}.ckpt")["optimizer_states"] for name in ("whole", "alone")
    )
    torch.testing.assert_close(saved, expected, rtol=0, atol=1e-12)


@pytest.mark.processes
def test_a_loss_that_is_no_number_on_one_rank_stops_both_alike(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["lost"].startswith("loss or gradient is NaN or infinite in 4 steps in a row, from step 2 on")
    assert ranks[1]["lost"] == ranks[0]["lost"]


def test_a_parameter_without_a_dimension_is_refused() -> None:
    module = _Module()
    module.scale = nn.Parameter(torch.tensor(1.0))
    with pytest.raises(levers.LeverError, match=r"fsdp:2: scale is one number without a dimension"):
        levers.trainer(module, levers.parse("fsdp:2"), **cpu())
