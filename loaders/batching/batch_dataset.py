"""`BatchDataset`: loads the whole batch of a request, in a worker or in the training process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ...pipeline.dataset.byte_ranges import MissingFileError
from ...pipeline.dataset.reserved_names import CLIP_COLUMNS
from ...pipeline.errors import CorruptDataError, FacefeedError, UsageError
from ..clips.clip_items import ClipItems
from ..clips.labels import clip_labels
from ..dataset.columns import POINT_COLUMNS, by_clip, check_fields, collate_column, collate_masks, real_label
from ..dataset.face_dataset import FaceDataset
from ..dataset.replacement import replacement_candidates
from ..dataset.selection import ClipRows
from ..face import Face, manipulated_share
from ..normalise import normalise
from ..sampling.batch_request import BatchRequest
from ..sampling.hashing import derive_key, hash_numbers
from ..seeding import Reseeder, derive_seed
from .batch_buffer import BatchBuffer
from .packed_jpegs import JpegBuffer, PackedJpegs
from .shared_pool import SharedBatchPool
from .worker_batch import Replacement, WorkerBatch

Collate = Callable[[list[tuple[torch.Tensor, int]]], Any]

REBUILD_REFUSED = (
    "a FaceDataLoader cannot be rebuilt by another loader, as Accelerate's prepare() and skip_first_batches() and "
    "the Hugging Face Trainer do: its order, balance, part of each rank and state would be lost. It shares rows among "
    "the ranks of torch.distributed by itself: leave it out of prepare(), give it device=accelerator.device, pass it "
    "to register_for_checkpointing(), and iterate it. In a Trainer, return it from get_train_dataloader(), with "
    "ignore_data_skip=True and its state_dict() in your checkpoints. For another loader over the same faces take "
    "FaceDataset"
)
"""Error message where another library tries to rebuild the loader."""

_COLLATE_SEED = 1  # distinguishes the seed of a batch from that of its first image


class BatchDataset(FaceDataset):
    """A `FaceDataset` that also answers batch requests: `dataset[request]` is a `WorkerBatch`.

    Args:
        dataset: whose settings it takes over.
        fields: columns to deliver.
        normalised: whether images come as normalised float32, else as uint8.
        mixes: whether requests alternate real and fake, and the real before a fake is its `partner` in transforms.
        blends: whether requests have each face twice, the second time for `SelfBlend` to make a fake of it.
        seed: of all randomness.
        replace_corrupt: whether damaged images are replaced, else `CorruptDataError` is raised.
        kept_columns: columns whose values a replacement keeps, besides the label.
        collate_fn: the user's own, or None.
        clips: that requests ask for, or None where they ask for images.
        mask_size: cells of the masks along each axis; None: the pixels of the images.
        draws_by_row: whether transforms draw by (seed, row), else by (seed, epoch, step, position in the step).

    """

    buffer_type: type[BatchBuffer | JpegBuffer] = BatchBuffer

    def __init__(  # not super().__init__: a copy of `dataset`, with the stages that were wrapped or replaced in it
        self, dataset: FaceDataset, *, fields: Sequence[str], normalised: bool, mixes: bool, blends: bool, seed: int,
        replace_corrupt: bool, kept_columns: Sequence[str], collate_fn: Collate | None, clips: ClipItems | None = None,
        mask_size: int | None = None, draws_by_row: bool = False,
    ) -> None:  # fmt: skip
        self.__dict__.update(dataset.__dict__)
        self.fields, self.normalised, self.seed = tuple(fields), normalised, seed
        self.mixes, self.blends = mixes, blends
        self.label_type: type[np.number[Any]] = np.float32 if mixes else np.int64
        self.replace_corrupt, self.kept_columns, self.collate_fn = replace_corrupt, tuple(kept_columns), collate_fn
        self.clips, self.mask_size, self.draws_by_row = clips, mask_size, draws_by_row
        check_fields(self.fields, self.index, () if clips is None else CLIP_COLUMNS)
        if "landmarks_68" in self.fields and not self.has_landmarks_68:
            raise UsageError(
                "fields: landmarks_68 would not follow the face_transform; give a list or a FaceCompose, or let it take"
                " and return landmarks_68"
            )
        self.transforms = [part for part in (self.face_transform, self.transform) if part is not None]
        self._delivered_points = tuple(name for name in (*POINT_COLUMNS, "mask") if name in self.fields)
        self.needs_points = self.face_transform is not None or bool(self._delivered_points)
        self._wants_mask = self._wants_mask or "mask" in fields
        self.self_blend = getattr(self.face_transform, "self_blend", None)
        if self.self_blend is not None:  # which says so where no name of a label does
            self._real_class = self.self_blend.real_label
        self.keeps_masks = "mask" in fields or (self.self_blend is not None and "manipulated" in fields)
        self.write_image: Callable[..., None] = self.buffer_type.write
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

    def without_transforms(self) -> Self:
        """A copy that only resizes, or cuts, and normalises: batches of the same rows, with fields of the same types.

        It reads no partner, and no mask that is not delivered.
        """
        plain = copy.copy(self)
        plain.__dict__.update(
            face_transform=None, transform=None, transforms=[], self_blend=None, mixes=False,
            needs_points=bool(self._delivered_points), _wants_mask="mask" in self.fields,
        )  # fmt: skip
        return plain

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, BatchRequest):
            return super().__getitem__(key)
        try:
            return self.load_batch(key)
        except FacefeedError as error:  # returned, since torch would wrap it in the text of the worker's traceback
            return WorkerBatch(key.epoch, key.step, 0, key.slot, error=error)
        except StopIteration as error:  # of a transform or collate_fn; torch's loader would end the epoch by it
            raise RuntimeError("StopIteration was raised in a transform or in collate_fn, by next() or so") from error

    def __getitems__(self, positions: Any) -> Any:
        """Called by torch's own batching, that is where another loader was built around this dataset."""
        raise UsageError(REBUILD_REFUSED)

    def are_made_fakes(self, stored: NDArray[np.int64], delivered: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of the stored labels (N,) were real and are delivered as fake, made so by `SelfBlend`."""
        if self.self_blend is None:
            return np.zeros(len(stored), np.bool_)
        made: NDArray[np.bool_] = (stored == self.self_blend.real_label) & (delivered == self.self_blend.fake_label)
        return made

    def load_batch(self, request: BatchRequest) -> WorkerBatch:
        """Loads one batch; raises `CorruptDataError` where an image is damaged and there is no replacement."""
        if self._reseeder is None:
            self._reseeder = Reseeder(self.transforms)
        with self._reseeder.activated():
            batch = _BatchLoad(self, self._reseeder, request).run()
        return replace(batch, store=self.stores.take_counts()) if self.stores else batch

    def collate_masks(self, faces: list[Face], stored: NDArray[np.int64], size: tuple[int, ...]) -> Any:
        """The masks of a batch of images of `size` (H, W); see `columns.collate_masks`."""
        return collate_masks(faces, stored, self._real_class, size, self.mask_size)

    @property
    def max_image_numel(self) -> int | None:
        """Most elements of an image in the memory of a batch; None where that is not known."""
        return None if self.collate_fn is not None or self.image_size is None else 3 * self.image_size**2

    def buffer(self, slot: int | None, num_images: int) -> BatchBuffer | JpegBuffer:
        """Memory for the images of one batch."""
        direct = not self.normalised and not self.transforms
        return BatchBuffer(
            num_images, pool=self.pool, slot=slot, normalised=self.normalised,
            direct_side_px=self.image_size if direct else None,
            resizers=[name for name in ("face_transform", "transform") if getattr(self, name) is not None],
        )  # fmt: skip

    def packed(self, buffer: Any, request: BatchRequest, rows: NDArray[np.int64]) -> PackedJpegs | None:  # noqa: ARG002
        """Where a batch of these rows holds JPEGs in place of images; None: its images are decoded."""
        return None

    def load_face(self, row: int, *, partner: Face | None, blend: bool | None, into: NDArray[np.uint8] | None) -> Face:
        """A row as its batch takes it, with points where these are needed; see `load_augmented`."""
        if self.needs_points:
            return self.load_augmented(row, partner=partner, blend=blend, into=into)
        return Face.from_image(self.load_pixels(row, into=into))

    def collate(self, items: list[tuple[torch.Tensor, int]], request: BatchRequest) -> Any:
        """Calls the user's collate_fn, its randomness seeded by (seed, epoch, step, first position in the step)."""
        assert self.collate_fn is not None
        if self._collate_reseeder is None:
            self._collate_reseeder = Reseeder([self.collate_fn])
        with self._collate_reseeder.activated():
            first = int(request.global_positions[0])
            self._collate_reseeder.reseed(derive_seed(self.seed, request.epoch, request.step, first, _COLLATE_SEED))
            batch = self.collate_fn(items)
        if batch is None:
            raise UsageError("collate_fn returned None; return the batch")
        return batch


class _BatchLoad:
    """The loading of one request. A request for images is one for clips of one image each."""

    def __init__(self, dataset: BatchDataset, reseeder: Reseeder, request: BatchRequest) -> None:
        self._dataset, self._reseeder, self._request = dataset, reseeder, request
        clips = request.clips or ClipRows(request.rows[:, np.newaxis], np.ones(len(request.rows), np.int64))
        self._rows, self._num_valid = clips.rows.astype(np.int64), clips.num_valid.copy()
        self._frames = clips.rows.shape[1]
        self._replaced: list[Replacement] = []
        self._stand_ins: set[int] = set()  # which of the items replace a damaged one
        self._loading = -1  # row
        self._buffer = dataset.buffer(request.slot, self._rows.size)
        self._items: list[Any] = [None] * self._rows.size

    def run(self) -> WorkerBatch:
        """Loads all images; raises `CorruptDataError` where one is damaged and there is no replacement."""
        dataset, request, count = self._dataset, self._request, self._rows.size
        dataset.prepare(self._rows.ravel().tolist())
        faces: list[Face] = []
        for number in range(len(self._rows)):
            faces += self._load_or_replace(number)
        stored = dataset.index.numbers("label", self._rows.ravel()).astype(np.int64)
        labels = self._labels(faces, stored)
        made_fakes = dataset.are_made_fakes(stored, labels)
        item_labels = labels
        if request.clips is not None:
            item_labels = clip_labels(labels.reshape(self._rows.shape), real_label(dataset.labels))
        if dataset.collate_fn is not None:
            collated = dataset.collate(list(zip(self._collated_images(), item_labels.tolist(), strict=True)), request)
            return WorkerBatch(
                request.epoch, request.step, count, request.slot, collated=collated, replaced=self._replaced,
                made_fakes=int(made_fakes.sum()),
            )  # fmt: skip
        columns = {name: self._column(name, faces, stored, labels) for name in dataset.fields if name != "image"}
        if "label" in columns:
            columns["label"] = item_labels
        return WorkerBatch(
            request.epoch, request.step, count, request.slot, self._buffer.images_outside_pool, columns,
            replaced=self._replaced, image_size=self._buffer.image_size, made_fakes=int(made_fakes.sum()),
            seeds=self._device_seeds(),
            jpegs=dataset.packed(self._buffer, request, self._rows.ravel()),
        )  # fmt: skip

    def _device_seeds(self) -> NDArray[np.uint64] | None:
        """Seeds of what is drawn for each image, or clip, on the device, uint64 (N,); None where nothing is.

        From (seed, epoch, row, how often the row came before in the epoch), whatever else is in the batch; the same for
        both of a blend pair.
        """
        dataset, request = self._dataset, self._request
        if request.repeats is None:
            return None
        repeats = request.repeats // 2 if dataset.blends else request.repeats
        numbers = self._rows[:, 0].astype(np.uint64) | repeats.astype(np.uint64) << np.uint64(32)  # rows have 32 bits
        return hash_numbers(numbers, derive_key("device", dataset.seed, request.epoch))

    def _labels(self, faces: list[Face], stored: NDArray[np.int64]) -> NDArray[Any]:
        """Labels of the images, as transforms left them."""
        values = [label if face.label is None else face.label for face, label in zip(faces, stored, strict=True)]
        return np.array(values, self._dataset.label_type)

    def _column(self, name: str, faces: list[Face], stored: NDArray[np.int64], labels: NDArray[Any]) -> Any:
        """One column of the batch; of clips, (N, T, ...). `stored`, `labels`: of the images."""
        clips, index = self._request.clips, self._dataset.index
        if clips is not None and name == "labels_per_frame":
            return labels.reshape(self._rows.shape)
        if clips is not None and name == "valid":
            return np.arange(self._frames) < self._num_valid[:, np.newaxis]
        if name == "mask":
            column = self._dataset.collate_masks(faces, stored, self._buffer.image_size)
        else:
            column = collate_column(index, name, self._rows.ravel().tolist(), faces)
        if name == "manipulated":
            made_fakes = self._dataset.are_made_fakes(stored, labels)
            column[made_fakes] = [
                _manipulated(face) for face, is_made in zip(faces, made_fakes, strict=True) if is_made
            ]
        return column if clips is None else by_clip(column, self._frames)

    def _collated_images(self) -> list[torch.Tensor]:
        """What the user's collate_fn gets: images (3, H, W), or clips (T, 3, H, W)."""
        if self._request.clips is None:
            return self._items
        return [torch.stack(self._items[at : at + self._frames]) for at in range(0, len(self._items), self._frames)]

    def _load_or_replace(self, number: int) -> list[Face]:
        """The faces of a clip, or of its replacement where an image of it is damaged; see `_load`."""
        dataset = self._dataset
        try:
            return self._load_clip(number)
        except MissingFileError:
            raise
        except CorruptDataError as error:
            if not dataset.replace_corrupt:
                raise
            damage, damaged = error, [self._loading]
        self._stand_ins.add(number)
        value = dataset.index.value
        for clip in self._candidates(number, damaged):
            self._rows[number], self._num_valid[number] = clip.rows[0], clip.num_valid[0]
            try:
                loaded = self._load_clip(number)
            except MissingFileError:
                raise
            except CorruptDataError:
                damaged.append(self._loading)
                continue
            names = value("face_id", damaged[0]), value("face_id", int(self._rows[number, 0]))
            self._replaced.append(Replacement(*names, str(damage), damaged[0]))
            return loaded
        kind = "image" if self._request.clips is None else "clip"
        raise CorruptDataError(
            f"{damage}; and no sound {kind} of its video or label is among the selected rows"
        ) from damage

    def _candidates(self, number: int, damaged: list[int]) -> Iterator[ClipRows]:
        """Clips that may replace one with a `damaged` row, best first."""
        dataset, item, columns = self._dataset, int(self._request.rows[number]), self._dataset.kept_columns
        if dataset.clips is not None:
            return dataset.clips.replacements(item, self._request.epoch, damaged, columns)
        rows = replacement_candidates(dataset.index, item, dataset.rows, columns)
        return (ClipRows(np.array([[row]], np.uint32), np.ones(1, np.int64)) for row in rows)

    def _load_clip(self, number: int) -> list[Face]:
        """Loads the images of a clip into the batch; returns their faces without pixels, else see `_load`."""
        loaded: list[Face] = []
        for frame, row in enumerate(self._rows[number].tolist()):
            position = number * self._frames + frame
            if frame < self._num_valid[number]:
                self._loading = row
                face = self._load(number, position, row)
            if self._dataset.collate_fn is None:
                self._dataset.write_image(self._buffer, position, face)
            else:
                self._items[position] = normalise(torch.from_numpy(face.image))
            kept_mask = face.mask if self._dataset.keeps_masks else None
            # Without pixels, else each image would use memory that is not in the CPU's cache.
            loaded.append(replace(face.without_pixels(), mask=kept_mask))
        return loaded

    def _load(self, number: int, position: int, row: int) -> Face:
        """A row, transformed by the randomness of its clip."""
        dataset, request = self._dataset, self._request
        is_pair = dataset.mixes and number % 2 and self._stand_ins.isdisjoint((number - 1, number))
        partner = dataset.load_resized(int(self._rows[number - 1, 0])) if is_pair else None
        global_position = int(request.global_positions[number])
        blend = bool(number % 2) if dataset.blends else None
        if blend:
            global_position -= 1  # the same randomness for both
        drawn_from = (
            (int(self._rows[number, 0]),) if dataset.draws_by_row else (request.epoch, request.step, global_position)
        )
        self._reseeder.reseed(derive_seed(dataset.seed, *drawn_from))
        into = self._buffer.decode_target(position)
        return dataset.load_face(row, partner=partner, blend=blend, into=into)


def _manipulated(face: Face) -> float:
    """Share of a made fake's pixels that are changed."""
    assert face.mask is not None
    return manipulated_share(face.mask) if face.manipulated is None else face.manipulated
