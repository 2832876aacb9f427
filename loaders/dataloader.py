"""`FaceDataLoader`: torch's DataLoader over a finished dataset, in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..pipeline.errors import UsageError
from .dataset import FaceDataset, Transform

_OURS = ("dataset", "sampler", "batch_sampler", "collate_fn", "generator")


class FaceDataLoader(torch.utils.data.DataLoader[tuple[torch.Tensor, int]]):
    """Batches `(images float32 (N, 3, H, W), labels int64 (N,))` of one split.

    `shuffle` defaults to True for train and False for the others; `seed` fixes the order. Whatever else torch's
    DataLoader takes (`num_workers`, `pin_memory`, `drop_last`, ...) is handed on.
    """

    def __init__(
        self,
        out: str | Path,
        *,
        split: str = "train",
        batch_size: int = 64,
        image_size: int | None = 224,
        transform: Transform | None = None,
        shuffle: bool | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        if taken := [name for name in _OURS if name in options]:
            raise UsageError(
                f"{', '.join(taken)}: FaceDataLoader makes its own; use torch's DataLoader(FaceDataset(...)) instead"
            )
        dataset = FaceDataset(out, split=split, image_size=image_size, transform=transform)
        shuffled = split == "train" if shuffle is None else shuffle
        order = torch.Generator().manual_seed(seed)
        super().__init__(
            dataset, batch_size=batch_size, shuffle=shuffled and len(dataset) > 0, generator=order, **options
        )
