"""`FaceDataset`: a finished dataset as a map-style dataset, under torch's own DataLoader or any other."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ...pipeline.dataset.index import Index
from ...pipeline.dataset.manifest import Manifest
from ...pipeline.errors import UsageError
from .. import validation
from ..augment.seeding import generator_owners
from ..face import FACE_FIELDS, Face, resized, resized_mask
from ..normalise import normalise
from .byte_ranges import ByteRanges
from .decode import decode_mask, decode_rgb
from .selection import Filters, Rows, select

Transform = Callable[..., dict[str, Any]]


class FaceDataset(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """The faces of one split, each as `(image, label)`.

    image: float32 (3, `image_size`, `image_size`), RGB, normalised by ImageNet's mean and standard deviation.
    label: int, an index into `labels`; -1 where the source did not say.

    What happens to a crop, in this order:
    - it is resized to `image_size` (None: the transforms have to bring all crops to one size);
    - `face_transform(image=, landmarks=, hull=, regions=, mask=, partner=)`: a `FaceCompose`, or a list of transforms
      to make one of. What moves pixels belongs here, so that the points follow;
    - `transform(image=uint8 HWC)["image"]` -> uint8 HWC: any Albumentations pipeline, without Normalize and ToTensor.

    `split` (None: all), `filters` (as pyarrow takes them, on any column of the index) and `frames_per_video` choose
    the rows; see `selection.select`.
    Raises `UsageError` where OUT is no finished dataset, `CorruptDataError` for a row whose bytes are damaged.
    Picklable by its settings: processes share the index's pages, and each works its rows out when it needs them.
    """

    def __init__(
        self,
        out: str | Path,
        *,
        split: str | None = "train",
        image_size: int | None = 224,
        face_transform: Transform | Sequence[Any] | None = None,
        transform: Transform | None = None,
        filters: Filters | None = None,
        frames_per_video: int | None = None,
    ) -> None:
        path = validation.folder(out)
        if image_size is not None:
            image_size = validation.whole("image_size", image_size, least=1, such_as=224)
        if frames_per_video is not None:
            frames_per_video = validation.whole("frames_per_video", frames_per_video, least=1, such_as=32)
        validation.transforms(transform=transform)
        if image_size is None and transform is None and face_transform is None:
            raise UsageError("image_size=None: needs a transform that brings all crops to one size; try 224")
        self.out = path.resolve()
        self.split, self.image_size = split, image_size
        self.face_transform, self.transform = _composed(face_transform), transform
        self._wants_mask = self.face_transform is not None and getattr(self.face_transform, "wants_mask", True)
        self.filters, self.frames_per_video = filters, frames_per_video
        manifest = Manifest.read(self.out)
        self.index = Index(self.out)
        if self.index.fingerprint != manifest.fingerprint:
            raise UsageError(
                f"{self.out}: index and manifest are of two states; finish `facefeed precompute`, or run "
                f"`facefeed verify {self.out} --rebuild-index`"
            )
        self.labels = self.index.labels
        self._read: Callable[[str, int, int, int | None], bytes] = ByteRanges(self.out).read
        self._decode: Callable[..., NDArray[np.uint8]] = decode_rgb
        self._resize: Callable[..., NDArray[np.uint8]] = resized
        self._seed: int | None = None
        self._rows: Rows | None = select(self.index, split, filters, frames_per_video)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None}

    def with_stages(self, wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Self:
        """A copy whose stages are what `wrap(name, stage)` makes of them, say to time them: read to augment."""
        made = copy.copy(self)
        for name in ("read", "decode", "resize"):
            setattr(made, f"_{name}", wrap(name, getattr(self, f"_{name}")))
        for name in ("face_transform", "transform"):
            if (stage := getattr(self, name)) is not None:
                setattr(made, name, wrap("augment", stage))
        return made

    @property
    def rows(self) -> Rows:
        """Which rows of the index take part, in its order: uint32 (len(self),)."""
        if self._rows is None:
            self._rows = select(self.index, self.split, self.filters, self.frames_per_video)
        return self._rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, position: int) -> tuple[torch.Tensor, int]:
        row = int(self.rows[position])
        self._seed_once()
        image = self.pixels(row) if self.face_transform is None else self.augmented(row)[0].image
        return normalise(torch.from_numpy(image)), int(self.index.number("label", row))

    def _seed_once(self) -> None:
        """In a worker of torch's own loader: draws from that worker's seed, which is another in each epoch.

        Albumentations' generators come to all workers in one state, again in each epoch: their numbers would repeat.
        """
        worker = torch.utils.data.get_worker_info()
        if worker is None or worker.seed == self._seed:
            return
        self._seed = worker.seed
        numbers, plain = np.random.default_rng(worker.seed), random.Random(worker.seed)  # noqa: S311 (no secrets here)
        for transform in (self.face_transform, self.transform):
            for owner in generator_owners(transform):
                owner.set_random_state(numbers, plain)

    def info(self, position: int) -> dict[str, Any]:
        """Every column of the index for one face, by name."""
        row = int(self.rows[position])
        return {name: self.index.value(name, row) for name in self.index.schema.names}

    def face(self, position: int) -> Face:
        """One crop as stored, with its points and, of a fake whose original is known, its mask."""
        row = int(self.rows[position])
        image = self._decoded(row)
        return replace(self._with_points(row, image), mask=self._mask(row, image.shape[:2]))

    def augmented(
        self, row: int, *, partner: Face | None = None, into: NDArray[np.uint8] | None = None
    ) -> tuple[Face, float]:
        """One row of the index, resized and transformed; and how much of it is its own, the rest being `partner`.

        Without a `face_transform` the points are those of the resized crop. Its pixels may, but need not lie in
        `into`. Raises `CorruptDataError` where its bytes are damaged, `UsageError` where a transform returns no image.
        """
        face, mix = self.resized(row, into=into), 1.0
        if self.face_transform is not None:
            given = {**{field: getattr(face, field) for field in FACE_FIELDS}, "partner": partner}
            made = self.face_transform(**given)
            image = _image_of(made)
            if missing := [field for field in FACE_FIELDS if field not in made]:
                raise UsageError(f"face_transform returned no {', '.join(missing)}: must return all that it was given")
            face = Face(**{**{field: made[field] for field in FACE_FIELDS}, "image": image})
            mix = float(made.get("mix", 1.0))
        return replace(face, image=self._transformed(face.image)), mix

    def resized(self, row: int, *, into: NDArray[np.uint8] | None = None) -> Face:
        """One row of the index, resized to `image_size`, before any transform; with its mask if one may want it."""
        image = self._sized(row, into)
        mask = self._mask(row, image.shape[:2]) if self._wants_mask else None
        return replace(self._with_points(row, image), mask=mask)

    def pixels(self, row: int, *, into: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """As `augmented` where there is no `face_transform`, without the points."""
        return self._transformed(self._sized(row, into))

    def _sized(self, row: int, into: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
        image = self._decoded(row, self.image_size, into)
        return image if self.image_size is None else self._resize(image, self.image_size, into)

    def _transformed(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return image if self.transform is None else _image_of(self.transform(image=image))

    def _decoded(
        self, row: int, min_side_px: int | None = None, into: NDArray[np.uint8] | None = None
    ) -> NDArray[np.uint8]:
        index = self.index
        name = index.text("file", row)
        offset, size, crc32 = (int(index.number(f"image_{part}", row)) for part in ("offset", "bytes", "crc32"))
        return self._decode(self._read(str(name), offset, size, crc32), min_side_px=min_side_px, into=into)

    def _with_points(self, row: int, image: NDArray[np.uint8]) -> Face:
        index = self.index
        face = Face(
            image=image, landmarks=index.points("landmarks", row), hull=index.points("hull", row),
            regions=index.regions(row),
        )  # fmt: skip
        height, width = int(index.number("height", row)), int(index.number("width", row))
        return face if image.shape[:2] == (height, width) else face.scaled_from(width, height)

    def _mask(self, row: int, size: tuple[int, ...]) -> NDArray[np.uint8] | None:
        """Where a fake differs from its original, at an image's (height, width); None where nobody knows."""
        offset, num_bytes = (int(self.index.number(f"mask_{part}", row)) for part in ("offset", "bytes"))
        if not num_bytes:
            return None
        mask = decode_mask(self._read(str(self.index.text("file", row)), offset, num_bytes, None))
        return mask if mask.shape == size else resized_mask(mask, size)


def _composed(face_transform: Transform | Sequence[Any] | None) -> Transform | None:
    if isinstance(face_transform, (list, tuple)):
        from ..augment import FaceCompose  # noqa: PLC0415 (half a second, only for who uses it)

        validation.listed(face_transform)
        return FaceCompose(face_transform)
    validation.transforms(face_transform=face_transform)
    validation.of_faces(face_transform)
    return face_transform  # type: ignore[return-value]


def _image_of(made: Any) -> NDArray[np.uint8]:
    """What a transform returned, as pixels."""
    if not isinstance(made, Mapping) or "image" not in made:
        found = f"a dict of {', '.join(map(str, made))}" if isinstance(made, Mapping) else type(made).__name__
        raise UsageError(f"transform returned {found}: must return a dict with 'image', as Albumentations does")
    image = made["image"]
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        found = f"{type(image).__name__} {getattr(image, 'dtype', '')} {tuple(getattr(image, 'shape', ()))}"
        grey = isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.size and image.ndim in (2, 3)
        what = "keep three channels, ToGray too" if grey else "leave Normalize and ToTensor out, the loader does both"
        raise UsageError(f"transform returned {found}: must be a uint8 array (H, W, 3); {what}")
    return np.ascontiguousarray(image)
