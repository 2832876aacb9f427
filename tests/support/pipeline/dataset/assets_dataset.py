"""A small finished dataset, made in a second without Dask and without a video file.

Everything but the frames and the faces in them is the real thing: `UnitWorker` makes, publishes and accounts for the
units, `finish` writes index and manifest. Recipe of a frame: coarse noise, enlarged; three quarters are seeded by the
video, so that it is one scene with one person, the rest by the frame's number too; a fake is its original but for the
face; a frame without a face is black.
`precompute` would plan other units: here they are laid out so that each case of the contract occurs once.
"""

from __future__ import annotations

import hashlib
import shutil
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from assets_shared import made_once
from facefeed.pipeline.commit.finalize import build_manifest, publish_manifest, write_index
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.manifest import Manifest, Receipt
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import InputError
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces import FaceFilter, Faces
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.faces.landmarks import FaceShape, Landmarker
from facefeed.pipeline.faces.landmarks.template import TemplateLandmarker, template_shapes
from facefeed.pipeline.files import write_durably
from facefeed.pipeline.planning.options import JobSpec, Options, hash_config
from facefeed.pipeline.planning.plan import Plan, PlanPart, Unit
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.video import DecodeSummary, Frame, FrameTimes, MediaInfo, MediaReader, Sampling
from numpy.typing import NDArray

LABELS = ("real", "fake")
OPTIONS = Options(sampling=Sampling(every=1), keep=FaceFilter(min_face_px=8), size_px=32)
ELSEWHERE = Path("/elsewhere")
"""Clips may lie in it too, and then have absolute names; it need not exist."""
_MIDDLE = FixedBoxDetector(((0.3, 0.25, 0.7, 0.75),))
_FRAME = (48, 64)
_FACE = np.s_[12:36, 19:45]
_LARGE = 50
"""Frames of a dataset that takes longer to make than to copy."""


@dataclass(frozen=True)
class Clip:
    """One video that was never filmed: its frames, and how reading it ends."""

    name: str
    frames: int
    ends: str = "ok"

    def entry(self) -> Entry:
        """As a layout would list it: `fake/<source>-<method>.mp4` is a fake of `real/<source>.mp4`."""
        stem = Path(self.name).stem
        source, _, method = stem.partition("-")
        return Entry(
            video_id=self.name, size_bytes=1000 + self.frames, mtime_ns=1, label=int(bool(method)), dataset="noise",
            source_id=f"real/{source}.mp4" if method else None, method=method or None, identity=f"person of {source}",
        )  # fmt: skip


LONG = (Clip("real/anna.mp4", 170), Clip("fake/anna-swap.mp4", 150))
"""320 rows: two row groups."""
HALVED = (Clip("real/bert.mp4", 9), Clip("fake/bert-swap.mp4", 7), Clip("real/cleo.mp4", 5))
VAL = (Clip("real/dora.mp4", 20), Clip("fake/dora-swap.mp4", 11), Clip("real/empty.mp4", 4, "no_faces"))
TEST = (Clip("real/emil.mp4", 13), Clip("fake/emil-talk.mp4", 6), Clip("real/cut.mp4", 8, "truncated"))
NO_ROWS = (Clip("real/black.mp4", 3, "no_faces"),)
UNITS = (("train", LONG), ("train", HALVED), ("val", VAL), ("test", TEST), ("train", NO_ROWS))
REFUSED = Entry(video_id="real/link.mp4", problem="outside_root", detail="a link out of the source")

ROWS = {"train": 320 + 21, "val": 31, "test": 19}
FILES = 5
INPUTS = {
    "total": 13,
    "ok": 9,
    "partial": 0,
    "no_faces": 2,
    "failed": {"outside_root": 1, "truncated": 1},
    "missing": 2,
}


_TEMPLATE: Landmarker = TemplateLandmarker()


@dataclass(frozen=True)
class _NoiseDetector:
    """One face in the middle of every frame that is not black."""

    @property
    def fingerprint(self) -> str:
        return f"noise-{_MIDDLE.fingerprint}"

    frames_at_once = 1

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        return [_MIDDLE.detect([rgb])[0] if rgb.any() else Faces.empty() for rgb in frames]


@dataclass(frozen=True)
class DenseStandIn:
    """A dense landmarker whose points fit all faces but every `misses`-th; 68 points at fixed places of the box."""

    misses: int = 10
    is_dense = True

    @property
    def fingerprint(self) -> str:
        return f"dense-stand-in-{self.misses}"

    def locate(self, frames: Sequence[NDArray[np.uint8]], faces: Sequence[Faces]) -> list[list[FaceShape]]:
        return [
            [
                self._shape(shape, box, int(rgb.sum()))
                for shape, box in zip(template_shapes(each), each.boxes_xyxy, strict=True)
            ]
            for rgb, each in zip(frames, faces, strict=True)
        ]

    def _shape(self, shape: FaceShape, box: NDArray[np.float32], number: int) -> FaceShape:
        if number % self.misses == 0:
            return replace(shape, score=0.125)
        points = box[:2] + PLACES_OF_68 * (box[2:] - box[:2])
        dense = np.column_stack([points, np.zeros(68)]).astype(np.float32)
        pose = np.array([5, -10, 0], np.float32)
        return replace(shape, method="stand-in", score=1.0, dense=dense, points_68=dense[:, :2], pose_degrees=pose)


PLACES_OF_68 = np.random.default_rng(68).random((68, 2)).astype(np.float32)
"""Where `DenseStandIn` puts its points: shares of the box."""


class _NoiseReader(MediaReader):
    """Makes up the frames of the clips; starts no child process."""

    def __init__(self, clips: dict[str, Clip], root: Path) -> None:
        super().__init__()
        self._clips, self._root = clips, root

    def _clip(self, path: Path) -> Clip:
        """The clip of a path below the source, or of an absolute one."""
        return self._clips[(path.relative_to(self._root) if path.is_relative_to(self._root) else path).as_posix()]

    def probe(self, path: Path) -> MediaInfo:
        """Without a duration, as headers of streams are."""
        height, width = _FRAME
        return MediaInfo(width=width, height=height, num_frames=0, duration_seconds=0.0, is_image=False)

    def times(self, path: Path, sampling: Sampling) -> FrameTimes:
        clip = self._clip(path)
        return FrameTimes(np.arange(clip.frames) / 25, np.arange(clip.frames))

    def frames(
        self, path: Path, sampling: Sampling, also: Sequence[int] = (), summary: DecodeSummary | None = None
    ) -> Iterator[Frame]:
        clip, summary = self._clip(path), summary or DecodeSummary()
        summary.frames_wanted = clip.frames
        for number in range(clip.frames):
            if clip.ends == "truncated" and number == clip.frames // 2:
                raise InputError("truncated", "cut", frames_wanted=clip.frames, frames_decoded=number)
            summary.frames_decoded += 1
            yield Frame(number, number / 25, _picture(clip, number))
        if clip.ends == "partial":
            summary.frames_wanted += 1
            summary.damage = f"damaged or missing are 1 of {clip.frames + 1} wanted frames"


def _picture(clip: Clip, number: int) -> NDArray[np.uint8]:
    if clip.ends == "no_faces":
        return np.zeros((*_FRAME, 3), np.uint8)
    frame = _noise(clip.name, number)
    if source := clip.entry().source_id:  # its original's frame, with another face
        face, frame = frame, _noise(source, number)
        frame[_FACE] = face[_FACE]
    return frame


def _noise(name: str, number: int) -> NDArray[np.uint8]:
    scene, detail = (
        np.random.default_rng(seed).integers(1, 256, (6, 8, 3))
        for seed in ([zlib.crc32(name.encode())], [zlib.crc32(name.encode()), number])
    )
    coarse = ((3 * scene + detail) // 4).astype(np.uint8)
    enlarged: NDArray[np.uint8] = cv2.resize(coarse, _FRAME[::-1], interpolation=cv2.INTER_CUBIC).astype(np.uint8)
    return enlarged


def make_dataset(
    out: Path,
    units: tuple[tuple[str, tuple[Clip, ...]], ...] = UNITS,
    columns: dict[str, str] | None = None,
    landmarker: Landmarker = _TEMPLATE,
    labels: tuple[str, ...] = LABELS,
    **options: Any,
) -> Manifest:
    """Makes OUT from `units`, each a split and its clips. The unit that is `HALVED` is done as if its worker had been
    lost. `columns`: the source's own, kind by name; `landmarker`: of the faces; `labels`: names of 0 and 1; `options`
    replace fields of `OPTIONS`. Returns the manifest.

    A large one is made once in a test run, and copied.
    """
    chosen = replace(OPTIONS, **options)
    recipe = (units, columns, landmarker, labels, chosen)

    def make(target: Path) -> None:
        _make(target, *recipe)

    is_large = sum(clip.frames for _, clips in units for clip in clips) >= _LARGE
    has_other_pictures = _picture.__module__ != __name__  # a test's
    if not is_large or has_other_pictures or (out.exists() and any(out.iterdir())):
        make(out)
    else:
        entries = [[clip.entry() for clip in clips] for _, clips in units]
        config = chosen.to_config(_NoiseDetector(), labels, columns or {}, landmarker=landmarker)
        name = repr((units, entries, config, _FRAME, _MIDDLE))
        made_once(f"dataset-{hashlib.sha256(name.encode()).hexdigest()}", make, out)
    return Manifest.read(out)


def _make(
    out: Path,
    units: tuple[tuple[str, tuple[Clip, ...]], ...],
    columns: dict[str, str] | None,
    landmarker: Landmarker,
    labels: tuple[str, ...],
    chosen: Options,
) -> None:
    detector = _NoiseDetector()
    config = chosen.to_config(detector, labels, columns or {}, landmarker=landmarker)
    name = hash_config(config)
    paths = OutPaths(out)
    make_folders(paths)
    planned = [
        Unit.make((clip.entry() for clip in clips), split, config_hash=name, salt=str(number))
        for number, (split, clips) in enumerate(units)
    ]
    plan = Plan()
    plan.append(paths, PlanPart(config=config, units=tuple(planned)))
    root = out / "no such source"
    job = JobSpec(
        root=root, out=out, options=chosen, detector=detector, labels=labels, config_hash=name,
        allowed_roots=(ELSEWHERE,), columns=columns or {}, landmarker=landmarker,
    )  # fmt: skip
    worker = UnitWorker(job)
    worker.pipeline.reader = _NoiseReader({clip.name: clip for _, clips in units for clip in clips}, root)
    for unit, (_, clips) in zip(planned, units, strict=True):
        if clips is HALVED:
            _split(unit, job)
            for half in unit.halves(name):
                worker.run(half)
        else:
            worker.run(unit)
    finish_dataset(out)


def _split(unit: Unit, job: JobSpec) -> None:
    children = [half.unit_id for half in unit.halves(job.config_hash)]
    receipt = Receipt(unit=unit.unit_id, config_hash=job.config_hash, outcome="split", children=children)
    write_durably(job.paths.receipt(unit.unit_id), receipt.to_json(), job.paths.temporary)


def open_run_state(out: Path) -> RunState:
    """OUT's plan and receipts."""
    paths = OutPaths(out)
    plan = Plan.load(paths)
    return RunState(paths, plan, hash_config(plan.parts[0].config))


def finish_dataset(out: Path) -> Manifest:
    """Index and manifest of whatever the receipts say."""
    run_state = open_run_state(out)
    manifest = build_manifest(run_state, run_state.plan.parts[0].config, [REFUSED], missing=2)
    write_index(run_state.paths, run_state.parquet_files(), manifest.face_schema(), manifest.fingerprint)
    publish_manifest(run_state.paths, manifest)
    return manifest


def copy_dataset(out: Path, target: Path) -> Path:
    """A copy that a test may damage."""
    shutil.copytree(out, target)
    return target
