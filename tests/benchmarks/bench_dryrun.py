"""How good the forecast of `precompute --dry-run` is: forecast and actual, for sets of different kinds.

    python tests/benchmarks/bench_dryrun.py [SET ...] [--repeats 3] [--workers 2] [--every 10]

A SET is what `precompute` takes as SRC; `sample` is the built-in one. Each repeat is a dry run and, at once after it,
the run. Prints one JSON object: every repeat with its range, the actual figures and the load averages beside them, and
`coverage`: in what share of the repeats each range held the actual figure, which should be about 0.9.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from facefeed.data.sample import make_sample

FIGURES = ("seconds", "size_bytes", "faces")


def command(source: str, out: Path, *more: str) -> tuple[dict[str, Any], float]:
    """Runs precompute; its JSON and the seconds from start to exit."""
    line = [sys.executable, "-m", "facefeed.pipeline", "precompute", source, str(out), "--json", *more]
    started = time.perf_counter()
    completed = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - started
    if completed.returncode:
        sys.exit(f"{' '.join(line)}: exit {completed.returncode}")
    figures: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
    return figures, seconds


def one_repeat(source: str, options: list[str], folder: Path) -> dict[str, Any]:
    """A dry run and the run of `source` into an empty OUT."""
    load_dry = os.getloadavg()[0]
    dry, dry_seconds = command(source, folder / "out", "--dry-run", *options)
    load_run = os.getloadavg()[0]
    completed, seconds = command(source, folder / "out", *options)
    forecast = dry["forecast"]
    actual = {"seconds": completed["seconds"], "size_bytes": completed["bytes"], "faces": completed["rows"]}
    return {
        "inputs": dry["survey"]["inputs"],
        "probed": forecast["probed"],
        "dry_run_seconds": round(dry_seconds, 1),
        "command_seconds": round(seconds, 1),
        "load": {"dry_run": load_dry, "run": load_run, "end": os.getloadavg()[0]},
        "others_per_core": round(forecast["others_per_core"], 2),
        "forecast": {name: forecast[name] for name in FIGURES},
        "actual": actual,
        "off": {name: round(value / max(forecast[name]["likely"], 1e-9) - 1, 3) for name, value in actual.items()},
        "within": {name: forecast[name]["low"] <= value <= forecast[name]["high"] for name, value in actual.items()},
    }


def repeats_of(source: str, options: list[str], count: int) -> list[dict[str, Any]]:
    """All repeats of one set."""
    with tempfile.TemporaryDirectory() as folder:
        if source == "sample":
            make_sample(Path(folder) / "videos")
            source = f"{folder}/videos"
        repeats = []
        for number in range(count):
            (own := Path(folder) / str(number)).mkdir()
            repeats.append(one_repeat(source, options, own))
        return repeats


def main() -> None:
    """Prints the figures of all repeats of all sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=["sample"], metavar="SET")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", default="2")
    parser.add_argument("--every", default="10")
    arguments = parser.parse_args()
    options = ["--workers", arguments.workers, "--every", arguments.every, "--max-failed", "100%"]
    sets = {source: repeats_of(source, options, arguments.repeats) for source in arguments.sets}
    all_repeats = [repeat for repeats in sets.values() for repeat in repeats]
    coverage = {
        name: round(sum(repeat["within"][name] for repeat in all_repeats) / len(all_repeats), 3) for name in FIGURES
    }
    print(json.dumps({
        "benchmark": "dryrun", "workers": arguments.workers, "repeats": len(all_repeats), "coverage": coverage,
        "sets": sets,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
