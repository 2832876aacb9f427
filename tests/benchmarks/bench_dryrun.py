"""How good the word of `precompute --dry-run` is: said and found, for sets of different kinds.

    python tests/benchmarks/bench_dryrun.py SET [SET ...] [--workers 2] [--every 10]

A SET is what `precompute` takes as SRC; `sample` is the built-in one. Prints one JSON
object: for each set what was said with its range, what it came to, and how far off that is.
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

from facefeed.data.sample import make_sample


def command(source: str, out: Path, *more: str) -> tuple[dict[str, Any], float]:
    """Runs precompute; its JSON and the seconds from start to exit."""
    line = [sys.executable, "-m", "facefeed.pipeline.cli", "precompute", source, str(out), "--json", *more]
    started = time.perf_counter()
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode not in {0, 1}:
        sys.exit(f"{' '.join(line)}: exit {done.returncode}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures, seconds


def one_set(source: str, options: list[str]) -> dict[str, Any]:
    """Said and found."""
    with tempfile.TemporaryDirectory() as folder:
        if source == "sample":
            make_sample(Path(folder) / "videos")
            source = f"{folder}/videos"
        out = Path(folder) / "out"
        dry, dry_seconds = command(source, out, "--dry-run", *options)
        done, seconds = command(source, out, "--max-failed", "100%", *options)
        said = dry["forecast"]
        found = {"seconds": done["seconds"], "size_bytes": done["bytes"], "faces": done["rows"]}
        return {
            "inputs": dry["survey"]["inputs"],
            "probed": said["probed"],
            "dry_run_seconds": round(dry_seconds, 1),
            "command_seconds": round(seconds, 1),
            "said": {name: said[name] for name in found},
            "found": found,
            "off": {name: round(said[name]["likely"] / max(value, 1e-9) - 1, 3) for name, value in found.items()},
            "within": {name: said[name]["low"] <= value <= said[name]["high"] for name, value in found.items()},
        }


def main() -> None:
    """Prints the figures of all sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=["sample"], metavar="SET")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--every", default="10")
    arguments = parser.parse_args()
    options = ["--workers", arguments.workers, "--every", arguments.every]
    results = {source: one_set(source, options) for source in arguments.sets}
    print(json.dumps({"benchmark": "dryrun", "workers": arguments.workers, "sets": results}))


if __name__ == "__main__":
    main()
