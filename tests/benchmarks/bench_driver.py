"""The driver at scale: planning 100,000 simulated videos, and its memory while units come and go.

    python tests/benchmarks/bench_driver.py [--videos 100000] [--units 1500] [--repeats 3]

Prints one JSON object: seconds and peak memory of listing-to-plan (write and read back), in a fresh process a repeat;
then the driver's private memory after each tenth of the units, on a real cluster of two workers.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import psutil
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.manifest import OutPaths, Receipt
from facefeed.pipeline.execution.cluster import local_client
from facefeed.pipeline.execution.unit_scheduler import UnitScheduler
from facefeed.pipeline.execution.unit_task import install_unit_workers
from facefeed.pipeline.execution.workers import WorkerPool
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import JobSpec, Options
from facefeed.pipeline.planning.plan import Plan, PlanPart, Unit, group_units
from facefeed.pipeline.sources import Entry, list_source
from facefeed.pipeline.splits.assignment import SplitRatio, assign_splits


def simulated(count: int) -> list[Entry]:
    """A set like DFDC: one original in five, four fakes each, ten megabytes a video."""
    return [
        Entry(
            video_id=f"dfdc_train_part_{number // 2500}/{number:08}.mp4",
            size_bytes=10_000_000,
            mtime_ns=number,
            label=int(number % 5 > 0),
            source_id=f"dfdc_train_part_{number // 2500}/{number - number % 5:08}.mp4" if number % 5 else None,
            dataset="dfdc",
        )
        for number in range(count)
    ]


def plan(count: int, answer: Any) -> None:
    started = time.perf_counter()
    entries = simulated(count)
    assigned = assign_splits(entries, ratio=SplitRatio(), seed=0)
    units = group_units(entries, assigned.split_of, config_hash="bench", salt="0", cost_seconds=lambda _: 8.0)
    with tempfile.TemporaryDirectory() as folder:
        paths = OutPaths(Path(folder))
        make_folders(paths)
        Plan().append(paths, PlanPart(config={"labels": ["real", "fake"], "schema": 3}, units=tuple(units)))
        num_planned = len(Plan.load(paths).planned_videos())
    assert num_planned == count
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    answer.put({"seconds": round(time.perf_counter() - started, 2), "peak_mb": round(peak_mb), "units": len(units)})


def planning(count: int, repeats: int) -> list[dict[str, float]]:
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    results = []
    for _ in range(repeats):
        process = context.Process(target=plan, args=(count, answer))
        process.start()
        results.append(answer.get())
        process.join()
    return results


class Memory:
    """Observes a stage: the driver's private memory after each tenth of the units."""

    def __init__(self, units: int) -> None:
        self.every, self.done, self.private_mb = max(1, units // 10), 0, list[float]()

    def on_receipt(self, receipt: Receipt) -> None:
        assert receipt.rows == 1
        self.done += 1
        if self.done % self.every == 0:
            self.private_mb.append(round(psutil.Process().memory_full_info().uss / 1e6, 1))

    def on_done_elsewhere(self, unit: Unit, *, in_vain: bool) -> None:
        raise AssertionError((unit.unit_id, in_vain))

    def on_lost(self, unit: Unit, why: str, then: str) -> None:
        raise AssertionError((unit.unit_id, why, then))

    def on_retired(self, worker: str, why: str) -> None:
        raise AssertionError((worker, why))


def driving(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        source.mkdir()
        picture = np.random.default_rng(0).integers(0, 255, (120, 160, 3), np.uint8)
        for number in range(count):
            cv2.imwrite(str(source / f"{number:06}.jpg"), picture)
        listing = list_source(source)
        job = JobSpec(
            root=source, out=Path(folder) / "out", options=Options(), detector=FixedBoxDetector(),
            labels=listing.labels, config_hash="bench",
        )  # fmt: skip
        make_folders(job.paths)
        units = [Unit.make([entry], "train", config_hash="bench", salt="0") for entry in listing.entries]
        memory, started = Memory(count), time.perf_counter()
        with local_client(2) as client, install_unit_workers(client, job, [], local=True) as plugin:
            UnitScheduler(WorkerPool(client, plugin), job, memory).run(units)
        seconds = time.perf_counter() - started
    return {"units": count, "private_mb_after_each_tenth": memory.private_mb, "seconds": round(seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--videos", type=int, default=100_000)
    parser.add_argument("--units", type=int, default=1500)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    results = {"planning": planning(arguments.videos, arguments.repeats), "driving": driving(arguments.units)}
    print(json.dumps({"benchmark": "driver", "videos": arguments.videos, **results}, indent=1))


if __name__ == "__main__":
    main()
