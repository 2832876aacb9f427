"""The rows of clips of images: batches, tracks, times, several sizes, and masks by the numbers of frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest
from assets_clips import truncate, write_clip, write_image
from assets_video import write_video
from facefeed.pipeline.baselines.onthefly import read_frame
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.manifest import InputOutcome
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces import FaceFilter, Faces
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.content_hash import content_sha256
from facefeed.pipeline.planning.options import JobSpec, Options, hash_config
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.video import MediaReader, Sampling
from numpy.typing import NDArray
from PIL import Image

Rows = dict[str, list[dict[str, Any]]]


@dataclass
class Batching:
    """A detector that takes 16 frames at once and notes how many it is given."""

    inner: FixedBoxDetector = field(default_factory=lambda: FixedBoxDetector(((0.2, 0.1, 0.8, 0.9),)))
    batches: list[int] = field(default_factory=list)
    frames_at_once: int = 16

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        self.batches.append(len(frames))
        return self.inner.detect(frames)


def clip(name: str, **more: Any) -> Entry:
    return Entry(video_id=name, **{"num_images": 1, "images_digest": "d", **more})


def run(
    root: Path, entries: Sequence[Entry], sampling: Sampling | None = None, **options: Any
) -> tuple[list[InputOutcome], Rows, Batching]:
    """Outcomes of one unit, its rows by video, and the detector."""
    detector = Batching()
    chosen = Options(sampling=sampling or Sampling.default(), keep=FaceFilter(min_face_px=8), size_px=64, **options)
    config_hash = hash_config(chosen.to_config(detector, ("real", "fake")))
    job = JobSpec(
        root=root, out=root / f"out-{config_hash}", options=chosen, detector=detector, labels=("real", "fake"),
        config_hash=config_hash,
    )  # fmt: skip
    make_folders(job.paths)
    worker = UnitWorker(job)
    receipt = worker.run(Unit.make(entries, "train", config_hash=config_hash, salt="0"))
    worker.close()
    rows = pq.read_table(job.out / str(receipt.file)).to_pylist()
    by_video = {entry.video_id: [row for row in rows if row["video_id"] == entry.video_id] for entry in entries}
    return receipt.inputs, by_video, detector


def test_a_clip_is_detected_in_batches_and_accounted_for_once(tmp_path: Path) -> None:
    folder = write_clip(tmp_path / "clip", range(20))
    (outcome,), rows, detector = run(tmp_path, [clip("clip")])
    assert detector.batches == [16, 4]
    assert (outcome.outcome, outcome.frames_wanted, outcome.frames_decoded, outcome.faces) == ("ok", 20, 20, 20)
    assert outcome.sha256 == content_sha256(folder)
    assert [row["frame_index"] for row in rows["clip"]] == list(range(20))
    assert [row["face_id"] for row in rows["clip"][:2]] == ["clip/0/0", "clip/1/0"]


def test_times_are_those_of_the_rate_that_is_given(tmp_path: Path) -> None:
    write_clip(tmp_path / "clip", range(3))
    _, rows, _ = run(tmp_path, [clip("clip")], Sampling(every=2, fps_of_images=25))
    assert [(row["frame_index"], row["pts_seconds"]) for row in rows["clip"]] == [(0, 0.0), (2, 0.08)]
    _, rows, _ = run(tmp_path, [clip("clip")])
    assert [row["pts_seconds"] for row in rows["clip"]] == [0.0, 1.0, 2.0]


def test_a_clip_whose_segments_end_long_after_it_fails_with_that_reason(tmp_path: Path) -> None:
    segments = {"seconds": (0.4, 0.8), "frames": (10.0, 20.0), "milliseconds": (400.0, 800.0)}
    for name in segments:
        write_clip(tmp_path / name, range(25))
    entries = [clip(name, label=1, fake_segments=(each,), outside_label=0) for name, each in segments.items()]
    outcomes, rows, _ = run(tmp_path, entries, Sampling(every=1, fps_of_images=25))
    assert [outcome.reason for outcome in outcomes] == [None, "wrong_segments", "wrong_segments"]
    assert "end at 800 s, but it is 1.0 s long" in str(outcomes[2].detail)
    assert [row["label"] for row in rows["seconds"]] == [0] * 10 + [1] * 10 + [0] * 5


def test_frames_of_several_sizes_are_rows_of_their_own_size(tmp_path: Path) -> None:
    sizes = [(160, 120), (320, 240), (96, 128), (160, 120)]
    for number, (width, height) in enumerate(sizes):
        write_image(tmp_path / f"clip/{number}.png", number, width, height)
    (outcome,), rows, _ = run(tmp_path, [clip("clip")], smooth=True)
    assert outcome.outcome == "ok"
    assert [(row["frame_width"], row["frame_height"]) for row in rows["clip"]] == sizes


def test_smoothed_crops_of_images_of_several_sizes_lie_where_the_faces_are(tmp_path: Path) -> None:
    for number, side in enumerate([120, 124, 118, 160, 121, 119]):
        write_image(tmp_path / f"clip/{number}.png", 0, side, side)
    sampling = Sampling(every=1, fps_of_images=25)
    plain, smoothed = (run(tmp_path, [clip("clip")], sampling, smooth=smooth)[1]["clip"] for smooth in (False, True))
    assert [row["track_id"] for row in smoothed] == [0] * 6
    crops, smoothed_crops = ([row["crop_xyxy"] for row in rows] for rows in (plain, smoothed))
    assert np.abs(np.subtract(crops, smoothed_crops)).max() <= 1


def test_a_clip_with_a_broken_image_is_partial(tmp_path: Path) -> None:
    truncate(write_clip(tmp_path / "clip", range(20)) / "frame_4.png")
    (outcome,), rows, _ = run(tmp_path, [clip("clip")])
    assert (outcome.outcome, outcome.reason, outcome.max_damaged_percent) == ("partial", "decode_error", 10.0)
    assert (outcome.frames_wanted, outcome.frames_decoded) == (20, 19)
    assert [row["frame_index"] for row in rows["clip"]] == [number for number in range(20) if number != 4]


def test_a_clip_of_broken_images_fails_as_one_input(tmp_path: Path) -> None:
    folder = write_clip(tmp_path / "clip", range(4))
    write_clip(tmp_path / "other", range(2))
    for path in folder.iterdir():
        truncate(path)
    (broken, sound), rows, _ = run(tmp_path, [clip("clip"), clip("other")])
    assert (broken.outcome, broken.reason, broken.faces) == ("failed", "decode_error", 0)
    assert (sound.outcome, len(rows["other"])) == ("ok", 2)


def scene(number: int) -> NDArray[np.uint8]:
    """(64, 96, 3): another picture for every number."""
    coarse = np.random.default_rng(number).integers(0, 256, (4, 6, 3), np.uint8)
    return np.asarray(cv2.resize(coarse, (96, 64), interpolation=cv2.INTER_CUBIC), np.uint8)


def write_scenes(folder: Path, numbers: Sequence[int], name: str = "{:04}.png", shown: Sequence[int] = ()) -> None:
    folder.mkdir(parents=True)
    for number, picture in zip(numbers, shown or numbers, strict=True):
        Image.fromarray(scene(picture)).save(folder / name.format(number))


def test_one_face_through_a_clip_is_one_track(tmp_path: Path) -> None:
    write_scenes(tmp_path / "clip", range(5), shown=[1] * 5)
    _, rows, _ = run(tmp_path, [clip("clip")])
    assert [row["track_id"] for row in rows["clip"]] == [0] * 5


def changed(rows: Rows, video: str) -> list[float | None]:
    return [row["manipulated"] for row in rows[video]]


FAMILY = (clip("original"), clip("fake", label=1, source_id="original"))


@pytest.mark.parametrize("sampling", [Sampling.default(), Sampling(frames=2)], ids=["all", "some"])
def test_a_fake_is_compared_with_the_frames_of_the_same_numbers(tmp_path: Path, sampling: Sampling) -> None:
    write_scenes(tmp_path / "original", range(0, 40, 2))
    write_scenes(tmp_path / "fake", [8, 11, 20, 38], "frame_{}.png")
    outcomes, rows, _ = run(tmp_path, FAMILY, sampling)
    by_index = {row["frame_index"]: row["manipulated"] for row in rows["fake"]}
    wanted = {0: 0.0, 1: None, 2: 0.0, 3: 0.0}  # the original has no frame of number 11
    assert by_index == {index: wanted[index] for index in by_index}
    assert len(by_index) == (4 if sampling.all_images else 2)
    assert {row["frame_index"]: row["frame_number"] for row in rows["fake"]} == {
        index: [8, 11, 20, 38][index] for index in by_index
    }
    assert outcomes[1].faces_without_mask == list(by_index.values()).count(None)


def test_where_numbers_are_not_all_different_equally_many_frames_belong_together_in_order(tmp_path: Path) -> None:
    write_scenes(tmp_path / "original", [1, 2, 3], "{}_0.png")
    write_scenes(tmp_path / "fake", [4, 5, 6], "{}_0.png", shown=[1, 2, 3])
    _, rows, _ = run(tmp_path, FAMILY)
    assert changed(rows, "fake") == [0.0, 0.0, 0.0]


def test_frames_with_a_gap_are_compared_with_a_video_at_the_same_times(tmp_path: Path) -> None:
    write_video(tmp_path / "original.mp4", map(scene, range(12)), options={"crf": "10"})
    write_scenes(tmp_path / "fake", [0, 1, 2, 3, 8, 9, 10])
    family = (Entry(video_id="original.mp4"), clip("fake", label=1, source_id="original.mp4"))
    _, rows, _ = run(tmp_path, family, Sampling(every=1, fps_of_images=25))
    assert [share is not None and share < 0.1 for share in changed(rows, "fake")] == [True] * 7


def test_without_numbers_and_times_nothing_is_compared(tmp_path: Path) -> None:
    write_scenes(tmp_path / "original", [1, 2, 3, 4], "{}_0.png")
    write_scenes(tmp_path / "fake", [1, 2, 3], "{}_0.png")
    _, rows, _ = run(tmp_path, FAMILY)
    assert changed(rows, "fake") == [None, None, None]
    _, rows, _ = run(tmp_path, FAMILY, Sampling(every=1, fps_of_images=25))
    assert changed(rows, "fake") == [0.0, 0.0, 0.0]


def test_the_naive_baseline_reads_the_frame_of_a_row(tmp_path: Path) -> None:
    folder = write_clip(tmp_path / "clip", (7, 8, 30))
    with MediaReader() as reader:
        for frame in reader.frames(folder, Sampling(every=1)):
            assert (read_frame(folder, frame.frame_index, frame.pts_seconds, tmp_path) == frame.rgb).all()
