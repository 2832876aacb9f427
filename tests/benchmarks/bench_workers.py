"""Starts the loader over an index of ten million rows: how soon, and what each worker holds of its own.

Prints one JSON object with every repeat, each from a fresh process. The rows are simulated: they all point at the
images of one small dataset (`--out`, default: the sample, made for the run), so that batches are real. Takes 5 GB below
--folder for --rows 10000000, and removes them.

seconds_to_construct: FaceDataLoader(...); seconds_to_iter: the order of the epoch and the start of the workers;
seconds_to_first_batch: all of it together. For each worker, after the given number of batches: `private_megabytes`,
pages that no other process maps (of the index, too, where no other worker has touched them), and `anonymous_megabytes`,
which copies of one fork server share as long as they do not write. `torch_anonymous_megabytes`: those of a process that
has done nothing but `import torch`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from bench_index import Simulation
from facefeed.pipeline.index import _BATCH_ROWS, Index
from facefeed.pipeline.manifest import Manifest

WHERE = ("image_offset", "image_bytes", "image_crc32", "height", "width", "label")
LIMITS = {"seconds_to_construct": 2.0, "anonymous_megabytes_beyond_torch": 100.0}


class Pointing(Simulation):
    """Simulated rows whose images are those of a real dataset, over and over."""

    def __init__(self, rows: int, real: Index) -> None:
        super().__init__(rows)
        self._cells = {name: real.column(name).combine_chunks() for name in WHERE}
        self._files = pa.array(real.names("file"), pa.string())
        self._file_codes = real.codes("file", np.arange(len(real)))
        self._real_rows = len(real)

    def batch(self, start: int) -> pa.RecordBatch:
        """As the simulation's, but for where the images are."""
        made = super().batch(start)
        from_row = np.arange(start, start + made.num_rows) % self._real_rows
        columns = {name: cells.take(pa.array(from_row)) for name, cells in self._cells.items()}
        columns["file"] = pa.DictionaryArray.from_arrays(pa.array(self._file_codes[from_row]), self._files)
        return pa.record_batch([columns.get(name, made.column(name)) for name in made.schema.names], schema=made.schema)


MEASURE = """
import json, sys, time
started = time.perf_counter()
import psutil
from facefeed.loaders import FaceDataLoader

def memory(pid):
    kinds = {}
    for line in open(f"/proc/{pid}/smaps_rollup"):
        name, _, rest = line.partition(":")
        if rest.endswith("kB\\n"):
            kinds[name] = int(rest.split()[0]) * 1024 / 1e6
    private = kinds["Private_Clean"] + kinds["Private_Dirty"]
    return {"private_megabytes": private, "anonymous_megabytes": kinds["Anonymous"], "pss_megabytes": kinds["Pss"]}

if __name__ == "__main__":
    told = {}
    imported = time.perf_counter()
    loader = FaceDataLoader(sys.argv[1], 64, num_workers=2, dtype="uint8", multiprocessing_context=sys.argv[2])
    told["seconds_to_construct"] = time.perf_counter() - imported
    batches = iter(loader)
    told["seconds_to_iter"] = time.perf_counter() - imported - told["seconds_to_construct"]
    next(batches)
    told["seconds_to_first_batch"] = time.perf_counter() - imported
    told["rows"], told["steps"] = len(loader.dataset), len(loader)
    for _ in range(int(sys.argv[3])):
        next(batches)
    told["workers"] = [memory(worker.pid) for worker in loader._iterator._workers]
    told["main"] = memory("self")
    print(json.dumps(told))
"""
TORCH = "import torch\nfor line in open('/proc/self/smaps_rollup'):\n    print(line, end='')"


def _torch_anonymous() -> float:
    done = subprocess.run([sys.executable, "-c", TORCH], capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("Anonymous:"))
    return int(line.split()[1]) * 1024 / 1e6


def sample_dataset(folder: Path) -> Path:
    """The sample, precomputed."""
    command = [str(Path(sys.executable).parent / "facefeed")]
    subprocess.run([*command, "sample", str(folder / "videos")], check=True)
    out = folder / "faces"
    subprocess.run([*command, "precompute", str(folder / "videos"), str(out), "--max-failed", "5%"], check=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batches", type=int, default=200, help="how many before memory is read")
    parser.add_argument("--out", type=Path, help="a finished dataset")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        folder = Path(name)
        real = chosen.out.resolve() if chosen.out else sample_dataset(folder)
        large = folder / "large"
        large.mkdir()
        simulation = Pointing(chosen.rows, Index(real))
        with pa.ipc.new_file(large / "index.arrow", simulation.schema) as writer:
            for start in range(0, chosen.rows, _BATCH_ROWS):
                writer.write_batch(simulation.batch(start))
        (large / "faces").symlink_to(real / "faces")
        manifest = replace(Manifest.read(real), fingerprint="simulated")
        (large / "manifest.json").write_text(manifest.to_json(), encoding="utf-8")
        script = folder / "measure.py"
        script.write_text(MEASURE, encoding="utf-8")
        told: dict[str, Any] = {"rows": chosen.rows, "limits": LIMITS, "torch_anonymous_megabytes": _torch_anonymous()}
        for start in ("forkserver", "spawn"):
            told[start] = []
            for _ in range(chosen.repeats):
                command = [sys.executable, str(script), str(large), start, str(chosen.batches)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                told[start].append(json.loads(done.stdout.splitlines()[-1]))
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
