"""Folders of extracted frames as clips beside the same frames as inputs of their own, in turn.

    python tests/benchmarks/bench_clips.py [--folders 200] [--frames 32] [--repeats 1] [--workers 2]
        [--detectors mtcnn track]

Consecutive frames of the sample's videos are written as PNG, one folder a clip. `clips` runs the command on the folder
of folders; `apart` on a table that names every image, so that each is a request to the decoder, a batch and an entry of
a receipt of its own, as all frames were before there were clips. Prints one JSON object with every repeat: frames a
second of the whole command and while the workers are at work, the inputs in all receipts, tracks (a frame on its own
has one for each face), and the bytes of receipts and plan.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import cv2
import pyarrow.dataset as pads
from facefeed.data.sample import make_sample
from facefeed.pipeline.errors import InputError
from facefeed.pipeline.sources import list_source
from facefeed.pipeline.video import MediaReader, Sampling


def readable(source: Path) -> Iterator[Path]:
    """The sample's videos that decode to their end, without photos."""
    with MediaReader() as reader:
        for entry in list_source(source).entries:
            try:
                if len(list(reader.frames(source / entry.video_id, Sampling(frames=2)))) > 1:
                    yield source / entry.video_id
            except InputError:
                continue


def write_folders(videos: list[Path], root: Path, folders: int, frames: int) -> int:
    """Writes `frames` consecutive frames a folder, each folder from another place of the next video; returns bytes."""
    size_bytes = 0
    with MediaReader() as reader:
        for number, video in enumerate(islice(cycle(videos), folders)):
            kind, start = ("real", "fake")[number % 2], number // len(videos)
            folder = root / kind / f"clip_{number:04}"
            folder.mkdir(parents=True)
            images = [frame.rgb for frame in islice(reader.frames(video, Sampling(every=1)), start, start + frames)]
            for index, rgb in enumerate(islice(cycle(images), frames)):
                path = folder / f"{index:03}.png"
                cv2.imwrite(str(path), cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))
                size_bytes += path.stat().st_size
    return size_bytes


def write_table(root: Path) -> Path:
    images = sorted(path.relative_to(root) for path in root.rglob("*.png"))
    table = root / "frames.csv"
    table.write_text("\n".join(["path,label", *(f"{path},{path.parts[0]}" for path in images)]))
    return table


def whole_job(source: Path, workers: int, detector: str) -> dict[str, Any]:
    """The command itself, from start to exit, into a fresh OUT."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = [sys.executable, "-m", "facefeed.pipeline", "precompute", str(source), str(out), "--json"]
        command += ["--workers", str(workers), "--detector", detector, "--max-failed", "100%"]
        started = time.perf_counter()
        job = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        seconds = time.perf_counter() - started
        figures = json.loads(job.stdout)
        receipts = [path.read_bytes() for path in (out / "receipts").iterdir()]
        rows = pads.dataset(out / "faces").to_table(columns=["video_id", "track_id"])
        return {
            "frames": figures["this_run"]["frames"],
            "faces": figures["rows"],
            "seconds": round(seconds, 1),
            "frames_per_second": round(figures["this_run"]["frames"] / seconds, 1),
            "frames_per_second_at_work": figures["frames_per_second"],
            "receipt_inputs": sum(len(json.loads(receipt)["inputs"]) for receipt in receipts),
            "receipt_bytes": sum(map(len, receipts)),
            "plan_bytes": sum(path.stat().st_size for path in (out / "plan").iterdir()),
            "tracks": rows.group_by(["video_id", "track_id"]).aggregate([]).num_rows,
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folders", type=int, default=200)
    parser.add_argument("--frames", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--detectors", nargs="+", default=["mtcnn", "track"], choices=["mtcnn", "track"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sample, source = Path(folder) / "sample", Path(folder) / "frames"
        make_sample(sample)
        size_bytes = write_folders(list(readable(sample)), source, arguments.folders, arguments.frames)
        table = write_table(source)
        repeats: dict[str, list[dict[str, Any]]] = {}
        for _ in range(arguments.repeats):  # in turn, so that a drifting machine drifts under all of them
            for detector in arguments.detectors:
                for name, src in (("apart", table), ("clips", source)):
                    repeats.setdefault(f"{detector}_{name}", []).append(whole_job(src, arguments.workers, detector))
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for name, runs in repeats.items()
    }
    about = {"benchmark": "clips", "cores": len(os.sched_getaffinity(0)), "folders": arguments.folders}
    about |= {"frames_per_folder": arguments.frames, "image_mb": round(size_bytes / 1e6)}
    print(json.dumps({**about, "median": medians, "repeats": repeats}, indent=1))


if __name__ == "__main__":
    main()
