"""What a user notices of steps that are not finite: they are counted, and a lost run stops and says since when."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_levers import Foreign, fit, images, perceptron, small
from facefeed.pipeline.errors import UsageError
from facefeed.train import levers
from facefeed.train.levers import FiniteGuard, NonFiniteError
from facefeed.train.levers.nonfinite.counter import NonFiniteCounter
from lightning.pytorch import Callback
from lightning.pytorch.plugins import MixedPrecision
from torch.utils._python_dispatch import TorchDispatchMode


class Spoilt(Foreign):
    """Has a loss times something in some steps, and survives it, since it takes no step that changes anything."""

    def __init__(self, spoilt: Collection[int], by: float) -> None:
        super().__init__(perceptron(), lambda parameters: torch.optim.SGD(parameters, 0.0))
        self.spoilt, self.by = spoilt, by

    def on_before_optimizer_step(self, _: Any) -> None:
        for parameter in self.parameters():
            parameter.grad.nan_to_num_(0)

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        loss = super().training_step(batch, number)
        return loss * self.by if self.global_step in self.spoilt else loss


def guarded(module: Any, guard: FiniteGuard, text: str = "", **options: Any) -> Any:
    return fit(module, text, images(80), callbacks=[guard], **options)


@pytest.mark.parametrize("by", [torch.inf, -torch.inf, torch.nan])
def test_steps_that_are_not_finite_are_counted(by: float) -> None:
    guard = FiniteGuard(patience=3)
    trainer = guarded(Spoilt({2, 5, 6, 9}, by), guard)
    assert trainer.global_step == 20
    assert guard.metrics() == {"nonfinite_steps": 4, "scaler_skips": 0, "kept_statistics": 0}
    assert levers.metrics(trainer) == {"finite": guard.metrics()}


def test_too_many_in_a_row_stop_it_with_the_first_of_them_and_the_last_finite_loss() -> None:
    guard = FiniteGuard(patience=3)
    module = Spoilt({1, *range(5, 20)}, torch.nan)
    with pytest.raises(NonFiniteError) as stopped:
        guarded(module, guard)
    last = module.losses[4]
    assert str(stopped.value).startswith("loss or gradient is NaN or infinite in 3 steps in a row, from step 5 on;")
    assert f"; the last finite loss was {last:.6g}. Lower the learning rate" in str(stopped.value)
    assert len(module.losses) == 8
    assert stopped.value.exit_code == 1
    expected = {"nonfinite_steps": 4, "scaler_skips": 0, "kept_statistics": 0, "step": 5}
    expected["last_finite_loss"] = pytest.approx(last)
    assert stopped.value.details == expected
    json.dumps(stopped.value.details)


def test_the_last_finite_loss_is_that_of_a_batch_also_where_batches_are_accumulated() -> None:
    module = Spoilt(range(5, 20), torch.nan)
    with pytest.raises(NonFiniteError) as stopped:
        guarded(module, FiniteGuard(patience=2), "accumulate:2")
    assert stopped.value.details["last_finite_loss"] == pytest.approx(module.losses[9])


def test_from_the_first_step_on_there_is_no_last_finite_loss() -> None:
    with pytest.raises(NonFiniteError, match="from step 0 on; none was finite before"):
        guarded(Spoilt(range(20), torch.inf), FiniteGuard(patience=2))


class Root(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + torch.sqrt(inputs.detach() * 0 + self.weight)

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))  # whose square root has no slope


def test_a_gradient_that_is_not_finite_counts_although_the_loss_is() -> None:
    module = Spoilt((), 0)
    module.net = torch.nn.Sequential(module.net, Root())
    with pytest.raises(NonFiniteError, match="in 4 steps in a row, from step 0"):
        guarded(module, FiniteGuard(patience=4))
    assert all(map(torch.isfinite, map(torch.tensor, module.losses)))


def test_a_group_of_batches_counts_as_one_step() -> None:
    class OfBatches(Spoilt):
        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            loss = Foreign.training_step(self, batch, number)
            return loss * torch.nan if number in (4, 5, 9) else loss

    guard = FiniteGuard()
    guarded(OfBatches((), 0), guard, "accumulate:4")
    assert guard.metrics()["nonfinite_steps"] == 2


def scaled(scale: float = 2.0**16) -> Any:
    """fp16 with torch's real scaler, which works on a CPU too."""
    return MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=scale))


def test_the_steps_in_which_fp16s_scaler_searches_are_counted_apart_and_stop_nothing() -> None:
    guard = FiniteGuard(patience=3)
    module = Spoilt(range(20), 1e5)  # of 65504 and above there is no fp16
    trainer = guarded(module, guard, plugins=[scaled()])
    skips = guard.metrics()["scaler_skips"]
    assert skips > guard.patience
    assert trainer.scaler.get_scale() == 2.0 ** (16 - skips)
    assert guard.metrics()["nonfinite_steps"] == 0


def test_skips_after_the_search_are_a_row_and_so_is_a_loss_that_is_none() -> None:
    module = Spoilt(range(8, 20), 1e30)
    guard = FiniteGuard(patience=3)
    with pytest.raises(NonFiniteError, match="in 3 steps in a row, from step 8"):
        guarded(module, guard, plugins=[scaled(16.0)])
    assert guard.metrics() == {"nonfinite_steps": 0, "scaler_skips": 3, "kept_statistics": 0}
    with pytest.raises(NonFiniteError, match="in 3 steps in a row, from step 0"):
        guarded(Spoilt(range(20), torch.nan), FiniteGuard(patience=3), plugins=[scaled()])


def test_a_search_that_ends_at_a_scale_of_1_without_a_step_is_a_row() -> None:
    guard = FiniteGuard(patience=3)
    with pytest.raises(NonFiniteError, match="in 3 steps in a row, from step 4"):
        guarded(Spoilt(range(20), 1e30), guard, plugins=[scaled(16.0)])
    assert guard.metrics()["scaler_skips"] == 7


def test_what_was_counted_goes_on_after_a_resume(tmp_path: Path) -> None:
    guard, resumed = FiniteGuard(), FiniteGuard()
    guarded(Spoilt({3}, torch.nan), guard).save_checkpoint(tmp_path / "one.ckpt")
    guarded(Spoilt({23, 24}, torch.nan), resumed, max_epochs=2, ckpt_path=tmp_path / "one.ckpt")
    assert resumed.metrics()["nonfinite_steps"] == 3


class ReadAsOnAGpu(FiniteGuard):
    """Reads the counts every `patience` steps."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        super().on_train_start(trainer, pl_module)
        self._check_every = self.patience


class SaveAt(Callback):
    """Saves a checkpoint after a step."""

    def __init__(self, step: int, path: Path) -> None:
        self.step, self.path = step, path

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)


def test_a_checkpoint_has_the_counts_of_all_steps_before_it_also_of_those_not_read_yet(tmp_path: Path) -> None:
    guard, resumed = ReadAsOnAGpu(), ReadAsOnAGpu()
    saved = SaveAt(15, tmp_path / "one.ckpt")  # those of ten steps have been read by then
    fit(Spoilt({3, 12, 14, 17}, torch.nan), "", images(80), callbacks=[guard, saved])
    assert guard.metrics()["nonfinite_steps"] == 4
    guarded(Spoilt((), 0), resumed, ckpt_path=saved.path)
    assert resumed.metrics()["nonfinite_steps"] == 3


def test_a_series_before_a_checkpoint_stops_it_all_the_same(tmp_path: Path) -> None:
    guard, saved = ReadAsOnAGpu(patience=4), SaveAt(14, tmp_path / "one.ckpt")
    with pytest.raises(NonFiniteError, match="in 4 steps in a row, from step 10 on"):
        fit(Spoilt(range(10, 14), torch.nan), "", images(80), callbacks=[guard, saved])


class Engine(Spoilt):
    """Counts the steps that it skips, and keeps the number in checkpoints, as DeepSpeed's engine does."""

    def __init__(self, skipping: Collection[int]) -> None:
        super().__init__((), 0)
        self.skipping, self.skipped_steps = skipping, 0

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        super().on_before_optimizer_step(optimizer)
        self.skipped_steps += self.global_step in self.skipping

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["skipped_steps"] = self.skipped_steps

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.skipped_steps = checkpoint["skipped_steps"]


def test_steps_that_deepspeed_skipped_before_a_resume_are_counted_once(tmp_path: Path) -> None:
    guard, resumed = FiniteGuard(), FiniteGuard()
    guarded(Engine({3, 4}), guard).save_checkpoint(tmp_path / "one.ckpt")
    assert guard.metrics()["scaler_skips"] == 2
    guarded(Engine({25}), resumed, max_epochs=2, ckpt_path=tmp_path / "one.ckpt")
    assert resumed.metrics()["scaler_skips"] == 3


def test_an_overflow_that_deepspeed_skips_is_no_step_of_nan_though_offload_shows_the_gradient() -> None:
    class Offloading(Engine):
        def fp16_enabled(self) -> bool:
            return True

        def on_after_backward(self) -> None:
            self.fill_gradients(float("inf"))

        def configure_gradient_clipping(self, *_: Any, **__: Any) -> None:
            self.fill_gradients(0.0)  # after the guard: nothing of a skipped step reaches the weights

        def fill_gradients(self, value: float) -> None:
            for parameter in self.parameters():
                if parameter.grad is not None and self.global_step in self.skipping:
                    parameter.grad.fill_(value)

    guard = FiniteGuard()
    guarded(Offloading({3, 4}), guard)
    assert guard.metrics() == {"nonfinite_steps": 0, "scaler_skips": 2, "kept_statistics": 0}


@pytest.mark.parametrize("text", ["clip:0.01", "clip:0.01,fused", "fused,clip:0.01"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("fused", [False, True])
def test_clipping_comes_after_the_scale_is_taken_out(text: str, precision: str, fused: bool) -> None:
    norms: list[float] = []

    class Watched(Foreign):
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), 0.1, fused=fused)
            optimizer.register_step_post_hook(lambda *_: norms.append(float(length(self.parameters()))))
            return optimizer

    plugins = [scaled(1024.0)] if precision == "fp16" else [MixedPrecision("bf16-mixed", "cpu")]
    fit(Watched(perceptron()), text, plugins=plugins)
    assert norms == pytest.approx([0.01] * 4, rel=1e-3)


def length(parameters: Any) -> torch.Tensor:
    return torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters])


@pytest.mark.parametrize("patience", [0, -1, 1.5, True, None])
def test_a_patience_that_cannot_be_meant_is_refused(patience: Any) -> None:
    with pytest.raises(UsageError, match=r"patience=.*must be (a whole number of )?at least 1; try 10"):
        FiniteGuard(patience=patience)


# ---- running statistics


class Overflowed(Spoilt):
    """Has one batch of images that are too large, whose step leaves the weights as they are, as fp16's scaler does."""

    def __init__(self, spoilt: int | None) -> None:
        super().__init__((), 0)
        self.net = small()
        self.batch = spoilt

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        images, labels = batch
        return super().training_step((images * torch.inf if number == self.batch else images, labels), number)


def statistics(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: buffer.clone() for name, buffer in module.named_buffers() if "running" in name}


def test_a_batch_that_is_not_finite_leaves_batchnorms_running_statistics_as_they_were() -> None:
    guard, spoilt, other = FiniteGuard(), Overflowed(spoilt=19), Overflowed(spoilt=None)
    guarded(spoilt, guard)
    guarded(other, FiniteGuard(), limit_train_batches=19)
    assert guard.metrics()["kept_statistics"] == 1
    actual, expected = statistics(spoilt), statistics(other)
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


def test_running_statistics_go_on_after_a_batch_that_is_not_finite() -> None:
    guard, module = FiniteGuard(), Overflowed(spoilt=3)
    before = statistics(module)
    guarded(module, guard)
    assert guard.metrics() == {"nonfinite_steps": 1, "scaler_skips": 0, "kept_statistics": 1}
    after = statistics(module)
    assert all(
        bool(buffer.isfinite().all()) and not torch.equal(buffer, before[name]) for name, buffer in after.items()
    )


# ---- what it costs


class Operations(TorchDispatchMode):
    """Notes the operations. `torch.tensor` lifts what it makes on the host and copies, which waits for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def test_a_step_copies_no_number_from_the_host_which_would_wait_for_the_device() -> None:
    device = torch.device("meta")
    steps = NonFiniteCounter(device, None)
    gradient = torch.ones(3, device=device)
    with Operations() as seen:
        for number in range(3):
            steps.add_loss(torch.ones((), device=device))
            steps.add_gradients([gradient])
            steps.add_statistics(torch.zeros((), dtype=torch.bool, device=device))
            steps.end_step(number)
    assert "where" in seen.names
    assert "lift_fresh" not in seen.names
