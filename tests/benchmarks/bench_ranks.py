"""Ranks that share a machine: what one of them alone says of it, what all of them say, and a plain loop's own clock.

    python tests/benchmarks/bench_ranks.py [--out OUT] [--ranks 4] [--step-ms 40 80 160] [--workers 1] [--repeats 3]

OUT: a finished dataset; default: the demo's, as `make demo` leaves it. Batches of 16 images of 224 px under the example
augmentation. Each step time in turn, three times over: one rank that is profiled alone, --ranks of them profiled
together, and as many that only loop: each goes through its loader under the same emulated device, whose steps end
together, and looks at the clock before the first and after the last of --steps steps, once its queue was emptied. What
these steps took longer than the device needs for them is the truth. Prints one JSON object with every repeat; a table
goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

import torch
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.loaders.augment.pipeline_file import read_pipeline
from facefeed.loaders.profiler.measure.batch_timing import clock
from facefeed.loaders.profiler.measure.steps import EmulatedRank
from facefeed.loaders.profiler.measure.variants import with_longer_epoch
from facefeed.loaders.profiler.rank_processes import profile_on_ranks
from facefeed.loaders.profiler.request import ProfileRequest
from torch import distributed, multiprocessing

ROOT = Path(__file__).resolve().parents[2]
TRANSFORM = ROOT / "loaders" / "augment" / "example.yaml"
BATCH = 16


def plain_rank(number: int, given: argparse.Namespace, step_ms: float, folder: str) -> None:
    """One rank that only loops; leaves its share of waiting in a file."""
    os.environ.update(LOCAL_WORLD_SIZE=str(given.ranks), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=number, world_size=given.ranks)
    loader = with_longer_epoch(
        FaceDataLoader(
            FaceDataset(given.out, face_transform=read_pipeline(TRANSFORM)), BATCH, num_workers=given.workers
        ),
        10_000,
    )
    device, batches, ahead = EmulatedRank(step_ms / 1e3), iter(loader), 2 * given.workers
    for _ in range(ahead + 1):
        next(batches)
    for _ in range(3 * ahead):
        device(next(batches))
    device.begin()
    began = clock()
    for _ in range(given.steps):
        device(next(batches))
    device.begin()
    taken = clock() - began
    Path(folder, str(number)).write_text(str(1 - given.steps * step_ms / 1e3 / taken))
    distributed.destroy_process_group()


def plain(given: argparse.Namespace, step_ms: float) -> float:
    """The waiting of ranks that only loop; a step ends on all of them at once, so each has the same."""
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(plain_rank, (given, step_ms, folder), given.ranks)
        return max(float(Path(folder, str(number)).read_text()) for number in range(given.ranks))


def profiled(given: argparse.Namespace, step_ms: float, ranks: int) -> dict[str, Any]:
    """What the command says of it."""
    asked = ProfileRequest(
        out=given.out, step_ms=step_ms, host_share=0.2, steps=given.steps, confidence=0.95, split="train",
        batch_size=BATCH, image_size=224, workers=given.workers, prefetch=None, shuffle="full", balance="none",
        transform=TRANSFORM, ranks=ranks, quick=True,
    )  # fmt: skip
    found = asked.run(lambda *_: None) if ranks == 1 else profile_on_ranks(asked, lambda *_: None)
    verdict = found.verdict
    return {
        "word": verdict.kind.value,
        "waits": verdict.wait_share.value,
        "lower": verdict.wait_share.lower,
        "upper": verdict.wait_share.upper,
        "each": verdict.rank_wait_shares,
        "steps": verdict.num_steps,
        "closure": verdict.unexplained_share,
        "causes": [rank.main_cause for rank in found.ranks],
        "reasons": verdict.reasons,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / ".demo" / "faces")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--step-ms", type=float, nargs="+", default=[40.0, 80.0, 160.0])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    found = []
    for repeat in range(given.repeats):
        for step_ms in given.step_ms:
            one = {"repeat": repeat, "step_ms": step_ms, "alone": profiled(given, step_ms, 1),
                   "together": profiled(given, step_ms, given.ranks), "plain": plain(given, step_ms),
                   "load": os.getloadavg()[0]}  # fmt: skip
            found.append(one)
            told = "; ".join(
                f"{name} {seen['waits']:.1%} ({seen['lower']:.1%} to {seen['upper']:.1%}) {seen['word']} "
                f"in {seen['steps']}" for name, seen in (("alone", one["alone"]), ("together", one["together"]))
            )  # fmt: skip
            print(f"{step_ms:5.0f} ms: {told}; plain {one['plain']:.1%}", file=sys.stderr, flush=True)
    print(json.dumps({"ranks": given.ranks, "workers": given.workers, "found": found}, indent=1))


if __name__ == "__main__":
    main()
