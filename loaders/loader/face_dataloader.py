"""`FaceDataLoader`: torch's DataLoader with an exact order, exact resume and throughput for face data."""

from __future__ import annotations

import copy
import logging
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Literal, Self

import torch

from ...pipeline.errors import UsageError
from .. import validation
from ..batching.batch_dataset import REBUILD_REFUSED, BatchDataset, Collate
from ..batching.in_flight import InFlightBatches, SharedMemorySpace
from ..dataset.face_dataset import Crop, FaceDataset, Transform
from ..dataset.selection import Filters
from ..sampling.balance import Balance, Unbalanced
from ..sampling.epoch_sampler import EpochSampler
from ..sampling.order import Shuffling
from ..transfer.finalizer import BatchFinalizer
from ..workers.importable import check_importable
from ..workers.processes import MAIN_GUARD_HINT, WorkerDiedError, default_num_workers
from ..workers.request_preparer import RequestPreparer
from ..workers.watchdog import WorkerWatchdog
from ..workers.worker_options import WorkerOptions
from .arguments import as_dataset, check_epoch, check_mixup, normalises_in_worker
from .describe import describe_epoch
from .epoch_iterator import EpochIterator, deliver, iterate_in_order, no_iterator
from .stats import EpochMeter, LoaderDescription, LoaderStats

_log = logging.getLogger("facefeed.loaders")


class FaceDataLoader(torch.utils.data.DataLoader[Any]):
    """Batches of faces, in an order that is the same for any number of workers and can be resumed at any batch.

    By default each batch is `(images, labels)`: images float32 (N, 3, H, W), normalised by ImageNet's mean and standard
    deviation, in channels-last memory; labels int64 (N,), -1 where unknown. You may keep every batch.

    Args:
        dataset: the output folder of `precompute`, or a `FaceDataset`.
        batch_size: images per rank and step.
        split: as for `FaceDataset`, like `image_size`, `crop`, `face_transform`, `transform`, `filters` and
            `frames_per_video`; only with a folder.
        shuffle: True or "full", "window" (for hard disks and networks), False; None: True for train alone.
        window_images: images that are shuffled in a window.
        seed: of order and augmentations.
        balance: `Quotas`, `Weights` or `Pairs`; None: every row once.
        max_per_video: most images of one video in a step.
        drop_last: leave out an incomplete last step; else its images are distributed over the ranks.
        rank: None: that of torch.distributed.
        num_replicas: number of ranks; None: that of torch.distributed.
        dtype: "float32", or "uint8": pixels as they are, (N, 3, H, W).
        fields: names of columns; batches are then dicts.
        channels_last: False for plain (N, C, H, W) memory.
        device: to deliver batches on, copied and normalised there during the step.
        on_corrupt: "replace" a damaged image by the next selected one of its video (counted, reported), or "raise".
        num_workers: None: one per usable core, divided among the ranks of this host. 0: batches are prepared in the
            calling thread.
        local_ranks: number of ranks of this host; None: as torchrun, Slurm, MPI or torch.distributed report when the
            loader is first iterated.
        prefetch_factor: as in torch, like `pin_memory`, `timeout`, `worker_init_fn`, `multiprocessing_context` and
            `collate_fn`.
        persistent_workers: None: True.
        sampler: accepted only as trainers set it when they rebuild a loader.

    Raises:
        UsageError: settings that cannot hold.
        CorruptDataError: damage that cannot be replaced.
        WorkerDiedError: a worker died; within seconds.

    """

    def __init__(
        self,
        dataset: str | Path | FaceDataset,
        batch_size: int = 64,
        *,
        split: str | None = "train",
        image_size: int | Literal["auto"] | None = "auto",
        crop: Crop | None = None,
        face_transform: Transform | Sequence[Any] | None = None,
        transform: Transform | None = None,
        filters: Filters | None = None,
        frames_per_video: int | None = None,
        shuffle: bool | Literal["full", "window"] | None = None,
        window_images: int = 16_384,
        seed: int = 0,
        balance: Balance | None = None,
        max_per_video: int | None = None,
        drop_last: bool = False,
        rank: int | None = None,
        num_replicas: int | None = None,
        dtype: Literal["float32", "uint8"] = "float32",
        fields: Sequence[str] | None = None,
        channels_last: bool = True,
        device: str | torch.device | None = None,
        on_corrupt: Literal["replace", "raise"] = "replace",
        num_workers: int | None = None,
        local_ranks: int | None = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool | None = None,
        pin_memory: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        collate_fn: Collate | None = None,
        sampler: Any = None,
        **unsupported: Any,
    ) -> None:
        if isinstance(dataset, BatchDataset):  # a trainer rebuilds this loader
            unsupported.pop("generator", None)
            collate_fn = dataset.collate_fn if collate_fn is _identity else collate_fn
        validation.check_loader_options(
            unsupported, sampler, dtype=dtype, on_corrupt=on_corrupt, device=device, fields=fields,
            collate_fn=collate_fn, drop_last=drop_last, channels_last=channels_last, pin_memory=pin_memory,
        )  # fmt: skip
        workers = WorkerOptions(
            num_workers=num_workers, local_ranks=local_ranks, prefetch_factor=prefetch_factor, timeout=timeout,
            persistent_workers=persistent_workers, worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
        )  # fmt: skip
        dataset = as_dataset(
            dataset, split=split, image_size=image_size, crop=crop, face_transform=face_transform,
            transform=transform, filters=filters, frames_per_video=frames_per_video,
        )  # fmt: skip
        # Stored under the names of the arguments: a trainer that rebuilds the loader reads them from here.
        self.shuffle = dataset.split == "train" if shuffle is None else shuffle
        self.window_images, self.seed, self.balance, self.max_per_video = window_images, seed, balance, max_per_video
        self.rank, self.num_replicas, self.dtype, self.fields = rank, num_replicas, dtype, fields
        self.channels_last, self.device, self.on_corrupt = channels_last, device, on_corrupt
        self.local_ranks, self._has_default_workers = workers.local_ranks, workers.num_workers is None
        epoch_sampler = self._create_sampler(dataset, batch_size, drop_last=drop_last)
        self._connect(epoch_sampler, self._create_batch_dataset(dataset, collate_fn, seed=epoch_sampler.seed))
        self._meter = EpochMeter(0)
        self._init_torch_loader(workers, pin_memory=pin_memory)

    def _create_sampler(self, dataset: FaceDataset, batch_size: int, *, drop_last: bool) -> EpochSampler:
        sampler = EpochSampler(
            dataset, batch_size=batch_size, shuffling=Shuffling.from_argument(self.shuffle, self.window_images),
            balance=Unbalanced() if self.balance is None else self.balance, max_per_video=self.max_per_video,
            seed=self.seed, drop_last=drop_last, rank=self.rank, num_replicas=self.num_replicas,
        )  # fmt: skip
        check_epoch(sampler)
        return sampler

    def _create_batch_dataset(self, dataset: FaceDataset, collate_fn: Collate | None, *, seed: int) -> BatchDataset:
        return BatchDataset(
            dataset, fields=("image", "label") if self.fields is None else self.fields, seed=seed,
            normalised=normalises_in_worker(self.dtype, self.device), mixes=check_mixup(dataset, self.balance),
            replace_corrupt=self.on_corrupt == "replace", balanced_column=getattr(self.balance, "column", "label"),
            collate_fn=collate_fn,
        )  # fmt: skip

    def _connect(self, sampler: EpochSampler, dataset: BatchDataset) -> None:
        """Sets where requests and batches come from, with no iteration in progress."""
        sampler.prepare_request = RequestPreparer(dataset)
        self._epoch_sampler, self._batch_dataset = sampler, dataset
        self._current_iterator: Callable[[], EpochIterator | None] = no_iterator
        self._watchdog: WorkerWatchdog | None = None
        self._iterator = None
        object.__setattr__(self, "sampler", sampler)  # torch forbids plain assignment where a copy gets another
        object.__setattr__(self, "dataset", dataset)

    def _init_torch_loader(self, workers: WorkerOptions, *, pin_memory: bool) -> None:
        """Initializes torch's DataLoader, which only passes requests to workers and their batches back."""
        dataset, arguments = self._batch_dataset, workers.torch_arguments()
        if arguments["num_workers"]:
            check_importable(
                face_transform=dataset.face_transform, transform=dataset.transform, collate_fn=dataset.collate_fn,
                worker_init_fn=workers.worker_init_fn,
            )  # fmt: skip
        super().__init__(
            dataset, batch_size=None, sampler=self._epoch_sampler, collate_fn=_identity, pin_memory=pin_memory,
            generator=torch.Generator(),  # else torch would draw from the training script's own, once an epoch
            **arguments,
        )  # fmt: skip
        # Torch forbids plain assignment, since its own batching is off; users and trainers read these.
        object.__setattr__(self, "batch_size", self._epoch_sampler.batch_size)
        object.__setattr__(self, "drop_last", self._epoch_sampler.drop_last)

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Read by Accelerate's `prepare` before it would rebuild this loader."""
        raise UsageError(REBUILD_REFUSED)

    def with_batch_dataset(self, dataset: BatchDataset) -> Self:
        """A copy of this loader that loads batches by `dataset`, with its own memory and its own position."""
        dataset.pool = None
        loader = copy.copy(self)
        FaceDataLoader._connect(loader, copy.copy(self._epoch_sampler), dataset)
        return loader

    def __len__(self) -> int:
        """Batches of a whole epoch, the same on every rank; also after a resume."""
        return len(self._epoch_sampler)

    def set_epoch(self, epoch: int) -> None:
        """Selects the epoch of the next `iter()`, from its beginning, or from the position of a state loaded for it.

        Without it, an `iter()` after a whole epoch yields the next one; after an interrupted one, the rest of it if it
        is shuffled, else all rows again.
        """
        self._epoch_sampler.set_epoch(epoch)

    @property
    def next_step(self) -> int:
        """Index of the next step, 0 .. `len(self)`, in the current epoch."""
        return len(self._epoch_sampler) - self._epoch_sampler.steps_left

    def __iter__(self) -> EpochIterator:  # type: ignore[override]
        if iterator := self._current_iterator():  # so that no worker writes to memory that the next one uses
            iterator.supersede()
        iterator = EpochIterator(self._iterate_epoch())
        self._current_iterator = weakref.ref(iterator)  # weak, so that an abandoned one ends at once
        return iterator

    def _iterate_epoch(self) -> Generator[Any, None, None]:
        """Yields the batches of an epoch, selected at its first batch: Lightning calls `set_epoch` after `iter()`."""
        self._meter = meter = EpochMeter(self._epoch_sampler.epoch)
        if self._has_default_workers and self._iterator is None:
            self.num_workers = default_num_workers(self.local_ranks)  # ranks may have started since
        self._allocate_pool()
        if self._watchdog is not None and self._watchdog.deaths() and self._watchdog.exited_normally:
            self._watchdog = self._iterator = None  # after Ctrl-C, which the script caught: new workers start
        try:
            with meter.time_wait(), self._describe_worker_deaths():
                torch_iterator = super().__iter__()
            if self.num_workers and (self._watchdog is None or not self._watchdog.is_watching(torch_iterator)):
                self._watchdog = WorkerWatchdog(torch_iterator)
            worker_batches = iterate_in_order(torch_iterator, self.next_step, meter, self._describe_worker_deaths)
            yield from deliver(self._batch_finalizer()(worker_batches), self._epoch_sampler, meter)
        finally:
            self._current_iterator = no_iterator
            if meter.replaced:
                _log.warning(meter.replacement_report(self._batch_dataset.out))

    def _batch_finalizer(self) -> BatchFinalizer:
        return BatchFinalizer(
            pool=self._batch_dataset.pool, dtype=self.dtype, channels_last=self.channels_last,
            as_dict=self.fields is not None, device=self.device,
            pin_memory=self.pin_memory and torch.cuda.is_available(),
        )  # fmt: skip

    @contextmanager
    def _describe_worker_deaths(self) -> Iterator[None]:
        """Replaces torch's errors after a worker's death by a `WorkerDiedError` that names the worker and the cause."""
        try:
            yield
        except (RuntimeError, OSError, EOFError) as error:
            if self._watchdog is not None and (deaths := self._watchdog.deaths()):
                self._watchdog = self._iterator = None  # the next epoch starts new workers
                hint = "" if self._meter.batches else MAIN_GUARD_HINT
                raise WorkerDiedError(f"{deaths}; see above for its own message, if it had one{hint}") from error
            raise

    def _allocate_pool(self) -> None:
        """Allocates the shared memory of batches once: workers receive it as they start."""
        dataset = self._batch_dataset
        if dataset.pool is not None:
            dataset.pool.reclaim()
        else:
            dataset.pool = self._in_flight_batches().allocate(SharedMemorySpace.of())

    def _in_flight_batches(self) -> InFlightBatches:
        dataset = self._batch_dataset
        return InFlightBatches(
            num_workers=self.num_workers, prefetch_factor=self.prefetch_factor or 0,
            batch_size=self._epoch_sampler.batch_size,
            side_px=dataset.image_size if dataset.collate_fn is None else None,
            dtype=torch.float32 if dataset.normalised else torch.uint8,
        )  # fmt: skip

    def to(self, device: str | torch.device) -> Self:
        """Delivers the batches of later iterations on a device; see the argument `device`."""
        validation.check_options(device=device)
        if self._iterator is not None or self._current_iterator() is not None:
            raise UsageError(f"to({device!r}): the workers have started; give the device before the first iter()")
        self.device = device
        self._batch_dataset.normalised = normalises_in_worker(self.dtype, device)
        return self

    def state_dict(self) -> dict[str, Any]:
        """The position in a few numbers: `images` of `epoch` were delivered, over all ranks.

        Counts delivered batches, not those that workers have prefetched. Where no iteration is in progress, the next
        `iter()` of this loader begins at the same image as that of a loader that loads the state.
        """
        return self._epoch_sampler.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues at the position of a state, also with other workers, other ranks and another batch size.

        Raises `UsageError` while an iteration is in progress, where the state is of other data or another order, or,
        with `max_per_video`, of another global batch.
        """
        if self._current_iterator() is not None:
            raise UsageError("load_state_dict: an iteration is under way; load before iter()")
        self._epoch_sampler.resume(state)

    def stats(self) -> LoaderStats:
        """Statistics of the current epoch, or of the last one."""
        return self._meter.stats()

    def describe(self) -> LoaderDescription:
        """What an epoch will be: order, memory, reads, and the batches of this rank."""
        return describe_epoch(
            self._epoch_sampler, num_workers=self.num_workers, shared_bytes=self._in_flight_batches().total_bytes
        )


def _identity(batch: Any) -> Any:
    return batch
