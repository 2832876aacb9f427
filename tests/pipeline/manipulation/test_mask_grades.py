"""Faces that nobody changed count as unchanged, however much harder one of a fake and its original was compressed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from assets_pairs import Truth, pairs_of_sample
from assets_video import write_video
from facefeed.data.blend import blend_fake
from facefeed.data.recipe import Clip
from facefeed.data.render import base_portrait
from facefeed.data.scene import Scene
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.image_codec import decode_mask
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.faces.geometry.crop import CropSquare
from facefeed.pipeline.planning.options import JobSpec, Options, hash_config
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.video import MediaReader, Sampling
from numpy.typing import NDArray

UNCHANGED = 0.01
GRADES = [(18, 36), (36, 18), (28, 28)]
"""x264's crf of the original and of the fake."""
Frames = Sequence[NDArray[np.uint8]]


def rows_of_fake(folder: Path, original: Frames, fake: Frames, grades: tuple[int, int], boxes: Any) -> list[Any]:
    """The fake's rows, of three of its frames."""
    for name, frames, crf in zip(("original.mp4", "fake.mp4"), (original, fake), grades, strict=True):
        write_video(folder / name, frames, options={"crf": str(crf)})
    detector = FixedBoxDetector(boxes)
    options = Options(sampling=Sampling(frames=3), keep=FaceFilter(min_face_px=16))
    config_hash = hash_config(options.to_config(detector, ("real", "fake")))
    job = JobSpec(root=folder, out=folder / "out", options=options, detector=detector, labels=("real", "fake"),
              config_hash=config_hash)  # fmt: skip
    make_folders(job.paths)
    entries = [
        Entry(video_id="original.mp4", size_bytes=1, mtime_ns=1, label=0),
        Entry(video_id="fake.mp4", size_bytes=1, mtime_ns=1, label=1, source_id="original.mp4"),
    ]
    worker = UnitWorker(job)
    receipt = worker.run(Unit.make(entries, "train", config_hash=config_hash, salt="0"))
    worker.close()
    return [row for row in pq.read_table(job.out / str(receipt.file)).to_pylist() if row["source_id"]]


def filmed(clip: Clip, count: int) -> list[NDArray[np.uint8]]:
    """The first frames of a clip of the sample, RGB, before they are encoded."""
    still = base_portrait(clip.people)
    if clip.manipulation is not None:
        still = blend_fake(still, clip.face_index, clip.manipulation)
    scene = Scene(still, clip.shot, seed=clip.grain_seed)
    seconds = [float(pts * clip.encoding.time_base) for pts in clip.encoding.pts[:count]]
    return [np.ascontiguousarray(scene.frame(index, at)[..., ::-1]) for index, at in enumerate(seconds)]


@dataclass(frozen=True)
class Pair:
    """Two people, of whom the fake changes the first: frames, and the truth of the fake."""

    original: Frames
    fake: Frames
    truth: Truth


@pytest.fixture(scope="module")
def pair() -> Pair:
    original, fake = next(pair for pair in pairs_of_sample() if len(pair[1].people) == 2)
    return Pair(filmed(original, 8), filmed(fake, 8), Truth(fake))


@pytest.mark.parametrize("grades", GRADES, ids=str)
def test_of_two_people_only_the_one_who_was_changed_counts_as_manipulated(
    tmp_path: Path, pair: Pair, grades: tuple[int, int]
) -> None:
    boxes = ((0.1, 0.2, 0.42, 0.8), (0.58, 0.2, 0.9, 0.8))
    rows = rows_of_fake(tmp_path, pair.original, pair.fake, grades, boxes)
    assert len(rows) == 6
    for row in rows:
        x0, y0, x1, _ = (round(value) for value in row["crop_xyxy"])
        hull = CropSquare(x0, y0, x1 - x0).crop(pair.truth.frame(row["frame_index"]), row["width"])[0][..., 0] > 127
        if hull.any():
            mask = decode_mask(row["mask"])
            assert (mask & hull).sum() / (mask | hull).sum() > 0.5
        else:
            assert row["manipulated"] <= UNCHANGED


SIGNER = ("sample-videos/asl_gestures/again.mkv", 15, ((0.445, 0.15, 0.55, 0.325), (0.38, 0.37, 0.61, 0.74)))
"""Moving hands; the second box is a skull on the shirt that detectors take for a face."""
HEADS = ("sample-videos/preview/head-pose-face-detection-female-and-male.gif", 0,
         ((0.615, 0.244, 0.76, 0.54), (0.077, 0.315, 0.213, 0.593)))  # fmt: skip


@pytest.mark.parametrize("grades", GRADES[:2], ids=str)
@pytest.mark.parametrize(("name", "first", "boxes"), [SIGNER, HEADS], ids=["moving hands", "turning heads"])
def test_real_faces_that_nobody_changed_count_as_unchanged(
    media: Path, tmp_path: Path, name: str, first: int, boxes: Any, grades: tuple[int, int]
) -> None:
    with MediaReader() as reader:
        frames = [frame.rgb for frame in islice(reader.frames(media / name, Sampling(every=1)), first, first + 16)]
    even = [np.ascontiguousarray(rgb[: len(rgb) // 2 * 2, : rgb.shape[1] // 2 * 2]) for rgb in frames]
    shares = [row["manipulated"] for row in rows_of_fake(tmp_path, even, even, grades, boxes)]
    assert len(shares) == 3 * len(boxes)
    assert max(shares) <= UNCHANGED
