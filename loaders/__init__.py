"""Loads a precomputed dataset in batches: `from facefeed.loaders import FaceDataset, FaceDataLoader`.

    index -> order of the epoch -> requests -> byte ranges -> decode -> augment -> batch in shared memory -> device

In: OUT. Out: batches of faces in an exact order that can be resumed, as fast as JPEGs decode.
Must not know: Dask, facenet-pytorch, Lightning, how a row was made.

| room | what it holds |
|---|---|
| dataset/ | `FaceDataset`: rows as pixels and points; selection of rows |
| clips/ | `Clip`: consecutive images of one track as the items of an epoch |
| mixture/ | several datasets as one: their index, their shares of every batch |
| sampling/ | order of an epoch, balance, part of each rank: pure functions of numbers |
| augment/, preview/ | face-aware transforms, and a gallery page of their output |
| adapters/ | one interface to each kind of `transform=`: Albumentations, torchvision v2, functions |
| batching/ | from a batch request to a batch in shared memory |
| workers/ | worker processes: start, death, read-ahead |
| device/ | transforms and decoding of batches on the device |
| transfer/ | from a worker's batch to the training loop's, on the CPU or a device |
| loader/ | `FaceDataLoader`: torch's DataLoader over all of these |
| profiler/ | measures whether training waits for data |
| face, normalise, real_numbers, seeding, validation, whole_numbers | shared by several of them |
| torch_internals | all use of torch's private parts |

Importing this package is light: torch is imported with the first name that needs it. The guide is
docs/guides/loading.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clips.clip import Clip
    from .dataset.face_dataset import FaceDataset
    from .loader.device_prefetcher import DevicePrefetcher
    from .loader.face_dataloader import FaceDataLoader
    from .sampling.balance import BlendPairs, Pairs, Quotas, Weights

_WHERE = {
    "BlendPairs": "sampling.balance",
    "Clip": "clips.clip",
    "DevicePrefetcher": "loader.device_prefetcher",
    "FaceDataLoader": "loader.face_dataloader",
    "FaceDataset": "dataset.face_dataset",
    "Pairs": "sampling.balance",
    "Quotas": "sampling.balance",
    "Weights": "sampling.balance",
}

__all__ = ["BlendPairs", "Clip", "DevicePrefetcher", "FaceDataLoader", "FaceDataset", "Pairs", "Quotas", "Weights"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
