"""`LoaderStats`, the throughput of an epoch so far, and `LoaderDescription`, what an epoch will be."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ...pipeline.dataset.stores.counts import StoreCounts
from ..batching.worker_batch import Replacement
from ..mixture.mixed_index import MixedIndex


@dataclass(frozen=True, kw_only=True)
class LoaderStats:
    """One epoch so far. `str()` is a line for the log.

    seconds: since `iter()`, the training steps included. wait_seconds: of these, the time in `iter()` and `next()`;
    wait_share near 0: training never waited; near 1: it did nothing else. first_batch_seconds: until the first batch,
    the start of workers included where these make it. queue_depth: batches ready at `next()`, on average; near 0 the
    workers are the bottleneck. latest_ready: batches ready at the latest `next()`. corrupt: images, or clips, that came
    in place of damaged ones: one that is due several times in the epoch counts as often; `replaced` lists the first
    damaged images, each once; corrupt_by_dataset: of a mixture, `corrupt` of each dataset, by name. made_fakes: real
    faces that `SelfBlend` made fakes of. store: what reading from object stores took, ahead and for batches; None where
    all is local.
    """

    epoch: int
    batches: int
    images: int
    seconds: float
    wait_seconds: float
    first_batch_seconds: float
    queue_depth: float
    latest_ready: int
    corrupt: int
    made_fakes: int = 0
    corrupt_by_dataset: Mapping[str, int] = field(default_factory=dict)
    replaced: tuple[Replacement, ...] = field(default=(), repr=False)
    store: StoreCounts | None = None

    @property
    def images_per_second(self) -> float:
        """Images delivered in a second, whether data or training was the bottleneck."""
        return self.images / self.seconds if self.seconds else 0.0

    @property
    def wait_share(self) -> float:
        """Share of the time in which training waited for data, 0 to 1."""
        return self.wait_seconds / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch}: {self.images:,} images in {self.batches:,} batches, "
            f"{self.images_per_second:,.0f} images/s, waited {self.wait_share:.0%}, "
            f"first batch {self.first_batch_seconds:.2f} s, queue {self.queue_depth:.1f}, corrupt {self.corrupt}"
            + (f" ({_counts(self.corrupt_by_dataset)})" if self.corrupt and self.corrupt_by_dataset else "")
            + (f", {self.made_fakes:,} real faces made fakes" if self.made_fakes else "")
            + (f"; store: {self.store}" if self.store is not None else "")
        )


class EpochMeter:
    """Records the statistics of one epoch; `mixture`: the index, where it is that of a mixture."""

    def __init__(self, epoch: int, mixture: MixedIndex | None = None) -> None:
        self.epoch, self._mixture = epoch, mixture
        self.replaced: list[Replacement] = []
        self.made_fakes = 0
        self.batches = self._images = self._ready = self._latest_ready = 0
        self._wait_seconds = self._first_batch_seconds = 0.0
        self._started = self._latest = 0.0
        self._store: StoreCounts | None = None

    @contextmanager
    def time_wait(self) -> Iterator[None]:
        """Measures the time in which training waits for a batch."""
        began = time.perf_counter()
        self._started = self._started or began
        yield
        self._latest = time.perf_counter()
        self._wait_seconds += self._latest - began

    def record_ready(self, batches: int) -> None:
        """Records how many batches were ready at a `next()`."""
        self._ready += batches
        self._latest_ready = batches

    def record_batch(self, images: int) -> None:
        """Records a delivered batch."""
        self.batches += 1
        self._first_batch_seconds = self._first_batch_seconds or self._latest - self._started
        self._images += images

    def add_store(self, counts: StoreCounts | None) -> None:
        """Adds what reading from stores took."""
        if counts is not None:
            self._store = counts if self._store is None else self._store + counts

    def stats(self) -> LoaderStats:
        """The statistics so far."""
        return LoaderStats(
            epoch=self.epoch, batches=self.batches, images=self._images, seconds=self._latest - self._started,
            wait_seconds=self._wait_seconds, first_batch_seconds=self._first_batch_seconds,
            queue_depth=self._ready / max(self.batches, 1), latest_ready=self._latest_ready,
            corrupt=len(self.replaced), made_fakes=self.made_fakes, replaced=self._each_once()[:_MAX_NAMED],
            corrupt_by_dataset=self._count_by_dataset(self.replaced), store=self._store,
        )  # fmt: skip

    def _each_once(self) -> tuple[Replacement, ...]:
        """The first replacement of each damaged image."""
        first: dict[int, Replacement] = {}
        for image in self.replaced:
            first.setdefault(image.row, image)
        return tuple(first.values())

    def _count_by_dataset(self, replaced: Iterable[Replacement]) -> dict[str, int]:
        if self._mixture is None:
            return {}
        counts = Counter(self._mixture.dataset_of(image.row) for image in replaced)
        return {name: counts[number] for number, name in enumerate(self._mixture.names)}

    def replacement_report(self, out: Path, remedies: Mapping[Path, str], *, are_clips: bool) -> str:
        """The damaged images of an epoch and their replacements, for the log.

        `remedies`: by folder, where it is not `facefeed verify`. `are_clips`: whether clips with them were replaced.
        """
        replaced, datasets, outs = self._each_once(), "", [out]
        if self._mixture is not None:
            counts = {name: count for name, count in self._count_by_dataset(replaced).items() if count}
            datasets = f" ({_counts(counts)})"
            folders = dict(zip(self._mixture.names, self._mixture.outs, strict=True))
            outs = [folders[name] for name in counts]
        local = " and ".join(f"`facefeed verify {folder}`" for folder in outs if folder not in remedies)
        of_stores = sorted({remedies[folder] for folder in outs if folder in remedies})
        remedy = "; ".join([f"run {local}"] * bool(local) + of_stores)
        first = "\n".join(f"  {each.face_id} -> {each.replaced_by}: {each.reason}" for each in replaced[:_MAX_NAMED])
        images = f"{'clips with ' * are_clips}{len(replaced)} damaged images{datasets}"
        times = f", {len(self.replaced)} times," if len(self.replaced) > len(replaced) else ""
        return (
            f"epoch {self.epoch}: {images} were replaced{times} by others of their videos or labels; {remedy}. The "
            f"first:\n{first}"
        )


def _counts(by_name: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in by_name.items())


_MAX_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class MixedDataset:
    """One dataset of a mixture. out: its folder, or address. items: its selected images, or clips. share: of every
    batch, 0 to 1. drawn: items of an epoch. passes: how often an epoch passes through it.
    """

    name: str
    out: Path | str
    items: int
    share: float
    drawn: int
    passes: float


@dataclass(frozen=True, kw_only=True)
class StoreDescription:
    """What of an epoch is in object stores. addresses: of the datasets. epoch_bytes: blocks that hold its images.
    cache_bytes: most that the cache takes. advice: where the cache is too small for the order; else empty.
    """

    addresses: tuple[str, ...]
    epoch_bytes: int
    cache_bytes: int
    advice: str = ""

    def __str__(self) -> str:
        text = (
            f"store: {self.epoch_bytes / 1e6:,.0f} MB of {' and '.join(self.addresses)}, "
            f"a cache of {self.cache_bytes / 1e6:,.0f} MB"
        )
        return text if not self.advice else f"{text}\nadvice: {self.advice}"


@dataclass(frozen=True, kw_only=True)
class LoaderDescription:
    """What an epoch will be. `str()` is a readable summary of several lines.

    window_bytes: images that should fit the page cache at a time (two windows); None without windows.
    read_amplification: bytes read from storage for each byte of an image, at least 1; whole pages of 4 KiB with random
    access, sequential runs with windows. shared_bytes: memory of the batches in flight between processes. items: what
    rows, global_batch, padded_images and dropped_images count. datasets: of a mixture, in the order of the values of
    the field `dataset_index`. store: of images in object stores; None where all are local.
    """

    order: str
    rows: int
    unknown_labels: int
    notes: tuple[str, ...]
    batches: int
    global_batch: int
    rank: int
    num_replicas: int
    padded_images: int
    dropped_images: int
    num_workers: int
    window_bytes: int | None
    read_amplification: float
    shared_bytes: int
    items: str = "images"
    datasets: tuple[MixedDataset, ...] = ()
    store: StoreDescription | None = None

    def __str__(self) -> str:
        ends = f"{self.padded_images} repeated" if self.padded_images else f"{self.dropped_images} dropped"
        lines = [
            f"order: {self.order}",
            f"{'rows' if self.items == 'images' else self.items}: {self.rows:,}"
            + "".join(f"; {n}" for n in self.notes),
            f"batches: {self.batches:,} on rank {self.rank} of {self.num_replicas}, {self.global_batch} {self.items} "
            f"a step over all ranks; {ends} at the end of an epoch",
            f"workers: {self.num_workers}, {self.shared_bytes / 1e6:.0f} MB of batches under way",
            f"reads: {self.read_amplification:.2f} bytes from storage for each byte of an image",
        ]
        if self.window_bytes is not None:
            lines.append(f"window: {self.window_bytes / 1e6:.0f} MB of page cache for two windows")
        if self.store is not None:
            lines.append(str(self.store))
        for number, each in enumerate(self.datasets):
            lines.append(
                f"dataset {number}: {each.name}, {each.share:.2%} of each batch, {each.drawn:,} {self.items} an epoch, "
                f"{each.passes:.2f} passes through {each.items:,}; {each.out}"
            )
        if self.unknown_labels:
            lines.append(f"labels: {self.unknown_labels:,} rows have none (-1)")
        return "\n".join(lines)
