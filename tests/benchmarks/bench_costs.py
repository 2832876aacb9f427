"""What a terabyte of video costs: CPU time, and bytes read and written, of `facefeed precompute` by size of frame.

    python tests/benchmarks/bench_costs.py [--media DIR] [--copies 4] [--repeats 3] [--workers 2]

For each kind of clip one job takes `--copies` copies of each of its clips and another twice as many; their difference
is what the copies cost, without the start and the end of a job. Videos are dropped from the page cache before a job, so
that `fetched` counts what came from storage, by the kernel's own count of its processes; a job reads a file up to three
times (hash, packets, frames). `written` is the difference of the finished datasets. Prints one JSON object with every
repeat. Needs the real clips, and a temporary folder that is no tmpfs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import av
from peers.faces import MEDIA

KINDS = {
    "1080p": ["fsgan/docs/examples/conan_obrien.mp4"],
    "720p": ["3DDFA/demo@obama/obama.mp4"],
    "480p": [f"sample-videos/asl_gestures/{name}.mkv" for name in ("again", "book", "walk", "school")],
    "512 px square": ["LivePortrait/assets/examples/driving/d9.mp4"],
}
SETTINGS = {
    "every 10th frame": [],
    "every 10th frame, track": ["--detector", "track"],
    "every frame, track": ["--detector", "track", "--every", "1"],
}
SECTOR_BYTES = 512  # of ru_inblock


def copies_of(clips: list[Path], copies: int, folder: Path) -> Path:
    """A source of labelled videos, so many copies of each clip."""
    target = folder / "real"
    target.mkdir(parents=True)
    for number in range(copies):
        for clip in clips:
            shutil.copy(clip, target / f"{number:03}-{clip.name}")
    return folder


def job(source: Path, out: Path, workers: int, options: list[str]) -> list[str]:
    """The command on one source."""
    return [
        sys.executable, "-m", "facefeed.pipeline", "precompute", str(source), str(out), "--workers", str(workers),
        "--layout", "folder", *options,
    ]  # fmt: skip


class Cost(NamedTuple):
    """What one job took, and how many faces it found."""

    cpu_seconds: float
    fetched_bytes: int
    written_bytes: int
    faces: int


def cost(source: Path, workers: int, options: list[str]) -> Cost:
    """Runs a job whose videos are not in the page cache."""
    os.sync()  # what is not yet written stays in the page cache
    for path in source.rglob("*.*"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with tempfile.TemporaryDirectory() as folder:
        out, before = Path(folder) / "out", resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(job(source, out, workers, options), check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Cost(
            cpu_seconds=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            fetched_bytes=(after.ru_inblock - before.ru_inblock) * SECTOR_BYTES,
            written_bytes=sum(path.stat().st_size for path in out.rglob("*") if path.is_file()),
            faces=json.loads((out / "manifest.json").read_text())["rows"],
        )


def length(clips: list[Path]) -> tuple[float, int]:
    """Seconds and frames of clips, by decoding them."""
    seconds, frames = 0.0, 0
    for clip in clips:
        with av.open(str(clip)) as container:
            stream = container.streams.video[0]
            count = sum(1 for _ in container.decode(stream))
            seconds += count / float(stream.average_rate or 25)
            frames += count
    return seconds, frames


def figures(
    runs: list[list[Cost]], copies: int, seconds: float, frames: int, size_bytes: int, options: list[str]
) -> dict[str, Any]:
    """Figures of one setting: of each run the medians, and CPU time in all."""
    cpu = [(more.cpu_seconds - less.cpu_seconds) / copies for less, more in runs]
    fetched = [(more.fetched_bytes - less.fetched_bytes) / copies / size_bytes for less, more in runs]
    written = (runs[0][1].written_bytes - runs[0][0].written_bytes) / copies
    faces = (runs[0][1].faces - runs[0][0].faces) / copies
    per_copy = statistics.median(cpu)
    return {
        "cpu_seconds_of_a_copy": [round(value, 2) for value in cpu],
        "cpu_hours_per_hour_of_video": round(per_copy / seconds, 3),
        "cpu_hours_per_terabyte": round(per_copy / 3600 / (size_bytes * 1e-12)),
        "cpu_ms_per_wanted_frame": round(1000 * per_copy / (frames / (1 if "--every" in options else 10))),
        "fetched_per_byte_of_video": [round(value, 2) for value in fetched],
        "written_per_byte_of_video": round(written / size_bytes, 3),
        "kilobytes_per_face": round(written / max(faces, 1) / 1000, 1),
    }


def main() -> None:
    """Runs the lanes and prints their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--media", type=Path, default=MEDIA)
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    lanes: dict[str, Any] = {}
    for kind, names in KINDS.items():
        clips = [given.media / name for name in names]
        seconds, frames = length(clips)
        size_bytes = sum(clip.stat().st_size for clip in clips)
        lane = lanes[kind] = {"megabits_per_second": round(size_bytes * 8e-6 / seconds, 2), "settings": {}}
        with tempfile.TemporaryDirectory() as folder:
            few = copies_of(clips, given.copies, Path(folder) / "few")
            many = copies_of(clips, 2 * given.copies, Path(folder) / "many")
            for setting, options in SETTINGS.items():
                runs = [[cost(source, given.workers, options) for source in (few, many)] for _ in range(given.repeats)]
                lane["settings"][setting] = figures(runs, given.copies, seconds, frames, size_bytes, options)
    print(json.dumps({"workers": given.workers, "lanes": lanes}, indent=2))


if __name__ == "__main__":
    main()
