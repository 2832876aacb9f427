"""What opening, selecting and loading take with 10 million to a billion rows: seconds and memory, a process a step.

    python tests/benchmarks/bench_scale_rows.py --rows 1000000000 [--repeats 3] [--steps open shuffle] [--folder DIR]

Prints one JSON object with every repeat. The index is made up: the real schema, batches and footer, written by Arrow
into a sparse file. Splits, labels and videos are real, in all three dictionaries of the real size; whatever else is 0
or empty, and a hole in the file, which takes no space. There are no images: reading one looks up its file and its
place in the index, as always, and returns the same JPEG for every row. Takes 9 bytes a row below --folder.

`seconds`: of the parts of a step, in their order; `cpu_seconds`: the CPU time of the process in them, which counts
where others use the machine as well. `own_megabytes`: the most anonymous memory (10^6 bytes) that the
step added to the process, sampled every 10 ms, so pages of the mapped index do not count; `worker_megabytes`: the most
that a process of its own had, all of it. A process that needs more than --limit-gigabytes gets a MemoryError, which is
reported, and so is one that takes longer than --limit-seconds.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import simplejpeg
from bench_index import LABELS, ROWS_A_VIDEO, VIDEOS_A_FILE
from facefeed.loaders import FaceDataLoader, FaceDataset, Quotas, Weights
from facefeed.pipeline.dataset.index import Index, index_schema
from facefeed.pipeline.dataset.index.checksums import metadata_of
from facefeed.pipeline.dataset.index.layout import BATCH_ROWS
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dataset.schema import face_schema
from facefeed.pipeline.inspect.statistics.groups import Statistics

STEPS_OF_AN_EPOCH = 20
BATCH = 64
SECONDS_BETWEEN_SAMPLES = 0.01
_JPEG = simplejpeg.encode_jpeg(np.full((224, 224, 3), 128, np.uint8))


# ---- the index


class SparseFile(io.RawIOBase):
    """A file in which buffers of zeros, those at these addresses, are holes."""

    def __init__(self, path: Path, zeros: set[int]) -> None:
        self._file, self._zeros = path.open("wb", buffering=0), zeros

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data: Any) -> int:
        if pa.py_buffer(data).address in self._zeros:
            self._file.seek(len(data), io.SEEK_CUR)
        else:
            self._file.write(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.truncate(self._file.tell())
            self._file.close()
        super().close()


class MadeUpRows:
    """A large index, a batch at a time; a tenth of the rows are of `test` and come first, a tenth, last, of `val`."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.schema = index_schema(face_schema(LABELS), "made up")
        self._num_videos = -(-rows // ROWS_A_VIDEO)
        num_files = -(-self._num_videos // VIDEOS_A_FILE)
        numbers = pc.utf8_lpad(pa.array(range(self._num_videos)).cast(pa.string()), 10, "0")
        videos = pc.binary_join_element_wise("dfdc_train_part/", numbers, ".mp4", "")
        files = pa.array([f"faces/train/{number:032x}.parquet" for number in range(num_files)])
        self._dictionaries = {
            "video_id": videos, "file": files, "split": pa.array(["train", "test", "val"]), "dataset": ["dfdc"],
            "source_id": videos[:1], "identity": ["anna"], "method": ["Deepfakes"], "compression": ["c23"],
            "hull_method": ["template5"],
        }  # fmt: skip
        self._zeros = {field.name: _zeros(field.type, BATCH_ROWS) for field in self.schema}

    @property
    def zero_addresses(self) -> set[int]:
        """Where the zeros are that all batches share."""
        return {buffer.address for cells in self._zeros.values() for buffer in cells.buffers() if buffer is not None}

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in batches as the index has them."""
        for start in range(0, self._rows, BATCH_ROWS):
            rows = np.arange(start, min(start + BATCH_ROWS, self._rows))
            videos = (rows // ROWS_A_VIDEO).astype(np.int32)
            split = np.select([rows < self._rows // 10, rows >= self._rows - self._rows // 10], [1, 2], 0)
            real = {"video_id": videos, "split": split.astype(np.int32), "label": (videos % 2).astype(np.int8)}
            yield pa.record_batch(
                [self._column(field, real.get(field.name), len(rows)) for field in self.schema], schema=self.schema
            )

    def _column(self, field: pa.Field, values: Any, count: int) -> pa.Array:
        cells = self._zeros[field.name].slice(0, count) if values is None else pa.array(values)
        if field.name in self._dictionaries:
            return pa.DictionaryArray.from_arrays(cells, self._dictionaries[field.name])
        return cells


def _zeros(kind: pa.DataType, count: int) -> pa.Array:
    """Cells of 0, or empty lists and texts."""
    if pa.types.is_dictionary(kind):
        return pa.array(np.zeros(count, np.int32))
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_zeros(child.type, count) for child in kind], fields=list(kind))
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(_zeros(kind.value_type, count * kind.list_size), type=kind)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), _zeros(kind.value_type, 0), type=kind)
    return pa.array([""] * count) if pa.types.is_string(kind) else pa.array(np.zeros(count), kind, safe=False)


def write(out: Path, rows: int) -> dict[str, Any]:
    """Writes manifest and index; returns the size of the index, and how much of it is no hole."""
    began = time.perf_counter()
    made_up = MadeUpRows(rows)
    path = out / "index.arrow"
    with (
        SparseFile(path, made_up.zero_addresses) as file,
        pa.ipc.new_file(pa.PythonFile(file, "w"), made_up.schema) as writer,
    ):
        for number, batch in enumerate(made_up.batches()):
            writer.write_batch(batch, custom_metadata=metadata_of(batch, is_first=number == 0))
    manifest = Manifest(
        fingerprint="made up", config={}, labels=list(LABELS), splits={}, units=0, rows=rows, bytes=0,
        inputs={"total": 1, "ok": 1, "no_faces": 0, "failed": {}, "missing": 0},
    )  # fmt: skip
    (out / "manifest.json").write_text(manifest.to_json())
    status = path.stat()
    return {
        "index_megabytes": round(status.st_size / 1e6), "on_disk_megabytes": round(status.st_blocks * 512 / 1e6),
        "seconds_to_write": round(time.perf_counter() - began, 1),
    }  # fmt: skip


# ---- in a fresh process: each step times its parts


@dataclass(frozen=True)
class SameImage:
    """In place of what reads an image: looks its row up, and returns the same JPEG for every row."""

    index: Any

    def __call__(self, row: int) -> bytes:
        assert self.index.text("file", row)
        assert self.index.number("image_offset", row) >= 0
        return _JPEG


def as_it_is(_mapping: Any, crop: Any, _into: Any) -> Any:
    """In place of resizing: the widths in the index are 0."""
    return crop


class Parts:
    """Seconds of the parts of a step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        began, cpu_began = time.perf_counter(), time.process_time()
        yield
        self.seconds[name] = round(time.perf_counter() - began, 3)
        self.cpu_seconds[name] = round(time.process_time() - cpu_began, 3)


def opening(out: Path, parts: Parts) -> None:
    with parts.timed("open"):
        index = Index(out)
    with parts.timed("categories"):
        index.categories("file")
    with parts.timed("last_row"):
        index.numbers("label", [len(index) - 1])


def selecting(**options: Any) -> Callable[[Path, Parts], None]:
    def step(out: Path, parts: Parts) -> None:
        with parts.timed("construct"):
            dataset = FaceDataset(out, **options)
        assert len(dataset)

    return step


def loading(*, resume: bool = False, **options: Any) -> Callable[[Path, Parts], None]:
    """Constructs a loader and takes some batches; with `resume`, by another loader from the middle of an epoch."""

    def step(out: Path, parts: Parts) -> None:
        loader = _loader(out, parts, **{"split": None, "num_workers": 0, **options})
        if resume:
            sampler = loader.sampler
            sampler.position = 0, len(loader) // 2 * sampler.global_batch
            with parts.timed("state_dict"):
                state = loader.state_dict()
            with parts.timed("load_state_dict"):
                loader.load_state_dict(state)
        batches = iter(loader)
        with parts.timed("first_batch"):
            next(batches)
        with parts.timed(f"{STEPS_OF_AN_EPOCH}_batches"):
            for _ in islice(batches, STEPS_OF_AN_EPOCH):
                pass

    return step


def _loader(out: Path, parts: Parts, **options: Any) -> Any:
    with parts.timed("construct"):
        loader = FaceDataLoader(out, BATCH, **options)
    dataset = copy.copy(loader.dataset)
    dataset._read_image, dataset._resize = SameImage(dataset.index), as_it_is
    return loader.with_batch_dataset(dataset)


def describing(out: Path, parts: Parts) -> None:
    loader = _loader(out, parts, split=None, num_workers=0)
    with parts.timed("describe"):
        loader.describe()


def inspecting(out: Path, parts: Parts) -> None:
    index = Index(out)
    with parts.timed("statistics"):
        Statistics.of(index)


STEPS: dict[str, Callable[[Path, Parts], None]] = {
    "open": opening,
    "select all": selecting(split=None),
    "select split": selecting(split="train"),
    "select filter": selecting(split=None, filters=[("label", "==", 1)]),
    "select frames_per_video": selecting(split=None, frames_per_video=30),
    "in order": loading(shuffle=False),
    "shuffle": loading(shuffle=True),
    "shuffle, 2 workers": loading(shuffle=True, num_workers=2),
    "shuffle, rank 1 of 2": loading(shuffle=True, rank=1, num_replicas=2),
    "shuffle, resumed": loading(resume=True, shuffle=True),
    "shuffle, split": loading(shuffle=True, split="train"),
    "shuffle, filter": loading(shuffle=True, filters=[("label", "==", 1)]),
    "window": loading(shuffle="window"),
    "window, resumed": loading(resume=True, shuffle="window"),
    "quotas": loading(shuffle=True, balance=Quotas({"real": 1, "fake": 1})),
    "weights": loading(shuffle=True, balance=Weights({"fake": 2.0})),
    "max_per_video": loading(shuffle=True, max_per_video=1),
    "describe": describing,
    "inspect": inspecting,
}


def run_step(out: Path, name: str, limit_bytes: int) -> None:
    """The process of one step: imports, waits until it is watched, and prints what it took."""
    import facefeed.loaders.loader.face_dataloader  # noqa: F401, PLC0415
    import pyarrow.dataset  # noqa: F401, PLC0415

    print("imported", flush=True)
    sys.stdin.readline()
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    parts = Parts()
    try:
        STEPS[name](out, parts)
        error = None
    except MemoryError:
        error = "MemoryError"
    figures = {"seconds": parts.seconds, "cpu_seconds": parts.cpu_seconds}
    print(json.dumps(figures | ({"error": error} if error else {})), flush=True)


# ---- the whole


class Watch:
    """Samples the memory of a process and of its children until it ends."""

    def __init__(self, process: psutil.Popen) -> None:
        self._process, self._is_over = process, threading.Event()
        self._base = self._most = anonymous_bytes(process.pid)
        self._most_of_child = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(SECONDS_BETWEEN_SAMPLES):
            with suppress(psutil.Error, OSError):
                self._most = max(self._most, anonymous_bytes(self._process.pid))
                children = [anonymous_bytes(child.pid) for child in self._process.children(recursive=True)]
                self._most_of_child = max([self._most_of_child, *children])

    def end(self) -> dict[str, int]:
        self._is_over.set()
        self._thread.join()
        figures = {"own_megabytes": round((self._most - self._base) / 1e6)}
        return figures | ({"worker_megabytes": round(self._most_of_child / 1e6)} if self._most_of_child else {})


def anonymous_bytes(pid: int) -> int:
    """Anonymous memory of a process that is in RAM."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def measure(out: Path, name: str, given: argparse.Namespace) -> dict[str, Any]:
    """One repeat of a step."""
    command = [sys.executable, __file__, "--one", str(out), name, str(given.limit_gigabytes)]
    process = psutil.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    watch = Watch(process)
    try:
        output, _ = process.communicate("\n", timeout=given.limit_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"error": f"more than {given.limit_seconds} s", **watch.end()}
    if process.returncode:
        return {"error": f"exit code {process.returncode}", **watch.end()}
    return json.loads(output.splitlines()[-1]) | watch.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS), metavar="STEP")
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    parser.add_argument("--limit-gigabytes", type=float, default=12, help="most memory of a process")
    parser.add_argument("--limit-seconds", type=float, default=300, help="most time of a step")
    parser.add_argument("--one", nargs=3, metavar=("OUT", "STEP", "GIGABYTES"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        run_step(Path(given.one[0]), given.one[1], int(float(given.one[2]) * 1e9))
        return
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="bench_scale_rows") as folder:
        out = Path(folder)
        sizes = write(out, given.rows)
        steps: dict[str, list[dict[str, Any]]] = {}
        for name in given.steps:
            steps[name] = [measure(out, name, given) for _ in range(given.repeats)]
            print(name, json.dumps(steps[name]), file=sys.stderr, flush=True)
    print(json.dumps({"bench": "scale_rows", "rows": given.rows, **sizes, "steps": steps}))


if __name__ == "__main__":
    main()
