"""Which videos a run is trained on: what its checkpoints record of them, and how many of them a dataset has."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...loaders import FaceDataset
from ...pipeline.dataset.manifest import OutPaths, Receipt
from ...pipeline.errors import CorruptDataError

_UNKNOWN = 0  # in place of a content hash


def videos_of(dataset: FaceDataset) -> Tensor:
    """The videos that a dataset's rows are of: int64 (videos, 2), hashes of `video_id` and of content.

    The content's is of the file's SHA-256, which the receipts in OUT hold; 0 where they do not say. It stays the same
    where a video is moved, or listed from another SRC.
    """
    index, rows = dataset.index, dataset.rows
    names, files = index.categories("video_id"), index.categories("file")
    codes = np.unique(index.codes("video_id", rows))
    contents: dict[str, int] = {}
    for code in np.unique(index.codes("file", rows)):
        contents |= _contents(dataset.out, Path(files[code]).stem)
    found = [(_hash(names[code]), contents.get(names[code], _UNKNOWN)) for code in codes]
    return torch.tensor(found, dtype=torch.int64).reshape(-1, 2)


def num_trained_on(videos: Tensor, trained: Tensor) -> int:
    """How many of `videos` are among those of a run; both as `videos_of` gives them.

    Compared by content where that of both is known, else by `video_id`.
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


def _contents(out: Path, unit: str) -> dict[str, int]:
    """Content hashes of a unit's inputs by `video_id`; of a unit whose receipt is not there or damaged, none."""
    path = OutPaths(out).receipt(unit)
    try:
        receipt = Receipt.from_json(path.read_bytes(), where=str(path))
    except (CorruptDataError, OSError):
        return {}
    return {one.video_id: _hash(one.sha256) for one in receipt.inputs if one.sha256 is not None}


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True)
