"""Checks and conversions of `FaceDataLoader` arguments that need the dataset."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from ...pipeline.errors import UsageError
from .. import validation
from ..dataset.face_dataset import FaceDataset
from ..sampling.balance import Balance, Pairs
from ..sampling.epoch_sampler import EpochSampler

_log = logging.getLogger("facefeed.loaders")


def as_dataset(dataset: str | Path | FaceDataset, **options: Any) -> FaceDataset:
    """The dataset of a folder with these options, or the dataset itself; raises `UsageError` where it has its own."""
    if isinstance(dataset, FaceDataset):
        validation.check_dataset_options_unset(options, FaceDataset)
        return dataset
    return FaceDataset(dataset, **options)


def check_epoch(sampler: EpochSampler) -> None:
    """Raises `UsageError` where the rows cannot provide the balance; logs a warning where an epoch has no batches."""
    num_faces = len(sampler.dataset)
    if not num_faces:
        _log.warning("no face of split=%s passes the filters: the loader has no batches", sampler.dataset.split)
        return
    _ = sampler.bound_balance
    if not len(sampler):
        _log.warning("drop_last leaves no batch of the %d faces: a step has more", num_faces)


def check_mixup(dataset: FaceDataset, balance: Balance | None) -> bool:
    """Whether the dataset's transform mixes pairs; raises `UsageError` where batches have none."""
    mixes = bool(getattr(dataset.face_transform, "mixes", False))
    if mixes and not isinstance(balance, Pairs):
        raise UsageError("AlignedMixup: mixes a fake with the real frame before it; give balance=Pairs()")
    return mixes


def normalises_in_worker(dtype: str, device: str | torch.device | None) -> bool:
    """Whether workers write normalised float32; for other devices they write uint8, normalised there."""
    return dtype == "float32" and torch.device(device or "cpu").type == "cpu"
