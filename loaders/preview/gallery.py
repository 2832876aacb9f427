"""The page that shows a pipeline at work: faces of a dataset, each with its points, and variants of it."""

from __future__ import annotations

import base64
import statistics
import time
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Self

import jinja2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from ...pipeline.errors import FacefeedError, UsageError
from ...pipeline.files import write_atomically
from ..augment.compose import FaceCompose
from ..augment.pipeline_file import TransformLine, describe_pipeline, read_pipeline
from ..augment.seeding import Reseeder, derive_seed
from ..dataset.face_dataset import FaceDataset
from ..face import FACE_FIELDS, Face
from .selection import chosen, partner_of

SIDE_PX: Final = 224
"""Crops are brought to this size first, as the loader does unless told otherwise."""

_QUALITY: Final = 92


@dataclass(frozen=True)
class Picture:
    """An image, and the face that is drawn over it; without one where a pipeline takes no points along.

    `mix`: the image's share where its partner was derive_seed in, else 1.
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
class Row:
    """One face of the dataset: whose it is, as stored, and transformed."""

    video_id: str
    frame_index: int
    label: str
    original: Picture
    variants: list[Picture]


@dataclass(frozen=True)
class Gallery:
    """What the page shows."""

    out: Path
    file: Path
    split: str
    seed: int
    faces_in_split: int
    pipeline: list[TransformLine]
    follows: bool
    rows: list[Row]
    microseconds_per_image: float

    @classmethod
    def of(cls, out: Path, file: Path, *, split: str, faces: int, variants: int, seed: int) -> Self:
        """Transforms `faces` faces of a split `variants` times. Raises `UsageError`; see `read_pipeline`."""
        pipeline = read_pipeline(file)
        dataset = FaceDataset(out, split=split, image_size=SIDE_PX)
        positions = chosen(dataset, faces)
        if not positions:
            raise UsageError(f"{out}: has no faces in split {split}; try another --split")
        studio = _Studio(pipeline, file)
        studio.warm_up(dataset.face(positions[0]).resized(SIDE_PX))
        rows = [_row(dataset, position, studio, variants, seed) for position in positions]
        return cls(
            out=out,
            file=file,
            split=split,
            seed=seed,
            faces_in_split=len(dataset),
            pipeline=describe_pipeline(pipeline),
            follows=studio.follows,
            rows=rows,
            microseconds_per_image=statistics.median(studio.microseconds),
        )


def write_page(gallery: Gallery, page: Path) -> int:
    """Writes one HTML file that needs nothing else, whole or not at all; returns its bytes.

    Raises `UsageError` where it cannot be written, or would overwrite the pipeline.
    """
    if page.resolve() == gallery.file.resolve():
        raise UsageError(f"--page {page}: is the pipeline itself; name another file")
    source = files(__package__).joinpath("gallery.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = environment.from_string(source).render(gallery=gallery, side_px=SIDE_PX)
    return write_atomically(text, page, "--page")


class _Studio:
    """Transforms faces as the loader would, and takes the time."""

    def __init__(self, pipeline: Any, file: Path) -> None:
        self.pipeline, self.file = pipeline, file
        self.follows = isinstance(pipeline, FaceCompose)
        self.microseconds: list[float] = []
        self._reseeder = Reseeder([pipeline])

    def warm_up(self, face: Face) -> None:
        """The first call loads what the others have ready."""
        self.variant(face, None, 0)
        self.microseconds.clear()

    def variant(self, face: Face, partner: Face | None, key: int) -> Picture:
        """One face transformed; `key` stands for the variant."""
        with self._reseeder.activated():
            self._reseeder.reseed(key)
            return self._transformed(face, partner)

    def _transformed(self, face: Face, partner: Face | None) -> Picture:
        given: dict[str, Any] = {"image": face.image}
        if self.follows:
            given = {**{name: getattr(face, name) for name in FACE_FIELDS}, "partner": partner}
        started = time.perf_counter_ns()
        try:
            made = self.pipeline(**given)
        except FacefeedError as error:
            raise UsageError(f"{self.file}: {error}") from error
        except Exception as error:  # whatever a transform may raise; people want its words, not its trace
            words = " ".join(str(error).split())
            raise UsageError(f"{self.file}: fails on a face ({type(error).__name__}: {words})") from error
        self.microseconds.append((time.perf_counter_ns() - started) / 1000)
        image = self._shown(made["image"])
        if not self.follows:
            return Picture(image, None)
        return Picture(image, replace(face, **{name: made[name] for name in FACE_FIELDS}), made["mix"])

    def _shown(self, image: Any) -> NDArray[np.uint8]:
        if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3:
            return image
        found = f"{type(image).__name__} {getattr(image, 'dtype', '')} {tuple(getattr(image, 'shape', ()))}"
        raise UsageError(
            f"{self.file}: returns {found}: must be a uint8 array (H, W, 3); leave Normalize and ToTensor out, "
            "the loader does both"
        )


def _row(dataset: FaceDataset, position: int, studio: _Studio, variants: int, seed: int) -> Row:
    face, info = dataset.face(position).resized(SIDE_PX), dataset.info(position)
    source = partner_of(dataset, position)
    partner = None if source is None else dataset.face(source).resized(SIDE_PX)
    return Row(
        video_id=info["video_id"],
        frame_index=info["frame_index"],
        label=dataset.labels[info["label"]] if info["label"] >= 0 else "unknown",
        original=Picture(face.image, face),
        variants=[studio.variant(face, partner, derive_seed(seed, position, number)) for number in range(variants)],
    )
