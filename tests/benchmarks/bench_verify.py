"""`facefeed verify`: where its time goes, with one process and with several, and its end over many rows.

    python tests/benchmarks/bench_verify.py [--rows 40000] [--units 40] [--side 224] [--repeats 5] [--workers 1 2]
        [--index-rows 1000000] [--folder DIR]

Prints one JSON object with every repeat. The dataset is that of `bench_add.py`, with crops of noise of `--side` px.
`steps`: CPU seconds of one core for all files, step by step; `image_crcs` and `index_columns` read what `pages` has
read before. `whole`: the command by number of workers, in turns: wall and CPU seconds (with those of its workers) and
the most memory (PSS of all processes, sampled twice a second). `equal`: whether all of them reported the same, also of
a copy with a changed byte and a missing file. `end`: CPU seconds and memory of the comparison of an index of
`--index-rows` rows with the files, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench_add
import cv2
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from bench_million import tree_bytes
from facefeed.pipeline.commit.publish import read_unit_file
from facefeed.pipeline.dataset.image_codec import ImageEncoder
from facefeed.pipeline.dataset.index.part import location_columns, read_columns
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dataset.schema import UNINDEXED_COLUMNS
from facefeed.pipeline.files import sha256_of
from facefeed.pipeline.planning.options import hash_config
from facefeed.pipeline.planning.plan import Plan
from facefeed.pipeline.planning.run_state import RecordedRunState
from facefeed.pipeline.verify.index_check import IndexedFile, check_index
from facefeed.pipeline.verify.ordered import map_here

SECONDS_BETWEEN_SAMPLES = 0.5
END = "--end"  # followed by OUT: the part of this program that measures the end, in a process of its own


def made_up_images(side_px: int) -> list[bytes]:
    """64 crops of noise as JPEG, of the size that faces have: some 25 kB at 224 px."""
    rng, encode = np.random.default_rng(0), ImageEncoder()
    coarse = rng.integers(0, 256, (64, side_px // 5, side_px // 5, 3), np.uint8)
    return [encode(cv2.resize(each, (side_px, side_px), interpolation=cv2.INTER_CUBIC)) for each in coarse]


def steps(out: Path, repeats: int) -> dict[str, list[float]]:
    """CPU seconds of each step for all files."""
    files = sorted(out.glob("faces/*/*.parquet"))

    def pages(path: Path) -> None:
        metadata = pq.read_metadata(path).metadata
        for _ in read_unit_file(path, metadata[b"facefeed.unit"].decode(), metadata[b"facefeed.config"].decode()):
            pass

    def image_crcs(path: Path) -> None:
        for image in pq.read_table(path, columns=["image"], use_threads=False, partitioning=None)["image"]:
            zlib.crc32(image.as_buffer())

    def index_columns(path: Path) -> None:
        schema = pq.read_schema(path)
        read_columns(path, [field for field in schema if field.name not in UNINDEXED_COLUMNS])

    measured: dict[str, Callable[[Path], object]] = {
        "sha256": sha256_of, "pages": pages, "image_crcs": image_crcs, "index_columns": index_columns,
        "places_of_images": location_columns,
    }  # fmt: skip
    seconds: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(repeats):
        for name, step in measured.items():
            started = time.process_time()
            for path in files:
                step(path)
            seconds[name].append(round(time.process_time() - started, 3))
    return seconds


def whole(out: Path, workers: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures of the command, and seconds and megabytes of it and its workers."""
    command = [sys.executable, "-m", "facefeed.pipeline", "verify", str(out), "--workers", str(workers), "--json"]
    most, before, started = 0, resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryFile("w+") as stdout:
        process = psutil.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            most = max(most, tree_bytes(process))
            time.sleep(SECONDS_BETWEEN_SAMPLES)
        seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        stdout.seek(0)
        figures = json.loads(stdout.read().splitlines()[-1])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return figures, {"seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2), "megabytes": round(most / 1e6)}


def damaged(out: Path, target: Path) -> Path:
    """A copy with a changed byte in one file and another one missing."""
    shutil.copytree(out, target, copy_function=os.link)
    first, second, *_ = sorted(target.glob("faces/*/*.parquet"))
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 1
    first.unlink()
    first.write_bytes(content)
    second.unlink()
    return target


def most_own_megabytes() -> int:
    """The most memory of this process so far, without pages of files that it has mapped: these can be dropped."""
    status = Path("/proc/self/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return round((int(fields["VmHWM"].split()[0]) - int(fields["RssFile"].split()[0])) / 1e3)


def end(out: Path) -> dict[str, Any]:
    """CPU seconds and the most memory of the comparison of the index with the files."""
    paths, manifest = OutPaths(out), Manifest.read(out)
    run_state = RecordedRunState(paths, Plan.load(paths), hash_config(manifest.config))
    files, first_row = [], 0
    for receipt in sorted((receipt for *_, receipt in run_state.finished_units()), key=lambda each: str(each.file)):
        file = str(receipt.file)
        files.append(IndexedFile(path=out / file, location=file, first_row=first_row, rows=receipt.rows))
        first_row += receipt.rows
    before, started = most_own_megabytes(), time.process_time()
    findings = list(check_index(paths, manifest, files, map_here(paths)))
    return {
        "rows": first_row,
        "cpu_seconds": round(time.process_time() - started, 2),
        "megabytes_before": before,
        "megabytes": most_own_megabytes(),
        "findings": len(findings),
    }


def main() -> None:
    if sys.argv[1:2] == [END]:
        pa.set_cpu_count(1)
        sys.stdout.write(json.dumps(end(Path(sys.argv[2]))) + "\n")
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--units", type=int, default=40)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--index-rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="bench_verify") as name:
        out, tiny = Path(name) / "out", Path(name) / "tiny"
        bench_add.made_up_images = lambda: made_up_images(given.side)
        bench_add.make_out(out, given.rows, given.units)
        broken = damaged(out, Path(name) / "damaged")
        runs: dict[int, list[dict[str, Any]]] = {workers: [] for workers in given.workers}
        reports: list[dict[str, Any]] = []
        for _ in range(given.repeats):
            for workers, measured in runs.items():
                report, figures = whole(out, workers)
                reports.append(report)
                measured.append(figures)
        broken_reports = [whole(broken, workers)[0] for workers in given.workers]
        bench_add.made_up_images = lambda: [b"image"]
        bench_add.make_out(tiny, given.index_rows, max(1, given.index_rows // 2500))
        ends = [
            json.loads(
                subprocess.run([sys.executable, __file__, END, str(tiny)], check=True, capture_output=True).stdout
            )
            for _ in range(given.repeats)
        ]
        result = {
            "benchmark": "verify",
            "rows": given.rows,
            "units": given.units,
            "megabytes": round(sum(path.stat().st_size for path in out.glob("faces/*/*")) / 1e6),
            "steps": steps(out, given.repeats),
            "whole": runs,
            "equal": all(each == group[0] for group in (reports, broken_reports) for each in group),
            "findings": [len(group[0]["findings"]) for group in (reports, broken_reports)],
            "end": ends,
        }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
