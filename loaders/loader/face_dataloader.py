"""`FaceDataLoader`: torch's DataLoader with an exact order, exact resume and throughput for face data.

The parts of an epoch, in the way of the data: an `EpochSampler` orders it as batch requests; workers of torch's own
loader turn each into a `WorkerBatch` by a `BatchDataset` (see `WorkerBatchLoader`); a `BatchPostprocessor` makes of it
what training gets; `deliver` moves the sampler's position past it.
"""

from __future__ import annotations

import copy
import logging
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import chain, starmap
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch

from ...pipeline.errors import UsageError
from .. import validation
from ..batching.batch_dataset import REBUILD_REFUSED, BatchDataset, Collate
from ..batching.jpeg_batch_dataset import JpegBatchDataset
from ..clips.clip import Clip
from ..clips.clip_items import ClipItems
from ..dataset.face_dataset import FaceDataset, Transform
from ..dataset.selected_rows import Crop
from ..dataset.selection import Filters
from ..device.jpegs import check_can_decode
from ..device.seeded_transform import DeviceTransform, SeededTransform
from ..mixture.mixed_index import as_mixed
from ..mixture.mixture_balance import Weighting
from ..mixture.names import Rename
from ..sampling.balance import Balance
from ..sampling.epoch_sampler import EpochSampler
from ..sampling.shuffling import Shuffling
from ..transfer.postprocessor import BatchPostprocessor
from ..workers.worker_options import WorkerOptions
from .arguments import (
    Datasets,
    as_dataset,
    check_blend_pairs,
    check_epoch,
    check_mask_size,
    check_mixup,
    check_points_follow,
    clip_items,
    epoch_balance,
    kept_columns,
)  # fmt: skip
from .describe import describe_epoch
from .device_arguments import check_device_decoding, check_device_transform, jpeg_decoder, torch_device
from .epoch_iterator import EpochIterator, deliver, no_iterator
from .stats import EpochMeter, LoaderDescription, LoaderStats
from .worker_batch_loader import WorkerBatchLoader, unchanged

_log = logging.getLogger("facefeed.loaders")


class FaceDataLoader(WorkerBatchLoader):
    """Batches of faces, in an order that is the same for any number of workers and can be resumed at any batch.

    By default each batch is `(images, labels)`: images float32 (N, 3, H, W), normalised by ImageNet's mean and standard
    deviation, in channels-last memory; labels int64 (N,), -1 where unknown. You may keep every batch.

    Args:
        dataset: the output folder of `precompute`, its address in an object store, or a `FaceDataset`; several folders
            or addresses as a mixture: a list, or a dict by names of your own.
        batch_size: images, or clips, per rank and step.
        split: as for `FaceDataset`, like `image_size`, `crop`, `face_transform`, `transform`, `filters`,
            `frames_per_video`, `cache`, `cache_bytes` and `storage_options`; only with a folder or an address.
        clip: a `Clip`: batches of clips in place of images, (N, T, 3, H, W) with a label a clip, float32 or uint8; with
            `pad=True` also `valid`, bool (N, T).
        weights: of a mixture, a positive number for each dataset, in their order or by name: its share of every batch.
            None: by `temperature`, else in proportion to size.
        temperature: T: shares in proportion to `size ** (1 / T)`, by the images of one pass through a dataset.
        epoch_length: of a mixture: the name of the dataset that an epoch passes through once, or a number of batches;
            None: as many images as all datasets have.
        rename: for datasets of a mixture and their columns, names that the mixture calls otherwise:
            `{"dfdc": {"label": {"1": "fake"}}}`. Labels and classes of one name are the same.
        shuffle: True or "full", "window" (for hard disks and networks), False; None: True for train alone.
        window_images: images that are shuffled in a window; of stores also the images that are read ahead.
        seed: of order and augmentations.
        balance: `Quotas`, `Weights`, `Pairs` or `BlendPairs`; None: every row once.
        max_per_video: most images of one video in a step.
        drop_last: leave out an incomplete last step; else its images are distributed over the ranks.
        rank: None: that of torch.distributed.
        num_replicas: number of ranks; None: that of torch.distributed.
        dtype: "float32", or "uint8": pixels as they are, (N, 3, H, W).
        fields: names of columns; batches are then dicts.
        mask_size: cells along each axis of the field `mask`, which is then (N, mask_size, mask_size), the manipulated
            share of each cell; None: the pixels of the images.
        channels_last: False for plain (N, C, H, W) memory.
        device: to deliver batches on, copied and normalised there during the step.
        device_transform: a transform of batches, or a list, applied on the device: called with RGB images (N, 3, H, W),
            float32 in 0..1 before they are normalised; with `dtype="uint8"`, uint8, and its output is delivered
            unchanged. See `BatchedTransform`.
        decode: "workers", or "device": workers deliver JPEGs, which are decoded on the device, on CUDA by nvJPEG.
        on_corrupt: "replace" a damaged image by the next selected one of its video (counted, reported), or "raise".
        num_workers: None: one per usable core, divided among the ranks of this host. 0: batches are prepared in the
            calling thread, as the first one is before there are workers.
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

    draws_by_row: ClassVar[bool] = False
    """Whether transforms draw by (seed, row): for evaluation, where a face is to be the same on any rank."""

    def __init__(
        self,
        dataset: Datasets,
        batch_size: int = 64,
        *,
        split: str | None = "train",
        image_size: int | Literal["auto"] | None = "auto",
        crop: Crop | None = None,
        face_transform: Transform | Sequence[Any] | None = None,
        transform: Transform | None = None,
        filters: Filters | None = None,
        frames_per_video: int | None = None,
        cache: str | Path | None = None,
        cache_bytes: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        clip: Clip | None = None,
        weights: Weighting | None = None,
        temperature: float | None = None,
        epoch_length: str | int | None = None,
        rename: Rename | None = None,
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
        mask_size: int | None = None,
        channels_last: bool = True,
        device: str | torch.device | None = None,
        device_transform: DeviceTransform | Sequence[DeviceTransform] | None = None,
        decode: Literal["workers", "device"] = "workers",
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
            collate_fn = dataset.collate_fn if collate_fn is unchanged else collate_fn
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
            dataset, rename=rename, split=split, image_size=image_size, crop=crop, face_transform=face_transform,
            transform=transform, filters=filters, frames_per_video=frames_per_video, cache=cache,
            cache_bytes=cache_bytes, storage_options=storage_options,
        )  # fmt: skip
        check_device_transform(
            device_transform, dtype=dtype, fields=fields, collate_fn=collate_fn, device=device, pin_memory=pin_memory
        )
        check_device_decoding(decode, dataset, collate_fn=collate_fn, device=device, pin_memory=pin_memory)
        # Stored under the names of the arguments: a trainer that rebuilds the loader reads them from here.
        self.shuffle = dataset.split == "train" if shuffle is None else shuffle
        self.window_images, self.seed, self.balance, self.max_per_video = window_images, seed, balance, max_per_video
        self.rank, self.num_replicas, self.dtype, self.fields = rank, num_replicas, dtype, fields
        self.channels_last, self.device, self.on_corrupt = channels_last, device, on_corrupt
        self.weights, self.temperature, self.epoch_length, self.rename = weights, temperature, epoch_length, rename
        self.clip, self.device_transform, self.decode = clip, device_transform, decode
        self.mask_size = check_mask_size(mask_size, fields, dataset)
        check_points_follow(dataset.transform, fields, dataset.image_size)
        clips = clip_items(clip, dataset, balance=balance, shuffle=self.shuffle, seed=seed, collate_fn=collate_fn)
        mixed = epoch_balance(dataset, balance, weights=weights, temperature=temperature, epoch_length=epoch_length)
        items = dataset if clips is None else clips
        epoch_sampler = self._create_sampler(items, mixed, batch_size, drop_last=drop_last)
        self._connect(epoch_sampler, self._create_batch_dataset(dataset, clips, collate_fn, seed=epoch_sampler.seed))
        self._init_torch_loader(workers, pin_memory=pin_memory)

    def _create_sampler(
        self, dataset: FaceDataset | ClipItems, balance: Balance, batch_size: int, *, drop_last: bool
    ) -> EpochSampler:
        shuffling = Shuffling.from_argument(self.shuffle, self.window_images)
        sampler = EpochSampler(
            dataset, batch_size=batch_size,
            shuffling=shuffling if self.clip is None else shuffling.scaled(1 / self.clip.frames),
            balance=balance, max_per_video=self.max_per_video, seed=self.seed, drop_last=drop_last,
            rank=self.rank, num_replicas=self.num_replicas,
        )  # fmt: skip
        sampler.counts_repeats = self.device_transform is not None
        check_epoch(sampler)
        return sampler

    def _create_batch_dataset(
        self, dataset: FaceDataset, clips: ClipItems | None, collate_fn: Collate | None, *, seed: int
    ) -> BatchDataset:
        default_fields = ("label", "valid") if clips is not None and clips.clip.pad else ("label",)
        batch_dataset = JpegBatchDataset if self.decode == "device" else BatchDataset
        return batch_dataset(
            dataset, fields=("image", *default_fields) if self.fields is None else self.fields, seed=seed,
            normalised=self._normalises_in_worker(), mixes=check_mixup(dataset, self.balance),
            blends=check_blend_pairs(dataset, self.balance),
            replace_corrupt=self.on_corrupt == "replace", kept_columns=kept_columns(dataset, self.balance),
            collate_fn=collate_fn, clips=clips, mask_size=self.mask_size, draws_by_row=self.draws_by_row,
        )  # fmt: skip

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Read by Accelerate's `prepare` before it would rebuild this loader."""
        raise UsageError(REBUILD_REFUSED)

    def with_batch_dataset(self, dataset: BatchDataset) -> Self:
        """A copy of this loader that loads batches by `dataset`, with its own memory, position and workers."""
        dataset.pool = None
        loader = copy.copy(self)
        FaceDataLoader._connect(loader, copy.copy(self._epoch_sampler), dataset)
        FaceDataLoader._count_default_workers(loader)
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
        self._meter = meter = EpochMeter(self._epoch_sampler.epoch, as_mixed(self._batch_dataset.index))
        iterators = self._torch_iterators(range(self.next_step, len(self)))
        try:
            with meter.time_wait():
                parts = chain([self._in_order(*next(iterators))], starmap(self._in_order, iterators))
            batches = chain.from_iterable(map(self._batch_postprocessor(), parts))
            yield from deliver(batches, self._epoch_sampler, meter)
        finally:
            self._current_iterator = no_iterator
            meter.add_store(self._request_preparer.take_store_counts())
            if meter.replaced:
                dataset = self._batch_dataset
                are_clips = self.clip is not None
                _log.warning(meter.replacement_report(dataset.out, dataset.stores.remedies, are_clips=are_clips))

    def _batch_postprocessor(self) -> BatchPostprocessor:
        device, transform = torch_device(self.device), self.device_transform
        return BatchPostprocessor(
            pool=self._batch_dataset.pool, dtype=self.dtype, channels_last=self.channels_last,
            as_dict=self.fields is not None, device=self.device,
            pin_memory=self.pin_memory and torch.cuda.is_available(),
            frames=None if self.clip is None else self.clip.frames,
            transform=None if transform is None else SeededTransform(transform, device, self.dtype),
            decoder=jpeg_decoder(self._batch_dataset, device, self._meter),
        )  # fmt: skip

    def _normalises_in_worker(self) -> bool:
        """Whether workers write normalised float32, not the uint8 that is transformed or normalised on the device."""
        is_for_cpu = self.device_transform is None and torch_device(self.device).type == "cpu"
        return self.decode == "workers" and self.dtype == "float32" and is_for_cpu

    def to(self, device: str | torch.device) -> Self:
        """Delivers the batches of later iterations on a device; see the argument `device`."""
        validation.check_options(device=device)
        validation.check_collate_device(self._batch_dataset.collate_fn, device)
        if self.decode == "device":
            check_can_decode(torch.device(device))
        if self._iterator is not None or self._current_iterator() is not None:
            raise UsageError(f"to({device!r}): the workers have started; give the device before the first iter()")
        self.device = device
        if (normalised := self._normalises_in_worker()) != self._batch_dataset.normalised:
            self._batch_dataset.normalised = normalised
            self._batch_dataset.pool = None  # an earlier iteration's, for images of the other type
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
        self._meter.add_store(self._request_preparer.take_store_counts())
        return self._meter.stats()

    def describe(self) -> LoaderDescription:
        """What an epoch will be: order, memory, reads, and the batches of this rank."""
        return describe_epoch(
            self._epoch_sampler,
            num_workers=self.num_workers,
            shared_bytes=self._in_flight_batches().total_bytes,
            stores=self._batch_dataset.stores,
        )
