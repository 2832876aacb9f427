"""facefeed: `FaceDataLoader` on a finished OUT, with the transform that its users would hand to it.

Lane C: `decode_rgb` is replaced in the workers, so that a batch holds the first bytes of each image.
Lane D: decoding alone, to uint8 at the size of the crops.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from facefeed.loaders import FaceDataLoader
from recipe import SLICE_BYTES, Order, facefeed_augmentation


def _slice(data: bytes, **_: Any) -> np.ndarray:
    return np.frombuffer(data, np.uint8, SLICE_BYTES).reshape(16, 16, 3)


def no_decoding(worker: int) -> None:
    """Lane C's worker_init_fn."""
    import facefeed.loaders.dataset as module  # noqa: PLC0415

    module.decode_rgb = _slice


class _Numbered:
    """Batches as (images, numbers of their rows), without randomness."""

    def __init__(self, loader: FaceDataLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for batch in self._loader:
            yield batch["image"], batch["row"]


def loader(order: Order) -> Any:
    settings: dict[str, Any] = {"transform": facefeed_augmentation(order)}
    if order.lane == "C":
        settings = {"image_size": 16, "dtype": "uint8", "worker_init_fn": no_decoding}
    elif order.lane == "D":
        settings = {"image_size": 256, "dtype": "uint8"}
    made = FaceDataLoader(
        order.folder / "facefeed", order.batch, split="train", num_workers=order.workers, shuffle=order.random,
        fields=None if order.random else ("image", "row"), **settings,
    )  # fmt: skip
    return made if order.random else _Numbered(made)


def prepare(folder: Path) -> None:
    """OUT is there already: the files of all others come from it."""
