"""A job of a million inputs without the work on them: its plan, a run that ends it, and one with nothing to do.

    python tests/benchmarks/bench_inputs.py [--inputs 1000000] [--repeats 1] [--until plan] [--folder DIR]

The source is AV-Deepfake1M as `bench_listing.py` makes it up, empty files with their metadata. Each step runs in a
fresh process: `plan` lists it and writes a plan with units of four seconds an input; `units` writes, in place of
workers, a file with one face for each unit and a receipt with all of its inputs; `end` is the `precompute` that finds
all units finished, and writes index and manifest; `nothing` is the next one; `verify` reads it all back.

Prints one JSON object with every repeat: seconds and the peak of resident memory, in MB (10^6 bytes), the interpreter
and its imports included; and number and bytes of the files of plan, receipts, faces and index. Takes 330 MB and 1.1
million inodes per million inputs below --folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from bench_listing import lay
from facefeed.pipeline.commit.publish import attempt_path, make_folders, unit_file_metadata
from facefeed.pipeline.dataset.manifest import InputOutcome, Receipt
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dataset.schema import ROW_GROUP_ROWS, face_schema, parquet_writer_options
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.incremental import next_plan_part
from facefeed.pipeline.planning.incremental.changes import find_changes
from facefeed.pipeline.planning.options import hash_config
from facefeed.pipeline.planning.plan import Plan, Unit
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.verify.check import verify

SECONDS_AN_INPUT = 4.0


def plan(src: Path, out: Path) -> None:
    job, listing, config = prepare_job(src, out, detector=FixedBoxDetector())
    make_folders(job.paths)
    state = RunState(job.paths, Plan(), job.config_hash)
    part = next_plan_part(
        state, listing, find_changes(listing, {}), job=job, config=config, allow_leaks=True, retry=None,
        cost_seconds=lambda _: SECONDS_AN_INPUT,
    )  # fmt: skip
    state.plan.append(job.paths, part)


def units(_: Path, out: Path) -> None:
    from bench_add import made_up_images, rows_of  # noqa: PLC0415 (with torch, which no other step needs)

    paths, images = OutPaths(out), made_up_images()
    planned = Plan.load(paths)
    config = planned.parts[0].config
    config_hash, schema = (
        hash_config(config),
        face_schema(config["labels"], config["schema"], config.get("columns", {})),
    )
    for unit in planned.units():
        final = paths.unit_file(unit.split, unit.unit_id)
        final.parent.mkdir(exist_ok=True)
        attempt = attempt_path(paths, unit.unit_id)
        with pq.ParquetWriter(attempt, schema, **parquet_writer_options(schema)) as writer:
            rows = rows_of(replace(unit, inputs=unit.inputs[:1]), 1, images)
            writer.write_table(pa.Table.from_pylist(rows, schema=schema), row_group_size=ROW_GROUP_ROWS)
            writer.add_key_value_metadata(unit_file_metadata(unit.unit_id, config_hash, 1))
        attempt.rename(final)
        paths.receipt(unit.unit_id).write_text(receipt_of(unit, final, paths, config_hash).to_json())


def receipt_of(unit: Unit, final: Path, paths: OutPaths, config_hash: str) -> Receipt:
    data = final.read_bytes()
    return Receipt(
        unit=unit.unit_id, config_hash=config_hash, outcome="done", file=paths.name_of(final), rows=1, bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(), inputs=list(outcomes(unit.inputs)),
    )  # fmt: skip


def outcomes(inputs: tuple[Entry, ...]) -> Iterator[InputOutcome]:
    for number, entry in enumerate(inputs):
        yield InputOutcome(
            video_id=entry.video_id, size_bytes=entry.size_bytes, mtime_ns=entry.mtime_ns, frames_wanted=30,
            frames_decoded=30, faces=int(number == 0), outcome="no_faces" if number else "ok",
            seconds=SECONDS_AN_INPUT, sha256=hashlib.sha256(entry.video_id.encode()).hexdigest(),
        )  # fmt: skip


def run(src: Path, out: Path) -> None:
    summary = precompute(src, out, detector=FixedBoxDetector(), allow_leaks=True)
    assert summary.totals.inputs == 0


def check(_: Path, out: Path) -> None:
    assert verify(out).findings == []


STEPS: dict[str, Callable[[Path, Path], None]] = {
    "plan": plan, "units": units, "end": run, "nothing": run, "verify": check,
}  # fmt: skip


def peak_megabytes() -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return round(int(line.split()[1]) * 1024 / 1e6, 1)


def measured(step: str, src: Path, out: Path) -> dict[str, float]:
    """Seconds and peak of a step in a fresh process."""
    command = [sys.executable, __file__, "--step", step, str(src), str(out)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    sys.stderr.write(f"{step}: {figures}\n")
    return figures


def files_in(out: Path) -> dict[str, dict[str, int]]:
    """Number and bytes of the files of each kind."""
    found = {}
    for name in ("plan", "receipts", "faces", "index.arrow"):
        place = out / name
        paths = [path for path in place.rglob("*") if path.is_file()] if place.is_dir() else [place]
        sizes = [path.stat().st_size for path in paths if path.exists()]
        found[name] = {"files": len(sizes), "bytes": sum(sizes)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--until", choices=STEPS, default="verify", help="the last step")
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    given = parser.parse_args()
    steps = [*STEPS][: [*STEPS].index(given.until) + 1]
    repeats = []
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="bench_inputs") as folder:
        src = Path(folder) / "src"
        src.mkdir()
        lay(src, "avdeepfake1m", given.inputs)
        for number in range(given.repeats):
            out = Path(folder) / f"out{number}"
            repeats.append({step: measured(step, src, out) for step in steps} | {"files": files_in(out)})
    sys.stdout.write(json.dumps({"benchmark": "inputs", "inputs": given.inputs, "repeats": repeats}) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        started = time.perf_counter()
        STEPS[sys.argv[2]](Path(sys.argv[3]), Path(sys.argv[4]))
        seconds = round(time.perf_counter() - started, 2)
        sys.stdout.write(json.dumps({"seconds": seconds, "peak_megabytes": peak_megabytes()}) + "\n")
        sys.stdout.flush()
        os._exit(0)  # what is freed at the end is not measured
    main()
