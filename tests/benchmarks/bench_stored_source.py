"""Precompute from a folder and from an S3 store with the same videos, in turn: seconds and frames a second.

    python tests/benchmarks/bench_stored_source.py [--videos DIR] [--repeats 3] [--workers 2]

DIR: a folder of videos; default: the demo's. The store is moto's server, a process of its own on this machine, which
takes its share of the cores: it shows what fetching costs, not how fast a real store is. Also compares the rows of
both. Prints one JSON object with every repeat; a table goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.dataset as pads
from bench_store import s3_server
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute

ROOT = Path(__file__).resolve().parents[2]
URL = "s3://media/videos"


def one_run(src: str | Path, out: Path, workers: int, options: dict[str, Any] | None) -> dict[str, Any]:
    summary = precompute(src, out, options=Options(boxes="source"), workers=workers, storage_options=options)
    totals = summary.totals
    return {"seconds": round(summary.seconds, 1), "frames": totals.frames, "rows": Manifest.read(out).rows}


def rows(out: Path) -> pa.Table:
    return pads.dataset(out / "faces", partitioning=None).to_table().sort_by("face_id")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--videos", type=Path, default=ROOT / ".demo" / "videos")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    results = []
    with s3_server() as options, tempfile.TemporaryDirectory() as temporary:
        store = fsspec.filesystem("s3", skip_instance_cache=True, **options)
        store.mkdir("media")
        store.put(str(arguments.videos), "media/videos", recursive=True)
        for repeat in range(arguments.repeats):
            outs = {lane: Path(temporary) / f"{lane}{repeat}" for lane in ("folder", "store")}
            result: dict[str, Any] = {
                "folder": one_run(arguments.videos, outs["folder"], arguments.workers, None),
                "store": one_run(URL, outs["store"], arguments.workers, options),
            }
            result["same_rows"] = rows(outs["folder"]).equals(rows(outs["store"]))
            results.append(result)
            print(f"{result}", file=sys.stderr)
    ratio = statistics.median(result["store"]["seconds"] / result["folder"]["seconds"] for result in results)
    print(f"store / folder: {ratio:.2f} times the seconds", file=sys.stderr)
    print(json.dumps({"ratio": round(ratio, 3), "repeats": results}))


if __name__ == "__main__":
    main()
