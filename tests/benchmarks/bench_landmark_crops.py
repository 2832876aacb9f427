"""How far the mesh's points from stored crops are from those of precompute, and time a face on one core.

    python tests/benchmarks/bench_landmark_crops.py [--media DIR] [-- OPTIONS OF PRECOMPUTE]

Makes a dataset of six frames of each clip of the media with `--landmarks mesh`, and prints one JSON object. Errors are
percentiles (50, 90, 99, 100) over faces, as shares of the distance between the outer corners of the eyes; those of the
pose are degrees. `fits`: whether the points fit a face, at precompute and from its crop.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from facefeed.pipeline.added_columns.landmarks import LandmarkColumns
from facefeed.pipeline.added_columns.maker import StoredFaces
from facefeed.pipeline.dataset.image_codec import decode_rgb_strictly
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.faces.landmarks.by_name import make_landmarker
from faces_media import MEDIA, media_at

_OPTIONS = (
    "--layout", "folder", "--frames", "6", "--landmarks", "mesh", "--max-failed", "100%", "--allow-unlabelled",
)  # fmt: skip
ANGLES = ("yaw", "pitch", "roll")


def errors(row: dict[str, Any], points: Any, pose: Any) -> dict[str, float]:
    """Mean distances of the points of a row, and differences of its pose."""
    stored = np.array(row["landmarks_68"])
    distances = np.linalg.norm(stored - np.array(points), axis=1) / np.linalg.norm(stored[45] - stored[36])
    turns = np.abs((np.array(row["pose"]) - np.array(pose) + 180) % 360 - 180)
    named = {"all_68": distances.mean(), "inner_51": distances[17:].mean(), "jaw": distances[:17].mean()}
    return {**named, **dict(zip(ANGLES, turns, strict=True))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--media", type=Path, default=MEDIA)
    parser.add_argument("options", nargs="*", help="of precompute, such as --margin 0")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench_landmark_crops") as folder:
        out = Path(folder) / "out"
        command = [sys.executable, "-m", "facefeed.pipeline", "precompute", str(media_at(given.media)), str(out)]
        subprocess.run([*command, *_OPTIONS, *given.options], check=True, stdout=sys.stderr)
        measure(out, given.options)


def measure(out: Path, options: list[str]) -> None:
    """Prints the figures of a dataset that was made with the mesh."""
    maker, fits, found, seconds = (
        LandmarkColumns(make_landmarker("mesh")),
        Counter[str](),
        list[dict[str, float]](),
        0.0,
    )
    for path in sorted(OutPaths(out).faces.rglob("*.parquet")):
        table = pq.read_table(path, partitioning=None)
        rows = table.drop_columns(["image", "mask"])
        faces = StoredFaces([decode_rgb_strictly(data) for data in table["image"].to_pylist()], rows)
        started = time.perf_counter()
        columns = maker.compute(faces)
        seconds += time.perf_counter() - started
        for row, points, pose in zip(rows.to_pylist(), columns["landmarks_68"], columns["pose"], strict=True):
            fits[f"{'yes' if row['landmarks_68'] else 'no'}, {'yes' if points is not None else 'no'}"] += 1
            if row["landmarks_68"] is not None and points is not None:
                found.append(errors(row, points, pose))
    percentiles = {
        name: [round(float(value), 4) for value in np.percentile([each[name] for each in found], [50, 90, 99, 100])]
        for name in found[0]
    }
    result = {
        "benchmark": "landmark_crops",
        "options": options,
        "faces": fits.total(),
        "fits": fits,
        "percentiles": percentiles,
    }
    sys.stdout.write(json.dumps({**result, "milliseconds_a_face": round(1e3 * seconds / fits.total(), 2)}) + "\n")


if __name__ == "__main__":
    main()
