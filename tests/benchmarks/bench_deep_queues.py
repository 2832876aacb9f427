"""The profiler beside a plain loop's own clock: loaders a little too slow behind deep queues, and one fast enough.

    python tests/benchmarks/bench_deep_queues.py [--queues 2x1 2x4 8x2 16x4] [--paces 1.03 1.07 0.6]
        [--devices sleeping emulated] [--repeats 1]

Workers sleep, so that no core is short; a step sleeps for 20 ms as well. The truth is a loop that knows nothing of the
profiler: how long each `next()` took. It runs in a process of its own, with a loader of its own of the same kind,
beside the profiler, so that what else the machine does delays both alike: the profiler begins once that loop's queue
has had three times the steps that it takes to run empty, and the loop's figure is of the same minutes as the steps that
the profiler judges by; also its lowest and highest of 1,000 of these steps, which say how steady the truth itself is.
The profiler looks at the sleeping step and at the emulated device, which does not wait for what its host does
meanwhile: batches that are ready are handed over for nothing. Prints one JSON object with every repeat; a table goes to
stderr.
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
PART_STEPS = 1000
ENDLESS = 1_000_000


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


class PlainLoop:
    """A plain training loop in a process of its own, timed by two clock readings a step, from its steady state on."""

    def __init__(self, workers: int, prefetch: int, pace: float) -> None:
        context = multiprocessing.get_context("forkserver")
        self._is_enough = context.Event()
        self._times, times = context.Pipe(duplex=False)
        self._process = context.Process(target=run_plain_loop, args=(workers, prefetch, pace, self._is_enough, times))
        self._process.start()
        self._times.recv()  # once its steady state has begun

    def figures(self, begin: float, end: float) -> dict[str, float]:
        """Ends the loop: the share of the time between two readings of `time.monotonic` that it waited."""
        self._is_enough.set()
        requested_at, received_at, ended_at = self._times.recv()
        self._process.join()
        steps = (requested_at >= begin) & (ended_at <= end)
        waits, periods = (received_at - requested_at)[steps], (ended_at - requested_at)[steps]
        parts = [slice(at, at + PART_STEPS) for at in range(0, max(len(waits) - PART_STEPS, 0) + 1, 100)]
        shares = [waits[part].sum() / periods[part].sum() for part in parts]
        return {
            "waits": waits.sum() / periods.sum(), "lowest": min(shares), "highest": max(shares), "steps": len(waits)
        }  # fmt: skip


def run_plain_loop(workers: int, prefetch: int, pace: float, is_enough: Any, times: Any) -> None:
    skipped_steps = round(3 * workers * prefetch / (pace - 1)) if pace > 1 else 3 * workers * prefetch
    batches, found = iter(loader_of(workers, prefetch, pace)), []
    while not is_enough.is_set():
        requested_at = time.monotonic()
        _batch = next(batches)
        received_at = time.monotonic()
        time.sleep(STEP_SECONDS)
        found.append((requested_at, received_at, time.monotonic()))
        if len(found) == skipped_steps:
            times.send("steady")
    times.send(np.array(found[skipped_steps:]).T)


def profiled(workers: int, prefetch: int, pace: float, step: Any) -> tuple[dict[str, Any], float, float]:
    """The verdict of the profiler on the same loader, and when the steps that it judges by began and ended."""
    started_at = time.perf_counter()
    result = profile(loader_of(workers, prefetch, pace), step, quick=True, epoch_batches=ENDLESS)
    verdict, live = result.verdict, result.live
    figures = {
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
    return figures, live.host_requested_at[verdict.num_transient_steps], live.host_received_at[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queues", nargs="+", default=["2x1", "2x4", "8x2", "16x4"])
    parser.add_argument("--paces", type=float, nargs="+", default=[1.03, 1.07, 1.15, 0.6])
    parser.add_argument("--repeats", type=int, default=1)
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
                for name in arguments.devices:
                    plain_loop = PlainLoop(workers, prefetch, pace)
                    figures, begin, end = profiled(workers, prefetch, pace, steps[name])
                    plain_figures = plain_loop.figures(begin, end)
                    results.append({"repeat": repeat, "queue": queue, "pace": pace, "step": name,
                                    "plain": plain_figures, "profiled": figures,
                                    "load": os.getloadavg()[0]})  # fmt: skip
                    print(f"{queue:>5} pace {pace:.2f} {name:<9} plain loop {plain_figures['waits']:.2%} of "
                          f"{plain_figures['steps']} steps ({plain_figures['lowest']:.2%} to "
                          f"{plain_figures['highest']:.2%}); profiler {figures['waits']:.2%} ({figures['lower']:.2%} "
                          f"to {figures['upper']:.2%}) {figures['word']}, model {figures['model']:.2%}, "
                          f"{figures['steps']} steps after {figures['settled']} {figures['reasons']}",
                          file=sys.stderr, flush=True)  # fmt: skip
    differences = [
        abs(result["plain"]["waits"] - result["profiled"]["waits"])
        for result in results
        if result["step"] == "sleeping"
    ]
    print(json.dumps({"most_apart": float(np.max(differences, initial=0.0)), "found": results}, indent=1))


if __name__ == "__main__":
    main()
