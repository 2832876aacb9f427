"""The same loader with something changed: other workers, other stages. Copies; the loader itself stays as it was.

And a longer epoch: a small dataset's ends before its queue is full, and the steady state is what a profile is about.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from ...batching.batch_dataset import BatchDataset
from ...dataset.selection import Rows
from ...loader.device_prefetcher import DevicePrefetcher
from ...loader.face_dataloader import FaceDataLoader
from ...sampling.balance import Balance
from ...sampling.bound_balance import BoundBalance
from ...sampling.row_shuffler import RowShuffler
from ...workers.processes import worker_context


@dataclass(frozen=True)
class Rounds:
    """A balance: what another one has in `rounds` epochs in a single one, each time in another order."""

    rounds: int
    balance: Balance

    def bind(self, rows: Rows, shuffler: RowShuffler) -> BoundBalance:
        """See `Balance`."""
        once = self.balance.bind(rows, shuffler)
        return _BoundRounds(once, self.rounds, once.unit_size, once.notes)


@dataclass
class _BoundRounds:
    once: BoundBalance
    rounds: int
    unit_size: int
    notes: list[str]

    @property
    def num_images(self) -> int:
        return self.once.num_images * self.rounds

    def epoch_rows(self, epoch: int, key: int) -> Rows:
        epochs = range(epoch * self.rounds, (epoch + 1) * self.rounds)
        return np.concatenate([self.once.epoch_rows(one, key) for one in epochs])


def source_of(loader: Any) -> DataLoader[Any] | None:
    """The torch DataLoader that batches come from: the loader itself, or the one that it hands on.

    As a `DevicePrefetcher` does, and a `WebLoader` of webdataset: a pipeline whose first stage is a DataLoader.
    """
    if isinstance(loader, DevicePrefetcher):
        return loader.loader
    stages = getattr(loader, "pipeline", None)
    first = stages[0] if isinstance(stages, list) and stages else loader
    return first if isinstance(first, DataLoader) else None


def over(loader: Any, source: Any) -> Any:
    """The loader, its batches coming from another torch DataLoader."""
    if source_of(loader) is loader or isinstance(loader, DevicePrefetcher):
        return source
    made = copy.copy(loader)
    made.pipeline = [source, *loader.pipeline[1:]]
    return made


def with_settings(loader: Any, *, num_workers: int, prefetch_factor: int) -> Any:
    """A loader with other workers, where it has a `source_of`. prefetch_factor: batches a worker; none without."""
    source = source_of(loader)
    assert source is not None
    made: Any = (
        source.with_batch_dataset(_maker_of(source)) if isinstance(source, FaceDataLoader) else copy.copy(source)
    )
    ahead = prefetch_factor if num_workers else None
    made.__dict__.update(num_workers=num_workers, prefetch_factor=ahead, _iterator=None)
    if num_workers and not source.num_workers and isinstance(source, FaceDataLoader):
        made.multiprocessing_context = worker_context(None)
    return over(loader, made)


def prolonged(loader: FaceDataLoader, rounds: int) -> FaceDataLoader:
    """The loader with an epoch as long as so many of its own."""
    made = loader.with_batch_dataset(_maker_of(loader))
    order: Any = made.sampler
    order.balance = Rounds(rounds, order.balance)
    return made


def by_transforms(loader: FaceDataLoader) -> dict[str, FaceDataLoader]:
    """The loader doing less and less with an image: what its transforms cost, and what is left without any work.

    "evaluation transform": resized and normalised alone, where the loader does more. "none": read and handed over, not
    even decoded: every image is grey.
    """
    source, found = _maker_of(loader), {}
    if source.transform is not None or source.face_transform is not None:
        if source.image_size is None:
            return {}
        plain = copy.copy(source)
        plain.transform = plain.face_transform = None
        found["evaluation transform"] = loader.with_batch_dataset(plain)
        source = plain
    if source.image_size is not None:
        found["none"] = loader.with_batch_dataset(source.with_wrapped_stages(_Grey(source.image_size)))
    return found


def _maker_of(loader: FaceDataLoader) -> BatchDataset:
    """A copy of what makes its batches."""
    source = loader.dataset
    assert isinstance(source, BatchDataset)
    return copy.copy(source)


class _Grey:
    """Stages that do nothing but read; picklable, since workers get them."""

    def __init__(self, side_px: int) -> None:
        self.side_px = side_px

    def __call__(self, name: str, stage: Any) -> Any:
        return self.decoded if name == "decode" else stage

    def decoded(self, _data: bytes, **_kwargs: Any) -> Any:
        """No face."""
        return np.full((self.side_px, self.side_px, 3), 128, np.uint8)
