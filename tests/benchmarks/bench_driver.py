"""The driver at scale: planning 100,000 simulated videos, its memory while units come and go, and how many it can feed.

    python tests/benchmarks/bench_driver.py [--videos 100000] [--units 1500] [--repeats 3] [--workers 16 64 256]

Prints one JSON object: seconds and peak memory of listing-to-plan (write and read back), in a fresh process a repeat;
then the driver's private memory after each tenth of the units, on a real cluster of two workers; then `feeding`: the
share of the time in which workers whose units are a sleep have one. These workers are threads of the driver's process,
each with Dask's own event loop work, so that a real driver, which shares its core with none, feeds more.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import psutil
from distributed import Client, LocalCluster
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.manifest import InputOutcome, Receipt
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.execution.cluster import local_client
from facefeed.pipeline.execution.unit_scheduler import UnitScheduler
from facefeed.pipeline.execution.unit_task import UnitWorkerPlugin, install_unit_workers
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

    def on_done_elsewhere(self, unit: Unit, *, is_duplicate: bool) -> None:
        raise AssertionError((unit.unit_id, is_duplicate))

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


class SleepingUnitWorker:
    """Takes the place of a `UnitWorker`: each unit of four inputs takes its time, and is done."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def run(self, unit: Unit, on_outcome: Callable[[InputOutcome], None]) -> Receipt:
        time.sleep(self.seconds)
        outcomes = [
            InputOutcome(
                video_id=entry.video_id, size_bytes=entry.size_bytes, mtime_ns=entry.mtime_ns, outcome="ok",
                frames_decoded=30, faces=30,
            )
            for entry in unit.inputs
        ]  # fmt: skip
        for outcome in outcomes:
            on_outcome(outcome)
        return Receipt(unit=unit.unit_id, config_hash="bench", outcome="done", inputs=outcomes, rows=1)

    def close(self) -> None:
        """Nothing to end."""


class SleepingPlugin(UnitWorkerPlugin):
    """Installs a `SleepingUnitWorker` in each worker."""

    def __init__(self, job: JobSpec, seconds: float) -> None:
        super().__init__(job, [], num_local_workers=None, job_share=None)
        self.seconds = seconds

    def setup(self, worker: Any) -> None:
        """Called by Dask on each worker."""
        self.unit_worker, self.lock = SleepingUnitWorker(self.seconds), threading.Lock()


def feeding(workers: int, unit_seconds: float, repeats: int, units_each: int = 10) -> dict[str, Any]:
    """The share of the time in which so many workers have a unit, all but the last round, in which some have none."""
    entries = simulated(4 * workers * units_each)
    units = [
        Unit.make(entries[start : start + 4], "train", config_hash="bench", salt="0")
        for start in range(0, len(entries), 4)
    ]
    busy = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            job = JobSpec(
                root=Path(folder), out=Path(folder) / "out", options=Options(), detector=FixedBoxDetector(),
                labels=["real", "fake"], config_hash="bench",
            )  # fmt: skip
            make_folders(job.paths)
            with (
                LocalCluster(
                    n_workers=workers, threads_per_worker=1, processes=False, dashboard_address=None, memory_limit=0
                ) as cluster,
                Client(cluster) as client,
            ):
                plugin = SleepingPlugin(job, unit_seconds)
                client.register_plugin(plugin)
                started = time.perf_counter()
                UnitScheduler(WorkerPool(client, plugin.name), job, Memory(len(units))).run(units)
                busy.append(round(units_each * unit_seconds / (time.perf_counter() - started), 3))
    return {"workers": workers, "unit_seconds": unit_seconds, "busy_share": busy}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--videos", type=int, default=100_000)
    parser.add_argument("--units", type=int, default=1500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--unit-seconds", type=float, nargs="+", default=[1.0, 5.0])
    arguments = parser.parse_args()
    results = {
        "planning": planning(arguments.videos, arguments.repeats),
        "driving": driving(arguments.units),
        "feeding": [
            feeding(workers, seconds, arguments.repeats)
            for workers in arguments.workers for seconds in arguments.unit_seconds
        ],
    }  # fmt: skip
    print(json.dumps({"benchmark": "driver", "videos": arguments.videos, **results}, indent=1))


if __name__ == "__main__":
    main()
