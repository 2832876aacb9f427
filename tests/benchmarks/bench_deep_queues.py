"""The profiler beside a plain loop's own clock: loaders a little too slow behind deep queues, and one fast enough.

    python tests/benchmarks/bench_deep_queues.py [--queues 2x1 2x4 8x2 16x4] [--paces 1.03 1.07 0.6]
        [--devices sleeping emulated] [--repeats 1]

Workers sleep, so that no core is short; a step sleeps for 20 ms as well. The truth is a loop of --steps steps that
knows nothing of the profiler: how long each `next()` took, once the queue has had three times the steps that it takes
to run empty. The profiler then looks at a loader of the same kind, under the same step and under the emulated device,
which does not wait for what its host does meanwhile: batches that are ready are handed over for nothing. Prints one
JSON object with every repeat; a table goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import warnings
from typing import Any

import numpy as np
import torch
from facefeed.loaders.profiler.measure.steps import EmulatedDevice, SleepingStep
from facefeed.loaders.profiler.profile import profile
from torch.utils.data import DataLoader, Dataset

STEP_SECONDS = 0.02
ENDLESS = 1_000_000
FIRST_STEPS = 1000  # after which a profile ends where the loader is surely too slow


class Sleeping(Dataset[torch.Tensor]):
    """Items that take a given time and no core."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.tensor(index)


def loader_of(workers: int, prefetch: int, pace: float) -> DataLoader[torch.Tensor]:
    """Needs `pace` times as long for a batch as a step takes."""
    items = Sleeping(workers * pace * STEP_SECONDS)
    return DataLoader(
        items, 1, num_workers=workers, prefetch_factor=prefetch, multiprocessing_context="forkserver",
        sampler=range(ENDLESS),
    )  # fmt: skip


def plain(workers: int, prefetch: int, pace: float, steps: int) -> dict[str, float]:
    """A plain training loop, timed by two clock readings a step; at_first: over the steps of a short profile."""
    skipped_steps = round(3 * workers * prefetch / (pace - 1)) if pace > 1 else 3 * workers * prefetch
    batches, waits, periods = iter(loader_of(workers, prefetch, pace)), [], []
    for _ in range(skipped_steps + steps):
        requested_at = time.perf_counter()
        _batch = next(batches)
        received_at = time.perf_counter()
        time.sleep(STEP_SECONDS)
        waits.append(received_at - requested_at)
        periods.append(time.perf_counter() - requested_at)
    first_steps = slice(workers * prefetch, FIRST_STEPS)
    first_wait_share = sum(waits[first_steps]) / sum(periods[first_steps])
    return {
        "waits": sum(waits[skipped_steps:]) / sum(periods[skipped_steps:]),
        "at_first": first_wait_share,
        "left_out": skipped_steps,
        "steps": steps,
    }


def profiled(workers: int, prefetch: int, pace: float, step: Any) -> dict[str, Any]:
    """The verdict of the profiler on the same loader."""
    started_at = time.perf_counter()
    verdict = profile(loader_of(workers, prefetch, pace), step, quick=True, epoch_batches=ENDLESS).verdict
    return {
        "word": verdict.kind.value,
        "waits": verdict.wait_share.value,
        "lower": verdict.wait_share.lower,
        "upper": verdict.wait_share.upper,
        "model": verdict.model_wait_share,
        "steps": verdict.num_steps,
        "settled": verdict.num_transient_steps,
        "closure": verdict.unexplained_share,
        "reasons": verdict.reasons,
        "seconds": time.perf_counter() - started_at,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queues", nargs="+", default=["2x1", "2x4", "8x2", "16x4"])
    parser.add_argument("--paces", type=float, nargs="+", default=[1.03, 1.07, 1.15, 0.6])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3000, help="of the plain loop; the profiler decides itself")
    parser.add_argument("--devices", nargs="+", choices=("sleeping", "emulated"), default=["sleeping", "emulated"])
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    multiprocessing.set_forkserver_preload(["torch"])  # else 16 workers take a minute of both cores to import it
    steps = {"sleeping": SleepingStep(STEP_SECONDS, 0.0), "emulated": EmulatedDevice(STEP_SECONDS, 0.2)}
    results = []
    for repeat in range(arguments.repeats):
        for queue in arguments.queues:
            workers, prefetch = map(int, queue.split("x"))
            for pace in arguments.paces:
                plain_figures = plain(workers, prefetch, pace, arguments.steps)
                print(
                    f"{queue:>5} pace {pace:.2f}: a plain loop waits {plain_figures['waits']:.2%}, "
                    f"at first {plain_figures['at_first']:.2%}",
                    file=sys.stderr,
                    flush=True,
                )
                for name in arguments.devices:
                    figures = profiled(workers, prefetch, pace, steps[name])
                    results.append({"repeat": repeat, "queue": queue, "pace": pace, "step": name,
                                    "plain": plain_figures, "profiled": figures,
                                    "load": os.getloadavg()[0]})  # fmt: skip
                    print(f"      {name:<9} {figures['waits']:.2%} ({figures['lower']:.2%} to {figures['upper']:.2%}) "
                          f"{figures['word']}, model {figures['model']:.2%}, {figures['steps']} steps after "
                          f"{figures['settled']} {figures['reasons']}", file=sys.stderr, flush=True)  # fmt: skip
    differences = [
        abs(result["plain"]["waits"] - result["profiled"]["waits"])
        for result in results
        if result["step"] == "sleeping"
    ]
    print(json.dumps({"most_apart": float(np.max(differences, initial=0.0)), "found": results}, indent=1))


if __name__ == "__main__":
    main()
