"""`FaceDataset`: a finished dataset as a map-style dataset, under torch's own DataLoader or any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..pipeline.errors import UsageError
from ..pipeline.index import Index
from ..pipeline.manifest import Manifest
from . import arguments
from .decode import ByteRanges, decode_rgb
from .face import FACE_FIELDS, Face, resized
from .normalise import normalise
from .order import Rows
from .selection import Filters, select

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
        path = arguments.folder(out)
        if image_size is not None:
            image_size = arguments.whole("image_size", image_size, least=1, such_as=224)
        if frames_per_video is not None:
            frames_per_video = arguments.whole("frames_per_video", frames_per_video, least=1, such_as=32)
        arguments.transforms(transform=transform)
        if not isinstance(face_transform, (list, tuple)):
            arguments.transforms(face_transform=face_transform)
        if image_size is None and transform is None and face_transform is None:
            raise UsageError("image_size=None: needs a transform that brings all crops to one size; try 224")
        self.out = path.resolve()
        self.split, self.image_size = split, image_size
        self.face_transform, self.transform = _composed(face_transform), transform
        self.filters, self.frames_per_video = filters, frames_per_video
        manifest = Manifest.read(self.out)
        self.index = Index(self.out)
        if self.index.fingerprint != manifest.fingerprint:
            raise UsageError(
                f"{self.out}: index and manifest are of two states; finish `facefeed precompute`, or run "
                f"`facefeed verify {self.out} --rebuild-index`"
            )
        self.labels = self.index.labels
        self._bytes = ByteRanges(self.out)
        self._rows: Rows | None = select(self.index, split, filters, frames_per_video)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None}

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
        image = self.pixels(row) if self.face_transform is None else self.augmented(row)[0].image
        return normalise(torch.from_numpy(image)), int(self.index.number("label", row))

    def info(self, position: int) -> dict[str, Any]:
        """Every column of the index for one face, by name."""
        row = int(self.rows[position])
        return {name: self.index.value(name, row) for name in self.index.schema.names}

    def face(self, position: int) -> Face:
        """One crop as stored, with its points."""
        row = int(self.rows[position])
        return self._with_points(row, self._decoded(row))

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
            face = Face(**{**{field: made[field] for field in FACE_FIELDS}, "image": _image_of(made["image"])})
            mix = float(made.get("mix", 1.0))
        return replace(face, image=self._transformed(face.image)), mix

    def resized(self, row: int, *, into: NDArray[np.uint8] | None = None) -> Face:
        """One row of the index, resized to `image_size`, before any transform."""
        face = self._with_points(row, self._decoded(row, self.image_size, into))
        return face if self.image_size is None else face.resized(self.image_size, into=into)

    def pixels(self, row: int, *, into: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """As `augmented` where there is no `face_transform`, without the points."""
        image = self._decoded(row, self.image_size, into)
        return self._transformed(image if self.image_size is None else resized(image, self.image_size, into))

    def _transformed(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return image if self.transform is None else _image_of(self.transform(image=image)["image"])

    def _decoded(
        self, row: int, min_side_px: int | None = None, into: NDArray[np.uint8] | None = None
    ) -> NDArray[np.uint8]:
        index = self.index
        name = index.text("file", row)
        offset, size, crc32 = (int(index.number(f"image_{part}", row)) for part in ("offset", "bytes", "crc32"))
        return decode_rgb(self._bytes.read(str(name), offset, size, crc32), min_side_px=min_side_px, into=into)

    def _with_points(self, row: int, image: NDArray[np.uint8]) -> Face:
        index = self.index
        face = Face(
            image=image, landmarks=index.points("landmarks", row), hull=index.points("hull", row),
            regions=index.regions(row),
        )  # fmt: skip
        height, width = int(index.number("height", row)), int(index.number("width", row))
        return face if image.shape[:2] == (height, width) else face.scaled_from(width, height)


def _composed(face_transform: Transform | Sequence[Any] | None) -> Transform | None:
    if face_transform is None or callable(face_transform):
        return face_transform
    from .augment import FaceCompose  # noqa: PLC0415 (half a second, only for who uses it)

    return FaceCompose(list(face_transform))


def _image_of(image: Any) -> NDArray[np.uint8]:
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        found = f"{type(image).__name__} {getattr(image, 'dtype', '')} {tuple(getattr(image, 'shape', ()))}"
        grey = isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.size and image.ndim in (2, 3)
        what = "keep three channels, ToGray too" if grey else "leave Normalize and ToTensor out, the loader does both"
        raise UsageError(f"transform returned {found}: must be a uint8 array (H, W, 3); {what}")
    return image
