"""`BatchDataset`: loads the whole batch of a request, in a worker or in the training process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch

from ...pipeline.dataset.byte_ranges import MissingFileError
from ...pipeline.errors import CorruptDataError, FacefeedError, UsageError
from ..augment.seeding import Reseeder, derive_seed
from ..dataset.columns import POINT_COLUMNS, check_fields, collate_column, mixup_labels
from ..dataset.face_dataset import FaceDataset
from ..dataset.replacement import replacement_candidates
from ..face import Face
from ..normalise import normalise
from ..sampling.epoch_sampler import BatchRequest
from .batch_buffer import BatchBuffer
from .shared_pool import SharedBatchPool

Collate = Callable[[list[tuple[torch.Tensor, int]]], Any]

REBUILD_REFUSED = (
    "a FaceDataLoader cannot be rebuilt by another loader, as Accelerate's prepare() and skip_first_batches() and "
    "the Hugging Face Trainer do: its order, balance, part of each rank and state would be lost. It shares rows among "
    "the ranks of torch.distributed by itself: leave it out of prepare(), give it device=accelerator.device, and "
    "iterate it. In a Trainer, return it from get_train_dataloader(), with ignore_data_skip=True and its state_dict() "
    "in your checkpoints. For another loader over the same faces take FaceDataset"
)
"""Error message where another library tries to rebuild the loader."""

_COLLATE_SEED = 1  # distinguishes the seed of a batch from that of its first image


@dataclass(frozen=True)
class Replacement:
    """A damaged image and the image that replaced it, by `face_id`."""

    face_id: str
    replaced_by: str
    reason: str


@dataclass(frozen=True)
class WorkerBatch:
    """A batch as it leaves its worker. Columns are numpy arrays, since each tensor would take a file descriptor.

    step: of the epoch. count: images. slot: of the shared pool that the request named, or None. images: uint8 or
    float32 (count, H, W, 3); None where they are in the slot. columns: by name. collated: the output of the user's own
    collate_fn, in place of images and columns. error: why there is no batch. replaced: damaged images that were
    replaced. image_size: (H, W) of the images.
    """

    step: int
    count: int
    slot: int | None
    images: torch.Tensor | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    collated: Any = None
    error: FacefeedError | None = None
    replaced: list[Replacement] = field(default_factory=list)
    image_size: tuple[int, ...] = ()


class BatchDataset(FaceDataset):
    """A `FaceDataset` that also answers batch requests: `dataset[request]` is a `WorkerBatch`.

    Args:
        dataset: whose settings it takes over.
        fields: columns to deliver.
        normalised: whether images come as normalised float32, else as uint8.
        mixes: whether requests alternate real and fake, and the real before a fake is its `partner` in transforms.
        seed: of all randomness.
        replace_corrupt: whether damaged images are replaced, else `CorruptDataError` is raised.
        balanced_column: column whose value a replacement keeps, besides the label.
        collate_fn: the user's own, or None.

    """

    def __init__(  # not super().__init__: it takes over the attributes of an existing dataset
        self, dataset: FaceDataset, *, fields: Sequence[str], normalised: bool, mixes: bool, seed: int,
        replace_corrupt: bool, balanced_column: str, collate_fn: Collate | None,
    ) -> None:  # fmt: skip
        self.__dict__.update(dataset.__dict__)
        self.fields, self.normalised, self.mixes, self.seed = tuple(fields), normalised, mixes, seed
        self.replace_corrupt, self.balanced_column, self.collate_fn = replace_corrupt, balanced_column, collate_fn
        check_fields(self.fields, self.index)
        if "landmarks_68" in self.fields and not self.has_68:
            raise UsageError(
                "fields: landmarks_68 would not follow the face_transform; give a list or a FaceCompose, or let it take"
                " and return landmarks_68"
            )
        self.transforms = [part for part in (self.face_transform, self.transform) if part is not None]
        self.needs_points = self.face_transform is not None or bool(set(POINT_COLUMNS).intersection(fields))
        self.write_image: Callable[..., None] = BatchBuffer.write
        self.pool: SharedBatchPool | None = None
        self._reseeder: Reseeder | None = None
        self._collate_reseeder: Reseeder | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_reseeder": None, "_collate_reseeder": None}

    def with_wrapped_stages(self, wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Self:
        """See `FaceDataset`; "collate" is the stage that normalises an image into the batch, or the user's own."""
        wrapped = super().with_wrapped_stages(wrap)
        wrapped.write_image = wrap("collate", self.write_image)
        if self.collate_fn is not None:
            wrapped.collate_fn = wrap("collate", self.collate_fn)
        return wrapped

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, BatchRequest):
            return super().__getitem__(key)
        try:
            return self.load_batch(key)
        except FacefeedError as error:  # returned, since torch would wrap it in the text of the worker's traceback
            return WorkerBatch(key.step, 0, key.slot, error=error)

    def __getitems__(self, positions: Any) -> Any:
        """Called by torch's own batching, that is where another loader was built around this dataset."""
        raise UsageError(REBUILD_REFUSED)

    def load_batch(self, request: BatchRequest) -> WorkerBatch:
        """Loads one batch; raises `CorruptDataError` where an image is damaged and there is no replacement."""
        if self._reseeder is None:
            self._reseeder = Reseeder(self.transforms)
        with self._reseeder.activated():
            return _BatchLoad(self, self._reseeder, request).run()

    def collate(self, items: list[tuple[torch.Tensor, int]], request: BatchRequest) -> Any:
        """Calls the user's collate_fn, its randomness seeded by (seed, epoch, step, first position in the step)."""
        assert self.collate_fn is not None
        if self._collate_reseeder is None:
            self._collate_reseeder = Reseeder([self.collate_fn])
        with self._collate_reseeder.activated():
            first = int(request.global_positions[0])
            self._collate_reseeder.reseed(derive_seed(self.seed, request.epoch, request.step, first, _COLLATE_SEED))
            return self.collate_fn(items)


class _BatchLoad:
    """The loading of one request."""

    def __init__(self, dataset: BatchDataset, reseeder: Reseeder, request: BatchRequest) -> None:
        self._dataset, self._reseeder, self._request = dataset, reseeder, request
        self._rows: list[int] = request.rows.tolist()
        self._replaced: list[Replacement] = []
        direct = not dataset.normalised and not dataset.transforms
        self._buffer = BatchBuffer(
            len(self._rows), pool=dataset.pool, slot=request.slot, normalised=dataset.normalised,
            direct_side_px=dataset.image_size if direct else None,
        )  # fmt: skip

    def run(self) -> WorkerBatch:
        dataset, request, count = self._dataset, self._request, len(self._rows)
        dataset.prepare(self._rows)
        faces: list[Face] = []
        own_shares: list[float] = []
        items: list[torch.Tensor] = []
        for position in range(count):
            face, own_share = self._load_or_replace(position)
            if dataset.collate_fn is None:
                dataset.write_image(self._buffer, position, face.image)
            else:
                items.append(normalise(torch.from_numpy(face.image)))
            faces.append(face.without_pixels())  # else each image would use memory that is not in the CPU's cache
            own_shares.append(own_share)
        labels = dataset.index.numbers("label", self._rows).astype(np.int64)
        if dataset.collate_fn is not None:
            collated = dataset.collate(list(zip(items, labels.tolist(), strict=True)), request)
            return WorkerBatch(request.step, count, request.slot, collated=collated, replaced=self._replaced)
        columns = {
            name: collate_column(dataset.index, name, self._rows, faces) for name in dataset.fields if name != "image"
        }
        if dataset.mixes and "label" in columns:
            columns["label"] = mixup_labels(labels, own_shares)
        return WorkerBatch(
            request.step, count, request.slot, self._buffer.images_outside_pool, columns, replaced=self._replaced,
            image_size=self._buffer.image_size,
        )  # fmt: skip

    def _load_or_replace(self, position: int) -> tuple[Face, float]:
        """The face at a position of the batch, or its replacement where it is damaged; see `_load`."""
        dataset, row = self._dataset, self._rows[position]
        try:
            return self._load(position, row)
        except MissingFileError:
            raise
        except CorruptDataError as error:
            if not dataset.replace_corrupt:
                raise
            damage = error
        for candidate in replacement_candidates(dataset.index, row, dataset.rows, dataset.balanced_column):
            try:
                loaded = self._load(position, candidate)
            except MissingFileError:
                raise
            except CorruptDataError:
                continue
            self._rows[position] = candidate
            value = dataset.index.value
            self._replaced.append(Replacement(value("face_id", row), value("face_id", candidate), str(damage)))
            return loaded
        raise CorruptDataError(
            f"{damage}; and no sound image of its video or label is among the selected rows near it"
        ) from damage

    def _load(self, position: int, row: int) -> tuple[Face, float]:
        """A row, transformed by the randomness of a position; and the share of it that is not its mixup partner."""
        dataset, request = self._dataset, self._request
        partner = dataset.load_resized(self._rows[position - 1]) if dataset.mixes and position % 2 else None
        global_position = int(request.global_positions[position])
        self._reseeder.reseed(derive_seed(dataset.seed, request.epoch, request.step, global_position))
        into = self._buffer.decode_target(position)
        if dataset.needs_points:
            return dataset.load_augmented(row, partner=partner, into=into)
        return Face.from_image(dataset.load_pixels(row, into=into)), 1.0
