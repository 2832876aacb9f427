"""The profiler's queue model beside torch's real DataLoader: does it know how long the loop waits?

    python tests/benchmarks/bench_queue.py [--batches 300] [--repeats 3]

For workers 0, 1, 2, prefetch 1, 2, 4 and loads below, at and above what the workers can do (exponential, so that some
are four times the mean): the share of the time that was waited, as measured (A) and as the model works it out from load
and step times alone (C). Prints one JSON object with every repeat; a table goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np
import torch
from facefeed.loaders.profiler.measure.measured_loop import MeasuredLoop
from facefeed.loaders.profiler.measure.steps import SleepingStep
from facefeed.loaders.profiler.verdict.judge import judge
from torch.utils.data import DataLoader, Dataset

STEP_SECONDS = 0.02
LOADS = (0.7, 1.0, 1.3)
IMAGES = 4


class Sleeping(Dataset[torch.Tensor]):
    """Items that take a given time and no core."""

    def __init__(self, seconds: Any) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return len(self.seconds)

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds[index])
        return torch.zeros(3, 224, 224)


def measured(workers: int, prefetch: int, load: float, batches: int, seed: int) -> dict[str, Any]:
    """One pass through one loader."""
    mean = load * STEP_SECONDS * max(workers, 1) / IMAGES
    seconds = np.random.default_rng(seed).exponential(mean, IMAGES * batches)
    options: dict[str, Any] = {"prefetch_factor": prefetch, "multiprocessing_context": "forkserver"} if workers else {}
    loader = DataLoader(Sleeping(seconds), IMAGES, num_workers=workers, **options)
    verdict = judge(MeasuredLoop(loader).record(batches, SleepingStep(STEP_SECONDS, 0.1)), emulated=True)
    assert verdict.model_wait_share is not None
    return {
        "workers": workers,
        "prefetch": prefetch,
        "load": load,
        "measured": verdict.wait_share.value,
        "model": verdict.model_wait_share,
        "apart": abs(verdict.wait_share.value - verdict.model_wait_share),
        "closure": verdict.unexplained_share,
        "transport_seconds": verdict.transport_floor_seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    results = []
    for repeat in range(arguments.repeats):
        for workers, prefetch in ((0, 1), *((workers, prefetch) for workers in (1, 2) for prefetch in (1, 2, 4))):
            for load in LOADS:
                result = measured(workers, prefetch, load, arguments.batches, repeat)
                results.append(result)
                sys.stderr.write(
                    f"{workers} workers x {prefetch}, load {load:.1f}: waited {result['measured']:6.2%}, "
                    f"model {result['model']:6.2%}, closure {result['closure']:.2%}\n"
                )
    differences = [result["apart"] for result in results]
    summary = {"mean_apart": float(np.mean(differences)), "most_apart": max(differences)}
    print(json.dumps({"benchmark": "queue", "step_seconds": STEP_SECONDS, **summary, "repeats": results}, indent=1))


if __name__ == "__main__":
    main()
