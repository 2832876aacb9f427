"""What tests of `device_transform` and `decode="device"` share; importable by other processes too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from assets_loaders import loader
from facefeed.loaders.dataset.crop_mappings import ProtocolCrop

FILTERS = [("frame_index", "<", 10)]


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Context in which torch's new tensors of floats are of that type, as a training script may set it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def default_device(device: str) -> Iterator[None]:
    """Context in which torch's new tensors are on that device, as a training script may set it for a process."""
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


def pictures(batches: Iterable[dict[str, Any]]) -> dict[str, bytes]:
    """The picture of each face; a face that comes twice has to have the same."""
    seen: dict[str, bytes] = {}
    for batch in batches:
        for face, image in zip(batch["face_id"], batch["image"], strict=True):
            picture = image.cpu().numpy().tobytes()
            assert seen.setdefault(face, picture) == picture
    return seen


def of_epochs(out: Path, transform: Any, epochs: int = 1, **options: Any) -> list[dict[str, bytes]]:
    """The picture of each face with a `device_transform`, epoch by epoch."""
    batches = loader(out, **{"num_workers": 0, "device_transform": transform, **options})
    return [pictures(batches) for _ in range(epochs)]


def pictures_of_rank(rank: int, out: Path, transforms: list[Any]) -> list[list[dict[str, bytes]]]:
    """What one of two ranks shows in two epochs with each transform; the second rank has a worker process."""
    return [of_epochs(out, transform, 2, num_workers=rank, batch_size=8) for transform in transforms]


def shuffle_channels(images: torch.Tensor) -> torch.Tensor:
    """Draws from torch's global generator: another order of the channels, and a bit of noise."""
    return images[:, torch.randperm(3)] * 0.9 + 0.1 * torch.rand_like(images)


@dataclass(frozen=True)
class Jitter:
    """A batched transform of one's own: darkens each image by a number that is drawn for it."""

    draws: ClassVar[int] = 1
    moves_pixels: ClassVar[bool] = False

    def __call__(self, images: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return images * (0.5 + 0.5 * numbers.view(-1, 1, 1, 1))


@dataclass(frozen=True)
class Unreadable:
    """Reads images; those of some rows begin as JPEGs and are none, although their checksum was right."""

    read: Callable[[int], bytes]
    rows: tuple[int, ...]

    def __call__(self, row: int) -> bytes:
        data = self.read(row)
        return data[:2] + bytes(len(data) - 2) if row in self.rows else data


class OwnCuts:
    """Cuts an image of 40 px from a crop of 64 px, at a place of its own for each row."""

    def __call__(self, row: int) -> ProtocolCrop:
        return ProtocolCrop(np.array([[1.0, 0, -(row % 24)], [0, 1, -(row % 7)]]), 64, 40)

    def prepare(self, rows: Sequence[int]) -> None:
        """Nothing to compute."""


def kornia_jitter() -> torch.nn.Module:
    import kornia.augmentation as kornia  # noqa: PLC0415

    return torch.nn.Sequential(kornia.RandomHorizontalFlip(), kornia.ColorJiggle(0.3, 0.3, p=1.0))
