"""Builds the augmentation gallery: faces of a dataset with their points, and transformed variants of each."""

from __future__ import annotations

import base64
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from ...pipeline.dataset.stores.address import without_credentials
from ...pipeline.errors import FacefeedError, UsageError
from ...pipeline.page import html
from ..augment.compose import FaceCompose, check_image_transform
from ..augment.pipeline_file import TransformLine, describe_pipeline, read_pipeline
from ..dataset.face_dataset import FaceDataset
from ..face import FACE_FIELDS, Face
from ..seeding import Reseeder, derive_seed
from .selection import find_partner, select_positions

SIDE_PX: Final = 224
"""Crops are resized to this side first, the default of the loader."""

_QUALITY: Final = 92


@dataclass(frozen=True)
class Picture:
    """An image. `face`: is drawn over it; None where the pipeline does not transform points.

    `label`: the name of its label where a transform changed it; of a mixture the shares.
    """

    image: NDArray[np.uint8]
    face: Face | None
    label: str | None = None

    @property
    def uri(self) -> str:
        """The image as a data URI."""
        jpeg = simplejpeg.encode_jpeg(np.ascontiguousarray(self.image), quality=_QUALITY, colorsubsampling="444")
        return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"

    @property
    def mask_uri(self) -> str | None:
        """The mask in red, as transparent as it is small, as a data URI; None where it is empty or missing."""
        if not self.mask_share or self.face is None or self.face.mask is None:
            return None
        opacity = np.rint(self.face.mask.astype(np.float32) * 255).astype(np.uint8)
        red = np.zeros((*opacity.shape, 4), np.uint8)
        red[..., 2], red[..., 3] = 255, opacity
        return f"data:image/png;base64,{base64.b64encode(cv2.imencode('.png', red)[1].tobytes()).decode()}"

    @property
    def mask_share(self) -> float | None:
        """The mean of the mask, 0..1; None where there is none."""
        return None if self.face is None or self.face.mask is None else float(self.face.mask.mean())


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
    """The content of the page. out: as people may see it; takes_points: whether the pipeline transforms points too."""

    out: str
    file: Path
    split: str
    seed: int
    faces_in_split: int
    pipeline: list[TransformLine]
    takes_points: bool
    rows: list[GalleryRow]
    microseconds_per_image: float

    @classmethod
    def of(cls, out: str | Path, file: Path, *, split: str, faces: int, variants: int, seed: int) -> Self:
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
        if isinstance(pipeline, FaceCompose):
            without_landmarks_68 = [] if "landmarks_68" in dataset.index.schema.names else [without_credentials(out)]
            pipeline.check_dataset(dataset.labels, without_landmarks_68=without_landmarks_68)
        else:
            check_image_transform(pipeline)
        positions = select_positions(dataset, faces)
        if not positions:
            raise UsageError(f"{without_credentials(out)}: has no faces in split {split}; try another --split")
        timed_transform = _TimedTransform(pipeline, file, dataset.labels)
        timed_transform.warm_up(dataset.face(positions[0]).resized(SIDE_PX))
        rows = [_gallery_row(dataset, position, timed_transform, variants, seed) for position in positions]
        return cls(
            out=without_credentials(out),
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

    def __init__(self, pipeline: Any, file: Path, labels: Sequence[str]) -> None:
        self.pipeline, self.file, self.labels = pipeline, file, labels
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
            names = (*FACE_FIELDS, "landmarks_68", "label")
            arguments = {**{name: getattr(face, name) for name in names}, "partner": partner}
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
        transformed = replace(face, **{name: result[name] for name in names})
        label = transformed.label
        changed = label is not None and label != face.label
        return Picture(image, transformed, _label_text(self.labels, label) if changed else None)

    def _require_image(self, image: Any) -> NDArray[np.uint8]:
        if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3:
            return image
        description = f"{type(image).__name__} {getattr(image, 'dtype', '')} {tuple(getattr(image, 'shape', ()))}"
        raise UsageError(
            f"{self.file}: returns {description}: must be a uint8 array (H, W, 3); leave Normalize and ToTensor out, "
            "the loader does both"
        )


def _label_text(labels: Sequence[str], label: float | None) -> str:
    """The name of a label; of a fraction the shares of the two labels around it."""
    if label is None or label < 0:
        return "unknown"
    lower, share = labels[int(label)], label % 1
    return f"{share:.0%} {labels[int(label) + 1]}, {1 - share:.0%} {lower}" if share else lower


def _gallery_row(
    dataset: FaceDataset, position: int, timed_transform: _TimedTransform, variants: int, seed: int
) -> GalleryRow:
    face, info = dataset.face(position).resized(SIDE_PX), dataset.info(position)
    source = find_partner(dataset, position)
    partner = None if source is None else dataset.face(source).resized(SIDE_PX)
    return GalleryRow(
        video_id=info["video_id"],
        frame_index=info["frame_index"],
        label=_label_text(dataset.labels, info["label"]),
        original=Picture(face.image, face),
        variants=[
            timed_transform.variant(face, partner, derive_seed(seed, position, number)) for number in range(variants)
        ],
    )
