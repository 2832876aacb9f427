"""What a user notices of fewer bits: the same training within noise, and no loss that cannot bear them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from assets_levers import Foreign, fit, images, perceptron, small, weights
from facefeed.train import levers
from facefeed.train.levers.precision import MatmulPrecision
from facefeed.train.machine import Machine
from torch.nn import functional

GPU = Machine(("A100",), (80 << 30,), (8, 0), 8, frozenset(), "/usr/bin/c++")


def test_bf16_trains_as_fp32_does_within_noise() -> None:
    """Factors carry 8 bits, so a product is off by up to 1 in 256; for 40 steps the loss stays within 1 % of the first.

    Noise is what training has anyhow: weights drawn with another seed change the loss by far more.
    """
    curves = []
    for text, seed in (("", 0), ("bf16", 0), ("", 1)):
        module = Foreign(perceptron(seed), lambda parameters: torch.optim.AdamW(parameters, 1e-3))
        fit(module, text, images(32, 8), max_epochs=10)
        curves.append(module.losses)
    full, half, other = curves
    assert full != half
    assert half == pytest.approx(full, abs=0.01 * full[0])
    assert half[-1] < 0.2 * half[0]
    assert max(map(_distance, full, half)) < 0.2 * max(map(_distance, full, other))


def _distance(first: float, second: float) -> float:
    return abs(first - second)


def test_weights_and_their_updates_stay_at_32_bits() -> None:
    module = Foreign(small())
    trainer = fit(module, "bf16")
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}
    state = trainer.optimizers[0].state
    assert {value.dtype for parameter_state in state.values() for value in parameter_state.values()} == {torch.float32}


class Probabilities(Foreign):
    def __init__(self) -> None:
        super().__init__(torch.nn.Sequential(perceptron(), torch.nn.Sigmoid()))
        self.criterion = torch.nn.BCELoss()


class Functional(Foreign):
    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        images, labels = batch
        guess = torch.sigmoid(self.net(images))[:, 0]
        losses = [functional.binary_cross_entropy(p, label.float()) for p, label in zip(guess, labels, strict=True)]
        return torch.stack(losses).mean()


class InFull(Foreign):
    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        images, labels = batch
        guess = self.net(images)[:, 0]
        with torch.autocast("cuda", enabled=False):
            return functional.binary_cross_entropy(torch.sigmoid(guess.float()), labels.float())


class Logits(Foreign):
    def __init__(self) -> None:
        super().__init__(perceptron())
        self.criterion = torch.nn.BCEWithLogitsLoss()

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        images, labels = batch
        return functional.binary_cross_entropy_with_logits(self.net(images)[:, 0], labels.float())


@pytest.mark.parametrize("text", ["fp16", "bf16"])
def test_a_cross_entropy_of_probabilities_is_refused_in_16_bits(text: str) -> None:
    (reason,) = levers.refusals(levers.parse(text), Probabilities(), GPU)
    assert reason.startswith(f"{text}: criterion is a BCELoss, which is not safe in 16 bits; take BCEWithLogitsLoss")
    (reason,) = levers.refusals(levers.parse(text), Functional(perceptron()), GPU)
    assert reason.startswith(f"{text}: Functional.training_step calls binary_cross_entropy")


@pytest.mark.parametrize("module", [Logits(), InFull(perceptron())])
def test_with_logits_or_outside_of_autocast_it_is_not(module: Any) -> None:
    assert levers.refusals(levers.parse("fp16"), module, GPU) == []
    assert levers.refusals(levers.parse("compile"), Probabilities(), GPU) == [
        "compile: Triton, which writes its kernels on CUDA, is not installed; run `pip install triton`"
    ]


class Failing(Foreign):
    def training_step(self, batch: Any, number: int) -> Any:
        self.seen = torch.get_float32_matmul_precision()
        if number == 1:
            raise ArithmeticError
        return super().training_step(batch, number)


def test_tf32_is_on_in_the_fit_alone_also_after_an_error() -> None:
    (callback,) = levers.parse("tf32")[0].arguments()["callbacks"]
    assert isinstance(callback, MatmulPrecision)
    before = torch.get_float32_matmul_precision()
    module = Failing(perceptron())
    fit(module, "", images(4), callbacks=[callback])
    assert module.seen == "high" != before
    assert torch.get_float32_matmul_precision() == before
    with pytest.raises(ArithmeticError):
        fit(module, "", images(8), callbacks=[callback])
    assert torch.get_float32_matmul_precision() == before


def test_channels_last_changes_strides_and_no_result() -> None:
    plain, converted = Foreign(small()), Foreign(small())
    before = weights(converted)
    fit(plain, "", max_epochs=2)
    fit(converted, "channels_last", max_epochs=2)
    assert converted.net[3].weight.is_contiguous(memory_format=torch.channels_last)
    assert not plain.net[3].weight.is_contiguous(memory_format=torch.channels_last)
    assert converted.losses == pytest.approx(plain.losses, rel=1e-3)
    assert weights(converted).keys() == before.keys()
    (reason,) = levers.refusals(levers.parse("channels_last"), Foreign(perceptron()))
    assert "has no convolutions of images" in reason
