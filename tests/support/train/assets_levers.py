"""LightningModules that know nothing of levers, and a fit with levers, for the tests of `facefeed.train.levers`."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import lightning
import torch
from facefeed.train import levers
from lightning.fabric.utilities.warnings import PossibleUserWarning
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

Configure = Callable[[Any], Any]
"""Makes what `configure_optimizers` returns of a module's parameters."""


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 1e-2)


class Foreign(lightning.LightningModule):
    """A typical user's module; records losses and learning rates by step."""

    def __init__(self, net: torch.nn.Module, configure: Configure = adamw) -> None:
        super().__init__()
        self.net = net
        self.configure = configure
        self.losses: list[float] = []
        self.rates: list[list[float]] = []

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        images, labels = batch
        loss = functional.cross_entropy(self.net(images), labels)
        self.losses.append(float(loss.detach()))
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        images, labels = batch
        self.log("val_loss", functional.cross_entropy(self.net(images), labels))

    def on_train_batch_start(self, *_: Any) -> None:
        optimizers = self.optimizers()
        first = optimizers[0] if isinstance(optimizers, list) else optimizers
        self.rates.append([float(group["lr"]) for group in first.param_groups])

    def configure_optimizers(self) -> Any:
        return self.configure(self.parameters())


def small(seed: int = 0) -> torch.nn.Module:
    """A network of images with BatchNorm and 5,000 weights in one layer."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, padding=1),
        torch.nn.BatchNorm2d(32),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 2),
    )


def perceptron(seed: int = 0) -> torch.nn.Module:
    """A network without BatchNorm."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(192, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
    )  # fmt: skip


def images(count: int = 16, batch_size: int = 4, dtype: torch.dtype = torch.float32) -> DataLoader[Any]:
    """Images of 8 x 8 px of noise, brighter where the label is 1, always the same and in the same order."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 2, (count,), generator=generator)
    noise = torch.randn(count, 3, 8, 8, generator=generator, dtype=torch.float64).to(dtype)
    return DataLoader(TensorDataset(noise + labels.to(dtype)[:, None, None, None], labels), batch_size)


def fit(module: Any, text: str, data: Any = None, *, val: Any = None, ckpt_path: Any = None, **options: Any) -> Any:
    """Trains a module with levers on the CPU, and returns the Trainer."""
    module, trainer = with_levers(module, text, **options)
    quietly(trainer.fit, module, images() if data is None else data, val, ckpt_path=ckpt_path)
    return trainer


def with_levers(module: Any, text: str, **options: Any) -> Any:
    return quietly(levers.trainer, module, levers.parse(text), **cpu(**options))


def cpu(**options: Any) -> dict[str, Any]:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return {"accelerator": "cpu", "max_epochs": 1, "enable_model_summary": False, **quiet, **options}


def quietly(call: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Calls a function without Lightning's advice (few workers, no logger); torch's warnings stay errors.

    On one thread: networks this small are slower on two.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=PossibleUserWarning)
            warnings.filterwarnings("ignore", module=r"lightning\.")
            return call(*arguments, **keywords)
    finally:
        torch.set_num_threads(threads)


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
