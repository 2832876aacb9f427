"""What a user notices of accumulation: the very training of a larger batch, also where an epoch ends in mid-group."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from assets_levers import Foreign, cpu, fit, images, perceptron, quietly, weights
from facefeed.train.levers import LeverError
from lightning import Trainer
from torch.utils.data import DataLoader


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 1e-2)


def module(configure: Any) -> Foreign:
    return Foreign(perceptron().double(), configure)


def data(batch_size: int) -> Any:
    return images(24, batch_size, torch.float64)  # six batches of 4: one group of four and one of two


def means(losses: list[float], *sizes: int) -> list[float]:
    remaining = list(losses)
    return [sum(remaining.pop(0) for _ in range(size)) / size for size in sizes]


@pytest.mark.parametrize("configure", [sgd, adamw])
def test_four_batches_a_step_are_the_steps_of_a_batch_four_times_as_large(configure: Any) -> None:
    """In float64, where only the order of sums differs: to 1e-12 of the loss, and of the largest weight."""
    accumulated, full_batch = module(configure), module(configure)
    steps = fit(accumulated, "accumulate:4", data(4), max_epochs=4).global_step
    assert steps == fit(full_batch, "", data(16), max_epochs=4).global_step == 8
    assert means(accumulated.losses, *[4, 2] * 4) == pytest.approx(full_batch.losses, rel=1e-12)
    for name, weight in weights(full_batch).items():
        torch.testing.assert_close(weights(accumulated)[name], weight, rtol=0, atol=1e-12)


def test_lightning_alone_would_make_a_last_short_group_too_small() -> None:
    lightning_only, full_batch = module(sgd), module(sgd)
    trainer = quietly(Trainer, **cpu(accumulate_grad_batches=4))
    quietly(trainer.fit, lightning_only, data(4))
    fit(full_batch, "", data(16))
    assert (weights(lightning_only)["net.1.weight"] - weights(full_batch)["net.1.weight"]).abs().max() > 1e-4


def test_a_gradient_is_clipped_once_all_of_it_is_there() -> None:
    accumulated, full_batch = module(sgd), module(sgd)
    fit(accumulated, "accumulate:4,clip:0.1", data(4))
    fit(full_batch, "clip:0.1", data(16))
    torch.testing.assert_close(
        weights(accumulated)["net.1.weight"], weights(full_batch)["net.1.weight"], rtol=0, atol=1e-12
    )


class Sparing(Foreign):
    """Leaves every third batch out."""

    def training_step(self, batch: Any, number: int) -> Any:
        return None if number % 3 == 2 else super().training_step(batch, number)


def test_a_batch_without_a_loss_does_not_make_the_others_smaller() -> None:
    sparing, dense = Sparing(perceptron().double(), sgd), module(sgd)
    fit(sparing, "accumulate:3", data(4))
    batches: Any = [batch for number, batch in enumerate(data(4)) if number % 3 != 2]
    fit(dense, "accumulate:2", DataLoader(batches, batch_size=None))
    torch.testing.assert_close(weights(sparing)["net.1.weight"], weights(dense)["net.1.weight"], rtol=0, atol=1e-12)


class Counting(Foreign):
    """Counts validations."""

    count = 0

    def on_validation_start(self) -> None:
        self.count += 1


def test_an_interval_that_is_longer_than_an_epoch_is_refused_by_the_number_that_was_given() -> None:
    options: dict[str, Any] = {"val": data(8), "num_sanity_val_steps": 0, "max_epochs": 4}
    with pytest.raises(LeverError, match=r"val_check_interval=3 is 3 optimizer steps of 4 batches, .* has 6 batches"):
        fit(module(sgd), "accumulate:4", data(4), val_check_interval=3, **options)
    last_is_short, over_epochs = (Counting(perceptron().double(), sgd) for _ in range(2))
    fit(last_is_short, "accumulate:4", data(4), val_check_interval=2, **options)
    fit(over_epochs, "accumulate:4", data(4), val_check_interval=3, check_val_every_n_epoch=None, **options)
    assert (last_is_short.count, over_epochs.count) == (4, 2)


@pytest.mark.parametrize(("interval", "validations"), [(2, 3), (0.5, 2), (None, 1)])
def test_an_interval_of_validation_counts_steps(interval: Any, validations: int) -> None:
    counting = Counting(perceptron().double(), sgd)
    options = {} if interval is None else {"val_check_interval": interval}
    fit(counting, "accumulate:4", images(96, 4, torch.float64), val=data(8), num_sanity_val_steps=0, **options)
    assert counting.count == validations
