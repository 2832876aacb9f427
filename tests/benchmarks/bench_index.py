"""Opens an index of ten million rows: how long it takes, and how much memory of its own a process then holds.

Prints one JSON object with every repeat, each from a fresh process. The rows are simulated, no Parquet file stands
behind them; schema, batches and reader are the real ones. Takes 5 GB below --folder, and removes them.

Memory is what a step added to the process, in MB (10^6 bytes): `uss` also counts pages of the mapped file that no other
process happens to map, which are the page cache's and shared as soon as a second process opens the index; `anonymous`
are the process's own alone. Near 0 is good: all of the index is shared. `rows_where` keeps 8 bytes a row found.
`cpu_seconds_to_check_bytes`: of all checksums, as `precompute` with nothing to do reads them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from facefeed.pipeline.dataset.index import Index, index_schema
from facefeed.pipeline.dataset.index.checksums import metadata_of
from facefeed.pipeline.dataset.index.layout import BATCH_ROWS
from facefeed.pipeline.dataset.schema import face_schema

ROWS = 10_000_000
ROWS_A_VIDEO = 120
VIDEOS_A_FILE = 16
LABELS = ("real", "fake")
MEGABYTE = 1_000_000
LIMITS = {"seconds_to_open": 1.0, "private_megabytes": 100.0}


class Simulation:
    """Rows of a large dataset, a batch at a time; files in the order of their names, so splits lie together."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.schema = index_schema(face_schema(LABELS), "simulated")
        videos = -(-rows // ROWS_A_VIDEO)
        files = -(-videos // VIDEOS_A_FILE)
        names = [f"faces/{_split(number / files)}/{number:032x}.parquet" for number in range(files)]
        video_ids = [f"dfdc_train_part_{number // 2500:02}/{number:010}.mp4" for number in range(videos)]
        self._dictionaries = {
            "video_id": video_ids,
            "source_id": video_ids[::5],
            "identity": [f"person {number}" for number in range(max(1, videos // 30))],
            "dataset": ["dfdc"],
            "method": ["Deepfakes", "Face2Face", "FaceSwap", "NeuralTextures"],
            "compression": ["c23"],
            "split": ["test", "train", "val"],
            "hull_method": ["template5"],
            "file": names,
        }
        self._values = {name: pa.array(values, pa.string()) for name, values in self._dictionaries.items()}

    def batch(self, start: int) -> pa.RecordBatch:
        """Rows `start` and on, as many as the real writer puts into a batch."""
        rows = np.arange(start, min(start + BATCH_ROWS, self.rows))
        videos = rows // ROWS_A_VIDEO
        rng = np.random.default_rng(start)
        columns = []
        for field in self.schema:
            if field.name in self._values:
                columns.append(self._coded(field.name, videos))
            elif field.name == "face_id":
                ids = [
                    f"{self._dictionaries['video_id'][video]}/{row}/0" for video, row in zip(videos, rows, strict=True)
                ]
                columns.append(pa.array(ids, pa.string()))
            else:
                columns.append(_random(field.type, len(rows), rng))
        return pa.record_batch(columns, schema=self.schema)

    def _face_ids(self, videos: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> pa.Array:
        names = self._values["video_id"].take(pa.array(videos))
        return pc.binary_join_element_wise(names, pa.array(rows).cast(pa.string()), "0", "/")

    def _coded(self, name: str, videos: np.ndarray[Any, Any]) -> pa.DictionaryArray:
        values = self._values[name]
        files = videos // VIDEOS_A_FILE
        codes = {"video_id": videos, "file": files}.get(name, videos % len(values))
        if name == "split":
            shares = files / len(self._values["file"])
            codes = np.searchsorted([0.1, 0.9], shares, side="right")
        nulls = videos % 5 == 0 if name in {"source_id", "method"} else None
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=nulls), values)


def _split(share: float) -> str:
    return "test" if share < 0.1 else "train" if share < 0.9 else "val"


def _random(kind: pa.DataType, count: int, rng: np.random.Generator) -> pa.Array:
    """Values of a column's type: what they are does not matter here, how many bytes they take does."""
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_random(child.type, count, rng) for child in kind], fields=list(kind))
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(_random(kind.value_type, count * kind.list_size, rng), type=kind)
    if pa.types.is_list(kind):
        points = 12
        offsets = pa.array(np.arange(count + 1, dtype=np.int32) * points)
        return pa.ListArray.from_arrays(offsets, _random(kind.value_type, count * points, rng), type=kind)
    if pa.types.is_floating(kind):
        return pa.array(rng.random(count), kind, safe=False)
    return pa.array(rng.integers(0, 100, count), kind)


def write(out: Path, rows: int) -> None:
    """Writes OUT/index.arrow a batch at a time."""
    simulation = Simulation(rows)
    with pa.ipc.new_file(out / "index.arrow", simulation.schema) as writer:
        for start in range(0, rows, BATCH_ROWS):
            batch = simulation.batch(start)
            writer.write_batch(batch, custom_metadata=metadata_of(batch, is_first=start == 0))


MEASURE = """
import json, sys, time
from pathlib import Path
import psutil
from facefeed.pipeline.dataset.index import Index
process = psutil.Process()

def memory():
    anonymous = next(line for line in open("/proc/self/smaps_rollup") if line.startswith("Anonymous:"))
    return process.memory_full_info().uss / 1e6, int(anonymous.split()[1]) * 1024 / 1e6

def grown():
    uss, anonymous = memory()
    return {"uss_megabytes": uss - before[0], "anonymous_megabytes": anonymous - before[1]}

before, started = memory(), time.perf_counter()
index = Index(Path(sys.argv[1]))
opened = time.perf_counter() - started
told = {"rows": len(index), "seconds_to_open": opened, "megabytes_before": before}
told["open"] = grown()
started = time.perf_counter()
rows = index.rows_where("split", "train")
told["seconds_for_rows_where"] = time.perf_counter() - started
told["train_rows"], told["megabytes_of_row_numbers"] = len(rows), rows.nbytes / 1e6
told["rows_where"] = grown()
faces = [index.value("face_id", int(row)) for row in rows[:: max(1, len(rows) // 1000)]]
told["thousand_values"] = grown()
started = time.process_time()
index.check_bytes()
told["cpu_seconds_to_check_bytes"] = time.process_time() - started
told["pandas_was_imported"] = "pandas" in sys.modules
print(json.dumps(told))
"""


def measure(out: Path) -> dict[str, Any]:
    """Opens the index in a fresh process."""
    completed = subprocess.run([sys.executable, "-c", MEASURE, str(out)], capture_output=True, text=True, check=True)
    measured: dict[str, Any] = json.loads(completed.stdout)
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench_index") as folder:
        out = Path(folder)
        write(out, arguments.rows)
        repeats = [measure(out) for _ in range(arguments.repeats)]
        size = (out / "index.arrow").stat().st_size
        assert len(Index(out)) == arguments.rows
    met = {
        "seconds_to_open": all(repeat["seconds_to_open"] < LIMITS["seconds_to_open"] for repeat in repeats),
        "uss_megabytes_of_open": all(
            repeat["open"]["uss_megabytes"] < LIMITS["private_megabytes"] for repeat in repeats
        ),
        "anonymous_megabytes": all(
            repeat[step]["anonymous_megabytes"] < LIMITS["private_megabytes"]
            for repeat in repeats
            for step in ("open", "rows_where", "thousand_values")
        ),
    }
    results = {
        "bench": "index",
        "rows": arguments.rows,
        "index_megabytes": round(size / MEGABYTE),
        "limits": LIMITS,
        "met": met,
    }
    sys.stdout.write(json.dumps({**results, "repeats": repeats}) + "\n")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
