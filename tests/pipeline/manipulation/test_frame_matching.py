"""A fake is compared with the frames of its original that show the same moments, however the two were sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest
from assets_video import write_video
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.manifest import Receipt
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces import FaceFilter, Faces
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.manipulation.frame_matching import match_frames
from facefeed.pipeline.planning.options import JobSpec, Options, hash_config
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.video import FrameTimes, Sampling
from numpy.typing import NDArray

UNCHANGED = 0.01
SIZE = (64, 96)


def scene(moment: float) -> NDArray[np.uint8]:
    """(64, 96, 3): colours that pass from left to right, 24 px in a twenty-fifth of a second."""
    coarse = np.random.default_rng(3).integers(0, 256, (4, 80, 3), np.uint8)
    wide = cv2.resize(coarse, (80 * 24, SIZE[0]), interpolation=cv2.INTER_CUBIC)
    start = round(moment * 24 * 25) % (79 * 24 - SIZE[1])
    return np.ascontiguousarray(wide[:, start : start + SIZE[1]]).astype(np.uint8)


def film(path: Path, moments: Sequence[float], *, rate: int = 25, gop: int = 250, milliseconds: bool = False) -> None:
    """Frames that show `moments`, in seconds; at their own times too, or at an even rate."""
    times = [round(1000 * moment) for moment in moments] if milliseconds else None
    write_video(path, [scene(moment) for moment in moments], rate=rate, times=times,
                options={"crf": "18", "g": str(gop), "sc_threshold": "0"})  # fmt: skip


@dataclass
class Counting:
    """A detector that counts the frames that it is given, and from frame `turns_at` on names faces the other way round.

    Real ones name the most certain face first, whoever that is.
    """

    inner: FixedBoxDetector = field(default_factory=lambda: FixedBoxDetector(((0.2, 0.1, 0.8, 0.9),)))
    turns_at: int = 1000
    frames: int = 0
    frames_at_once: int = 1

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        detected = self.inner.detect(frames)
        if self.frames >= self.turns_at:
            detected = [faces.select(np.arange(len(faces))[::-1]) for faces in detected]
        self.frames += len(frames)
        return detected


def run(
    root: Path, entries: Sequence[Entry], sampling: Sampling, detector: Counting | None = None, **options: Any
) -> tuple[Receipt, Any, Counting]:
    """The receipt of one unit, its rows by video, and the detector."""
    detector = detector or Counting()
    chosen = Options(sampling=sampling, keep=FaceFilter(min_face_px=8), size_px=64, **options)
    config_hash = hash_config(chosen.to_config(detector, ("real", "fake")))
    out = root / f"out-{config_hash}-{len(entries)}"
    job = JobSpec(
        root=root, out=out, options=chosen, detector=detector, labels=("real", "fake"), config_hash=config_hash
    )
    make_folders(job.paths)
    worker = UnitWorker(job)
    receipt = worker.run(Unit.make(entries, "train", config_hash=config_hash, salt="0"))
    worker.close()
    rows = pq.read_table(out / str(receipt.file)).to_pylist()
    by_video = {video.video_id: [row for row in rows if row["video_id"] == video.video_id] for video in entries}
    return receipt, by_video, detector


def times(pts_seconds: Sequence[float], wanted: Sequence[int] | None = None) -> FrameTimes:
    chosen = range(len(pts_seconds)) if wanted is None else wanted
    return FrameTimes(np.array(pts_seconds, np.float64), np.array(chosen, np.int64))


def images(numbers: Sequence[int], wanted: Sequence[int] | None = None, *, numbered: bool = True) -> FrameTimes:
    """A clip of images whose names end in these numbers, with unknown times."""
    counted = times([*map(float, range(len(numbers)))], wanted)
    return replace(counted, numbers=np.array(numbers, np.int64) if numbered else None, is_timed=False)


@pytest.mark.parametrize("late_seconds", [0.0, 0.08, 3.0])
def test_a_frame_belongs_to_the_one_of_the_same_moment_wherever_the_clocks_begin(late_seconds: float) -> None:
    original = times([number / 25 for number in range(100)])
    shorter = times([number / 25 + late_seconds + 0.001 for number in range(90)], [0, 45, 89])
    halved = times([2 * number / 25 + late_seconds for number in range(50)], [0, 10, 20])
    doubled = times([number / 50 + late_seconds for number in range(200)], [0, 1, 2, 101, 150, 199])
    assert match_frames(shorter, original) == {0: 0, 45: 45, 89: 89}
    assert match_frames(halved, original) == {0: 0, 10: 20, 20: 40}
    assert match_frames(doubled, original) == {0: 0, 2: 1, 150: 75}, "between two frames there is none"


def test_behind_the_end_and_in_a_gap_there_is_no_frame_of_the_same_moment() -> None:
    original = times([0.0, 0.04, 0.08, 0.48, 0.52])
    fake = times([number / 25 for number in range(20)])
    assert match_frames(fake, original) == {0: 0, 1: 1, 2: 2, 12: 3, 13: 4}
    assert match_frames(original, fake) == {0: 0, 1: 1, 2: 2, 3: 12, 4: 13}


def test_of_equally_many_frames_each_belongs_to_the_one_of_its_number() -> None:
    assert match_frames(times([0.0, 0.04, 0.08], [0, 2]), times([0.0, 0.5, 2.0])) == {0: 0, 2: 2}
    assert match_frames(times([0.0]), times([0.0])) == {0: 0}
    assert match_frames(times([0.0]), times([5.0, 5.04])) == {0: 0}
    assert match_frames(times([5.0, 5.04]), times([0.0])) == {0: 0}
    assert match_frames(times([0.0, 0.04], []), times([0.0])) == {}


def test_images_belong_to_those_of_their_numbers_however_many_there_are() -> None:
    original = images([0, 10, 20, 30, 40])
    assert match_frames(images([10, 15, 40]), original) == {0: 1, 2: 4}
    assert match_frames(images([10, 15, 40], [2]), original) == {2: 4}
    assert match_frames(images([1, 2, 3, 4, 5]), original) == {}, "and not by their order"


def test_images_whose_times_are_unknown_have_no_frame_of_the_same_moment_in_a_video() -> None:
    video = times([number / 25 for number in range(100)])
    assert match_frames(images([0, 1, 2]), video) == match_frames(video, images([0, 1, 2])) == {}
    assert match_frames(images([0, 1], numbered=False), images([0, 1, 2])) == {}
    assert match_frames(images(range(100)), video) == {index: index for index in range(100)}, "but equally many do"


def entry(name: str, source: str | None = None) -> Entry:
    return Entry(video_id=name, size_bytes=1, mtime_ns=1, label=int(source is not None), source_id=source)


ORIGINAL, FAKE, OTHER = entry("original.mp4"), entry("fake.mp4", "original.mp4"), entry("other.mp4", "original.mp4")
CLIP = [number / 25 for number in range(40)]


def shares(rows: list[dict[str, Any]]) -> list[float | None]:
    return [row["manipulated"] for row in rows]


def all_unchanged(rows: list[dict[str, Any]]) -> bool:
    """Each face was compared, and with the same moment: any other one differs all over."""
    return all(share is not None and share < UNCHANGED for share in shares(rows))


@pytest.mark.parametrize("boxes", ["own", "source"])
@pytest.mark.parametrize("sampling", [Sampling(frames=8), Sampling(keyframes=True)], ids=["frames", "keyframes"])
def test_fakes_of_other_lengths_and_key_frames_are_compared_in_every_frame(
    tmp_path: Path, sampling: Sampling, boxes: str
) -> None:
    film(tmp_path / "original.mp4", CLIP, gop=7)
    film(tmp_path / "fake.mp4", CLIP[:-4], gop=5)
    film(tmp_path / "other.mp4", CLIP[:-1], gop=9)
    _, rows, detector = run(tmp_path, [ORIGINAL, FAKE, OTHER], sampling, boxes=boxes)
    for name in ("fake.mp4", "other.mp4"):
        assert all_unchanged(rows[name]), shares(rows[name])
    alone, rows_alone, counted = run(tmp_path, [ORIGINAL], sampling, boxes=boxes)
    assert rows["original.mp4"] == rows_alone["original.mp4"]
    if boxes == "own":
        fakes = len(rows["fake.mp4"]) + len(rows["other.mp4"])
        assert detector.frames == counted.frames + fakes, "faces are not looked for in frames that only fakes need"
    else:
        moments = {round(row["pts_seconds"], 3) for name in rows for row in rows[name]}
        assert detector.frames == len(moments), "each moment is searched once, in the original"
    assert len(rows["original.mp4"]) == alone.rows


def test_an_original_that_is_in_no_unit_is_decoded_at_the_times_of_its_fake(tmp_path: Path) -> None:
    film(tmp_path / "original.mp4", CLIP)
    film(tmp_path / "fake.mp4", CLIP[:-4])
    _, rows, _ = run(tmp_path, [FAKE], Sampling(frames=8))
    assert len(rows["fake.mp4"]) == 8
    assert all_unchanged(rows["fake.mp4"])


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_fake_of_half_the_frame_rate_is_compared_at_its_own_times(tmp_path: Path, every: int) -> None:
    film(tmp_path / "original.mp4", CLIP[:-1])
    film(tmp_path / "fake.mp4", CLIP[::2], rate=13, milliseconds=True)
    _, rows, _ = run(tmp_path, [ORIGINAL, FAKE], Sampling(every=every))
    assert all_unchanged(rows["fake.mp4"])
    assert [row["frame_index"] for row in rows["original.mp4"]] == list(range(0, 39, every))


def test_a_fake_whose_clock_starts_late_is_compared_from_its_first_frame_on(tmp_path: Path) -> None:
    film(tmp_path / "original.mp4", CLIP)
    write_video(tmp_path / "fake.mp4", [scene(moment) for moment in CLIP[:-4]],
                times=[round(1000 * (moment + 3)) for moment in CLIP[:-4]], options={"crf": "18"})  # fmt: skip
    _, rows, _ = run(tmp_path, [ORIGINAL, FAKE], Sampling(frames=8))
    assert all_unchanged(rows["fake.mp4"])


def test_videos_of_equally_many_frames_are_compared_frame_by_frame(tmp_path: Path) -> None:
    """As of a tool that writes a video of variable frame rate at a constant one."""
    moments = [moment + 0.3 * (moment > 0.5) + 0.2 * (moment > 1) for moment in CLIP]
    film(tmp_path / "original.mp4", moments, milliseconds=True)
    film(tmp_path / "fake.mp4", moments)
    _, rows, _ = run(tmp_path, [ORIGINAL, FAKE], Sampling(frames=8))
    assert all_unchanged(rows["fake.mp4"])


def test_an_image_is_compared_with_no_frame_of_a_video(tmp_path: Path) -> None:
    film(tmp_path / "original.mp4", CLIP)
    cv2.imwrite(str(tmp_path / "0120.png"), scene(CLIP[0])[..., ::-1])  # to be like frame 0 proves nothing
    receipt, rows, _ = run(tmp_path, [ORIGINAL, entry("0120.png", "original.mp4")], Sampling(every=1))
    assert shares(rows["0120.png"]) == [None]
    assert receipt.inputs[1].faces_without_mask == 1


def test_a_fake_apart_from_another_of_its_original_is_compared_too(tmp_path: Path) -> None:
    """As in the unit of a table that did not name originals at first."""
    for name in ("original.mp4", "fake.mp4", "between.mp4", "other.mp4"):
        film(tmp_path / name, CLIP)
    _, rows, _ = run(tmp_path, [FAKE, entry("between.mp4"), OTHER], Sampling(frames=8))
    assert all_unchanged(rows["fake.mp4"])
    assert all_unchanged(rows["other.mp4"])


def test_faces_that_cannot_be_compared_are_counted(tmp_path: Path) -> None:
    """The original has a gap and ends early."""
    gap = [moment for moment in CLIP[:32] if not 0.3 < moment < 0.7]
    film(tmp_path / "original.mp4", gap, milliseconds=True)
    film(tmp_path / "fake.mp4", CLIP, milliseconds=True)
    receipt, rows, _ = run(tmp_path, [ORIGINAL, FAKE], Sampling(every=1))
    compared = [row["pts_seconds"] for row in rows["fake.mp4"] if row["mask"]]
    assert compared == pytest.approx(gap)
    assert [outcome.faces_without_mask for outcome in receipt.inputs] == [0, len(CLIP) - len(gap)]
    missing = entry("fake.mp4", "never/downloaded.mp4")
    receipt, rows, _ = run(tmp_path, [missing], Sampling(every=1))
    assert {row["mask"] for row in rows["fake.mp4"]} == {None}
    assert receipt.inputs[0].faces_without_mask == 0, "there is nothing to compare with"


@pytest.mark.parametrize(
    ("numbers", "sampling", "searched"),
    [([*range(6)], Sampling(every=1), 6), ([0, *range(10, 16)], Sampling(frames=3), 4)],
    ids=["where the original ends", "before its first frame in common"],
)
def test_with_boxes_source_people_keep_their_ids_in_frames_that_the_original_lacks(
    tmp_path: Path, numbers: list[int], sampling: Sampling, searched: int
) -> None:
    """`numbers`: which of the fake's 16 frames the original has; `searched`: how many of the original's are."""
    room = np.ascontiguousarray(np.hstack([scene(0), scene(2.2)]))
    for name, shown in (("original.mp4", numbers), ("fake.mp4", list(range(16)))):
        write_video(tmp_path / name, [room] * len(shown), times=[40 * number for number in shown])
    people = FixedBoxDetector(((0.05, 0.1, 0.45, 0.9), (0.55, 0.1, 0.95, 0.9)))
    detector = Counting(people, turns_at=searched)
    _, rows, _ = run(tmp_path, [ORIGINAL, FAKE], sampling, detector, boxes="source")
    assert detector.frames > searched, "the others are searched in the fake"
    for name in rows:
        assert {(row["track_id"], row["box_xyxy"][0] > 90) for row in rows[name]} == {(0, False), (1, True)}
