"""`WorkerBatchLoader`: torch's DataLoader, which starts workers, passes requests to them and returns their batches."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..batching.batch_dataset import BatchDataset
from ..batching.in_flight import InFlightBatches, SharedMemorySpace
from ..batching.worker_batch import WorkerBatch
from ..mixture.mixed_index import as_mixed
from ..sampling.batch_request import BatchRequest
from ..sampling.epoch_sampler import EpochSampler
from ..seeding import derive_seed
from ..torch_internals import shut_down_workers, starting_iterator, was_raised_by_worker
from ..workers.importable import check_importable
from ..workers.processes import (
    MAIN_GUARD_HINT,
    WorkerDiedError,
    WorkerInit,
    default_num_workers,
    workers_import_first,
)
from ..workers.request_preparer import RequestPreparer
from ..workers.watchdog import WorkerWatchdog
from ..workers.worker_copy import worker_copy
from ..workers.worker_options import WorkerOptions
from .epoch_iterator import EpochIterator, iterate_in_order, no_iterator
from .stats import EpochMeter


class WorkerBatchLoader(torch.utils.data.DataLoader[Any]):
    """Loads the requests of an `EpochSampler` by a `BatchDataset` in torch's workers, a `WorkerBatch` for each.

    Allocates the memory that batches come in, seeds the workers, and watches them. Has no constructor of its own:
    trainers that rebuild a loader read its arguments from the signature of the loader's class.
    """

    def _connect(self, sampler: EpochSampler, dataset: BatchDataset) -> None:
        """Sets where requests and batches come from, with no iteration in progress."""
        self._request_preparer = RequestPreparer(dataset)
        sampler.prepare_requests_with(self._request_preparer)
        self._epoch_sampler, self._batch_dataset = sampler, dataset
        self._current_iterator: Callable[[], EpochIterator | None] = no_iterator
        self._watchdog: WorkerWatchdog | None = None
        self._iterator = None
        self._torch_iterator: Callable[[], Any] | None = None
        self._continues_into_next_epoch = False  # whether requests of the next epoch follow those of the current one
        self._next_position_key: tuple[Any, ...] | None = None  # of the epoch after the current one
        self._ended_before: tuple[Any, ...] | None = None  # the same, where the current one has come to its end
        self._last_step = -1  # of the current epoch
        self._have_worked = False  # whether the workers that there are have made a batch
        object.__setattr__(self, "sampler", sampler)  # torch forbids plain assignment where a copy gets another
        object.__setattr__(self, "dataset", dataset)

    @property
    def reads_ahead(self) -> bool:
        """Whether up to two windows of images are read from storage before workers need them."""
        return self._request_preparer.reads_ahead(self._epoch_sampler)

    def __getstate__(self) -> dict[str, Any]:
        """The settings and the position, for `copy` and `pickle`, without workers, batch memory and statistics.

        A copy begins where a loader with the same settings would that loads `state_dict()`.
        """
        dataset, sampler = copy.copy(self._batch_dataset), self._epoch_sampler.copy_outside_iteration()
        dataset.pool = None
        loader = object.__new__(type(self))  # not by `copy`, which asks for this state
        loader.__dict__.update(self.__dict__)
        WorkerBatchLoader._connect(loader, sampler, dataset)
        return {**loader.__dict__, "_meter": EpochMeter(sampler.epoch, as_mixed(dataset.index))}

    def _init_torch_loader(self, workers: WorkerOptions, *, pin_memory: bool) -> None:
        """Initializes torch's DataLoader, which only passes requests to workers and their batches back."""
        dataset, arguments = self._batch_dataset, workers.torch_arguments()
        self.local_ranks, self._has_default_workers = workers.local_ranks, workers.num_workers is None
        self._meter = EpochMeter(0, as_mixed(dataset.index))
        if arguments["num_workers"]:
            check_importable(
                face_transform=dataset.face_transform, transform=dataset.transform, collate_fn=dataset.collate_fn,
                worker_init_fn=workers.worker_init_fn,
            )  # fmt: skip
        super().__init__(
            dataset, batch_size=None, sampler=self._epoch_sampler, collate_fn=unchanged, pin_memory=pin_memory,
            generator=torch.Generator(),  # else torch would draw from the training script's own, once an epoch
            **arguments,
        )  # fmt: skip
        # Torch forbids plain assignment, since its own batching is off; users and trainers read these.
        object.__setattr__(self, "batch_size", self._epoch_sampler.batch_size)
        object.__setattr__(self, "drop_last", self._epoch_sampler.drop_last)

    def _torch_iterators(self, steps: range) -> Iterator[tuple[Any, range]]:
        """Yields torch's iterator over the steps of an epoch, with workers: new ones, or those that persist.

        Where new ones would have to import torch first, an iterator over the first step without workers comes before
        it, so that only the second batch waits for them.
        """
        self._count_default_workers()
        if self._watchdog is not None and self._watchdog.deaths() and self._watchdog.exited_normally:
            self._watchdog = self._iterator = None  # after Ctrl-C, which the script caught: new workers start
        self._last_step = steps.stop - 1
        if self._take_batches_ahead():
            yield self._iterator, steps
            return
        self._allocate_pool()
        requests = self._begin_requests()
        if steps and self._begins_without_workers():
            yield self._iterator_without_workers(requests), steps[:1]
            steps = steps[1:]
            if not steps:
                return
        yield self._start_workers(requests), steps

    def _in_order(self, torch_iterator: Any, steps: range) -> Iterator[WorkerBatch]:
        """The batches of some steps of the epoch in order; see `iterate_in_order`."""
        return iterate_in_order(
            torch_iterator, steps, self._meter, self._describe_worker_deaths, on_batch=self._note_batch
        )

    def _begins_without_workers(self) -> bool:
        """Whether the first batch comes from this process; follows from the settings and what ran before, no clock.

        Not where workers are initialized by the user, or a batch has to come in time.
        """
        init = self.worker_init_fn
        return (
            self.num_workers > 0 and self._iterator is None and not self.timeout
            and isinstance(init, WorkerInit) and init.user_init is None
            and workers_import_first(self.multiprocessing_context)
        )  # fmt: skip

    def _iterator_without_workers(self, requests: Iterator[BatchRequest]) -> Any:
        """Torch's iterator that answers requests in this process, by all that a worker would get."""
        self._torch_iterator = no_iterator
        dataset, collate_fn = worker_copy((self.dataset, self.collate_fn))
        loader = object.__new__(type(self))
        loader.__dict__.update(
            self.__dict__, dataset=dataset, collate_fn=collate_fn, num_workers=0, persistent_workers=False
        )
        return loader._make_torch_iterator(requests)

    def _start_workers(self, requests: Iterator[BatchRequest]) -> Any:
        """Torch's iterator that answers requests by workers, which are watched."""
        try:
            with self._describe_worker_deaths():
                torch_iterator = self._make_torch_iterator(requests)
        except BaseException:
            self._end_persistent_workers()  # what they still have to answer would be taken for the next iteration's
            raise
        if self.num_workers and (self._watchdog is None or not self._watchdog.is_watching(torch_iterator)):
            self._watchdog, self._have_worked = WorkerWatchdog(torch_iterator), False
        return torch_iterator

    def _count_default_workers(self) -> None:
        """Counts the cores again, where these decide how many workers there are: ranks may have started since."""
        if self._has_default_workers and self._iterator is None:
            self.num_workers = default_num_workers(self.local_ranks)

    def _begin_requests(self) -> Iterator[BatchRequest]:
        """The requests of the epoch, and maybe of those that follow."""
        self._epoch_sampler.continues_into_next_epoch = self._continues_into_next_epoch
        try:
            return iter(self._epoch_sampler)
        finally:
            self._epoch_sampler.continues_into_next_epoch = False

    def _make_torch_iterator(self, requests: Iterator[BatchRequest]) -> Any:
        """Torch's iterator over requests; persistent workers first answer what they were asked before."""
        self._seed_workers()
        self._torch_iterator = None
        self._epoch_sampler.requests_left = requests
        try:
            # Torch draws a seed from `generator`, a CPU one, on whatever is the default device.
            with starting_iterator(), torch.device("cpu"):
                torch_iterator = super().__iter__()
        finally:
            self._epoch_sampler.requests_left = None
        self._torch_iterator = weakref.ref(torch_iterator)
        return torch_iterator

    def _end_persistent_workers(self) -> bool:
        """Ends them, where there are any; returns whether none is left."""
        iterator, self._iterator, self._watchdog = self._iterator, None, None
        return iterator is None or shut_down_workers(iterator)

    def _take_batches_ahead(self) -> bool:
        """Goes on with batches that workers have prepared of the epoch that begins; returns whether there are any.

        Also decides whether they prepare those of the next one. Workers that persist go on from the last request of a
        shuffled epoch to the next epoch, so that its first batches are ready when the loader is iterated again. They
        are dropped where another epoch is wanted than the next, or anything was changed meanwhile, and then workers
        stop at the end of the epoch that begins: the next ones would be dropped too.
        """
        sampler, ended, went_on = self._epoch_sampler, self._ended_before, self._continues_into_next_epoch
        position_key = sampler.position_key(*sampler.position)
        self._ended_before, self._next_position_key = None, sampler.position_key(sampler.epoch + 1, 0)
        self._continues_into_next_epoch = (
            ended in {None, position_key}
            and self.persistent_workers
            and self.num_workers > 0
            and sampler.shuffling.mode != "none"
        )
        are_asked = went_on and not sampler.next_epoch_failed and self.num_workers > 0
        return are_asked and ended == position_key and self._iterator is not None

    def _note_batch(self, step: int) -> None:
        """Called once torch's iterator has returned the batch of a step."""
        self._have_worked = self._watchdog is not None
        if step == self._last_step:
            self._ended_before = self._next_position_key

    def _seed_workers(self) -> None:
        """Seeds what torch draws `torch.initial_seed()` of new workers from; here, since ranks are known only now."""
        sampler = self._epoch_sampler
        self.generator.manual_seed(derive_seed(sampler.seed, sampler.epoch, sampler.rank))

    @contextmanager
    def _describe_worker_deaths(self) -> Iterator[None]:
        """Replaces torch's errors after a worker's death by a `WorkerDiedError` that names the worker and the cause."""
        try:
            yield
        except (RuntimeError, OSError, EOFError) as error:
            is_cut_off = isinstance(error, (ConnectionError, EOFError)) and not was_raised_by_worker(error)
            if self._watchdog is not None and (deaths := self._watchdog.deaths(has_seen_one=is_cut_off)):
                self._watchdog = self._iterator = None  # the next epoch starts new workers
                # A batch of the next epoch may be what ended one: none of them with the rest of this epoch.
                self._ended_before = ()
                hint = "" if self._have_worked else MAIN_GUARD_HINT
                raise WorkerDiedError(f"{deaths}; see above for its own message, if it had one{hint}") from error
            raise

    def _allocate_pool(self) -> None:
        """Allocates the shared memory of batches once, as long as workers end: they receive it as they start."""
        dataset = self._batch_dataset
        if dataset.pool is not None and self._has_quiet_workers():
            dataset.pool.reclaim()
        else:
            dataset.pool = self._in_flight_batches().allocate(SharedMemorySpace.of())

    def _has_quiet_workers(self) -> bool:
        """Whether no worker writes to the batches of an earlier iteration any more; ends workers that might.

        An exception that somebody keeps, as a notebook does, keeps torch's iterator, and thereby its workers.
        """
        if self._iterator is not None and not self.num_workers:  # it was set since
            return self._end_persistent_workers()
        if self._iterator is not None or not self.num_workers:  # persistent ones first answer what they were asked
            return True
        if self._torch_iterator is None:  # their start failed
            return False
        iterator = self._torch_iterator()
        return iterator is None or shut_down_workers(iterator)

    def _in_flight_batches(self) -> InFlightBatches:
        dataset, clips = self._batch_dataset, self._batch_dataset.clips
        return InFlightBatches(
            num_workers=self.num_workers, prefetch_factor=self.prefetch_factor or 0,
            batch_size=self._epoch_sampler.batch_size, frames=None if clips is None else clips.clip.frames,
            max_image_numel=dataset.max_image_numel,
            dtype=torch.float32 if dataset.normalised else torch.uint8,
        )  # fmt: skip


def unchanged(batch: Any) -> Any:
    """The `collate_fn` that torch gets, since workers return batches."""
    return batch
