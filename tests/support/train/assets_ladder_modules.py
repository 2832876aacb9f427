"""User modules for `--module`: with a train_dataloader, without one, and some that cannot be constructed."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch.utils.data import DataLoader, TensorDataset


class FaceBatchModule(LightningModule):  # type: ignore[misc]  # Lightning is not followed
    """Trains on `(images, labels)` from any loader."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 2))

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.net(images), labels)

    def validation_step(self, batch: Any, _: int) -> None:
        images, labels = batch
        self.log("valid_acc", (self.net(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


class OwnDataModule(LightningModule):  # type: ignore[misc]
    """Has 12 batches of 8 of its own, and prints, which a ladder must not take for its protocol."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(4, 1)

    def train_dataloader(self) -> DataLoader[Any]:
        print("5 5")
        return DataLoader(TensorDataset(torch.ones(96, 4)), 8)

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        return self.head(batch[0]).square().mean() + 1.0  # type: ignore[no-any-return]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.0)


class Breaks(OwnDataModule):
    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        if number == 3:
            raise ValueError("step 3\nis one too many")
        return super().training_step(batch, number)


class RequiresArgument(OwnDataModule):
    def __init__(self, needed: int) -> None:
        super().__init__()


class NoModule:
    pass
