"""Ten epochs: whether memory, open files, threads, processes and shared memory stay as they were.

    python tests/benchmarks/bench_epochs.py [--out OUT] [--epochs 10] [--repeats 3]

Prints one JSON object with what was held after each epoch of every repeat, a fresh process each, with workers that
stay and with new ones an epoch. pss: MB (10^6 bytes) of the training process and all below it, shared pages counted
once; shared: how much of it is shared memory. of_files: what they map of files, which is the page cache's, and split
with whoever else maps them. descriptors and threads: of all these processes. growth: MB or pieces an epoch, from the
middle epoch to the last; near 0 is good.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from assets_paths import support_folders

sys.path[1:1] = support_folders()
from assets_dataset import LONG, Clip, make_dataset  # noqa: E402

UNITS = tuple(("train", (*LONG, Clip(f"real/more{number}.mp4", 640))) for number in range(8))
WAYS = {"workers stay": True, "new workers": False}
LIMIT_MEGABYTES_AN_EPOCH = 0.5


def held() -> dict[str, Any]:
    """Of this process and all below it."""
    gc.collect()
    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    sizes: dict[str, int] = {}
    for process in tree:
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, value = line.split(":", 1)
            sizes[name] = sizes.get(name, 0) + int(value.split()[0]) * 1024
    return {
        "pss": (sizes["Pss_Anon"] + sizes["Pss_Shmem"]) / 1e6,
        "shared": sizes["Pss_Shmem"] / 1e6,
        "of_files": sizes["Pss_File"] / 1e6,
        "names_in_dev_shm": len({map_.path for map_ in psutil.Process().memory_maps() if "/dev/shm/" in map_.path}),
        "descriptors": sum(process.num_fds() for process in tree),
        "threads": sum(process.num_threads() for process in tree),
        "processes": len(tree),
    }


def measure_in_process(out: str, persistent: bool, epochs: int) -> list[dict[str, Any]]:
    """What is held after each epoch."""
    import albumentations as A  # noqa: N812, PLC0415
    from facefeed.loaders import FaceDataLoader  # noqa: PLC0415

    transform = A.Compose([A.HorizontalFlip(p=0.5), A.RandomBrightnessContrast(p=0.5)])
    loader = FaceDataLoader(out, transform=transform, num_workers=2, persistent_workers=persistent)
    samples = []
    for _ in range(epochs):
        for _ in loader:
            pass
        samples.append(held())
    return samples


def growth(epochs: list[dict[str, Any]]) -> dict[str, float]:
    """An epoch's, over the second half: in the first a worker still opens files that it has not met before."""
    middle = len(epochs) // 2
    half = epochs[middle]
    return {name: (epochs[-1][name] - half[name]) / (len(epochs) - 1 - middle) for name in half}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a finished OUT; default: 7,680 small faces")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure_in_process(arguments.one[0], arguments.one[1] == "True", arguments.epochs)))
        return 0
    results: dict[str, Any] = {"bench": "epochs", "limit_megabytes_an_epoch": LIMIT_MEGABYTES_AN_EPOCH, "ways": {}}
    with tempfile.TemporaryDirectory(prefix="bench_epochs") as folder:
        out = arguments.out or Path(folder) / "out"
        if arguments.out is None:
            make_dataset(out, UNITS)
        for way, persistent in WAYS.items():
            repeats = []
            for _ in range(arguments.repeats):
                command = [
                    sys.executable,
                    __file__,
                    "--epochs",
                    str(arguments.epochs),
                    "--one",
                    str(out),
                    str(persistent),
                ]
                completed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                epochs = json.loads(completed.stdout)
                repeats.append({"growth": growth(epochs), "epochs": epochs})
            results["ways"][way] = repeats
    growths = [repeat["growth"] for repeats in results["ways"].values() for repeat in repeats]
    results["met"] = {
        "pss": all(measured["pss"] < LIMIT_MEGABYTES_AN_EPOCH for measured in growths),
        "counts": all(
            measured[name] <= 0 for measured in growths for name in ("descriptors", "threads", "processes", "shared")
        ),
    }
    print(json.dumps(results))
    return 0 if all(results["met"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
