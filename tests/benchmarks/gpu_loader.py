"""Images a second on the device: nvJPEG and the workers' decoder alone, then the loader with either, by workers.

    python tests/benchmarks/gpu_loader.py [--device cuda] [--repeats 3] [--images 20000] [--workers 1 4 8 16]

256 px crops, JPEG quality 95, to batches of 64 normalised float32 images of 224 px on the device, without augmentation.
"parity": mean absolute difference of nvJPEG's pixels from the workers', in levels of 255. "copy": GB/s from page-locked
memory and from ordinary memory to the device. Lanes take turns; prints one JSON object with every repeat.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.dataset.decode import decode_rgb
from facefeed.loaders.device.jpegs import decode_jpegs
from peers import faces

BATCH, SIDE, STORED, QUALITY = 64, 224, 256, 95


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def images_per_second(loader: FaceDataLoader, images: int, device: torch.device) -> float:
    """Whole epochs, after the first batch of the first."""
    count, started = 0, 0.0
    while count < images:
        for _, labels in loader:
            if started:
                count += len(labels)
            else:
                started = time.perf_counter()
    synchronise(device)
    return count / (time.perf_counter() - started)


def decoded_per_second(jpegs: list[torch.Tensor], device: torch.device, images: int) -> float:
    """A decoder alone, in batches of 64: nvJPEG on CUDA, one thread of the workers' decoder on the CPU."""
    decode_jpegs(jpegs[:BATCH], device, SIDE)
    synchronise(device)
    started, count = time.perf_counter(), 0
    while count < images:
        first = count % len(jpegs)
        batch = jpegs[first : first + BATCH]
        decode_jpegs(batch, device, SIDE)
        count += len(batch)
    synchronise(device)
    return count / (time.perf_counter() - started)


def copy_gb_per_second(device: torch.device, *, pinned: bool) -> float:
    block = torch.empty(64, 3, SIDE, SIDE, pin_memory=pinned)
    block.to(device)
    synchronise(device)
    started, count = time.perf_counter(), 50
    for _ in range(count):
        block.to(device, non_blocking=True)
    synchronise(device)
    return count * block.nbytes / (time.perf_counter() - started) / 1e9


def parity(jpegs: list[torch.Tensor], device: torch.device) -> dict[str, float]:
    """Of the decoder alone: both without a resize."""
    on_device = decode_jpegs(jpegs[:256], device, STORED).cpu().float()
    expected = torch.stack([torch.from_numpy(decode_rgb(jpeg.numpy().tobytes())) for jpeg in jpegs[:256]]).float()
    difference = (on_device - expected).abs()
    return {"mean_levels": float(difference.mean()), "max_levels": float(difference.max())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a finished dataset; default: made from the sample or the media")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 8])
    given = parser.parse_args()
    device = torch.device(given.device)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table, _ = faces.crops(given.out or faces.finished_out(folder), STORED, QUALITY)
        faces.write(table, given.images, folder / "written")
        data = folder / "written/facefeed"
        jpegs = [torch.frombuffer(bytearray(image), dtype=torch.uint8) for image in table["image"].to_pylist()]
        lanes: dict[str, Callable[[], float]] = {"workers' decoder, one thread": lambda: decoded_per_second(
            jpegs, torch.device("cpu"), given.images // 4)}  # fmt: skip
        if device.type == "cuda":
            lanes["nvJPEG"] = lambda: decoded_per_second(jpegs, device, given.images)
            lanes["copy, page-locked, GB/s"] = lambda: copy_gb_per_second(device, pinned=True)
            lanes["copy, ordinary memory, GB/s"] = lambda: copy_gb_per_second(device, pinned=False)
        for decode in ("workers", "device"):
            for workers in given.workers:
                options: dict[str, Any] = {"batch_size": BATCH, "image_size": SIDE, "num_workers": workers}
                loader = FaceDataLoader(data, decode=decode, device=device, **options)
                lanes[f"decode={decode}, {workers} workers"] = (
                    lambda loader=loader: images_per_second(loader, given.images, device)  # type: ignore[misc]
                )
        repeats: list[dict[str, float]] = []
        for _ in range(given.repeats):
            repeats.append({})
            for lane, run in lanes.items():
                repeats[-1][lane] = run()
                print(f"{lane}: {repeats[-1][lane]:,.1f}", file=sys.stderr, flush=True)
        result = {"benchmark": "gpu loader", "repeats": repeats, "parity": parity(jpegs, device)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
