"""Builds the augmentation gallery: faces of a dataset with their points, and transformed variants of each."""

from __future__ import annotations

import base64
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from ...pipeline.errors import FacefeedError, UsageError
from ...pipeline.page import html
from ..augment.compose import FaceCompose
from ..augment.pipeline_file import TransformLine, describe_pipeline, read_pipeline
from ..augment.seeding import Reseeder, derive_seed
from ..dataset.face_dataset import FaceDataset
from ..face import FACE_FIELDS, Face
from .selection import find_partner, select_positions

SIDE_PX: Final = 224
"""Crops are resized to this side first, the default of the loader."""

_QUALITY: Final = 92


@dataclass(frozen=True)
class Picture:
    """An image. `face`: is drawn over it; None where the pipeline does not transform points.

    `mix`: the image's share in a blend with its partner, else 1.
    """

    image: NDArray[np.uint8]
    face: Face | None
    mix: float = 1.0

    @property
    def uri(self) -> str:
        """The image as a data URI."""
        jpeg = simplejpeg.encode_jpeg(np.ascontiguousarray(self.image), quality=_QUALITY, colorsubsampling="444")
        return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"


@dataclass(frozen=True)
class GalleryRow:
    """One face of the dataset: its video and frame, the stored picture, and the variants."""

    video_id: str
    frame_index: int
    label: str
    original: Picture
    variants: list[Picture]


@dataclass(frozen=True)
class Gallery:
    """The content of the page. `takes_points`: whether the pipeline transforms points as well."""

    out: Path
    file: Path
    split: str
    seed: int
    faces_in_split: int
    pipeline: list[TransformLine]
    takes_points: bool
    rows: list[GalleryRow]
    microseconds_per_image: float

    @classmethod
    def of(cls, out: Path, file: Path, *, split: str, faces: int, variants: int, seed: int) -> Self:
        """Transforms `faces` faces of a split `variants` times each.

        Args:
            out: the dataset.
            file: the pipeline; see `read_pipeline`.
            split: train, val or test.
            faces: number of faces.
            variants: number of variants of each face.
            seed: determines the variants.

        Raises:
            UsageError: The pipeline cannot be read or fails on a face, or the split has no faces.

        """
        pipeline = read_pipeline(file)
        dataset = FaceDataset(out, split=split, image_size=SIDE_PX)
        positions = select_positions(dataset, faces)
        if not positions:
            raise UsageError(f"{out}: has no faces in split {split}; try another --split")
        timed_transform = _TimedTransform(pipeline, file)
        timed_transform.warm_up(dataset.face(positions[0]).resized(SIDE_PX))
        rows = [_gallery_row(dataset, position, timed_transform, variants, seed) for position in positions]
        return cls(
            out=out,
            file=file,
            split=split,
            seed=seed,
            faces_in_split=len(dataset),
            pipeline=describe_pipeline(pipeline),
            takes_points=timed_transform.takes_points,
            rows=rows,
            microseconds_per_image=statistics.median(timed_transform.microseconds),
        )


def write_page(gallery: Gallery, page: Path) -> int:
    """Writes one self-contained HTML file atomically; returns its size in bytes.

    Raises `UsageError` where it cannot be written, or would overwrite the pipeline.
    """
    if page.resolve() == gallery.file.resolve():
        raise UsageError(f"--page {page}: is the pipeline itself; name another file")
    return html.write_page(
        page, "gallery.html.jinja", __package__, command="augment", title=gallery.file.name, has_figures=False,
        gallery=gallery, side_px=SIDE_PX,
    )  # fmt: skip


class _TimedTransform:
    """Applies a pipeline to faces as the loader does, and measures its time."""

    def __init__(self, pipeline: Any, file: Path) -> None:
        self.pipeline, self.file = pipeline, file
        self.takes_points = isinstance(pipeline, FaceCompose)
        self.microseconds: list[float] = []
        self._reseeder = Reseeder([pipeline])

    def warm_up(self, face: Face) -> None:
        """Runs the pipeline once, so that first-call costs are not measured."""
        self.variant(face, None, 0)
        self.microseconds.clear()

    def variant(self, face: Face, partner: Face | None, seed: int) -> Picture:
        """One face transformed with the given seed."""
        with self._reseeder.activated():
            self._reseeder.reseed(seed)
            return self._transform(face, partner)

    def _transform(self, face: Face, partner: Face | None) -> Picture:
        arguments: dict[str, Any] = {"image": face.image}
        if self.takes_points:
            arguments = {**{name: getattr(face, name) for name in FACE_FIELDS}, "partner": partner}
        start_ns = time.perf_counter_ns()
        try:
            result = self.pipeline(**arguments)
        except FacefeedError as error:
            raise UsageError(f"{self.file}: {error}") from error
        except Exception as error:  # whatever a transform raises: report its message without the traceback
            message = " ".join(str(error).split())
            raise UsageError(f"{self.file}: fails on a face ({type(error).__name__}: {message})") from error
        self.microseconds.append((time.perf_counter_ns() - start_ns) / 1000)
        image = self._require_image(result["image"])
        if not self.takes_points:
            return Picture(image, None)
        return Picture(image, replace(face, **{name: result[name] for name in FACE_FIELDS}), result["mix"])

    def _require_image(self, image: Any) -> NDArray[np.uint8]:
        if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3:
            return image
        description = f"{type(image).__name__} {getattr(image, 'dtype', '')} {tuple(getattr(image, 'shape', ()))}"
        raise UsageError(
            f"{self.file}: returns {description}: must be a uint8 array (H, W, 3); leave Normalize and ToTensor out, "
            "the loader does both"
        )


def _gallery_row(
    dataset: FaceDataset, position: int, timed_transform: _TimedTransform, variants: int, seed: int
) -> GalleryRow:
    face, info = dataset.face(position).resized(SIDE_PX), dataset.info(position)
    source = find_partner(dataset, position)
    partner = None if source is None else dataset.face(source).resized(SIDE_PX)
    return GalleryRow(
        video_id=info["video_id"],
        frame_index=info["frame_index"],
        label=dataset.labels[info["label"]] if info["label"] >= 0 else "unknown",
        original=Picture(face.image, face),
        variants=[
            timed_transform.variant(face, partner, derive_seed(seed, position, number)) for number in range(variants)
        ],
    )
