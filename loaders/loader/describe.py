"""Describes an epoch from the index alone, without reading images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ...pipeline.dataset.index_like import IndexLike
from ..clips.clip_items import ClipItems
from ..dataset.selection import Rows
from ..dataset.store_datasets import StoreDatasets
from ..mixture.mixture_balance import MixtureBalance
from ..sampling.balance import Unbalanced
from ..sampling.epoch_sampler import EpochSampler
from ..sampling.orders import BLOCK_ROWS, Order
from ..workers.readahead import byte_runs
from .stats import LoaderDescription, MixedDataset, StoreDescription

_PAGE_BYTES = 4096
_ROWS_AT_ONCE = 1 << 20  # bounds the memory


def describe_epoch(
    sampler: EpochSampler, *, num_workers: int, shared_bytes: int, stores: StoreDatasets | None = None
) -> LoaderDescription:
    """Describes the current epoch of this rank. `stores`: the datasets that are in object stores."""
    dataset = sampler.dataset
    windowed = sampler.shuffling.mode == "window"
    clips = dataset if isinstance(dataset, ClipItems) else None
    images = _Images.of_epoch(sampler)
    frames = 1 if clips is None else clips.clip.frames
    notes = tuple(sampler.bound_balance.notes) if len(dataset) else ()
    mean_bytes = images.bytes / images.count if images.count else 0.0
    return LoaderDescription(
        order=_order_rule(sampler),
        rows=len(dataset),
        unknown_labels=sum(int((dataset.index.numbers("label", rows) < 0).sum()) for rows in _parts(dataset.selection)),
        notes=(*clips.notes, *notes) if clips is not None else notes,
        batches=len(sampler),
        global_batch=sampler.global_batch,
        rank=sampler.rank,
        num_replicas=sampler.num_replicas,
        padded_images=sampler.padded_images,
        dropped_images=sampler.dropped_images,
        num_workers=num_workers,
        window_bytes=(
            round(2 * min(sampler.shuffling.window_images, sampler.num_images) * mean_bytes) * frames
            if windowed
            else None
        ),
        read_amplification=(
            _window_read_amplification(dataset.index, sampler) if windowed else images.page_read_amplification
        ),
        shared_bytes=shared_bytes,
        items="images" if clips is None else f"clips of {frames} images",
        datasets=_describe_mixture(sampler),
        store=_describe_stores(stores, sampler, mean_bytes, frames) if stores else None,
    )


def _describe_stores(stores: StoreDatasets, sampler: EpochSampler, mean_bytes: float, frames: int) -> StoreDescription:
    """What of an epoch is in stores, with advice where the cache is too small for its order.

    `frames`: of a clip, whose windows the sampler counts in clips; 1 for images.
    """
    image_rows = _image_rows(sampler, sampler.rows(sampler.epoch))
    epoch_bytes, cache_bytes = stores.block_bytes(image_rows), stores.limit_bytes
    block_bytes, advice = stores.datasets[0].reader.block_bytes, ""
    mode, window = sampler.shuffling.mode, sampler.shuffling.window_images
    if mode == "full" and cache_bytes < epoch_bytes:
        images = max(round(block_bytes / mean_bytes), 1) if mean_bytes else 1
        advice = (
            f"shuffle='window': the cache holds {cache_bytes / epoch_bytes:.0%} of the images, so a full shuffle "
            f"fetches blocks of {block_bytes / 1e6:.1f} MB, with {images:,} images each, again for almost every image; "
            f"or cache_bytes={epoch_bytes}"
        )
    elif cache_bytes < epoch_bytes:
        largest = max(stores.block_bytes(_image_rows(sampler, rows)) for rows in sampler.windows(sampler.epoch))
        if 2 * largest > cache_bytes:
            advice = f"cache_bytes={2 * largest}: two windows take more than the cache, so blocks go before their use"
            if (smaller := max(min(window, sampler.num_images) // 2, BLOCK_ROWS)) < window:
                advice += f"; or window_images={smaller * frames}"
    addresses = tuple(dict.fromkeys(dataset.index.where for dataset in stores.datasets))
    return StoreDescription(addresses=addresses, epoch_bytes=epoch_bytes, cache_bytes=cache_bytes, advice=advice)


def _describe_mixture(sampler: EpochSampler) -> tuple[MixedDataset, ...]:
    if not isinstance(sampler.balance, MixtureBalance) or not len(sampler.dataset):
        return ()
    index: Any = sampler.dataset.index  # a `MixedIndex`
    bound: Any = sampler.bound_balance  # a `BoundMixture`
    items = np.diff(np.searchsorted(np.asarray(sampler.dataset.selection), index.offsets))
    total, drawn = sum(bound.shares), bound.images_of_each
    return tuple(
        MixedDataset(
            name=name, out=index.indexes[number].address or index.outs[number], items=int(items[number]),
            share=bound.shares[number] / total, drawn=drawn[number],
            passes=drawn[number] / bound.bounds[number].num_images,
        )
        for number, name in enumerate(index.names)
    )  # fmt: skip


def _order_rule(sampler: EpochSampler) -> str:
    shuffling = sampler.shuffling
    shuffle = {
        "none": "as in the index",
        "full": "mixed over all rows",
        "window": f"mixed within windows of {shuffling.window_images:,} {_items(sampler)}",
    }[shuffling.mode]
    each = f"every clip of {sampler.dataset.clip} once" if isinstance(sampler.dataset, ClipItems) else "every row once"
    balance = sampler.balance
    mixed = "the datasets below by their shares, of each " if isinstance(balance, MixtureBalance) else ""
    balance = balance.each if isinstance(balance, MixtureBalance) else balance
    rows = mixed + (each if isinstance(balance, Unbalanced) else str(balance))
    limit = f", at most {sampler.max_per_video} of one video in a step" if sampler.max_per_video else ""
    return f"{rows}, {shuffle}{limit}; a function of dataset, seed {sampler.seed}, epoch and batch number alone"


def _items(sampler: EpochSampler) -> str:
    return "clips" if isinstance(sampler.dataset, ClipItems) else "images"


@dataclass(frozen=True, kw_only=True)
class _Images:
    """The images of an epoch. bytes: their own. page_bytes: of the whole pages that hold them."""

    count: int
    bytes: int
    page_bytes: int

    @classmethod
    def of_epoch(cls, sampler: EpochSampler) -> Self:
        """Reads where they lie, in the order of the index where each row comes once: sums do not depend on it."""
        index, is_each_once = sampler.dataset.index, isinstance(sampler.balance, Unbalanced)
        order = sampler.dataset.selection if is_each_once else sampler.order(sampler.epoch)
        count = size_bytes = pages = 0
        for part in _parts(order):
            rows = _image_rows(sampler, part)
            starts, sizes = index.numbers("image_offset", rows), index.numbers("image_bytes", rows).astype(np.int64)
            count, size_bytes = count + len(rows), size_bytes + int(sizes.sum())
            pages += int(((starts + sizes - 1) // _PAGE_BYTES - starts // _PAGE_BYTES + 1).sum())
        return cls(count=count, bytes=size_bytes, page_bytes=pages * _PAGE_BYTES)

    @property
    def page_read_amplification(self) -> float:
        """`page_bytes` for each of the images' own bytes."""
        return self.page_bytes / self.bytes if self.bytes else 1.0


def _parts(rows: Order) -> Iterator[Rows]:
    """The rows, some at a time."""
    return (rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE))


def _image_rows(sampler: EpochSampler, rows: Rows) -> Rows:
    """The rows of all images of an epoch's `rows`, in which a clip is one row."""
    dataset = sampler.dataset
    return dataset.clips(rows, sampler.epoch).rows.ravel() if isinstance(dataset, ClipItems) else rows


def _window_read_amplification(index: IndexLike, sampler: EpochSampler) -> float:
    """Bytes of the windows' sequential runs, divided by the images' own bytes."""
    read_bytes = image_bytes = 0
    for window in sampler.windows(sampler.epoch) if len(sampler.dataset) else []:
        rows = _image_rows(sampler, window)
        read_bytes += sum(end - start for _, start, end in byte_runs(index, rows))
        image_bytes += int(index.numbers("image_bytes", np.unique(rows)).sum())
    return read_bytes / image_bytes if image_bytes else 1.0
