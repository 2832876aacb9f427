"""The profiler beside the truth, on real faces: do its estimators agree, does its curve hold, what does it cost?

    python tests/benchmarks/bench_profiler.py [--out OUT] [--repeats 3] [--lanes estimators cpu curve queue overhead]

OUT: a finished dataset; default: the demo's, as `make demo` leaves it. Batches of 16 images of 224 px under the example
augmentation, two workers, two batches ahead. Lanes:
- estimators: a sleeping step that starves, one at the edge, one that is fed: A (clock), C (queue), closure, verdict;
- cpu: a real training step on the CPU at the same three paces. It wants the cores that the workers want, so that the
  step itself gets slower; the lane shows by how much and what the estimators make of it;
- curve: the stall at ten step times as measured, and as predicted from recordings at the edge before and after each;
- queue: as `curve`, but of items that sleep, so that nobody lacks a core;
- overhead: the same batches with and without the profiler's stamps, in turn, by the processor's time.
Prints one JSON object with every repeat; a table goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

import numpy as np
import torch
from bench_queue import Sleeping
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.loaders.augment.pipeline_file import read_pipeline
from facefeed.loaders.profiler.measure.batch_timing import BatchTiming, timing_cost_seconds
from facefeed.loaders.profiler.measure.instrument import instrument
from facefeed.loaders.profiler.measure.measured_loop import MeasuredLoop, replay_batches
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.measure.steps import SleepingStep
from facefeed.loaders.profiler.measure.variants import with_longer_epoch
from facefeed.loaders.profiler.profile import profile
from facefeed.loaders.profiler.verdict.judge import judge
from facefeed.loaders.profiler.verdict.result import Profile
from facefeed.loaders.profiler.verdict.what_if import WhatIfModel
from facefeed.pipeline.machine import usable_cores
from torch.utils.data import DataLoader

ROOT = Path(__file__).resolve().parents[2]
PACES = {"starved": 0.6, "at the edge": 1.0, "fed": 2.0}
LANES = ("estimators", "cpu", "curve", "queue", "overhead")
HOST_SHARE = 0.2
SLEEP_SECONDS = 0.0015


def loader_of(out: Path, *, workers: int = 2) -> FaceDataLoader:
    """As a user's, but with an epoch that does not end meanwhile."""
    dataset = FaceDataset(out, face_transform=read_pipeline(ROOT / "loaders" / "augment" / "example.yaml"))
    return with_longer_epoch(FaceDataLoader(dataset, 16, shuffle=True, num_workers=workers), 200_000 // len(dataset))


def log(words: str) -> None:
    sys.stderr.write(words + "\n")


def seconds_between(out: Path) -> float:
    """How long the workers need for a batch, all of them together."""
    passing = MeasuredLoop(loader_of(out))
    passing.record(20, lambda _: None)
    return float(np.median([passing.record(60, lambda _: None).period_seconds.mean() for _ in range(3)]))


# ---- estimators


def of_profile(profiled: Profile) -> dict[str, Any]:
    verdict = profiled.verdict
    assert verdict.model_wait_share is not None
    return {
        "verdict": verdict.kind.value,
        "live": verdict.wait_share.value,
        "model": verdict.model_wait_share,
        "closure": verdict.unexplained_share,
        "apart": abs(verdict.wait_share.value - verdict.model_wait_share),
        "differential": profiled.replay_slowdown,
        "not_made": float(profiled.live.not_ready_seconds[profiled.live.is_steady].sum())
        / profiled.live.steady_seconds,
        "step_alone": float(profiled.preloaded.step_seconds.mean()),
        "step_under_load": verdict.mean_step_seconds,
        "bars": profiled.step_part_seconds,
        "reasons": verdict.reasons,
    }


def estimators(out: Path, between: float, steps: int) -> dict[str, Any]:
    """One repeat of the three paces."""
    results = {}
    for name, pace in PACES.items():
        step = SleepingStep(pace * between, HOST_SHARE)
        results[name] = figures = of_profile(profile(loader_of(out), step, steps=steps, quick=True))
        log(f"  {name:<12} step {step.seconds * 1e3:5.1f} ms: A {figures['live']:6.2%}  C {figures['model']:6.2%}  "
             f"B {figures['differential']:6.2%}  closure {figures['closure']:.2%}  {figures['verdict']}")  # fmt: skip
    return results


class CpuStep:
    """Forward, backward and update of a small network on the host, as often as it takes to last a given time alone."""

    def __init__(self, seconds: float) -> None:
        torch.manual_seed(0)
        self.network = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 7, 4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(),
            torch.nn.Linear(128, 2),
        )  # fmt: skip
        self.optimizer = torch.optim.SGD(self.network.parameters(), 1e-3)
        self.times = 1
        batch = torch.zeros(16, 3, 224, 224), torch.zeros(16, dtype=torch.int64)
        alone = [replay_batches([batch], 5, self).step_seconds.min() for _ in range(3)][-1]
        self.times = max(round(seconds / alone), 1)

    def __call__(self, batch: Any) -> None:
        for _ in range(self.times):
            loss = torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1].clamp(min=0))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def cpu(out: Path, between: float, steps: int) -> dict[str, Any]:
    """As `estimators`, under a step that is none of ours."""
    results = {}
    for name, pace in PACES.items():
        results[name] = figures = of_profile(profile(loader_of(out), CpuStep(pace * between), steps=steps, quick=True))
        log(f"  {name:<12} step {figures['step_alone'] * 1e3:5.1f} ms alone, "
            f"{figures['step_under_load'] * 1e3:5.1f} ms under load: A {figures['live']:6.2%}  "
            f"C {figures['model']:6.2%}  B {figures['differential']:6.2%}  "
            f"closure {figures['closure']:.2%}  {figures['verdict']}")  # fmt: skip
    return results


# ---- the curve


def curve(out: Path, between: float, steps: int) -> dict[str, Any]:
    """One repeat, on real faces."""
    return points(MeasuredLoop(loader_of(out)), between, steps)


def queue(_out: Path, _between: float, steps: int) -> dict[str, Any]:
    """One repeat, on items that sleep."""
    seconds = np.random.default_rng(0).gamma(4.0, SLEEP_SECONDS / 4, 16 * 40 * steps)
    loader = DataLoader(Sleeping(seconds), 16, num_workers=2, multiprocessing_context="forkserver")
    return points(MeasuredLoop(loader), 16 * SLEEP_SECONDS / 2, steps)


def points(passing: MeasuredLoop, between: float, steps: int) -> dict[str, Any]:
    """Ten step times."""
    base = SleepingStep(between, HOST_SHARE)
    passing.record(20, base)
    step_seconds = np.geomspace(0.4, 2.5, 10) * between
    before, points = passing.record(steps // 2, base), []
    for number in np.random.default_rng(0).permutation(len(step_seconds)):
        passing.drain()
        recording = passing.record(steps, replace(base, seconds=float(step_seconds[number])))
        passing.drain()
        after = passing.record(steps // 2, base)  # other jobs come and go: the prediction rests on what lies around it
        step = float(recording.step_seconds[recording.is_steady].mean())
        predicted = WhatIfModel.fit(Recording.concatenate([before, after]), usable_cores()).wait_share(
            step_seconds=step
        )
        measured = judge(recording, emulated=True).wait_share.value
        points.append({"step_seconds": step, "measured": measured, "predicted": predicted})
        before = after
    points.sort(key=lambda point: point["step_seconds"])
    differences = [abs(point["measured"] - point["predicted"]) for point in points]
    for point in points:
        log(f"  step {point['step_seconds'] * 1e3:5.1f} ms: measured {point['measured']:6.2%}, "
             f"predicted {point['predicted']:6.2%}")  # fmt: skip
    log(f"  mean absolute error {np.mean(differences):.2%}, most {max(differences):.2%}")
    return {"points": points, "mean_absolute_error": float(np.mean(differences)), "most": max(differences)}


# ---- overhead


def overhead(out: Path, _between: float, steps: int) -> dict[str, Any]:
    """One repeat: the same batches with and without stamps, in turn, by the processor's time of one process."""
    kept: list[BatchTiming] = []
    on, off = iter(instrument(loader_of(out, workers=0), kept.append)), iter(loader_of(out, workers=0))
    differences, seconds = [], []
    for number in range(steps):
        seconds_by_variant = {}
        for name, batches in (("on", on), ("off", off)) if number % 2 else (("off", off), ("on", on)):
            began = time.thread_time()
            next(batches)
            seconds_by_variant[name] = time.thread_time() - began
        if number >= 10:
            differences.append(seconds_by_variant["on"] - seconds_by_variant["off"])
            seconds.append(seconds_by_variant["off"])
    mean = statistics.median(seconds)
    # Of each four, one is told apart by stages, which is where most of the time goes.
    shares = np.array(differences)[: len(differences) // 4 * 4].reshape(-1, 4).mean(axis=1) / mean
    drawn = np.random.default_rng(0).choice(shares, (1000, len(shares)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    figures = {
        "batch_seconds": mean,
        "median": float(np.median(shares)),
        "interval": [float(low), float(high)],
        "pairs": len(differences),
        "by_its_own_count": timing_cost_seconds(len(kept[0].stage_seconds) * 16 / 4) / mean,
    }
    log(f"  {len(differences)} pairs of batches of {mean * 1e3:.1f} ms: {figures['median']:+.2%} (95 % {low:+.2%} to "
         f"{high:+.2%}); by its own count {figures['by_its_own_count']:.2%}")  # fmt: skip
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / ".demo" / "faces")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--lanes", nargs="+", choices=LANES, default=list(LANES))
    arguments = parser.parse_args()
    between = seconds_between(arguments.out)
    log(f"the workers make a batch in {between * 1e3:.1f} ms")
    ways = {"estimators": estimators, "cpu": cpu, "curve": curve, "queue": queue, "overhead": overhead}
    results: dict[str, Any] = {lane: [] for lane in arguments.lanes}
    for repeat in range(arguments.repeats):
        for lane in arguments.lanes:
            log(f"{lane}, repeat {repeat + 1} (load {os.getloadavg()[0]:.1f})")
            results[lane].append(ways[lane](arguments.out, between, arguments.steps))
    print(json.dumps({"benchmark": "profiler", "seconds_between": between, "lanes": results}, indent=1))


if __name__ == "__main__":
    main()
