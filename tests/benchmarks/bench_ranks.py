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


def plain_rank(number: int, arguments: argparse.Namespace, step_ms: float, folder: str) -> None:
    """One rank that only loops; leaves its share of waiting in a file."""
    os.environ.update(LOCAL_WORLD_SIZE=str(arguments.ranks), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=number, world_size=arguments.ranks
    )
    loader = with_longer_epoch(
        FaceDataLoader(
            FaceDataset(arguments.out, face_transform=read_pipeline(TRANSFORM)), BATCH, num_workers=arguments.workers
        ),
        10_000,
    )
    device, batches, ahead = EmulatedRank(step_ms / 1e3), iter(loader), 2 * arguments.workers
    for _ in range(ahead + 1):
        next(batches)
    for _ in range(3 * ahead):
        device(next(batches))
    device.begin()
    began = clock()
    for _ in range(arguments.steps):
        device(next(batches))
    device.begin()
    elapsed = clock() - began
    Path(folder, str(number)).write_text(str(1 - arguments.steps * step_ms / 1e3 / elapsed))
    distributed.destroy_process_group()


def plain(arguments: argparse.Namespace, step_ms: float) -> float:
    """The waiting of ranks that only loop; a step ends on all of them at once, so each has the same."""
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(plain_rank, (arguments, step_ms, folder), arguments.ranks)
        return max(float(Path(folder, str(number)).read_text()) for number in range(arguments.ranks))


def profiled(arguments: argparse.Namespace, step_ms: float, ranks: int) -> dict[str, Any]:
    """What the command says of it."""
    request = ProfileRequest(
        out=arguments.out, step_ms=step_ms, host_share=0.2, steps=arguments.steps, confidence=0.95, split="train",
        batch_size=BATCH, image_size=224, workers=arguments.workers, prefetch=None, shuffle="full", balance="none",
        transform=TRANSFORM, ranks=ranks, quick=True,
    )  # fmt: skip
    result = request.run(lambda *_: None) if ranks == 1 else profile_on_ranks(request, lambda *_: None)
    verdict = result.verdict
    return {
        "word": verdict.kind.value,
        "waits": verdict.wait_share.value,
        "lower": verdict.wait_share.lower,
        "upper": verdict.wait_share.upper,
        "each": verdict.rank_wait_shares,
        "steps": verdict.num_steps,
        "closure": verdict.unexplained_share,
        "causes": [rank.main_cause for rank in result.ranks],
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
    arguments = parser.parse_args()
    results = []
    for repeat in range(arguments.repeats):
        for step_ms in arguments.step_ms:
            result = {"repeat": repeat, "step_ms": step_ms, "alone": profiled(arguments, step_ms, 1),
                      "together": profiled(arguments, step_ms, arguments.ranks), "plain": plain(arguments, step_ms),
                      "load": os.getloadavg()[0]}  # fmt: skip
            results.append(result)
            summary = "; ".join(
                f"{name} {figures['waits']:.1%} ({figures['lower']:.1%} to {figures['upper']:.1%}) {figures['word']} "
                f"in {figures['steps']}"
                for name, figures in (("alone", result["alone"]), ("together", result["together"]))
            )  # fmt: skip
            print(f"{step_ms:5.0f} ms: {summary}; plain {result['plain']:.1%}", file=sys.stderr, flush=True)
    print(json.dumps({"ranks": arguments.ranks, "workers": arguments.workers, "found": results}, indent=1))


if __name__ == "__main__":
    main()
