"""Ten epochs with two workers: what all processes hold after each. Near-equal figures from the second on are good.

Prints one JSON object: proportional memory (PSS) of the loader's process and all its children in MB, open descriptors,
processes, and files in /dev/shm, after each epoch; for float32 and uint8 batches.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as its own documentation writes it)
import psutil
from bench_workers import sample_dataset
from facefeed.loaders import FaceDataLoader


def held() -> dict[str, Any]:
    root = psutil.Process()
    family = [root, *root.children(recursive=True)]
    pss = 0.0
    for process in family:
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                pss += int(line.split()[1]) * 1024 / 1e6
    descriptors = sum(process.num_fds() for process in family)
    return {
        "pss_megabytes": round(pss, 1),
        "descriptors": descriptors,
        "processes": len(family),
        "shm": len(os.listdir("/dev/shm")),  # noqa: PTH208 (names alone)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a finished dataset; default: the sample, made for the run")
    parser.add_argument("--epochs", type=int, default=10)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(chosen.out or sample_dataset(Path(folder)), chosen.epochs), indent=1))


def measure(out: Path, epochs: int) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for dtype in ("float32", "uint8"):
        transform = A.Compose([A.HorizontalFlip(p=0.5), A.RandomBrightnessContrast(p=0.5)])
        loader = FaceDataLoader(out, 64, split=None, shuffle=True, transform=transform, dtype=dtype, num_workers=2)
        told[dtype] = []
        for _ in range(epochs):
            images = sum(len(batch) for batch, _ in loader)
            told[dtype].append({"images": images, **held()})
        del loader
    return told


if __name__ == "__main__":
    main()
