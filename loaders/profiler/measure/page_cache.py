"""Page cache control: evicts files, and counts the bytes that were read from storage."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
from torch.utils.data import ConcatDataset, Subset

from ....pipeline.dataset.out import OutPaths
from ...dataset.face_dataset import FaceDataset


def storage_bytes_read() -> int | None:
    """Bytes that storage delivered to this process and its children; None where the system does not report them."""
    try:
        process = psutil.Process()
        total_bytes = int(process.io_counters().read_bytes)
    except (psutil.Error, AttributeError, OSError, NotImplementedError):
        return None
    for child in process.children(recursive=True):
        try:
            total_bytes += int(child.io_counters().read_bytes)
        except (psutil.Error, OSError):  # it has ended meanwhile, or is another user's
            continue
    return total_bytes


def parquet_files(loader: Any) -> list[Path]:
    """The Parquet files of a loader's dataset; empty where they are not known."""
    out_path = getattr(getattr(loader, "dataset", None), "out", None)
    return sorted(OutPaths(out_path).faces.rglob("*.parquet")) if isinstance(out_path, Path) else []


def reads_store(loader: Any) -> bool:
    """Whether the dataset of a loader, or one of several, is in an object store; False where that is not known."""
    return _is_in_store(getattr(loader, "dataset", None))


def _is_in_store(dataset: Any) -> bool:
    if isinstance(dataset, Subset):
        return _is_in_store(dataset.dataset)
    if isinstance(dataset, ConcatDataset):
        return any(_is_in_store(part) for part in dataset.datasets)
    return isinstance(dataset, FaceDataset) and bool(dataset.stores)


def evict(files: Iterable[Path]) -> None:
    """Asks the kernel to drop files from the page cache. It may decline: `storage_bytes_read` shows the effect."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # does not wait for a pipe's writer
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
