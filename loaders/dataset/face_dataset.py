"""`FaceDataset`: a precomputed dataset as a map-style dataset, for torch's own DataLoader or any other."""

from __future__ import annotations

import copy
import operator
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ...pipeline.dataset.crops import CropProtocol, crop_protocol
from ...pipeline.dataset.image_codec import decode_mask
from ...pipeline.dataset.index import Selection
from ...pipeline.dataset.index_like import IndexLike
from ...pipeline.dataset.schema import real_class
from ...pipeline.dataset.stores.opening import StoreOptions
from ...pipeline.errors import UsageError
from .. import validation
from ..adapters.by_kind import Adapter, adapter_of
from ..adapters.face_transform import apply_face_transform
from ..face import FACE_FIELDS, Face
from ..normalise import normalise
from ..seeding import generator_owners
from ..whole_numbers import optional_int
from .crop_mappings import CropMapping, WholeCrop, crop_mappings_of
from .decode import decode_rgb
from .selected_rows import Crop, SelectedRows
from .selection import Filters, Rows
from .store_datasets import StoreDatasets

Transform = Callable[..., Any]

DEFAULT_IMAGE_SIZE = 224
"""Side of an image, px, where no crop protocol gives another."""

_OPTIONS = ("split", "image_size", "crop", "face_transform", "transform", "filters", "frames_per_video")


class FaceDataset(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """The faces of one split, each as `(image, label)`.

    image: float32 (3, `image_size`, `image_size`), RGB, normalised by ImageNet's mean and standard deviation.
    label: int, an index into `labels`; -1 where the source did not say.

    A crop is resized to `image_size`, or cut by a `crop` protocol, then passes through `face_transform`, then through
    `transform`. The dataset is pickled by its settings: processes share the memory-mapped index, and each selects its
    rows when it needs them.

    Args:
        out: the output folder of `precompute`, or its address in an object store, such as "s3://bucket/faces".
        split: "train", "val" or "test"; None: all.
        image_size: side of an image, px; "auto": the size of the `crop` protocol, 224 without one. None: that of the
            stored crop, and the transforms have to bring all to one size.
        crop: what to cut from the stored crop: "deepfakebench", "ffpp", "sbi", or a margin, a size and an alignment,
            {"margin": 0.3, "size": 299, "align": "arcface"}; None: all of it. Points and mask follow.
        face_transform: a `FaceCompose`, or a list of transforms to make one of, called with `image`, `landmarks`,
            `hull`, `regions`, `mask` and `partner`. What moves pixels belongs here, so that the points follow.
        transform: any Albumentations pipeline, transform of `torchvision.transforms.v2`, or function of an image, uint8
            (H, W, 3), that returns an image, without Normalize and ToTensor. With those of torchvision the points and
            the mask that a batch delivers move too.
        filters: selects rows by any column of the index, in pyarrow's notation.
        frames_per_video: number of frames to select from each video, evenly spaced; None: all.
        cache: of an address: a folder of the local disk for what is read from the store, which processes and runs
            share; None: one below ``~/.cache``.
        cache_bytes: most that the cache takes; None: half of what its disk has free.
        storage_options: of the store's fsspec file system, such as `{"endpoint_url": "https://..."}`.

    Raises:
        UsageError: `out` is no finished dataset, a setting is out of range, one is changed later, or a store refuses.
        IndexError: a position is out of range; those below 0 count from the end, as in a list.
        TypeError: a position is no whole number, as a slice is.
        CorruptDataError: the bytes of a row are damaged, or index and manifest are of two states.
        StoppedError: storage does not return a file.

    """

    def __init__(
        self,
        out: str | Path,
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
    ) -> None:
        self._init_options(
            split=split, image_size=image_size, crop=crop, face_transform=face_transform, transform=transform,
            filters=filters, frames_per_video=frames_per_video,
        )  # fmt: skip
        store = StoreOptions.of(cache=cache, cache_bytes=cache_bytes, storage_options=storage_options)
        selected = SelectedRows.open(
            out, split=split, crop=crop, filters=filters, frames_per_video=self.frames_per_video, store=store
        )
        images = selected.images
        self._init_rows(
            out=selected.out, index=selected.index, rows=selected.rows, select=selected.select,
            read_image=images.image, read_mask=images.mask,
            without_landmarks_68=[] if selected.has_landmarks_68 else [selected.index.where],
            stores=StoreDatasets.of([selected.index], [images]),
        )  # fmt: skip

    def _init_options(
        self, *, split: str | None, image_size: int | Literal["auto"] | None, crop: Crop | None,
        face_transform: Transform | Sequence[Any] | None, transform: Transform | None, filters: Filters | None,
        frames_per_video: int | None,
    ) -> None:  # fmt: skip
        """Checks and sets what does not depend on the rows."""
        self.split, self.crop, self.filters = split, crop, filters
        protocol = None if crop is None else crop_protocol(crop)
        self.frames_per_video = optional_int("frames_per_video", frames_per_video, minimum=1, example=32)
        self._adapter: Adapter | None = None if transform is None else adapter_of(transform)
        self._delivered_points: tuple[str, ...] = ()  # that `transform` has to move, or must not displace
        self.face_transform, self.transform = _as_face_compose(face_transform), transform
        self._gives_68 = validation.accepts(self.face_transform, "landmarks_68")
        self._gives_label = validation.accepts(self.face_transform, "label")
        self._wants_mask = self.face_transform is not None and getattr(self.face_transform, "wants_mask", True)
        self.image_size = self._checked_image_size(image_size, protocol)
        self._decode: Callable[..., NDArray[np.uint8]] = decode_rgb
        self._resize: Callable[[CropMapping, NDArray[np.uint8], NDArray[np.uint8] | None], NDArray[np.uint8]] = _resize
        self._worker_seed: int | None = None

    def _init_rows(
        self, *, out: Path, index: IndexLike, rows: Selection, select: Callable[[int | None], Selection],
        read_image: Callable[[int], bytes], read_mask: Callable[[int], bytes | None], without_landmarks_68: list[str],
        stores: StoreDatasets,
    ) -> None:  # fmt: skip
        """Sets what is of the rows, of one dataset or of several; raises `UsageError` where transforms need what they
        have not. `without_landmarks_68`: folders, or addresses, of the datasets whose rows have no `landmarks_68`.
        """
        self.out, self.index, self.labels = out, index, index.labels
        self._real_class = real_class(index.labels)
        self._selection: Selection | None = rows
        self._rows: Rows | None = None
        self._select, self._read_image, self._read_mask = select, read_image, read_mask
        self.stores, self._read_batch = stores, stores.prefetch
        protocol = None if self.crop is None else crop_protocol(self.crop)
        self._crop_mappings = crop_mappings_of(index, protocol, self.image_size)
        if (check := getattr(self.face_transform, "check_dataset", None)) is not None:
            check(self.labels, without_landmarks_68=without_landmarks_68)

    def _checked_image_size(
        self, image_size: int | Literal["auto"] | None, protocol: CropProtocol | None
    ) -> int | None:
        if image_size == "auto":
            image_size = DEFAULT_IMAGE_SIZE if protocol is None else protocol.size_px
        has_transform = self.transform is not None or self.face_transform is not None
        if image_size is None and (not has_transform or protocol is not None):
            raise UsageError(
                "image_size=None: needs a transform that brings all crops to one size, and no crop; try 224"
            )
        return optional_int("image_size", image_size, minimum=1, example=224)

    @property
    def has_landmarks_68(self) -> bool:
        """Whether faces come with `landmarks_68`: rows have them, and `face_transform` moves them."""
        return self._gives_68 and "landmarks_68" in self.index.schema.names

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OPTIONS and name in self.__dict__:  # rows, mappings and how transforms are called follow from them
            raise UsageError(
                f"{name}: cannot change once the dataset is made; make another FaceDataset(..., {name}=...)"
            )
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_selection": None, "_rows": None}

    def with_wrapped_stages(self, wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Self:
        """A copy whose stages "read", "decode", "resize" and "augment" are `wrap(name, stage)`, as for timing."""
        wrapped = copy.copy(self)
        for name in ("read_batch", "read_image", "read_mask", "decode", "resize"):
            setattr(wrapped, f"_{name}", wrap(name.partition("_")[0], getattr(self, f"_{name}")))
        for name in ("face_transform", "transform"):
            if (stage := getattr(self, name)) is not None:
                wrapped.__dict__[name] = wrap("augment", stage)
        return wrapped

    @property
    def selection(self) -> Selection:
        """The selected rows of the index, in its order; a range takes no memory for each."""
        if self._selection is None:
            self._selection = self._select(self.frames_per_video)
        return self._selection

    @property
    def rows(self) -> Rows:
        """The selected rows of the index, in its order: uint32 (len(self),)."""
        if self._rows is None:
            self._rows = np.asarray(self.selection)
        return self._rows

    def select_rows(self, *, frames_per_video: int | None) -> Rows:
        """The rows that it would have with so many frames of each video, all else being equal."""
        return np.asarray(self._select(frames_per_video))

    def __len__(self) -> int:
        return len(self.selection)

    def _row_at(self, position: int) -> int:
        """The row of the index at a position, which may count from the end, as in a list."""
        try:
            number = operator.index(position)
        except TypeError:
            raise TypeError(
                f"FaceDataset: position {position!r}: must be a whole number; for several faces take "
                "torch.utils.data.Subset(dataset, range(0, 3)), or a DataLoader"
            ) from None
        if not -len(self) <= number < len(self):
            raise IndexError(f"FaceDataset: position {number}: there are {len(self):,} faces, 0 to {len(self) - 1}")
        return int(self.selection[number])

    def __getitem__(self, position: int) -> tuple[torch.Tensor, int]:
        row = self._row_at(position)
        self._seed_in_worker()
        if self.face_transform is None:
            return normalise(torch.from_numpy(self.load_pixels(row))), self._label(row)
        face = self.load_augmented(row)
        return normalise(torch.from_numpy(face.image)), int(self._label(row) if face.label is None else face.label)

    def __getitems__(self, positions: Sequence[int]) -> list[tuple[torch.Tensor, int]]:
        """The faces of a batch, which torch's own DataLoader asks for at once."""
        self.prepare([self._row_at(position) for position in positions])
        return [self[position] for position in positions]

    def _seed_in_worker(self) -> None:
        """In a worker of torch's own DataLoader, seeds the transforms by the worker's seed, which differs by epoch.

        Albumentations' generators are pickled in one state to all workers in every epoch: their draws would repeat.
        """
        worker = torch.utils.data.get_worker_info()
        if worker is None or worker.seed == self._worker_seed:
            return
        self._worker_seed = worker.seed
        generator, python_random = np.random.default_rng(worker.seed), random.Random(worker.seed)  # noqa: S311 (no secrets)
        for transform in (self.face_transform, self.transform):
            for owner in generator_owners(transform):
                owner.set_random_state(generator, python_random)

    def prepare(self, rows: Sequence[int]) -> None:
        """Computes and fetches at once what loading these rows of the index needs, in place of the last ones."""
        self._crop_mappings.prepare(rows)
        if self.stores:
            self._read_batch(rows, masks=self._wants_mask)

    def info(self, position: int) -> dict[str, Any]:
        """Every column of the index for one face, by name."""
        row = self._row_at(position)
        return {name: self.index.value(name, row) for name in self.index.schema.names}

    def face(self, position: int) -> Face:
        """One crop as stored, with its points and, of a fake whose original is known, its mask."""
        row = self._row_at(position)
        mapping = WholeCrop(int(self.index.number("width", row)), int(self.index.number("height", row)))
        face = self._with_points(row, self._decode(self._read_image(row)), mapping)
        return replace(face, mask=self._load_mask(row, mapping), label=self._label(row))

    def load_augmented(
        self,
        row: int,
        *,
        partner: Face | None = None,
        blend: bool | None = None,
        into: NDArray[np.uint8] | None = None,
    ) -> Face:
        """Loads one row of the index, resized and transformed.

        Args:
            row: of the index.
            partner: the real face that mixup blends into it.
            blend: whether `SelfBlend` makes a fake of it; None: by its own probability.
            into: uint8 (H, W, 3); the pixels may, but need not be written to it.

        Returns:
            The face; without a `face_transform`, its points are those of the resized crop. Its label is the row's
            unless a transform changed it.

        Raises:
            CorruptDataError: where its bytes are damaged.
            UsageError: where a transform returns no image, one that delivered points cannot follow, or a fraction as
                label although it does not mix.

        """
        face = self.load_resized(row, into=into)
        if self.face_transform is not None:
            names = (*FACE_FIELDS, "landmarks_68") if self.has_landmarks_68 else FACE_FIELDS
            names = (*names, "label") if self._gives_label else names
            pairing = {"partner": partner} if blend is None else {"partner": partner, "blend": blend}
            face = apply_face_transform(self.face_transform, face, names, pairing)
        return self._apply_transform(face)

    def load_resized(self, row: int, *, into: NDArray[np.uint8] | None = None) -> Face:
        """Loads one row of the index, resized or cut, untransformed; with its mask if a transform uses it."""
        mapping = self._crop_mappings(row)
        image = self._load_image(row, mapping, into)
        mask = self._load_mask(row, mapping) if self._wants_mask else None
        return replace(self._with_points(row, image, mapping), mask=mask, label=self._label(row))

    def load_pixels(self, row: int, *, into: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Loads one row's pixels, resized or cut, and transformed by `transform` alone: uint8 (H, W, 3)."""
        return self._apply_transform(Face.from_image(self._load_image(row, self._crop_mappings(row), into))).image

    def _load_image(self, row: int, mapping: CropMapping, into: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
        """The image of a row, resized or cut."""
        crop = self._decode(self._read_image(row), min_side_px=mapping.min_side_px, rows=mapping.needed_rows, into=into)
        return self._resize(mapping, crop, into)

    def _apply_transform(self, face: Face) -> Face:
        if self.transform is None or self._adapter is None:
            return face
        return self._adapter(self.transform, face, self._delivered_points)

    def _label(self, row: int) -> int:
        return int(self.index.number("label", row))

    def _with_points(self, row: int, image: NDArray[np.uint8], mapping: CropMapping) -> Face:
        index = self.index
        face = Face(
            image=image,
            landmarks=index.points("landmarks", row),
            hull=index.points("hull", row),
            regions=index.regions(row),
        )
        if self.has_landmarks_68:
            face = replace(face, landmarks_68=index.points("landmarks_68", row))
        return mapping.points(face)

    def _load_mask(self, row: int, mapping: CropMapping) -> NDArray[np.uint8] | None:
        """The manipulation mask of a row, resized or cut like its image; None where the row has none, or is real.

        A moment in which a video that is fake in part is real may have a mask: of what its encoder changed.
        """
        if self.index.number("label", row) == self._real_class:
            return None
        data = self._read_mask(row)
        return None if data is None else mapping.mask(decode_mask(data).view(np.uint8))


# A function of the mapping, which differs from row to row, so that `with_wrapped_stages` can wrap it, as for timing.
def _resize(mapping: CropMapping, crop: NDArray[np.uint8], into: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
    return mapping.image(crop, into)


def _as_face_compose(face_transform: Transform | Sequence[Any] | None) -> Transform | None:
    if isinstance(face_transform, (list, tuple)):
        from ..augment import FaceCompose  # noqa: PLC0415 (half a second that other datasets need not spend)

        validation.check_transform_list(face_transform)
        return FaceCompose(face_transform)
    validation.check_face_transform(face_transform, (*FACE_FIELDS, "partner"))
    return face_transform  # type: ignore[return-value]
