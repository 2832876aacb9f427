"""Clips beside single images: images/s of the loader, and what reading a clip's images at once would save.

    python tests/benchmarks/bench_clip_loader.py [--out OUT] [--repeats 5] [--images 4000] [--frames 8 16 32]

OUT holds every frame of its videos, `facefeed precompute SRC OUT --every 1`; without one it is made of real talking
heads beside the checkout, or of the sample. All lanes flip, change brightness and contrast, normalise to float32, use
two workers and have (nearly) as many images in a batch; epochs take turns. "reads" compares one read for each image
with one for each clip, without decoding: from the page cache, and from storage where the system lets go of the files'
pages. Prints one JSON object with every repeat, and the medians of the repeats' ratios; a table goes to stderr.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

import albumentations as A  # noqa: N812 (as its own documentation writes it)
import numpy as np
from facefeed.data.sample import make_sample
from facefeed.loaders import Clip, FaceDataLoader, FaceDataset
from facefeed.loaders.workers.readahead import byte_runs
from facefeed.pipeline.dataset.byte_ranges import ByteRangeReader
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.stored_images import StoredImages
from peers.faces import MEDIA

BATCH_IMAGES = 64


def every_frame(folder: Path) -> Path:
    """Every frame of real talking heads beside the checkout, else of the sample."""
    source = MEDIA / "LivePortrait/assets/examples/driving"
    if not source.is_dir():
        source = folder / "videos"
        make_sample(source)
    command = [sys.executable, "-m", "facefeed.pipeline", "precompute", str(source), str(folder / "out")]
    subprocess.run([*command, "--every", "1", "--allow-unlabelled"], check=True, stdout=sys.stderr)
    return folder / "out"


def loader(out: Path, frames: int | None) -> FaceDataLoader:
    transform = A.Compose([A.HorizontalFlip(p=0.5), A.RandomBrightnessContrast(p=0.5)])
    clip = None if frames is None else Clip(frames=frames, pick="random", clips_per_video=64)
    batch_size = BATCH_IMAGES if frames is None else max(BATCH_IMAGES // frames, 1)
    dataset = FaceDataset(out, split=None, transform=transform)
    return FaceDataLoader(dataset, batch_size, clip=clip, num_workers=2, shuffle=True)


def images_per_second(lane: FaceDataLoader, images: int) -> float:
    """Whole epochs until that many images have come."""
    count, started = 0, time.perf_counter()
    while count < images:
        for batch, _ in lane:
            count += batch[..., 0, 0, 0].numel()
    return count / (time.perf_counter() - started)


def read_each(index: Index) -> Callable[[list[int]], None]:
    images = StoredImages(index)

    def read(rows: list[int]) -> None:
        for row in rows:
            images.image(row)

    return read


def read_at_once(index: Index) -> Callable[[list[int]], None]:
    """Reads the byte ranges of all rows, merged; the checks of `StoredImages` are left out, in its favour."""
    ranges = ByteRangeReader(index.out)

    def read(rows: list[int]) -> None:
        for name, start, end in byte_runs(index, np.array(rows)):
            ranges.read(name, start, end - start)

    return read


def evict(index: Index) -> None:
    for name in index.categories("file"):
        descriptor = os.open(index.out / name, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def microseconds_an_image(read: Callable[[list[int]], None], clips: list[list[int]]) -> float:
    started = time.perf_counter()
    for rows in clips:
        read(rows)
    return (time.perf_counter() - started) / sum(map(len, clips)) * 1e6


def compare_reads(out: Path, frames: int, repeats: int) -> list[dict[str, float]]:
    index = Index(out)
    lane = FaceDataLoader(
        FaceDataset(out, split=None), 1, clip=Clip(frames=frames, pick="random", clips_per_video=8),
        num_workers=0, fields=("image", "row"), shuffle=True,
    )  # fmt: skip
    clips = [batch["row"][0].tolist() for batch in lane]
    ways = {"each": read_each(index), "at once": read_at_once(index)}
    results = []
    for _ in range(repeats):
        result = {}
        for name, read in ways.items():
            evict(index)
            result[f"{name}, evicted, us an image"] = microseconds_an_image(read, clips)
            result[f"{name}, cached, us an image"] = microseconds_an_image(read, clips)
        results.append(result)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--images", type=int, default=4000, help="of a repeat")
    parser.add_argument("--frames", type=int, nargs="+", default=[8, 16, 32])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = arguments.out or every_frame(Path(folder))
        lanes = {
            "images": loader(out, None),
            **{f"clips of {frames}": loader(out, frames) for frames in arguments.frames},
        }
        for lane in lanes.values():
            images_per_second(lane, 1)
        repeats: list[dict[str, Any]] = [
            {name: images_per_second(lane, arguments.images) for name, lane in lanes.items()}
            for _ in range(arguments.repeats)
        ]
        ratios = {
            name: statistics.median(repeat[name] / repeat["images"] for repeat in repeats)
            for name in lanes if name != "images"
        }  # fmt: skip
        reads = compare_reads(out, 16, arguments.repeats)
        for name in lanes:
            print(f"{name:12} {statistics.median(repeat[name] for repeat in repeats):,.0f} images/s", file=sys.stderr)
        for name in reads[0]:
            print(f"{name:30} {statistics.median(result[name] for result in reads):.1f}", file=sys.stderr)
        print(json.dumps({"images_per_second": repeats, "clips / images": ratios, "reads": reads}))


if __name__ == "__main__":
    main()
