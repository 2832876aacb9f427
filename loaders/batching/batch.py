"""Making one batch, in whichever process: a ticket in, images and columns out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ...pipeline.errors import CorruptDataError, FacefeedError, UsageError
from ..augment.seeding import Reseeder, derive_seed
from ..dataset.byte_ranges import UnreadableFileError
from ..dataset.columns import POINT_COLUMNS, check_fields, column, mixed_labels
from ..dataset.face_dataset import FaceDataset
from ..dataset.replacement import substitutes
from ..face import Face
from ..normalise import normalise, normalise_into
from ..sampling.epoch_sampler import Ticket
from .shared_blocks import SharedRing

Collate = Callable[[list[tuple[torch.Tensor, int]]], Any]

NOT_TO_BE_REBUILT = (
    "a FaceDataLoader cannot be made anew by another loader, as Accelerate's prepare() and skip_first_batches() and "
    "the Hugging Face Trainer do: its order, balance, part of each rank and state would be lost. It shares rows among "
    "the ranks of torch.distributed by itself: leave it out of prepare(), give it device=accelerator.device, and "
    "iterate it. In a Trainer, return it from get_train_dataloader(), with ignore_data_skip=True and its state_dict() "
    "in your checkpoints. For another loader over the same faces take FaceDataset"
)
"""The message of a refusal."""

_COLLATING = 1  # tells the key of a batch from that of its first image


@dataclass(frozen=True)
class Replaced:
    """A damaged image and what came in its place, by `face_id`."""

    face_id: str
    by: str
    reason: str


@dataclass(frozen=True)
class RawBatch:
    """A batch as it leaves its worker: its columns are numpy arrays, since each tensor would take a descriptor.

    The images, (count, H, W, 3), are in `images`, else in the ring's `slot`, where `size` is their (H, W). `collated`:
    what the user's own collate_fn made, in place of both. `error`: why there is no batch.
    """

    step: int
    count: int
    slot: int | None
    images: torch.Tensor | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    collated: Any = None
    error: FacefeedError | None = None
    replaced: list[Replaced] = field(default_factory=list)
    size: tuple[int, ...] = ()


class BatchSource(FaceDataset):
    """A `FaceDataset` that also answers tickets: `source[ticket]` is that batch.

    `fields`: columns to deliver. `normalised`: images come as float32, else uint8. `mixes`: tickets alternate real and
    fake, and a fake's `partner` is the real before it. `seed`: of all randomness. `collate_fn`: the user's own.
    `balanced_column`: whose value a replacement keeps, beside the label.
    """

    def __init__(  # not super().__init__: it takes over all of a dataset that is there already
        self, dataset: FaceDataset, *, fields: Sequence[str], normalised: bool, mixes: bool, seed: int,
        replace_corrupt: bool, balanced_column: str, collate_fn: Collate | None,
    ) -> None:  # fmt: skip
        self.__dict__.update(dataset.__dict__)
        self.fields, self.normalised, self.mixes, self.seed = tuple(fields), normalised, mixes, seed
        self.replace_corrupt, self.balanced_column, self.collate_fn = replace_corrupt, balanced_column, collate_fn
        check_fields(self.fields, self.index)
        self.transforms = [one for one in (self.face_transform, self.transform) if one is not None]
        self.needs_points = self.face_transform is not None or bool(set(POINT_COLUMNS).intersection(fields))
        self.put: Callable[..., None] = _Canvas.put
        self.ring: SharedRing | None = None
        self._reseeder: Reseeder | None = None
        self._collate_reseeder: Reseeder | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_reseeder": None, "_collate_reseeder": None}

    def with_stages(self, wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Self:
        """As a dataset's, and collate: an image normalised to its place in the batch."""
        made = super().with_stages(wrap)
        made.put = wrap("collate", self.put)
        if self.collate_fn is not None:
            made.collate_fn = wrap("collate", self.collate_fn)
        return made

    def __getitem__(self, wanted: Any) -> Any:
        if not isinstance(wanted, Ticket):
            return super().__getitem__(wanted)
        try:
            return self.batch(wanted)
        except FacefeedError as error:  # as it is: torch would hand on its text within a worker's trace
            return RawBatch(wanted.step, 0, wanted.slot, error=error)

    def __getitems__(self, positions: Any) -> Any:
        """What torch's own batching would ask for: another loader has taken this in place of a dataset."""
        raise UsageError(NOT_TO_BE_REBUILT)

    def batch(self, ticket: Ticket) -> RawBatch:
        """Makes one batch; raises `CorruptDataError` where an image is damaged and nothing may take its place."""
        if self._reseeder is None:
            self._reseeder = Reseeder(self.transforms)
        with self._reseeder.activated():
            return _BatchMaker(self, self._reseeder, ticket).make()

    def collate(self, items: list[tuple[torch.Tensor, int]], ticket: Ticket) -> Any:
        """What the user's collate_fn makes of a batch, its randomness seeded by (seed, epoch, step, first place)."""
        assert self.collate_fn is not None
        if self._collate_reseeder is None:
            self._collate_reseeder = Reseeder([self.collate_fn])
        with self._collate_reseeder.activated():
            key = derive_seed(self.seed, ticket.epoch, ticket.step, int(ticket.places[0]), _COLLATING)
            self._collate_reseeder.reseed(key)
            return self.collate_fn(items)


class _BatchMaker:
    """The work on one ticket."""

    def __init__(self, source: BatchSource, reseeder: Reseeder, ticket: Ticket) -> None:
        self._source, self._reseeder, self._ticket = source, reseeder, ticket
        self._rows: list[int] = ticket.rows.tolist()
        self._replaced: list[Replaced] = []
        self._canvas = _Canvas(source, ticket.slot, len(self._rows))

    def make(self) -> RawBatch:
        source, ticket, count = self._source, self._ticket, len(self._rows)
        faces: list[Face] = []
        own: list[float] = []
        items: list[torch.Tensor] = []
        for position in range(count):
            face, mix = self._sound(position)
            if source.collate_fn is None:
                source.put(self._canvas, position, face.image)
            else:
                items.append(normalise(torch.from_numpy(face.image)))
            faces.append(face.without_pixels())  # else each image would take memory that is not in the cache
            own.append(mix)
        labels = source.index.numbers("label", self._rows).astype(np.int64)
        if source.collate_fn is not None:
            collated = source.collate(list(zip(items, labels.tolist(), strict=True)), ticket)
            return RawBatch(ticket.step, count, ticket.slot, collated=collated, replaced=self._replaced)
        columns = {name: column(source.index, name, self._rows, faces) for name in source.fields if name != "image"}
        if source.mixes and "label" in columns:
            columns["label"] = mixed_labels(labels, own)
        images, size = self._canvas.outside_ring, self._canvas.size
        return RawBatch(ticket.step, count, ticket.slot, images, columns, replaced=self._replaced, size=size)

    def _sound(self, position: int) -> tuple[Face, float]:
        """The face of a place in the batch, or the one that takes its place because it is damaged."""
        source, row = self._source, self._rows[position]
        try:
            return self._made(position, row)
        except UnreadableFileError:
            raise
        except CorruptDataError as error:
            if not source.replace_corrupt:
                raise
            first = error
        for candidate in substitutes(source.index, row, source.rows, source.balanced_column):
            try:
                made = self._made(position, candidate)
            except UnreadableFileError:
                raise
            except CorruptDataError:
                continue
            self._rows[position] = candidate
            name = source.index.value
            self._replaced.append(Replaced(name("face_id", row), name("face_id", candidate), str(first)))
            return made
        raise CorruptDataError(
            f"{first}; and no sound image of its video or label is among the selected rows near it"
        ) from first

    def _made(self, position: int, row: int) -> tuple[Face, float]:
        source, ticket = self._source, self._ticket
        partner = source.resized(self._rows[position - 1]) if source.mixes and position % 2 else None
        self._reseeder.reseed(derive_seed(source.seed, ticket.epoch, ticket.step, int(ticket.places[position])))
        into = self._canvas.place(position)
        if source.needs_points:
            return source.augmented(row, partner=partner, into=into)
        return Face.without_points(source.pixels(row, into=into)), 1.0


class _Canvas:
    """Where the images of a batch are put: a slot of the ring if they fit, else memory of their own."""

    def __init__(self, source: BatchSource, slot: int | None, count: int) -> None:
        self._count, self._normalised = count, source.normalised
        self._ring, self._slot = source.ring, slot
        self._block: torch.Tensor | None = None
        self._in_ring = False
        # A transform might keep what it is given, so only what goes through none is decoded right into its place.
        direct = None
        if not self._normalised and not source.transforms and source.image_size is not None:
            direct = self._of_slot((count, source.image_size, source.image_size, 3))
        self._places = None if direct is None else direct.numpy()

    def _of_slot(self, shape: tuple[int, ...]) -> torch.Tensor | None:
        return None if self._ring is None or self._slot is None else self._ring.view(self._slot, shape)

    def place(self, position: int) -> NDArray[np.uint8] | None:
        """Where an image may be decoded or resized to at once."""
        return None if self._places is None else self._places[position]

    def put(self, position: int, image: NDArray[np.uint8]) -> None:
        """Puts an image (H, W, 3) to its place; raises `UsageError` where it has another size than those before."""
        if position == 0:
            shape = (self._count, *image.shape)
            self._block = self._of_slot(shape)
            self._in_ring = self._block is not None
            if self._block is None:
                self._block = torch.empty(shape, dtype=torch.float32 if self._normalised else torch.uint8)
        assert self._block is not None
        if self._block.shape[1:] != image.shape:
            sizes = [tuple(self._block.shape[1:3]), image.shape[:2]]
            raise UsageError(f"transform returned images of sizes {sizes} for one batch: it needs one; resize last")
        pixels, target = torch.from_numpy(image), self._block[position]
        if self._normalised:
            normalise_into(target, pixels)
        elif pixels.data_ptr() != target.data_ptr():
            target.copy_(pixels)

    @property
    def size(self) -> tuple[int, ...]:
        """Height and width of its images; empty where there are none."""
        return () if self._block is None else tuple(self._block.shape[1:3])

    @property
    def outside_ring(self) -> torch.Tensor | None:
        """The images, unless they are in the slot."""
        return None if self._in_ring else self._block
