"""facefeed: `FaceDataLoader` on a finished OUT, with the transform that its users would hand to it.

Lane C: decoding is replaced, so that a batch holds the first bytes of each image.
Lane D: decoding alone, to uint8 at the size of the crops.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from facefeed.loaders import FaceDataLoader, FaceDataset
from recipe import SLICE_BYTES, Order, facefeed_augmentation


def _slice(data: bytes, **_: Any) -> np.ndarray:
    return np.frombuffer(data, np.uint8, SLICE_BYTES).reshape(16, 16, 3)


def _without_decoding(name: str, stage: Any) -> Any:
    """Lane C's stages."""
    return _slice if name == "decode" else stage


class _Numbered:
    """Batches as (images, numbers of their rows), without randomness."""

    def __init__(self, loader: FaceDataLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for batch in self._loader:
            yield batch["image"], batch["row"]


def loader(order: Order) -> Any:
    out = order.folder / "facefeed"
    if order.lane == "C":
        data = FaceDataset(out, image_size=16).with_wrapped_stages(_without_decoding)
    elif order.lane == "D":
        data = FaceDataset(out, image_size=256)
    elif order.store:
        data = FaceDataset(
            f"s3://{order.store.BUCKET}/facefeed", transform=facefeed_augmentation(order), cache=order.store.cache,
            cache_bytes=order.store.CACHE_BYTES, storage_options={"endpoint_url": order.store.endpoint_url},
        )  # fmt: skip
    else:
        data = FaceDataset(out, transform=facefeed_augmentation(order))
    face_loader = FaceDataLoader(
        data, order.batch, num_workers=order.workers, shuffle="window" if order.store else order.random,
        fields=None if order.random else ("image", "row"), dtype="uint8" if order.lane in "CD" else "float32",
    )  # fmt: skip
    return face_loader if order.random else _Numbered(face_loader)


def prepare(folder: Path) -> None:
    """OUT is there already: the files of all others come from it."""
