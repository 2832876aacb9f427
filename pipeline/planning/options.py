"""What one precompute job is: the options a user chooses, and all a worker needs to do a unit of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from ..dataset.image_codec import ImageEncoder
from ..dataset.manifest import OutPaths
from ..dataset.schema import SCHEMA_VERSION
from ..errors import UsageError
from ..faces import FaceDetector, FaceFilter
from ..faces.detectors.mtcnn import MTCNNDetector
from ..manipulation import mask
from ..splits.assignment import SplitRatio
from ..video import DecoderLimits, Sampling

Boxes = Literal["own", "source"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the rows are to be. Every field goes into the job's `config`: rows of two configs are never mixed.

    `margin`: what is added on each side of the box, as a share of its longer side. `size_px`: the largest side of
    a crop. `align`: whether squares are turned until faces are upright. `smooth`: whether squares follow a smoothed
    track. `boxes`: "source" takes the faces of a fake from its original's same frame, where that is known.
    Raises `UsageError` on values that cannot be meant.
    """

    sampling: Sampling = field(default_factory=lambda: Sampling(every=10))
    keep: FaceFilter = field(default_factory=FaceFilter)
    margin: float = 0.3
    size_px: int = 256
    align: bool = False
    smooth: bool = False
    boxes: Boxes = "own"
    image: ImageEncoder = field(default_factory=ImageEncoder)
    split_ratio: SplitRatio = field(default_factory=SplitRatio)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= 10:
            raise UsageError(f"margin={self.margin}: must be 0 to 10; try 0.3")
        if not 16 <= self.size_px <= 4096:
            raise UsageError(f"size={self.size_px}: must be 16 to 4096 px; try 256")
        if self.boxes not in get_args(Boxes):
            raise UsageError(f"boxes={self.boxes!r}: must be own or source; try own")

    def config(self, detector: FaceDetector, labels: tuple[str, ...]) -> dict[str, Any]:
        """Everything that rows depend on, as plain JSON values."""
        image = self.image
        return {
            "schema": SCHEMA_VERSION,
            "labels": list(labels),
            "sampling": _as_floats(self.sampling.as_dict(), "fps"),
            "detector": detector.fingerprint,
            "faces": self.keep.max_faces,
            "min_face_px": self.keep.min_face_px,
            "min_score": float(self.keep.min_score),
            "hull": "template5",
            "margin": float(self.margin),
            "size_px": self.size_px,
            "align": self.align,
            "smooth": self.smooth,
            "boxes": self.boxes,
            "mask": mask.METHOD,
            "format": image.format,
            "quality": image.quality,
            "chroma": image.chroma,
            "split_ratio": list(self.split_ratio.shares),
            "seed": self.seed,
        }

    def detector(self) -> FaceDetector:
        """The detector that precompute uses unless it is handed another."""
        return MTCNNDetector(min_face_px=max(self.keep.min_face_px, 12))


def _as_floats(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """5 and 5.0 are the same setting, and must have the same hash."""
    return {name: float(value) if name in names else value for name, value in values.items()}


def hash_config(config: dict[str, Any]) -> str:
    """Short name of a config: two are equal only where every field is."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """What a worker is told once: picklable, and the same for every unit. Paths must mean the same on every host.

    `allowed_roots`: real paths of further folders that inputs may lie in; no part of the config, since rows do not
    depend on them.
    """

    root: Path
    out: Path
    options: Options
    detector: FaceDetector
    labels: tuple[str, ...]
    config_hash: str
    limits: DecoderLimits = field(default_factory=DecoderLimits)
    allowed_roots: tuple[Path, ...] = ()

    @property
    def roots(self) -> tuple[Path, ...]:
        """All folders that inputs may lie in, through any links."""
        return (self.root, *self.allowed_roots)

    @property
    def paths(self) -> OutPaths:
        """Where things stand below `out`."""
        return OutPaths(self.out)
