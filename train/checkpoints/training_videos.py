"""Hashes of the videos a run is trained on, kept in its checkpoints to detect leaks into evaluation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...loaders import FaceDataset
from ...pipeline.dataset.manifest import Receipt
from ...pipeline.dataset.out import OutPaths
from ...pipeline.errors import CorruptDataError

_UNKNOWN = 0  # stands for a missing content hash


def hash_videos(dataset: FaceDataset) -> Tensor:
    """Returns hashes of the videos in a dataset: int64 (videos, 2), of `video_id` and of content.

    The content hash is of the file's SHA-256, taken from the receipts in OUT; 0 if they do not have it. It does not
    change when a video is moved, or listed from another SRC.
    """
    index, rows = dataset.index, dataset.rows
    names, files = index.categories("video_id"), index.categories("file")
    codes = np.unique(index.codes("video_id", rows))
    contents: dict[str, int] = {}
    units = [Path(files[code]).stem for code in np.unique(index.codes("file", rows))]
    for unit, receipt in zip(units, _receipts(dataset, units), strict=True):
        contents |= _content_hashes(unit, receipt)
    hashes = [(_hash(names[code]), contents.get(names[code], _UNKNOWN)) for code in codes]
    return torch.tensor(hashes, dtype=torch.int64).reshape(-1, 2)


def is_hashes(stored: object) -> bool:
    """Whether a value of a checkpoint is what `hash_videos` returns, or None, as in those without it."""
    if not isinstance(stored, Tensor):
        return stored is None
    is_table = stored.dtype == torch.int64 and stored.ndim == 2 and stored.shape[1] == 2
    return is_table and stored.device.type == "cpu" and stored.layout == torch.strided


def count_trained_on(videos: Tensor, trained: Tensor) -> int:
    """Counts how many of `videos` a run was trained on; both as `hash_videos` returns them.

    Compared by content if both contents are known, else by `video_id`.
    """
    names, contents = _columns(videos)
    trained_names, trained_contents = _columns(trained)
    by_content = np.isin(contents, trained_contents[trained_contents != _UNKNOWN])
    by_name = np.isin(names, trained_names[trained_contents == _UNKNOWN])
    by_name |= np.isin(names, trained_names) & (contents == _UNKNOWN)
    return int(np.count_nonzero(by_content | by_name))


def _columns(videos: Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    names, contents = videos.numpy().T
    return names, contents


def _receipts(dataset: FaceDataset, units: list[str]) -> Iterable[bytes | None]:
    """Returns the receipts of units as they are stored; None for each that is missing."""
    if dataset.stores:
        reader = dataset.stores.datasets[0].reader
        return reader.small_files([OutPaths(Path()).receipt(unit).as_posix() for unit in units])
    return (_read(OutPaths(dataset.out).receipt(unit)) for unit in units)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _content_hashes(unit: str, stored: bytes | None) -> dict[str, int]:
    """Returns content hashes of a unit's inputs by `video_id`; empty if its receipt is missing or damaged."""
    try:
        receipt = Receipt.from_json(stored or b"", where=unit)
    except CorruptDataError:
        return {}
    return {video.video_id: _hash(video.sha256) for video in receipt.inputs if video.sha256 is not None}


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True)
