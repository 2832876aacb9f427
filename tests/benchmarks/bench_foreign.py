"""The profiler on loaders that are none of facefeed's: are verdict, cause and advice right, and does advice help?

    python tests/benchmarks/bench_foreign.py [--out OUT] [--envs DIR] [--steps 4000] [--loaders NAME ...]

OUT: a finished dataset whose crops are written out for every peer; default: the demo's. Steps are those of an emulated
device, whose host runs ahead. Each loader comes with a step that it cannot feed as it is, and with one that it can:
- the peers of `bench_loader.py` but facefeed, each by its own recipe (see `peers/`), with one worker. Starved: the step
  takes six sevenths of what a batch takes to make; on two cores a second worker can feed that, and still leave the loop
  a turn when it wants one. Fed: a step of 1.6 times as long as a batch takes. Their environments are made below DIR
  where they are not there;
- slow transform: files, and a transform that sleeps;
- slow sample: files, one in 50 batches of which takes eleven times as long as the others.
The starved ones are profiled with `verify`, then once more after the advice was followed: what can be set as it says,
the transform without its sleep, the sample like the others. Prints one JSON object; a table goes to stderr.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import site
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

import cv2
import torch
from facefeed.loaders.profiler.measure.measured_loop import MeasuredLoop
from facefeed.loaders.profiler.measure.steps import EmulatedDevice
from facefeed.loaders.profiler.measure.variants import with_settings
from facefeed.loaders.profiler.profile import profile
from facefeed.loaders.profiler.verdict.loader_verdict import DEFAULT_STEPS
from facefeed.loaders.profiler.verdict.result import Profile
from peers import envs, faces
from peers.envs import PEERS
from peers.recipe import Order
from torch.utils.data import DataLoader, Dataset

ROOT = Path(__file__).resolve().parents[2]
BATCH, SIDE_PX = 8, 224
IMAGES = 8000
HOST_SHARE = 0.1
LOADERS = [*(name for name in PEERS if name != "facefeed"), "slow transform", "slow sample"]


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


def over_peer(name: str, folder: Path, *, workers: int) -> Any:
    """A peer's loader by its own recipe, from what its `prepare` wrote below `folder`."""
    return importlib.import_module(PEERS[name].module).loader(Order(folder, "A", BATCH, workers, random=True))


def making(loader: Any) -> float:
    """Mean seconds that a batch takes to make."""
    return float(MeasuredLoop(loader).record(60, lambda _: None).load_seconds[10:].mean())


def seen(profiled: Profile) -> dict[str, Any]:
    verdict = profiled.verdict
    return {
        "verdict": verdict.kind.value,
        "stall": verdict.wait_share.value,
        "bound": [verdict.wait_share.lower, verdict.wait_share.upper],
        "spans": profiled.live.stage_seconds,
        "advice": [str(advice) for advice in profiled.advice],
        "text": str(verdict),
    }


def with_advised_workers(name: str, folder: Path, profiled: Profile) -> Any:
    """The peer's loader with the best settings that `verify` found, or None."""
    if profiled.verified is None:
        return None
    best = profiled.verified.recording
    loader = over_peer(name, folder, workers=best.num_workers)
    return with_settings(loader, num_workers=best.num_workers, prefetch_factor=best.prefetch_factor)


def tried(name: str, loader: Any, step: float, steps: int, followed: Callable[[Profile], Any]) -> dict[str, Any]:
    """Profiled, and profiled again once the advice was followed."""
    before = profile(loader, EmulatedDevice(step, HOST_SHARE), steps=steps, verify=True)
    other = followed(before)
    after = None if other is None else profile(other, EmulatedDevice(step, HOST_SHARE), steps=steps, quick=True)
    figures = {"step_seconds": step, "before": seen(before), "after": None if after is None else seen(after)}
    sys.stderr.write(f"{name}, step {step * 1e3:.1f} ms: {before.verdict}\n")
    for advice in before.advice:
        sys.stderr.write(f"    {advice}\n")
    sys.stderr.write(f"  followed: {'nothing to follow' if after is None else after.verdict}\n")
    return figures


def fed(name: str, loader: Any, step: float, steps: int) -> dict[str, Any]:
    """Profiled with a step that the loader can feed."""
    profiled = profile(loader, EmulatedDevice(step, HOST_SHARE), steps=steps, quick=True)
    sys.stderr.write(f"{name}, step {step * 1e3:.1f} ms: {profiled.verdict}\n")
    return {"step_seconds": step, **seen(profiled)}


def of_peer(name: str, folder: Path, steps: int) -> dict[str, Any]:
    """A peer starved, after the advice, and fed."""
    importlib.import_module(PEERS[name].module).prepare(folder)
    loader = making(over_peer(name, folder, workers=1))
    starved = tried(
        name, over_peer(name, folder, workers=1), loader * 6 / 7, steps,
        lambda profiled: with_advised_workers(name, folder, profiled),
    )  # fmt: skip
    return {**starved, "fed": fed(name, over_peer(name, folder, workers=1), 1.6 * loader, steps)}


def of_files(name: str, folder: Path, steps: int) -> dict[str, Any]:
    """A transform, or a sample in 50 batches, that is slow; followed by the same without."""
    files = folder / "files"
    if name == "slow transform":
        loader = over_files(files, workers=2, transform=Slow())
        return tried(name, loader, making(loader) / 4, steps, lambda _: over_files(files, workers=2))
    files_loader = making(over_files(files, workers=1))
    loader = over_files(files, workers=1, late_seconds=10 * files_loader)
    return tried(name, loader, 1.6 * files_loader, steps, lambda _: over_files(files, workers=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / ".demo" / "faces")
    parser.add_argument("--envs", type=Path, default=Path(tempfile.gettempdir()) / "facefeed-bench")
    parser.add_argument(
        "--steps", type=int, default=DEFAULT_STEPS, help="in the steady state; fewer where surely starved"
    )
    parser.add_argument("--loaders", nargs="+", choices=LOADERS, default=LOADERS)
    arguments = parser.parse_args()
    for name in set(arguments.loaders) & PEERS.keys():
        python = envs.python_of(PEERS[name], arguments.envs)
        if PEERS[name].env is not None:  # behind what is here
            site.addsitedir(str(next((python.parents[1] / "lib").glob("python*/site-packages"))))
    sys.path.append(str(Path(envs.__file__).parent))
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        table, _ = faces.crops(arguments.out, 256, 95)
        faces.write(table, IMAGES, folder)
        for name in arguments.loaders:
            results[name] = (of_peer if name in PEERS else of_files)(name, folder, arguments.steps)
    print(json.dumps({"benchmark": "foreign", "loaders": results}, indent=1))


if __name__ == "__main__":
    main()
