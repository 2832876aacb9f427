"""Three modules that know nothing of faces, as `facefeed ladder --module` takes them; their data is made up.

A multi-layer perceptron, a U-Net (Ronneberger et al., 2015) and an encoder of BERT's size (Devlin et al., 2018): 0.3, 8
and 110 million parameters. Without a GPU batches are small, so that a step takes seconds at most.
"""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

GPU = torch.cuda.is_available()
STEPS = 200  # an epoch's


class Again(Dataset[tuple[Tensor, ...]]):
    """The same batch over and over: what is measured is the step, not the making of noise."""

    def __init__(self, batch: tuple[Tensor, ...]) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, position: int) -> tuple[Tensor, ...]:
        if position >= STEPS:
            raise IndexError
        return self.batch


class Foreign(LightningModule):  # type: ignore[misc]  # Lightning is not followed
    """What the three have in common: AdamW, and batches that are there already."""

    batch: tuple[Tensor, ...]

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(Again(self.batch), batch_size=None)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-4)


class Mlp(Foreign):
    """784 numbers to one of ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        self.batch = torch.randn(128, 784), torch.randint(10, (128,))

    def training_step(self, batch: tuple[Tensor, ...], _: int) -> Tensor:
        values, labels = batch
        return nn.functional.cross_entropy(self.net(values), labels)


class UNet(Foreign):
    """Pictures to a mask: four levels of 32 to 256 channels, with what was seen on the way down handed across."""

    def __init__(self) -> None:
        super().__init__()
        widths = (32, 64, 128, 256)
        self.down = nn.ModuleList(map(_twice, (3, *widths[:-1]), widths))
        self.bottom = _twice(widths[-1], 2 * widths[-1])
        outward = widths[::-1]
        self.widen = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, 2) for width in outward)
        self.up = nn.ModuleList(_twice(2 * width, width) for width in outward)
        self.mask = nn.Conv2d(widths[0], 1, 1)
        count, side = (16, 256) if GPU else (2, 64)
        self.batch = torch.randn(count, 3, side, side), torch.randint(2, (count, 1, side, side)).float()

    def forward(self, pictures: Tensor) -> Tensor:
        skips = []
        for block in self.down:
            pictures = block(pictures)
            skips.append(pictures)
            pictures = nn.functional.max_pool2d(pictures, 2)
        pictures = self.bottom(pictures)
        for widen, block, across in zip(self.widen, self.up, reversed(skips), strict=True):
            pictures = block(torch.cat([widen(pictures), across], dim=1))
        mask: Tensor = self.mask(pictures)
        return mask

    def training_step(self, batch: tuple[Tensor, ...], _: int) -> Tensor:
        pictures, masks = batch
        return nn.functional.binary_cross_entropy_with_logits(self(pictures), masks)


def _twice(inward: int, outward: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inward, outward, 3, padding=1, bias=False), nn.BatchNorm2d(outward), nn.ReLU(),
        nn.Conv2d(outward, outward, 3, padding=1, bias=False), nn.BatchNorm2d(outward), nn.ReLU(),
    )  # fmt: skip


class Bert(Foreign):
    """Sentences of 30,522 words to one of two classes: transformers' BERT (base) with random weights."""

    def __init__(self) -> None:
        from transformers import BertConfig, BertForSequenceClassification  # noqa: PLC0415 (for this one alone)

        super().__init__()
        self.net = BertForSequenceClassification(BertConfig())
        count, words = (32, 128) if GPU else (2, 32)
        self.batch = torch.randint(self.net.config.vocab_size, (count, words)), torch.randint(2, (count,))

    def training_step(self, batch: tuple[Tensor, ...], _: int) -> Tensor:
        sentences, labels = batch
        loss: Tensor = self.net(input_ids=sentences, labels=labels).loss
        return loss
