"""What all entries share: the augmentation of each lane, facefeed's decoder and normalisation for peers, collating.

Runs in every peer's own environment, so it needs no facefeed installed: `normalise` is loaded from the file in
`loaders/`, which imports nothing but torch.

Lanes: "A" and "A'" each library's own documented recipe; "B" the library's container with facefeed's decoder, order
of transforms, normalisation and collating; "C" container and transport alone, `SLICE_BYTES` of each image.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it looks for a newer release on import

import albumentations as A  # noqa: N812 (its own documentation does)
import cv2
import numpy as np
import simplejpeg
import torch
from albumentations.pytorch import ToTensorV2

SIDE_PX = 224
SLICE_BYTES = 768  # lane C: 16 x 16 x 3
_HERE = Path(__file__).resolve()


@dataclass(frozen=True)
class Store:
    """An S3 server whose bucket `datasets` holds the containers of all peers; `cache`: a folder for what is fetched."""

    endpoint_url: str
    cache: Path

    BUCKET = "datasets"
    CACHE_BYTES = 8 << 30


@dataclass(frozen=True)
class Order:
    """What to load: `folder` holds the containers of all peers. `random`: shuffled and augmented, else neither.

    `store`: where they are read from in place of `folder`.
    """

    folder: Path
    lane: str
    batch: int
    workers: int
    random: bool
    store: Store | None = None

    def loading(self) -> dict[str, Any]:
        """Keywords for torch's DataLoader."""
        return {"num_workers": self.workers, "persistent_workers": self.workers > 0, "worker_init_fn": one_thread}


def one_thread(worker: int) -> None:
    """OpenCV's own threads only fight with the other workers; each recipe is faster without them."""
    cv2.setNumThreads(0)


class OwnTransform:
    """The usual pipeline of Albumentations: uint8 RGB (H, W, 3) to normalised float32 (3, 224, 224)."""

    def __init__(self, order: Order) -> None:
        p = 0.5 if order.random else 0.0
        augmentation = [A.HorizontalFlip(p=p), A.RandomBrightnessContrast(p=p)]
        self._pipeline = A.Compose([A.Resize(SIDE_PX, SIDE_PX), *augmentation, A.Normalize(), ToTensorV2()])

    def __call__(self, image: np.ndarray) -> torch.Tensor:
        return self._pipeline(image=image)["image"]


def facefeed_augmentation(order: Order) -> A.Compose:
    """The same without Resize, Normalize and ToTensor, which facefeed does itself."""
    p = 0.5 if order.random else 0.0
    return A.Compose([A.HorizontalFlip(p=p), A.RandomBrightnessContrast(p=p)])


class FacefeedPixels:
    """Lane B: encoded bytes to augmented uint8 (224, 224, 3), as facefeed does it."""

    def __init__(self, order: Order) -> None:
        self._augmentation = facefeed_augmentation(order)

    def __call__(self, data: bytes) -> np.ndarray:
        image = simplejpeg.decode_jpeg(data, colorspace="RGB")
        if image.shape[:2] != (SIDE_PX, SIDE_PX):
            image = cv2.resize(image, (SIDE_PX, SIDE_PX), interpolation=cv2.INTER_LINEAR)
        return self._augmentation(image=image)["image"]


def facefeed_normalise() -> Any:
    """`loaders/normalise.py` as a module."""
    path = _HERE.parents[3] / "loaders" / "normalise.py"
    spec = importlib.util.spec_from_file_location("facefeed_normalise", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FacefeedCollate:
    """Lane B: uint8 images and their numbers to one normalised float32 batch, right in the memory that is sent."""

    def __init__(self) -> None:
        self._module: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_module": None}

    def __call__(self, samples: Sequence[tuple[np.ndarray, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        if self._module is None:
            self._module = facefeed_normalise()
        shape = (len(samples), *samples[0][0].shape)
        out = torch.empty(0)
        if torch.utils.data.get_worker_info() is not None:  # as torch's own collating does
            out = out.new(out._typed_storage()._new_shared(int(np.prod(shape)), device="cpu")).resize_(*shape)
        else:
            out = torch.empty(shape)
        for target, (image, _) in zip(out, samples, strict=True):
            self._module.normalise_into(target, torch.from_numpy(image))
        return out.movedim(-1, -3), torch.tensor([number for _, number in samples])


def slice_of(data: Any) -> torch.Tensor:
    """Lane C: the first bytes of an image, as they are."""
    return torch.from_numpy(np.frombuffer(data, np.uint8, SLICE_BYTES).copy())


def from_bytes(order: Order) -> Callable[[bytes], Any] | None:
    """What to do with encoded bytes in a lane; None where it is the library's own recipe."""
    return FacefeedPixels(order) if order.lane == "B" else slice_of if order.lane == "C" else None


def collate_of(order: Order) -> FacefeedCollate | None:
    """None: the library's own."""
    return FacefeedCollate() if order.lane == "B" else None


def rgb_by_cv2(data: Any) -> np.ndarray:
    """Encoded bytes by OpenCV, which is faster than Pillow."""
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
