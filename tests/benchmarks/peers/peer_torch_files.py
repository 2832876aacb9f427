"""torch's DataLoader over JPEG files.

Recipe: "PyTorch classification" in Albumentations' documentation: a map-style Dataset with `cv2.imread`, one
`A.Compose` that ends in `Normalize` and `ToTensorV2`, and a DataLoader with workers. Read as RGB at once
(`IMREAD_COLOR_RGB`), which saves the conversion of the older form.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
from recipe import Order, OwnTransform, collate_of, from_bytes
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):  # type: ignore[type-arg]
    """Image and number of each file."""

    def __init__(self, order: Order) -> None:
        self.paths = [str(path) for path in sorted((order.folder / "files").iterdir())]
        of_bytes = from_bytes(order)
        self.own = of_bytes is None
        self.transform: Any = of_bytes or OwnTransform(order)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        path = self.paths[number]
        return self.transform(cv2.imread(path, cv2.IMREAD_COLOR_RGB) if self.own else Path(path).read_bytes()), number


def loader(order: Order) -> Any:
    return DataLoader(
        Files(order), batch_size=order.batch, shuffle=order.random, collate_fn=collate_of(order), **order.loading()
    )


def prepare(folder: Path) -> None:
    """The files are there already."""
