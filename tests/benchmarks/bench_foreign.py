"""The profiler on loaders that are none of facefeed's: are verdict, cause and advice right, and does advice help?

    python tests/benchmarks/bench_foreign.py [--out OUT] [--envs DIR] [--steps 300]

OUT: a finished dataset whose crops are written out as files; default: the demo's. Four loaders, each with a step it
cannot feed as it is:
- files: torch's DataLoader over JPEG files with one worker, its step six sevenths of what a batch takes to make: on two
  cores a second worker can feed that, and still leave the loop a turn when it wants one;
- webdataset: the same from tar shards by `WebLoader` (its environment is made below DIR where it is not there);
- slow transform: files, and a transform that sleeps;
- slow sample: files, one in 50 batches of which takes eleven times as long as the others.
Each is profiled with `verify`, then once more after the advice was followed: what can be set as it says, the transform
without its sleep, the sample like the others. Prints one JSON object; a table goes to stderr.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import site
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

import cv2
import numpy as np
import torch
from facefeed.loaders.profiler.measure.measured_loop import MeasuredLoop
from facefeed.loaders.profiler.measure.steps import SleepingStep
from facefeed.loaders.profiler.measure.variants import with_settings
from facefeed.loaders.profiler.profile import profile
from facefeed.loaders.profiler.verdict.result import Profile
from peers import envs, faces
from torch.utils.data import DataLoader, Dataset

ROOT = Path(__file__).resolve().parents[2]
BATCH, SIDE_PX = 64, 224
IMAGES = 8000
HOST_SHARE = 0.1


class Plain:
    """To a float tensor, as torchvision's ToTensor."""

    def __call__(self, image: Any) -> torch.Tensor:
        small = cv2.resize(image, (SIDE_PX, SIDE_PX))
        return torch.from_numpy(small).permute(2, 0, 1).float() / 255


class Slow(Plain):
    def __call__(self, image: Any) -> torch.Tensor:
        time.sleep(0.004)
        return super().__call__(image)


class Files(Dataset[torch.Tensor]):
    def __init__(self, folder: Path, transform: Callable[[Any], torch.Tensor], *, late_seconds: float = 0.0) -> None:
        self.paths = sorted(str(path) for path in folder.iterdir())
        self.transform, self.late_seconds = transform, late_seconds

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> torch.Tensor:
        if number % (50 * BATCH) == 0:
            time.sleep(self.late_seconds)
        return self.transform(cv2.imread(self.paths[number], cv2.IMREAD_COLOR_RGB))


def over_files(folder: Path, *, workers: int, transform: Any = None, late_seconds: float = 0.0) -> DataLoader[Any]:
    dataset = Files(folder, transform or Plain(), late_seconds=late_seconds)
    return DataLoader(dataset, BATCH, num_workers=workers, persistent_workers=True)


def decoded(sample: dict[str, Any]) -> torch.Tensor:
    return Plain()(cv2.imdecode(np.frombuffer(sample["jpg"], np.uint8), cv2.IMREAD_COLOR_RGB))


def over_shards(shards: list[str], *, workers: int) -> Any:
    import webdataset as wds  # noqa: PLC0415 (from its own environment)

    data = wds.WebDataset(shards, shardshuffle=False, empty_check=False).map(decoded).repeat()
    return wds.WebLoader(data, batch_size=BATCH, num_workers=workers)


def written(out: Path, folder: Path, images: int) -> list[str]:
    """The crops as files, and as tar shards; the shards."""
    table, _ = faces.crops(out, 256, 95)
    faces.write(table, images, folder)
    shards = []
    paths = sorted((folder / "files").iterdir())
    for shard in range(8):
        shards.append(str(folder / f"{shard:06d}.tar"))
        with tarfile.open(shards[-1], "w") as tar:
            for path in paths[shard::8]:
                data = path.read_bytes()
                entry = tarfile.TarInfo(f"{path.stem}.jpg")
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return shards


def making(loader: Any) -> float:
    """Mean seconds that a batch takes to make."""
    return float(MeasuredLoop(loader).record(60, lambda _: None).load_seconds[10:].mean())


def seen(found: Profile) -> dict[str, Any]:
    verdict = found.verdict
    return {
        "verdict": verdict.kind.value,
        "stall": verdict.wait_share.value,
        "bound": [verdict.wait_share.lower, verdict.wait_share.upper],
        "spans": found.live.stage_seconds,
        "advice": [str(one) for one in found.advice],
        "text": str(verdict),
    }


def settled(loader: Any, found: Profile) -> Any:
    """The loader with the first setting that was advised."""
    settings = next((one.settings for one in found.advice if one.settings), None)
    return None if settings is None else with_settings(loader, **settings)


def tried(name: str, loader: Any, step: float, steps: int, followed: Callable[[Profile], Any]) -> dict[str, Any]:
    """Profiled, and profiled again once the advice was followed."""
    before = profile(loader, SleepingStep(step, HOST_SHARE), steps=steps, verify=True)
    other = followed(before)
    after = None if other is None else profile(other, SleepingStep(step, HOST_SHARE), steps=steps, quick=True)
    found = {"step_seconds": step, "before": seen(before), "after": None if after is None else seen(after)}
    sys.stderr.write(f"{name}, step {step * 1e3:.1f} ms: {before.verdict}\n")
    for one in before.advice:
        sys.stderr.write(f"    {one}\n")
    sys.stderr.write(f"  followed: {'nothing to follow' if after is None else after.verdict}\n")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / ".demo" / "faces")
    parser.add_argument("--envs", type=Path, default=Path(tempfile.gettempdir()) / "facefeed-bench")
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    python = envs.python_of(envs.PEERS["webdataset"], given.envs)
    site.addsitedir(str(next((python.parents[1] / "lib").glob("python*/site-packages"))))  # behind what is here
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards = written(given.out, folder, IMAGES)
        files = folder / "files"
        one = over_files(files, workers=1)
        made = making(one)
        found["files"] = tried("files", one, made * 6 / 7, given.steps, lambda seen: settled(one, seen))
        shard = over_shards(shards, workers=1)
        found["webdataset"] = tried(
            "webdataset", shard, making(shard) * 6 / 7, given.steps, lambda seen: settled(shard, seen)
        )
        slow = over_files(files, workers=2, transform=Slow())
        found["slow transform"] = tried(
            "slow transform", slow, making(slow) / 4, given.steps, lambda _: over_files(files, workers=2)
        )
        late = over_files(files, workers=1, late_seconds=10 * made)
        found["slow sample"] = tried(
            "slow sample", late, 1.6 * made, given.steps, lambda _: over_files(files, workers=1)
        )
    print(json.dumps({"benchmark": "foreign", "loaders": found}, indent=1))


if __name__ == "__main__":
    main()
