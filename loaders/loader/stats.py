"""What a loader can say of itself: how fast it was, and what it is going to do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..batching.batch import Replaced


@dataclass(frozen=True, kw_only=True)
class LoaderStats:
    """One epoch so far. `str()` is a line for the log.

    seconds: since `iter()`, the training step's time included. wait_seconds: of these, how long `iter()` and `next()`
    took; wait_share near 0: the loader was never waited for; near 1: nothing else was done.
    first_batch_seconds: until the first batch came, with the start of the workers. queue_depth: how many batches were
    ready on average when one was asked for; near 0 the workers are the slower side. latest_ready: how many were when
    the latest was asked for. corrupt: damaged images that were replaced; `replaced` names the first of them.
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
    replaced: tuple[Replaced, ...] = field(default=(), repr=False)

    @property
    def images_per_second(self) -> float:
        """Images that were handed out in a second, whatever limited them."""
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
        )


class Meter:
    """Counts one epoch as it is handed out."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.replaced: list[Replaced] = []
        self.batches = self._images = self._ready = self._latest_ready = 0
        self._wait_seconds = self._first_batch_seconds = 0.0
        self._started = self._latest = 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around the time in which training waits for a batch."""
        began = time.perf_counter()
        self._started = self._started or began
        yield
        self._latest = time.perf_counter()
        self._wait_seconds += self._latest - began

    def saw_ready(self, batches: int) -> None:
        """How many batches were ready when one was asked for."""
        self._ready += batches
        self._latest_ready = batches

    def count(self, images: int) -> None:
        """A batch that was handed out."""
        self.batches += 1
        self._first_batch_seconds = self._first_batch_seconds or self._latest - self._started
        self._images += images

    def stats(self) -> LoaderStats:
        """The figures so far."""
        return LoaderStats(
            epoch=self.epoch, batches=self.batches, images=self._images, seconds=self._latest - self._started,
            wait_seconds=self._wait_seconds, first_batch_seconds=self._first_batch_seconds,
            queue_depth=self._ready / max(self.batches, 1), latest_ready=self._latest_ready,
            corrupt=len(self.replaced), replaced=tuple(self.replaced[:_NAMED]),
        )  # fmt: skip

    def report(self, out: Path) -> str:
        """The damage of an epoch, for the log."""
        first = "\n".join(f"  {one.face_id} -> {one.by}: {one.reason}" for one in self.replaced[:_NAMED])
        return (
            f"epoch {self.epoch}: {len(self.replaced)} damaged images were replaced by others of their videos "
            "or labels; run "
            f"`facefeed verify {out}`. The first:\n{first}"
        )


_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class LoaderDescription:
    """What an epoch will be. `str()` is for people, a line a thing.

    window_bytes: of images that are meant to be in the page cache at a time (two windows), None where there is no
    window. read_amplification: bytes that storage has to read for each byte of an image, at least 1; with random access
    in whole pages of 4 KiB, with a window in its runs. shared_bytes: batches that are under way between processes.
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

    def __str__(self) -> str:
        ends = f"{self.padded_images} repeated" if self.padded_images else f"{self.dropped_images} dropped"
        lines = [
            f"order: {self.order}",
            f"rows: {self.rows:,}" + "".join(f"; {note}" for note in self.notes),
            f"batches: {self.batches:,} on rank {self.rank} of {self.num_replicas}, {self.global_batch} images a step"
            f" over all ranks; {ends} at the end of an epoch",
            f"workers: {self.num_workers}, {self.shared_bytes / 1e6:.0f} MB of batches under way",
            f"reads: {self.read_amplification:.2f} bytes from storage for each byte of an image",
        ]
        if self.window_bytes is not None:
            lines.append(f"window: {self.window_bytes / 1e6:.0f} MB of page cache for two windows")
        if self.unknown_labels:
            lines.append(f"labels: {self.unknown_labels:,} rows have none (-1)")
        return "\n".join(lines)


def ready_batches(batches: Any) -> int:
    """How many batches of torch's iterator are made and wait; 0 without workers.

    In the workers' queue, page-locked, or taken from there before their turn.
    """
    if not hasattr(batches, "_worker_result_queue"):
        return 0
    queues = {batches._worker_result_queue, batches._data_queue}  # noqa: SLF001 (two where batches are pinned)
    early = sum(len(task) == 2 for task in batches._task_info.values())  # noqa: SLF001
    return early + sum(int(queue.qsize()) for queue in queues)
