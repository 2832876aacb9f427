"""Three small datasets for mixtures, of different sizes, whose videos have the same names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from assets_dataset import Clip, make_dataset
from facefeed.loaders import FaceDataLoader
from numpy.typing import NDArray

FACES = {"ffpp": 60, "celebdf": 24, "dfdc": 9}
"""Faces for training; a third of each is real."""
OFFSETS = np.cumsum([0, *(count + 5 for count in FACES.values())])


def make_three(folder: Path) -> list[str]:
    """The folders of three datasets, by their names, with 5 faces each for validation."""
    return [make_one(folder / name, count) for name, count in FACES.items()]


def make_one(out: Path, faces: int, **options: Any) -> str:
    """A dataset whose name decides its pixels; a third of the faces is real, of one video; fakes are of two."""
    real, fake = faces // 3, faces - faces // 3
    train = (
        Clip("real/anna.mp4", real), Clip("fake/anna-swap.mp4", fake // 2), Clip("fake/anna-talk.mp4", fake - fake // 2)
    )  # fmt: skip
    make_dataset(out, (("train", train), ("val", (Clip("real/dora.mp4", 2), Clip("fake/dora-swap.mp4", 3)))), **options)
    return str(out)


def epochs_of(loader: FaceDataLoader, epochs: int = 1) -> list[NDArray[np.uint32]]:
    """The rows of each batch of this rank in the first epochs, without loading them."""
    batches = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        batches += [request.rows for request in loader.sampler]  # type: ignore[attr-defined]
    return batches


def datasets_of(batches: Iterable[NDArray[np.uint32]]) -> NDArray[np.int64]:
    """Which dataset each row of the batches is of, in order."""
    return np.searchsorted(OFFSETS, np.concatenate([*batches]), side="right") - 1
