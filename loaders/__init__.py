"""A finished dataset as batches: `from facefeed.loaders import FaceDataset, FaceDataLoader`.

    index -> order of the epoch -> tickets -> byte ranges -> decode -> augment -> batch in shared memory -> device

| module | what it holds |
|---|---|
| dataset, byteranges, decode, face | `FaceDataset`: a row as pixels and points |
| selection | which rows take part |
| order, balance, sampler | in which order, on which rank: pure functions of numbers; a `Ticket` names one batch |
| batch, columns, seeding, substitute | a ticket made into a batch, in whichever process |
| blocks, under_way, normalise | the memory of batches, and their last form |
| dataloader | `FaceDataLoader`: torch's DataLoader over tickets |
| workers, local_ranks, issue, readahead | the processes; what a ticket gets on its way to them |
| delivery, prefetch | from a worker's batch to the training loop's, on the CPU or a device |
| stats, describe | what a loader says of itself |
| augment/ | transforms that know the face, and the page that shows them |
| profiler/ | whether training waits for data |
| cli | the commands `augment` and `profile` |

Importing this package is light: torch comes with the first name that needs it. README.md beside this file is the guide.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .balance import Pairs, Quotas, Weights
    from .dataloader import FaceDataLoader
    from .dataset import FaceDataset
    from .prefetcher import DevicePrefetcher

_WHERE = {
    "DevicePrefetcher": "prefetcher",
    "FaceDataLoader": "dataloader",
    "FaceDataset": "dataset",
    "Pairs": "balance",
    "Quotas": "balance",
    "Weights": "balance",
}

__all__ = ["DevicePrefetcher", "FaceDataLoader", "FaceDataset", "Pairs", "Quotas", "Weights"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
