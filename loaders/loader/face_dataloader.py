"""`FaceDataLoader`: torch's DataLoader with the order, the resume and the speed that face data allow."""

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
from ..batching.batch import NOT_TO_BE_REBUILT, BatchSource, Collate
from ..batching.shared_memory import BatchesUnderWay, SharedRoom
from ..dataset.face_dataset import FaceDataset, Transform
from ..dataset.selection import Filters
from ..sampling.balance import Balance, Natural, Pairs
from ..sampling.epoch_sampler import EpochSampler
from ..sampling.order import Shuffling
from ..transfer.finalizer import Delivery
from ..workers.processes import UNGUARDED, WorkerDiedError, WorkerInit, default_workers, start_context, start_method
from ..workers.requests import Issuer
from ..workers.watchdog import Watch
from .describe import describe
from .iteration import Iteration, advancing, in_order, no_iteration
from .stats import LoaderDescription, LoaderStats, Meter

_log = logging.getLogger("facefeed.loaders")


class FaceDataLoader(torch.utils.data.DataLoader[Any]):
    """Batches of faces, in an order that is the same for any number of workers and can be resumed at any batch.

    By default each batch is `(images, labels)`: images float32 (N, 3, H, W), normalised by ImageNet's mean and standard
    deviation, in channels-last memory; labels int64 (N,), -1 where unknown. Every batch is yours to keep.

    dataset: the folder that `precompute` made, or a `FaceDataset`. `split`, `image_size`, `face_transform`,
    `transform`, `filters`, `frames_per_video`: as for `FaceDataset`, only with a folder.

    batch_size: images a rank and step. shuffle: True or "full", "window" (for disks that seek and networks), False;
    None: True for train alone. window_images: how many images a window mixes. seed: of order and augmentations.
    balance: `Quotas`, `Weights`, `Pairs`; None: every row once. max_per_video: most images of one video in a step.
    drop_last: leave out a last step that is not full; else its images are dealt out to the ranks.
    rank, num_replicas: None: those of torch.distributed.

    dtype: "float32", or "uint8": pixels as they are, (N, 3, H, W). fields: names of columns; batches are then dicts.
    channels_last: False for plain (N, C, H, W) memory. device: batches come on it, copied and normalised there beside
    the step. on_corrupt: "replace" a damaged image by its video's next selected one (counted, reported), or "raise".

    num_workers: None: one a usable core, shared among the ranks of this host. 0: batches are made in the calling
    thread. local_ranks: how many ranks that is, for who starts them; None: as torchrun, Slurm, MPI or torch.distributed
    say when the loader is first iterated. persistent_workers: None: True.
    `prefetch_factor`, `pin_memory`, `timeout`, `worker_init_fn`, `multiprocessing_context`, `collate_fn` work as
    in torch. `sampler` is accepted only as trainers set it when they rebuild a loader.

    Raises `UsageError` on settings that cannot be kept, `CorruptDataError` on damage that cannot be replaced,
    `WorkerDiedError` within seconds of a worker's end.
    """

    def __init__(
        self,
        dataset: str | Path | FaceDataset,
        batch_size: int = 64,
        *,
        split: str | None = "train",
        image_size: int | None = 224,
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
        **refused: Any,
    ) -> None:
        if isinstance(dataset, BatchSource):  # a trainer makes this loader anew
            refused.pop("generator", None)
            collate_fn = dataset.collate_fn if collate_fn is _as_is else collate_fn
        validation.none_of(refused, sampler)
        validation.words(dtype, on_corrupt, device, fields)
        if collate_fn is not None:
            validation.own_collating(dtype=dtype, fields=fields)
        validation.of_workers(
            collate_fn=collate_fn, worker_init_fn=worker_init_fn, timeout=timeout, persistent_workers=persistent_workers
        )
        validation.flags(drop_last=drop_last, channels_last=channels_last, pin_memory=pin_memory)
        if local_ranks is not None:
            local_ranks = validation.whole("local_ranks", local_ranks, least=1, such_as=8)
        self.local_ranks, self._workers_by_default = local_ranks, num_workers is None
        workers = default_workers(local_ranks) if num_workers is None else num_workers
        workers = validation.whole("num_workers", workers, such_as=2)
        if prefetch_factor is not None:
            prefetch_factor = validation.whole("prefetch_factor", prefetch_factor, least=1, such_as=2)
        of_dataset = {
            "split": split, "image_size": image_size, "face_transform": face_transform, "transform": transform,
            "filters": filters, "frames_per_video": frames_per_video,
        }  # fmt: skip
        if isinstance(dataset, FaceDataset):
            validation.not_twice(of_dataset, FaceDataset)
        else:
            dataset = FaceDataset(dataset, **of_dataset)  # type: ignore[arg-type]
        # Kept under the names of the arguments: a trainer that makes the loader anew reads them from here.
        self.shuffle = dataset.split == "train" if shuffle is None else shuffle
        self.window_images, self.seed, self.balance, self.max_per_video = window_images, seed, balance, max_per_video
        self.rank, self.num_replicas, self.dtype, self.fields = rank, num_replicas, dtype, fields
        self.channels_last, self.device, self.on_corrupt = channels_last, device, on_corrupt
        self._order = EpochSampler(
            dataset, batch_size=batch_size, shuffling=Shuffling.of(self.shuffle, window_images),
            balance=Natural() if balance is None else balance, max_per_video=max_per_video, seed=seed,
            drop_last=drop_last, rank=rank, num_replicas=num_replicas,
        )  # fmt: skip
        if not len(dataset):
            _log.warning("no face of split=%s passes the filters: the loader has no batches", dataset.split)
        else:
            _ = self._order.mix  # says now what cannot be kept
            if not len(self._order):
                _log.warning("drop_last leaves no batch of the %d faces: a step has more", len(dataset))
        mixing = bool(getattr(dataset.face_transform, "mixes", False))
        if mixing and not isinstance(balance, Pairs):
            raise UsageError("AlignedMixup: mixes a fake with the real frame before it; give balance=Pairs()")
        self._source = BatchSource(
            dataset, fields=("image", "label") if fields is None else fields, seed=self._order.seed,
            normalised=dtype == "float32" and torch.device(device or "cpu").type == "cpu",
            mixes=mixing, replace_corrupt=on_corrupt == "replace",
            balanced_column=getattr(balance, "column", "label"), collate_fn=collate_fn,
        )  # fmt: skip
        self._order.on_issue = Issuer(self._source)
        self._meter = Meter(0)
        self._running: Callable[[], Iteration | None] = no_iteration
        self._watch: Watch | None = None
        start_method(multiprocessing_context)
        if workers:
            validation.importable(
                face_transform=dataset.face_transform, transform=dataset.transform, collate_fn=collate_fn,
                worker_init_fn=worker_init_fn,
            )  # fmt: skip
        super().__init__(
            self._source, batch_size=None, sampler=self._order, collate_fn=_as_is, num_workers=workers,
            generator=torch.Generator(),  # else torch would draw from the training script's own, once an epoch
            prefetch_factor=prefetch_factor, pin_memory=pin_memory, timeout=timeout,
            persistent_workers=workers > 0 if persistent_workers is None else persistent_workers,
            worker_init_fn=worker_init_fn if isinstance(worker_init_fn, WorkerInit) else WorkerInit(worker_init_fn),
            multiprocessing_context=start_context(multiprocessing_context) if workers else None,
        )  # fmt: skip
        # torch would not let these be set, since its own batching is off; people and trainers read them.
        self.__dict__.update(batch_size=self._order.batch_size, drop_last=drop_last)

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Asked for by Accelerate's `prepare` before it would make this loader anew."""
        raise UsageError(NOT_TO_BE_REBUILT)

    def over(self, source: BatchSource) -> Self:
        """A copy of this loader that makes its batches by `source`, in memory and an order of its own."""
        source.ring = None
        made = copy.copy(self)
        order = copy.copy(self._order)
        order.on_issue = Issuer(source)
        made.__dict__.update(
            _source=source,
            _order=order,
            dataset=source,
            sampler=order,
            _iterator=None,
            _watch=None,
            _running=no_iteration,
        )
        return made

    def __len__(self) -> int:
        """Batches of a whole epoch, the same on every rank; also after a resume."""
        return len(self._order)

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next `iter()` goes through, from its beginning; of a state loaded for it, the rest.

        Without it, an `iter()` after a whole epoch goes through the next one; after one that was broken off, through
        the rest of it if it is shuffled, else through all rows again.
        """
        self._order.set_epoch(epoch)

    @property
    def next_step(self) -> int:
        """Number of the step that comes next, 0 .. `len(self)`, of the epoch that is due."""
        return len(self._order) - self._order.steps_left

    def __iter__(self) -> Iteration:  # type: ignore[override]
        if running := self._running():  # so that no worker writes to memory that the next one uses
            running.give_way()
        running = Iteration(self._epoch())
        self._running = weakref.ref(running)  # weakly: one that is broken off ends at once
        return running

    def _epoch(self) -> Generator[Any, None, None]:
        """One pass. Begins with its first batch: Lightning calls `set_epoch` after `iter()`, and means this pass."""
        order, meter = self._order, Meter(self._order.epoch)
        self._meter = meter
        if self._workers_by_default and self._iterator is None:
            self.num_workers = default_workers(self.local_ranks)  # ranks may have been started since
        self._provide_memory()
        if self._watch is not None and self._watch.verdict() and self._watch.of_their_own:
            self._watch = self._iterator = None  # after Ctrl-C, which the script caught: new ones start
        try:
            with meter.waiting(), self._naming_the_dead():
                made = super().__iter__()
            if self.num_workers and (self._watch is None or not self._watch.watches(made)):
                self._watch = Watch(made)
            with advancing(order) as advance:
                batches = self._delivery()(in_order(made, self.next_step, meter, self._naming_the_dead))
                while True:
                    with meter.waiting():
                        batch, images = next(batches, (None, 0))
                    if batch is None:
                        break
                    advance()
                    meter.count(images)
                    yield batch
        finally:
            self._running = no_iteration
            if meter.replaced:
                _log.warning(meter.report(self._source.out))

    def _delivery(self) -> Delivery:
        return Delivery(
            ring=self._source.ring, dtype=self.dtype, channels_last=self.channels_last,
            as_dict=self.fields is not None, device=self.device,
            pinned=self.pin_memory and torch.cuda.is_available(),
        )  # fmt: skip

    @contextmanager
    def _naming_the_dead(self) -> Iterator[None]:
        """Turns what torch raises when a worker has died into an error that says which, and how."""
        try:
            yield
        except (RuntimeError, OSError, EOFError) as error:
            if self._watch is not None and (ends := self._watch.verdict()):
                self._watch = self._iterator = None  # the next epoch starts new ones
                unguarded = "" if self._meter.batches else UNGUARDED
                raise WorkerDiedError(f"{ends}; see above for its own message, if it had one{unguarded}") from error
            raise

    def _provide_memory(self) -> None:
        """The blocks that batches are made in, once: workers get them as they start."""
        source = self._source
        if source.ring is not None:
            source.ring.reclaim()
        else:
            source.ring = self._under_way().ring(SharedRoom.here())

    def _under_way(self) -> BatchesUnderWay:
        source = self._source
        return BatchesUnderWay(
            workers=self.num_workers, prefetch_factor=self.prefetch_factor or 0, batch_images=self._order.batch_size,
            side_px=source.image_size if source.collate_fn is None else None,
            dtype=torch.float32 if source.normalised else torch.uint8,
        )  # fmt: skip

    def to(self, device: str | torch.device) -> Self:
        """Has the batches of later iterations come on a device; see the argument `device`."""
        validation.words(self.dtype, self.on_corrupt, device, self.fields)
        if self._iterator is not None or self._running() is not None:
            raise UsageError(f"to({device!r}): the workers have started; give the device before the first iter()")
        self.device = device
        self._source.normalised = self.dtype == "float32" and torch.device(device).type == "cpu"
        return self

    def state_dict(self) -> dict[str, Any]:
        """Where training stands, in a few numbers: `images` of `epoch` were delivered, over all ranks.

        Counts batches that were handed out, not those that workers have made ahead. Where no iteration is under way,
        the next `iter()` of this loader begins at the same image as that of a loader that loads the state.
        """
        return self._order.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where `state_dict` was taken, also with other workers, other ranks and another batch size.

        Raises `UsageError` while an iteration is under way, where the state is of other data or another order, or,
        with `max_per_video`, of another global batch.
        """
        if self._running() is not None:
            raise UsageError("load_state_dict: an iteration is under way; load before iter()")
        self._order.resume(state)

    def stats(self) -> LoaderStats:
        """The epoch that is under way, or the last one."""
        return self._meter.stats()

    def describe(self) -> LoaderDescription:
        """What an epoch will be: order, memory, reads, and the batches that this rank will see."""
        return describe(self._order, num_workers=self.num_workers, shared_bytes=self._under_way().total_bytes)


def _as_is(batch: Any) -> Any:
    return batch
