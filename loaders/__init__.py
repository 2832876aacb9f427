"""A finished dataset as batches: `from facefeed.loaders import FaceDataset, FaceDataLoader`.

    index -> order of the epoch -> requests -> byte ranges -> decode -> augment -> batch in shared memory -> device

In: OUT. Out: batches of faces, in an exact order that resumes, as fast as JPEGs decode.
Must not know: Dask, facenet-pytorch, Lightning, how a row was made.

| room | what it holds |
|---|---|
| dataset/ | `FaceDataset`: a row as pixels and points; which rows take part |
| sampling/ | in which order, on which rank: pure functions of numbers |
| augment/, preview/ | transforms that know the face, and the page that shows them |
| batching/ | a request made into a batch, in whichever process, in shared memory |
| workers/ | the processes that do it |
| transfer/ | from a worker's batch to the training loop's, on the CPU or a device |
| loader/ | `FaceDataLoader`: torch's DataLoader over all of these |
| profiler/ | whether training waits for data |
| face, normalise, validation | what several of them use |

Importing this package is light: torch comes with the first name that needs it. README.md beside this file is the guide.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dataset.face_dataset import FaceDataset
    from .loader.device_prefetcher import DevicePrefetcher
    from .loader.face_dataloader import FaceDataLoader
    from .sampling.balance import Pairs, Quotas, Weights

_WHERE = {
    "DevicePrefetcher": "loader.device_prefetcher",
    "FaceDataLoader": "loader.face_dataloader",
    "FaceDataset": "dataset.face_dataset",
    "Pairs": "sampling.balance",
    "Quotas": "sampling.balance",
    "Weights": "sampling.balance",
}

__all__ = ["DevicePrefetcher", "FaceDataLoader", "FaceDataset", "Pairs", "Quotas", "Weights"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
