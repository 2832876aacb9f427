"""How long workers take to start, and how much memory of their own they hold.

    python tests/benchmarks/bench_workers.py [--rows 10000000] [--repeats 5] [--folder DIR]

Prints one JSON object with every repeat, each from a fresh process, the ways of starting in turn: the loader with
forkserver and with spawn, and torch's DataLoader with spawn over the same FaceDataset. Each makes two loaders, one
after the other: `cold` is the first of its process, `warm` the second. The rows are simulated as in `bench_index.py`,
here with an image behind each of them; two sizes, since start and memory must not grow with the rows.

to_construct, to_first_batch: seconds from before the constructor. worker_ready: seconds from `iter()` until each
worker's `worker_init_fn` ran, in order. beyond_torch: MB (10^6 bytes) of a worker's own memory (uss) less that of a
process that only imported torch, measured beside it; near or below 0 is good, a worker of the fork server shares even
torch. Takes 6 GB below --folder, and removes them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from dataclasses import asdict, dataclass
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import bench_index
import numpy as np
import pyarrow as pa
import simplejpeg
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.index.checksums import metadata_of
from facefeed.pipeline.dataset.manifest import Manifest

LIMITS = {"seconds_to_construct": 2.0, "worker_megabytes_beyond_torch": 100.0}
WAYS = ("forkserver", "spawn", "torch spawn")
WORKERS = 2
STEPS = 40
SIDE_PX = 224


class Simulation(bench_index.Simulation):
    """Rows whose images are all the same one, which lies in every file."""

    def __init__(self, rows: int, jpeg: bytes) -> None:
        super().__init__(rows)
        self._constant = {
            "image_offset": 0, "image_bytes": len(jpeg), "image_crc32": zlib.crc32(jpeg), "label": 1,
            "width": SIDE_PX, "height": SIDE_PX,
        }  # fmt: skip

    def batch(self, start: int) -> pa.RecordBatch:
        batch = super().batch(start)
        columns = [
            pa.array(np.full(batch.num_rows, self._constant[field.name]), field.type)
            if field.name in self._constant
            else column
            for field, column in zip(batch.schema, batch.columns, strict=True)
        ]
        return pa.record_batch(columns, schema=batch.schema)


def write(out: Path, rows: int) -> Path:
    """Makes a dataset of that many simulated rows."""
    coarse = np.random.default_rng(0).integers(0, 256, (SIDE_PX // 8, SIDE_PX // 8, 3), np.uint8)
    jpeg = simplejpeg.encode_jpeg(np.kron(coarse, np.ones((8, 8, 1), np.uint8)), quality=90)
    simulation = Simulation(rows, jpeg)
    out.mkdir()
    with pa.ipc.new_file(out / "index.arrow", simulation.schema) as writer:
        for start in range(0, rows, bench_index.BATCH_ROWS):
            batch = simulation.batch(start)
            writer.write_batch(batch, custom_metadata=metadata_of(batch, is_first=start == 0))
    image = out / "image"
    image.write_bytes(jpeg)
    for name in Index(out).categories("file"):
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.hardlink_to(image)
    manifest = Manifest(
        fingerprint="simulated", config={}, labels=list(bench_index.LABELS), splits={}, units=0, rows=rows, bytes=0,
        inputs={"total": 1, "ok": 1, "no_faces": 0, "failed": {}, "missing": 0},
    )  # fmt: skip
    (out / "manifest.json").write_text(manifest.to_json())
    return out


# ---- in a fresh process


@dataclass(frozen=True)
class NoteReady:
    """A `worker_init_fn` that leaves the time at which its worker is ready."""

    folder: Path

    def __call__(self, worker: int) -> None:
        (self.folder / f"{worker}.new").write_text(str(time.monotonic()))
        (self.folder / f"{worker}.new").rename(self.folder / str(worker))

    def take(self) -> list[float]:
        paths = [self.folder / str(worker) for worker in range(WORKERS)]
        while not all(path.exists() for path in paths):  # the first batch needs but one of them
            time.sleep(0.01)
        times = sorted(float(path.read_text()) for path in paths)
        for path in paths:
            path.unlink()
        return times


@dataclass(frozen=True, kw_only=True)
class Memory:
    """MB (10^6 bytes) that are a process's own alone, and its fair share of all that it uses."""

    uss: float
    pss: float

    @classmethod
    def of(cls, pid: int) -> Memory:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        size = {name: int(rest.split()[0]) * 1024 / 1e6 for name, rest in (line.split(":", 1) for line in lines)}
        return cls(uss=size["Private_Clean"] + size["Private_Dirty"], pss=size["Pss"])


def made(out: Path, way: str, note: NoteReady) -> Any:
    from facefeed.loaders import FaceDataLoader, FaceDataset  # noqa: PLC0415 (its import is measured)

    if way == "torch spawn":
        from torch.utils.data import DataLoader  # noqa: PLC0415

        return DataLoader(
            FaceDataset(out), 64, shuffle=True, num_workers=WORKERS, persistent_workers=True, worker_init_fn=note,
            multiprocessing_context="spawn",
        )  # fmt: skip
    return FaceDataLoader(out, 64, num_workers=WORKERS, multiprocessing_context=way, worker_init_fn=note)


def measure_in_process(out: Path, way: str) -> dict[str, Any]:
    """Two loaders one after the other, and the memory of the second one's workers once they have worked."""
    started = time.monotonic()
    import facefeed.loaders.loader.face_dataloader  # noqa: F401, PLC0415

    figures: dict[str, Any] = {"seconds_to_import": time.monotonic() - started}
    with tempfile.TemporaryDirectory() as folder:
        note = NoteReady(Path(folder))
        for name in ("cold", "warm"):
            began = time.monotonic()
            loader = made(out, way, note)
            constructed = time.monotonic()
            batches = iter(loader)
            next(batches)
            first = time.monotonic()
            ready = [moment - constructed for moment in note.take()]
            figures[name] = {
                "to_construct": constructed - began, "to_first_batch": first - began, "worker_ready": ready,
            }  # fmt: skip
            if name == "cold":
                del loader, batches
    for _, _ in zip(range(STEPS), batches, strict=False):
        pass
    code = "import torch, sys; print(flush=True); sys.stdin.read()"
    idle = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert idle.stdout is not None
    idle.stdout.readline()
    only_torch = Memory.of(idle.pid)
    workers = [Memory.of(worker.pid) for worker in loader._iterator._workers]
    figures["memory"] = {
        "only_torch": asdict(only_torch),
        "loader": asdict(Memory.of(os.getpid())),
        "workers": [asdict(worker) for worker in workers],
        "beyond_torch": [worker.uss - only_torch.uss for worker in workers],
        "fork_server": asdict(Memory.of(server)) if (server := forkserver._forkserver._forkserver_pid) else None,
    }
    idle.communicate()
    return figures


# ---- the whole


def measure(out: Path, way: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", str(out), way]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: dict[str, Any] = json.loads(completed.stdout)
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    parser.add_argument("--one", nargs=2, metavar=("OUT", "WAY"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure_in_process(Path(arguments.one[0]), arguments.one[1])))
        return 0
    results: dict[str, Any] = {"bench": "workers", "workers": WORKERS, "limits": LIMITS, "sizes": {}}
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench_workers") as folder:
        for rows in (100_000, arguments.rows):
            out = write(Path(folder, str(rows)), rows)
            repeats: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
            for _ in range(arguments.repeats):
                for way in WAYS:
                    repeats[way].append(measure(out, way))
            results["sizes"][rows] = repeats
    ours = [figures for ways in results["sizes"].values() for way in ("forkserver", "spawn") for figures in ways[way]]
    beyond = [megabytes for figures in ours for megabytes in figures["memory"]["beyond_torch"]]
    results["met"] = {
        "seconds_to_construct": all(
            figures["cold"]["to_construct"] < LIMITS["seconds_to_construct"] for figures in ours
        ),
        "worker_megabytes_beyond_torch": max(beyond) < LIMITS["worker_megabytes_beyond_torch"],
    }
    print(json.dumps(results))
    return 0 if all(results["met"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
