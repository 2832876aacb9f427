"""Added columns at scale: an OUT of made-up rows, columns added with five kills, and the loader with and without them.

    python tests/benchmarks/bench_add.py [--rows 100000] [--units 40] [--repeats 7] [--workers 2] [--folder DIR]

Prints one JSON object. The rows have the real schema and page layout; their images are 64 different crops of noise.
`equal`: whether a run that was killed five times with SIGKILL and resumed left the bytes of an undisturbed one.
`loader`: images a second of one worker over the val split, without the added columns and with them, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from facefeed.loaders import FaceDataLoader
from facefeed.pipeline.commit.finalize import build_manifest, publish_manifest, write_dataset_index
from facefeed.pipeline.commit.publish import attempt_path, make_folders, publish, unit_file_metadata, write_receipt
from facefeed.pipeline.dataset.image_codec import ImageEncoder
from facefeed.pipeline.dataset.manifest import InputOutcome, Receipt
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dataset.schema import ROW_GROUP_ROWS, face_schema, parquet_writer_options
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import Options, hash_config
from facefeed.pipeline.planning.plan import Plan, PlanPart, Unit
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.verify.check import verify

SIDE_PX = 112
LABELS = ("real", "fake")
MAKER = """
import numpy as np
import pyarrow as pa


class Brightness:
    name = "brightness"
    fingerprint = "1"
    columns = pa.schema([("brightness", pa.float32()), ("mean_rgb", pa.list_(pa.float32(), 3))])

    def compute(self, faces):
        means = np.array([image[::4, ::4].mean(axis=(0, 1)) for image in faces.images])
        return {"brightness": means.mean(axis=1), "mean_rgb": means}
"""


def made_up_images() -> list[bytes]:
    """64 crops of coarse noise, as JPEG."""
    rng, encode = np.random.default_rng(0), ImageEncoder()
    coarse = rng.integers(0, 256, (64, 8, 8, 3), np.uint8)
    return [encode(cv2.resize(each, (SIDE_PX, SIDE_PX), interpolation=cv2.INTER_CUBIC)) for each in coarse]


def rows_of(unit: Unit, count: int, images: list[bytes]) -> list[dict[str, Any]]:
    """Made-up rows of a unit of one video."""
    (entry,) = unit.inputs
    box = [20.0, 20.0, 90.0, 90.0]
    points = [[40.0, 45.0], [70.0, 45.0], [55.0, 60.0], [45.0, 75.0], [65.0, 75.0]]
    names = ("left_eye", "right_eye", "nose", "mouth", "face")
    return [
        {
            "face_id": f"{entry.video_id}/{number}/0", "video_id": entry.video_id, "split": unit.split,
            "label": entry.label, "frame_index": number, "frame_number": -1, "pts_seconds": number / 25,
            "frame_width": 640, "frame_height": 360, "track_id": 0, "box_xyxy": box,
            "crop_xyxy": [0.0, 0.0, SIDE_PX, SIDE_PX], "crop_degrees": 0.0, "score": 0.99, "landmarks": points,
            "hull": points, "hull_method": "template5", "regions": dict.fromkeys(names, box), "sharpness": 100.0,
            "image": images[number % len(images)], "image_crc32": zlib.crc32(images[number % len(images)]),
            "height": SIDE_PX, "width": SIDE_PX,
        }
        for number in range(count)
    ]  # fmt: skip


def make_out(out: Path, rows: int, units: int) -> None:
    """A finished dataset of `units` units of one video each; a tenth of them is for validation."""
    config = Options().to_config(FixedBoxDetector(), LABELS)
    config_hash, paths, images = hash_config(config), OutPaths(out), made_up_images()
    make_folders(paths)
    schema = face_schema(LABELS)
    planned = [
        Unit.make(
            [Entry(video_id=f"real/{number:04}.mp4", size_bytes=1, mtime_ns=1, label=0)],
            "val" if number % 10 == 9 else "train", config_hash=config_hash, salt="0",
        )
        for number in range(units)
    ]  # fmt: skip
    plan = Plan()
    plan.append(paths, PlanPart(config=config, units=tuple(planned)))
    count = rows // units
    for unit in planned:
        table = pa.Table.from_pylist(rows_of(unit, count, images), schema=schema)
        attempt, final = attempt_path(paths, unit.unit_id), paths.unit_file(unit.split, unit.unit_id)
        with pq.ParquetWriter(attempt, schema, **parquet_writer_options(schema)) as writer:
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
            writer.add_key_value_metadata(unit_file_metadata(unit.unit_id, config_hash, count))
        digest = publish(attempt, final, unit.unit_id, config_hash, count)
        outcome = InputOutcome(
            video_id=unit.inputs[0].video_id, size_bytes=1, mtime_ns=1, outcome="ok", frames_wanted=count,
            frames_decoded=count, faces=count,
        )  # fmt: skip
        write_receipt(paths, unit, Receipt(
            unit=unit.unit_id, config_hash=config_hash, outcome="done", file=final.relative_to(out).as_posix(),
            rows=count, bytes=final.stat().st_size, sha256=digest, inputs=[outcome],
        ))  # fmt: skip
    run_state = RunState(paths, plan, config_hash)
    manifest = build_manifest(run_state, config, (), 0)
    write_dataset_index(run_state, manifest)
    publish_manifest(paths, manifest)


def copy_linked(out: Path, target: Path) -> Path:
    """A copy that shares the files of rows, which nothing writes to."""
    return Path(shutil.copytree(out, target, copy_function=os.link))


class Adding:
    """`facefeed add` as a command, to be run to its end or killed on the way."""

    def __init__(self, out: Path, maker: str, workers: int) -> None:
        self._command = [
            sys.executable, "-m", "facefeed.pipeline", "add", str(out), maker, "--workers", str(workers), "--json",
        ]  # fmt: skip
        self._receipts = out / "columns" / "brightness" / "_receipts"

    def run(self) -> dict[str, Any]:
        """The figures of a run to its end."""
        completed = subprocess.run(self._command, check=True, capture_output=True, text=True)
        figures: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
        return figures

    def kill_at(self, units: int) -> int:
        """Kills the driver once `units` units are finished; returns how many were."""
        process = psutil.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and self._finished() < units:
            time.sleep(0.005)
        children = process.children(recursive=True) if process.is_running() else []
        process.kill()
        process.wait()
        psutil.wait_procs(children, timeout=30)
        return self._finished()

    def _finished(self) -> int:
        return len(list(self._receipts.glob("*.json")))


def bytes_of(out: Path) -> dict[str, bytes]:
    """Index and added columns."""
    files = [out / "index.arrow", *(path for path in (out / "columns").rglob("*") if path.is_file())]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}


def loader_rates(out: Path, repeats: int) -> dict[str, Any]:
    """Images a second over the val split, a tenth of the rows, without the added columns and with them, in turns."""
    fields = {"without": ("image", "label"), "with": ("image", "label", "brightness", "mean_rgb")}
    rates: dict[str, list[float]] = {name: [] for name in fields}
    loaders = {
        name: FaceDataLoader(
            out, split="val", batch_size=256, image_size=SIDE_PX, fields=columns, num_workers=1, dtype="uint8"
        )
        for name, columns in fields.items()
    }
    for repeat in range(repeats + 1):
        for name, loader in loaders.items():
            started = time.perf_counter()
            images = sum(len(batch["image"]) for batch in loader)
            if repeat:  # the first epoch starts the worker
                rates[name].append(round(images / (time.perf_counter() - started), 1))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    ratios = [a / b for a, b in zip(rates["with"], rates["without"], strict=True)]
    return {"images_per_second": rates, "medians": medians, "median_ratio": round(statistics.median(ratios), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--units", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="bench_add") as name:
        folder = Path(name)
        (folder / "maker.py").write_text(MAKER)
        maker, out = f"{folder / 'maker.py'}:Brightness", folder / "out"
        make_out(out, given.rows, given.units)
        killed = copy_linked(out, folder / "killed")
        undisturbed = Adding(out, maker, given.workers).run()
        adding = Adding(killed, maker, given.workers)
        kills = [adding.kill_at(given.units * number // 6) for number in range(1, 6)]
        resumed = adding.run()
        verdict = verify(killed)
        result = {
            "benchmark": "add",
            "rows": given.rows,
            "units": given.units,
            "out_megabytes": round(sum(path.stat().st_size for path in (out / "faces").rglob("*")) / 1e6),
            "undisturbed": undisturbed,
            "units_finished_at_each_kill": kills,
            "resumed": resumed,
            "equal": bytes_of(killed) == bytes_of(out),
            "findings": len(verdict.findings),
            "rows_verified": verdict.rows,
            "loader": loader_rates(out, given.repeats),
        }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
