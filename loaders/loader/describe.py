"""What an epoch will be, worked out from the index alone."""

from __future__ import annotations

import numpy as np

from ...pipeline.dataset.index import Index
from ..dataset.selection import Rows
from ..sampling.balance import Natural
from ..sampling.epoch_sampler import EpochSampler
from ..workers.readahead import runs
from .stats import LoaderDescription

_PAGE_BYTES = 4096


def describe(order: EpochSampler, *, num_workers: int, shared_bytes: int) -> LoaderDescription:
    """Describes the epoch that is due on this rank."""
    data = order.dataset
    windowed = order.shuffling.mode == "window"
    rows = order.rows(order.epoch) if len(data) else data.rows
    sizes = data.index.numbers("image_bytes", rows)
    mean_bytes = float(sizes.mean()) if len(sizes) else 0.0
    return LoaderDescription(
        order=_rule(order),
        rows=len(data),
        unknown_labels=int((data.index.numbers("label", data.rows) < 0).sum()),
        notes=tuple(order.mix.notes) if len(data) else (),
        batches=len(order),
        global_batch=order.global_batch,
        rank=order.rank,
        num_replicas=order.num_replicas,
        padded_images=order.padded_images,
        dropped_images=order.dropped_images,
        num_workers=num_workers,
        window_bytes=round(2 * min(order.shuffling.window_images, len(rows)) * mean_bytes) if windowed else None,
        read_amplification=_of_windows(data.index, order) if windowed else _of_pages(data.index, rows),
        shared_bytes=shared_bytes,
    )


def _rule(order: EpochSampler) -> str:
    shuffling = order.shuffling
    how = {
        "none": "as in the index",
        "full": "mixed over all rows",
        "window": f"mixed within windows of {shuffling.window_images:,} images",
    }[shuffling.mode]
    what = "every row once" if isinstance(order.balance, Natural) else str(order.balance)
    limit = f", at most {order.max_per_video} of one video in a step" if order.max_per_video else ""
    return f"{what}, {how}{limit}; a function of dataset, seed {order.seed}, epoch and batch number alone"


def _of_pages(index: Index, rows: Rows) -> float:
    """Whole pages that hold the images, over the images' own bytes."""
    starts, sizes = index.numbers("image_offset", rows), index.numbers("image_bytes", rows).astype(np.int64)
    pages = (starts + sizes - 1) // _PAGE_BYTES - starts // _PAGE_BYTES + 1
    return float(pages.sum() * _PAGE_BYTES / sizes.sum()) if len(rows) else 1.0


def _of_windows(index: Index, order: EpochSampler) -> float:
    """The windows' runs over the images' own bytes."""
    read = wanted = 0
    for rows in order.windows(order.epoch) if len(order.dataset) else []:
        read += sum(end - start for _, start, end in runs(index, rows))
        wanted += int(index.numbers("image_bytes", np.unique(rows)).sum())
    return read / wanted if wanted else 1.0
