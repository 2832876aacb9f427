"""Lists and plans the largest published sets: how long it takes, and how much memory a process then has held at most.

Prints one JSON object with every repeat, each from a fresh process. Files are empty and the metadata is made up, in the
published form: 1,000,000 records of AV-Deepfake1M, 136,304 of LAV-DF. No media is opened. Needs a million inodes below
--folder, and removes them.

`list` is what `precompute` and its dry run do first: find files, read metadata, check the listing. `plan` is what
follows: splits and units. Peaks are of resident memory, in MB (10^6 bytes), the interpreter and its imports included,
which are `megabytes_before`. The peak of `plan` is that of both steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CLIPS_A_VIDEO, VIDEOS_A_PERSON = 5, 24
KINDS = {"real": "real", "fake_video_fake_audio": "both_modified", "fake_video_real_audio": "visual_modified",
         "real_video_fake_audio": "audio_modified"}  # fmt: skip

Record = dict[str, Any]


def avdeepfake1m(count: int) -> Iterator[tuple[str, str, Record]]:
    """Metadata file, path and record of each video: four of each clip, nine in ten of them in train."""
    for number in range(count):
        clip, kind = number // len(KINDS), list(KINDS)[number % len(KINDS)]
        video = clip // CLIPS_A_VIDEO
        split = "val" if clip % 10 == 9 else "train"
        folder = f"id{video // VIDEOS_A_PERSON:05}/{video:011x}/{clip % CLIPS_A_VIDEO:05}"
        start = number % 500 / 100
        visual = [[start, start + 0.44]] if "fake_video" in kind else []
        audio = [[start, start + 0.4]] if "fake_audio" in kind else []
        record = {
            "file": f"{folder}/{kind}.mp4", "original": f"{folder}/real.mp4" if kind != "real" else f"{folder}.mp4",
            "split": split, "modify_type": KINDS[kind], "audio_model": "vits" if audio else None,
            "fake_segments": visual or audio, "audio_fake_segments": audio, "visual_fake_segments": visual,
            "video_frames": 225, "audio_frames": 144000,
        }  # fmt: skip
        yield f"{split}_metadata.json", f"{split}/{record['file']}", record


def lavdf(count: int) -> Iterator[tuple[str, str, Record]]:
    """Metadata file, path and record of each video: a real one, then three fakes of it."""
    for number in range(count):
        original, kind = number - number % len(KINDS), list(KINDS)[number % len(KINDS)]
        split = ("train", "train", "train", "dev", "test")[original // len(KINDS) % 5]
        name = f"{split}/{number:06}.mp4"
        record = {
            "file": name, "n_fakes": int(kind != "real"), "fake_periods": [[1.2, 1.9]] if kind != "real" else [],
            "timestamps": [["word", index / 2, index / 2 + 0.4] for index in range(20)], "duration": 8.64,
            "transcript": "word " * 20, "original": f"{split}/{original:06}.mp4" if kind != "real" else None,
            "modify_video": "fake_video" in kind, "modify_audio": "fake_audio" in kind, "split": split,
            "video_frames": 216, "audio_channels": 1, "audio_frames": 138240,
        }  # fmt: skip
        yield "metadata.json", name, record


SETS = {"avdeepfake1m": (avdeepfake1m, 1_000_000), "lavdf": (lavdf, 136_304)}

MEASURE = """
import json, sys, time
from pathlib import Path
import psutil
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.incremental import next_plan_part
from facefeed.pipeline.planning.incremental.changes import find_changes
from facefeed.pipeline.planning.plan import Plan
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.sources import listing_warnings

def peak():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
    return round(int(line.split()[1]) * 1024 / 1e6, 1)

before, started = psutil.Process().memory_info().rss / 1e6, time.perf_counter()
job, listing, config = prepare_job(sys.argv[1], sys.argv[2], detector=FixedBoxDetector())
warnings = listing_warnings(listing)
listed, list_peak = time.perf_counter(), peak()
state = RunState(job.paths, Plan(), job.config_hash)
part = next_plan_part(
    state, listing, find_changes(listing, {}), job=job, config=config, allow_leaks=True, retry=None,
    cost_seconds=lambda entry: 1.0,
)
print(json.dumps({
    "layout": listing.layout, "inputs": len(listing.entries), "units": len(part.units), "warnings": len(warnings),
    "megabytes_before": round(before, 1),
    "list": {"seconds": round(listed - started, 2), "peak_megabytes": list_peak},
    "plan": {"seconds": round(time.perf_counter() - listed, 2), "peak_megabytes": peak()},
}))
"""


def lay(src: Path, name: str, count: int) -> int:
    """Lays the set as empty files with its metadata; returns the bytes of the metadata."""
    tables: dict[str, Any] = {}
    seen: set[str] = set()
    for table, path, record in SETS[name][0](count):
        folder = path.rpartition("/")[0]
        if folder not in seen:
            seen.add(folder)
            (src / folder).mkdir(parents=True, exist_ok=True)
        os.close(os.open(src / path, os.O_CREAT | os.O_WRONLY))
        if table not in tables:
            tables[table] = (src / table).open("w", encoding="utf-8")
        tables[table].write(f"{',' if tables[table].tell() else '['}\n{json.dumps(record)}")
    for file in tables.values():
        file.write("]\n")
        file.close()
    return sum((src / table).stat().st_size for table in tables)


def measure(src: Path, out: Path) -> Record:
    """Lists and plans in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(src), str(out)], capture_output=True, text=True, check=True
    )
    measured: Record = json.loads(done.stdout)
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", action="append", choices=SETS, help="one of them; may be given again (all)")
    parser.add_argument("--share", type=float, default=1.0, help="of the set's videos that are laid out")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    given = parser.parse_args()
    results = {}
    for name in given.set or SETS:
        with tempfile.TemporaryDirectory(dir=given.folder, prefix="bench_listing") as folder:
            src = Path(folder) / name
            size_bytes = lay(src, name, round(SETS[name][1] * given.share))
            repeats = [measure(src, Path(folder) / "out") for _ in range(given.repeats)]
        results[name] = {"metadata_megabytes": round(size_bytes / 1e6), "repeats": repeats}
    sys.stdout.write(json.dumps({"bench": "listing", "share": given.share, "sets": results}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
