"""`FaceDataset`: a finished dataset as a map-style dataset, under torch's own DataLoader or any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from ..pipeline.errors import UsageError
from ..pipeline.index import Index
from ..pipeline.manifest import Manifest
from ..pipeline.schema import SPLITS
from .decode import ByteRanges, decode_rgb

IMAGENET_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
IMAGENET_STD = np.array([0.229, 0.224, 0.225], np.float32)

Transform = Callable[..., dict[str, Any]]


class FaceDataset(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """The faces of one split, each as `(image, label)`.

    image: float32 (3, `image_size`, `image_size`), RGB, normalised by ImageNet's mean and standard deviation.
    label: int, an index into `labels`; -1 where the source did not say.

    `transform` is called as Albumentations calls: `transform(image=uint8 HWC)["image"]` -> uint8 HWC, after the crop
    was resized to `image_size` (None: the transform has to bring all crops to one size) and before it is normalised.
    Raises `UsageError` where OUT is no finished dataset, `CorruptDataError` for a row whose bytes are damaged.
    Picklable; processes share the index's pages.
    """

    def __init__(
        self, out: str | Path, *, split: str = "train", image_size: int | None = 224, transform: Transform | None = None
    ) -> None:
        if split not in SPLITS:
            raise UsageError(f"split={split!r}: must be one of {', '.join(SPLITS)}")
        if image_size is not None and image_size < 1:
            raise UsageError(f"image_size={image_size}: must be at least 1 px; try 224")
        if image_size is None and transform is None:
            raise UsageError("image_size=None: needs a transform that brings all crops to one size; try 224")
        self.out = Path(out).resolve()
        self.split, self.image_size, self.transform = split, image_size, transform
        manifest = Manifest.read(self.out)
        self.index = Index(self.out)
        if self.index.fingerprint != manifest.fingerprint:
            raise UsageError(
                f"{self.out}: index and manifest are of two states; finish `facefeed precompute`, or run "
                f"`facefeed verify {self.out} --rebuild-index`"
            )
        self.labels = self.index.labels
        self.rows = self.index.rows_where("split", split)
        self._bytes = ByteRanges(self.out)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, position: int) -> tuple[torch.Tensor, int]:
        row = int(self.rows[position])
        image = self.image(row)
        if self.image_size is not None and image.shape[:2] != (self.image_size, self.image_size):
            side = (self.image_size, self.image_size)
            how = cv2.INTER_AREA if image.shape[0] > self.image_size else cv2.INTER_LINEAR
            image = cv2.resize(image, side, interpolation=how).astype(np.uint8, copy=False)
        if self.transform is not None:
            image = self.transform(image=image)["image"]
        return normalise(image), int(self.index.value("label", row))

    def image(self, row: int) -> NDArray[np.uint8]:
        """The crop of one row of the index as stored: RGB uint8 (H, W, 3)."""
        value = self.index.value
        name, offset, size = value("file", row), value("image_offset", row), value("image_bytes", row)
        return decode_rgb(self._bytes.read(name, offset, size, value("image_crc32", row)))


def normalise(image: NDArray[np.uint8]) -> torch.Tensor:
    """RGB uint8 (H, W, 3) to float32 (3, H, W), by ImageNet's statistics. Raises `UsageError` on anything else."""
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        found = f"{type(image).__name__} {getattr(image, 'dtype', '')} {tuple(getattr(image, 'shape', ()))}"
        raise UsageError(
            f"transform returned {found}: must be a uint8 array (H, W, 3); "
            "leave Normalize and ToTensor out, the loader does both"
        )
    pixels = (image.astype(np.float32) / 255 - IMAGENET_MEAN) / IMAGENET_STD
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
