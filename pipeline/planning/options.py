"""Options of a precompute job: what the user chooses, and the job spec that every Dask worker receives."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from ..dataset.image_codec import ImageEncoder
from ..dataset.out import FolderFiles, OutFiles, OutPaths
from ..dataset.schema import SCHEMA_VERSION
from ..dataset.stores.remote_files import RemoteFiles
from ..errors import UsageError
from ..faces import FaceDetector, FaceFilter
from ..faces.landmarks import Landmarker
from ..faces.landmarks.template import TemplateLandmarker
from ..manipulation import mask, own_masks
from ..sources import is_inside
from ..sources.media.media_files import path_exists
from ..splits.assignment import SplitRatio
from ..video import DecoderLimits, Sampling

Boxes = Literal["own", "source"]
Masks = Literal["own", "source"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options that determine the rows. Every field is part of the config; rows of two configs are never mixed.

    Args:
        sampling: which frames are searched for faces, and the times of clips of images.
        keep: which of a frame's faces are kept.
        min_landmark_score: least confidence 0..1 of a dense landmarker that its points lie on a face: a second opinion
            on the detector's; 0 keeps all faces.
        margin: padding on each side of the face box, as a share of its longer side.
        size_px: largest side of a crop.
        align: whether crops are rotated until faces are upright.
        smooth: whether crops follow a smoothed track.
        boxes: "source" takes the boxes of a fake from the same frame of its original, where that is known.
        masks: "own" takes the masks that the set gives, where it gives them, and compares all other fakes with their
            originals; "source" compares all of them.
        image: how crops are encoded.
        split_ratio: shares of train, val and test where splits are drawn.
        seed: of drawn splits.

    Raises:
        UsageError: a value is out of range.

    """

    sampling: Sampling = field(default_factory=Sampling.default)
    keep: FaceFilter = field(default_factory=FaceFilter)
    min_landmark_score: float = 0.0
    margin: float = 0.3
    size_px: int = 256
    align: bool = False
    smooth: bool = False
    boxes: Boxes = "own"
    masks: Masks = "own"
    image: ImageEncoder = field(default_factory=ImageEncoder)
    split_ratio: SplitRatio = field(default_factory=SplitRatio)
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_types()
        if not (isinstance(self.min_landmark_score, Real) and 0 <= self.min_landmark_score <= 1):
            raise UsageError(f"min_landmark_score={self.min_landmark_score!r}: must lie in 0..1; try 0.5")
        if not (isinstance(self.margin, Real) and 0 <= self.margin <= 10):
            raise UsageError(f"margin={self.margin!r}: must be 0 to 10; try 0.3")
        if not (type(self.size_px) is int and 16 <= self.size_px <= 4096):
            raise UsageError(f"size={self.size_px!r}: must be 16 to 4096 px; try 256")
        if self.boxes not in get_args(Boxes):
            raise UsageError(f"boxes={self.boxes!r}: must be own or source; try own")
        if self.masks not in get_args(Masks):
            raise UsageError(f"masks={self.masks!r}: must be own or source; try own")
        if type(self.seed) is not int or self.seed < 0:
            raise UsageError(f"seed={self.seed!r}: must be a whole number (int) of at least 0; try 0")

    def _check_types(self) -> None:
        types = {
            "sampling": Sampling, "keep": FaceFilter, "image": ImageEncoder, "split_ratio": SplitRatio, "align": bool,
            "smooth": bool,
        }  # fmt: skip
        for name, kind in types.items():
            if not isinstance(value := getattr(self, name), kind):
                raise UsageError(f"{name}={value!r}: must be of type {kind.__name__}; leave it out for the default")

    def to_config(
        self,
        detector: FaceDetector,
        labels: tuple[str, ...],
        columns: Mapping[str, str] = MappingProxyType({}),
        *,
        landmarker: Landmarker | None = None,
        schema: int = SCHEMA_VERSION,
        has_own_masks: bool = False,
    ) -> dict[str, Any]:
        """The config: everything that rows depend on, as JSON values.

        Args:
            detector: That finds the faces.
            labels: Names of the classes, by number.
            columns: The source's own, kind by name.
            landmarker: None for the template.
            schema: Version of the rows' schema.
            has_own_masks: Whether some input has a mask of its own that is used. Without any, the config is what it was
                before own masks were read, so that datasets from then go on.

        """
        image, landmarker = self.image, landmarker or TemplateLandmarker()
        return {
            "schema": schema,
            "labels": list(labels),
            **({"columns": dict(columns)} if columns else {}),
            **_sampling_config(self.sampling),
            "detector": detector.fingerprint,
            "faces": self.keep.max_faces,
            "min_face_px": self.keep.min_face_px,
            "min_score": float(self.keep.min_score),
            "hull": landmarker.fingerprint,
            **({"dense_landmarks": True} if landmarker.is_dense else {}),
            **({"min_landmark_score": float(self.min_landmark_score)} if self.min_landmark_score else {}),
            "margin": float(self.margin),
            "size_px": self.size_px,
            "align": self.align,
            "smooth": self.smooth,
            "boxes": self.boxes,
            "mask": f"{own_masks.METHOD}, else {mask.METHOD}" if has_own_masks else mask.METHOD,
            "format": image.format,
            "quality": image.quality,
            "chroma": image.chroma,
            "split_ratio": list(self.split_ratio.shares),
            "seed": self.seed,
        }


CLIP_SETTINGS = ("all_images", "fps_of_images")
"""Keys of a config that only clips of images need; each is there only where it is not at its default."""


def _sampling_config(sampling: Sampling) -> dict[str, Any]:
    """The config of a sampling; what it says of clips of images only where that is not what it says without options."""
    usual = sampling.of_videos()
    config: dict[str, Any] = {"sampling": _as_floats(replace(usual, all_images=False).as_dict(), "fps")}
    if sampling.all_images != usual.all_images:
        config["all_images"] = sampling.all_images
    if sampling.fps_of_images is not None:
        config["fps_of_images"] = float(sampling.fps_of_images)
    return config


def _as_floats(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """Converts the values of `names` to float, so that 5 and 5.0 have the same hash."""
    return {name: float(value) if name in names else value for name, value in values.items()}


def hash_config(config: dict[str, Any]) -> str:
    """Hash of a config, 16 hex digits; equal only where every field is."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def config_differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """One line for each field in which two configs differ; none only where their hashes are equal."""
    for key in sorted(before.keys() | now.keys()):
        there, here = ({key: config[key]} if key in config else {} for config in (before, now))
        if hash_config(there) != hash_config(here):
            there_text, here_text = (_setting_text(side.get(key, "not set")) for side in (there, here))
            yield f"{key}: {there_text} there, {here_text} now"


def _setting_text(value: object) -> str:
    return str(value) if not isinstance(value, Sequence) or isinstance(value, str) else ",".join(map(str, value))


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """What every worker needs to process units: sent once, picklable, the same for all units.

    Paths must mean the same on every host. `columns`: the source's own, kind by name. `schema`: version of the rows'
    schema. `config_hash`: `hash_config` of the job's config. `allowed_roots`: real paths of further folders that inputs
    may lie in; not part of the config, since rows do not depend on them. `stored_files`: of a source in a store, which
    each worker fetches into a folder of its own; `root` is then an outline of it on the driver's host. `out_files`: of
    `out`, which is the working copy of an OUT in a store.
    """

    root: Path
    out: Path
    options: Options
    detector: FaceDetector
    labels: tuple[str, ...]
    config_hash: str
    landmarker: Landmarker = field(default_factory=TemplateLandmarker)
    columns: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA_VERSION
    limits: DecoderLimits = field(default_factory=DecoderLimits)
    allowed_roots: tuple[Path, ...] = ()
    stored_files: RemoteFiles | None = None
    out_files: OutFiles = field(default_factory=FolderFiles)

    @property
    def shared_folders(self) -> tuple[Path, ...]:
        """Folders that all workers must see."""
        sources = self.roots if self.stored_files is None else self.allowed_roots
        return sources if self.out_files.is_remote else (*sources, self.paths.plan)

    @property
    def source(self) -> str:
        """The folder, or the address without credentials, that paths of inputs are relative to."""
        return str(self.root if self.stored_files is None else self.stored_files.address)

    @property
    def roots(self) -> tuple[Path, ...]:
        """All folders that inputs may lie in, after links are resolved."""
        return (self.root, *self.allowed_roots)

    def file_exists(self, name: str) -> bool:
        """Whether there is a file of that path below the root, within the folders that inputs may lie in."""
        path = self.root / name
        return path_exists(path) and is_inside(path, self.roots)

    @property
    def paths(self) -> OutPaths:
        """Paths of the files and folders below `out`."""
        return OutPaths(self.out, self.out_files)
