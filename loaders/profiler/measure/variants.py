"""Variants of a loader: other workers, fewer stages, a longer epoch. All are copies; the loader itself is unchanged.

A small dataset's epoch may end before its queue is full, but a profile measures the steady state: hence longer epochs.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from ....pipeline.dataset.index import Selection
from ...batching.batch_dataset import BatchDataset
from ...batching.jpeg_batch_dataset import JpegBatchDataset
from ...dataset.selection import Rows
from ...loader.device_prefetcher import DevicePrefetcher
from ...loader.face_dataloader import FaceDataLoader
from ...sampling.balance import Balance
from ...sampling.bound_balance import BoundBalance
from ...sampling.row_shuffler import RowShuffler
from ...torch_internals import keeps_iterator
from ...workers.processes import worker_context


@dataclass(frozen=True)
class RepeatedBalance:
    """A balance whose epoch holds `num_rounds` epochs of another balance, each in its own order."""

    num_rounds: int
    balance: Balance

    def bind(self, rows: Selection, shuffler: RowShuffler) -> BoundBalance:
        """See `Balance`."""
        once = self.balance.bind(rows, shuffler)
        return _BoundRepeatedBalance(once, self.num_rounds, once.unit_size, once.notes)


@dataclass
class _BoundRepeatedBalance:
    single_round: BoundBalance
    num_rounds: int
    unit_size: int
    notes: list[str]

    @property
    def num_images(self) -> int:
        return self.single_round.num_images * self.num_rounds

    def epoch_rows(self, epoch: int, key: int) -> Rows:
        epochs = range(epoch * self.num_rounds, (epoch + 1) * self.num_rounds)
        return np.concatenate([self.single_round.epoch_rows(number, key)[:] for number in epochs])


def has_fixed_order(loader: DataLoader[Any] | None) -> bool:
    """Whether every epoch has the order of the dataset; False where that is not known."""
    if isinstance(loader, FaceDataLoader):
        return loader.shuffle is False
    if loader is None or type(loader.batch_sampler) not in (BatchSampler, type(None)):
        return False
    return isinstance(getattr(loader.batch_sampler, "sampler", loader.sampler), SequentialSampler)


def torch_loader_of(loader: Any) -> DataLoader[Any] | None:
    """The torch DataLoader that batches come from and that can be copied: the loader itself, or the one that it wraps;
    None where there is none.

    Wrappers are `DevicePrefetcher` and pipelines whose first stage is a DataLoader, such as webdataset's `WebLoader`.
    A copy would share an iterator that is kept for further epochs, and so take batches from the loader, or end it.
    """
    if isinstance(loader, DevicePrefetcher):
        return loader.loader
    pipeline = getattr(loader, "pipeline", None)
    first = pipeline[0] if isinstance(pipeline, list) and pipeline else loader
    # By its class: Accelerate's loaders say that theirs is the one of the DataLoader that they hold.
    if not issubclass(type(first), DataLoader) or keeps_iterator(first):
        return None
    source: DataLoader[Any] = first
    return source


def ends_with_torch_loader(loader: Any) -> bool:
    """Whether an epoch of the loader ends where that of its torch DataLoader does: not after webdataset's `with_epoch`,
    which begins the DataLoader anew where that ends, and breaks it off after a number of batches.
    """
    return getattr(loader, "repetitions", 1) == 1


def with_torch_loader(loader: Any, torch_loader: Any) -> Any:
    """The loader, its batches coming from another torch DataLoader."""
    if torch_loader_of(loader) is loader or isinstance(loader, DevicePrefetcher):
        return torch_loader
    copied = copy.copy(loader)
    copied.pipeline = [torch_loader, *loader.pipeline[1:]]
    return copied


def with_settings(loader: Any, *, num_workers: int, prefetch_factor: int) -> Any:
    """A copy of a loader (one with a `torch_loader_of`) with other workers, if any with `prefetch_factor`."""
    source = torch_loader_of(loader)
    assert source is not None
    changed: Any = (
        source.with_batch_dataset(_copy_of_batch_dataset(source))
        if isinstance(source, FaceDataLoader)
        else copy.copy(source)
    )
    prefetch = prefetch_factor if num_workers else None
    timeout = source.timeout if num_workers else 0  # torch refuses another one without workers
    changed.__dict__.update(num_workers=num_workers, prefetch_factor=prefetch, timeout=timeout, _iterator=None)
    if isinstance(source, FaceDataLoader):
        changed.__dict__.update(_has_default_workers=False)  # else it would count the cores as it begins
        if num_workers and not source.num_workers:
            # As a loader that is made with these settings; without workers none could persist.
            changed.__dict__.update(persistent_workers=True)
            changed.multiprocessing_context = worker_context(None)
    return with_torch_loader(loader, changed)


def with_longer_epoch(loader: FaceDataLoader, rounds: int) -> FaceDataLoader:
    """A copy of the loader whose epoch is `rounds` of its own."""
    longer = loader.with_batch_dataset(_copy_of_batch_dataset(loader))
    sampler: Any = longer.sampler
    sampler.balance = RepeatedBalance(rounds, sampler.balance)
    return longer


def with_less_work(loader: FaceDataLoader) -> dict[str, FaceDataLoader]:
    """Copies of the loader that do less with an image: the differences are what its transforms and decoding cost.

    "evaluation transform": only resized and normalised, where the loader does more. "without decoding": read and sent
    alone; every image is grey. Of a loader that decodes on the device there is neither.
    """
    source, variants = _copy_of_batch_dataset(loader), {}
    side_px = source.image_size
    if side_px is None:
        return {}
    if source.transforms:
        source = source.without_transforms()
        variants["evaluation transform"] = loader.with_batch_dataset(source)
    if not isinstance(source, JpegBatchDataset):
        variants["without decoding"] = loader.with_batch_dataset(source.with_wrapped_stages(_GreyImages(side_px)))
    return variants


def _copy_of_batch_dataset(loader: FaceDataLoader) -> BatchDataset:
    """A copy of the loader's batch dataset."""
    source = loader.dataset
    assert isinstance(source, BatchDataset)
    return copy.copy(source)


class _GreyImages:
    """Replaces decoding by a grey image; picklable for workers."""

    def __init__(self, side_px: int) -> None:
        self.side_px = side_px

    def __call__(self, name: str, stage: Any) -> Any:
        return self.decode if name == "decode" else stage

    def decode(self, _data: bytes, **_kwargs: Any) -> Any:
        """A grey image."""
        return np.full((self.side_px, self.side_px, 3), 128, np.uint8)
