"""`facefeed inspect` and `facefeed profile` of a million rows: seconds and memory of the whole command.

    python tests/benchmarks/bench_million.py [--rows 1000000] [--videos 10000] [--repeats 3] [--folder DIR]

The dataset is that of `bench_add.py`: made-up rows of the real schema and page layout, one video a unit, so that the
commands open as many files as there are videos. Prints one JSON object with every repeat. `megabytes` is the largest
sum of the proportional memory (PSS) of the command and all its processes, sampled twice a second. Goals: 60 s, 2 GB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from bench_add import make_out

SECONDS_BETWEEN_SAMPLES = 0.5
GOALS = {"seconds": 60, "megabytes": 2000}


def commands(out: Path, folder: Path) -> dict[str, list[str]]:
    """What a user runs, with its defaults."""
    return {
        "inspect": ["inspect", str(out), "--page", str(folder / "inspect.html")],
        "profile": ["profile", str(out), "--step-ms", "20", "--page", str(folder / "profile.html")],
    }


def measured(command: list[str]) -> dict[str, Any]:
    """Wall seconds, exit code and the most memory of a command."""
    started, most = time.perf_counter(), 0
    process = psutil.Popen(
        [sys.executable, "-m", "facefeed.pipeline", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None:
        most = max(most, tree_bytes(process))
        time.sleep(SECONDS_BETWEEN_SAMPLES)
    return {
        "seconds": round(time.perf_counter() - started, 2),
        "megabytes": round(most / 1e6),
        "exit": process.returncode,
    }


def tree_bytes(process: psutil.Process) -> int:
    """Proportional memory of a process and all its descendants."""
    total = 0
    try:
        for member in (process, *process.children(recursive=True)):
            total += member.memory_full_info().pss
    except psutil.NoSuchProcess:  # one of them ended meanwhile; the next sample has the others
        pass
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--videos", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made; takes 5 GB")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="bench_million") as name:
        folder = Path(name)
        make_out(folder / "out", given.rows, given.videos)
        repeats: dict[str, list[dict[str, Any]]] = {
            title: [measured(command) for _ in range(given.repeats)]
            for title, command in commands(folder / "out", folder).items()
        }
    met = {
        f"{title}, {unit}": max(repeat[unit] for repeat in repeats[title]) <= goal
        for title in repeats
        for unit, goal in GOALS.items()
    }
    sys.stdout.write(json.dumps({"benchmark": "million", "rows": given.rows, "repeats": repeats, "met": met}) + "\n")


if __name__ == "__main__":
    main()
