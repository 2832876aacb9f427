"""From videos to a classifier with one GPU: precompute on the CPU and on the GPU, then training with `fast`.

    python tests/benchmarks/gpu_job.py [--groups 240] [--epochs 30] [--lanes jobs training]

jobs: `facefeed precompute` of the sample, the whole command: without the GPU, and with it, for `mtcnn` at its default
sampling and `track` at every frame; frames a second from the command's start to its end, and at work. training: the
settings of `make demo` with the levers of `fast`, then a ResNet-50 at 224 px from scratch: AUC, seconds, images a
second. Prints one JSON object.
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

JOBS = {
    "mtcnn, every 10th frame": ("--detector", "mtcnn"),
    "mtcnn, every frame": ("--detector", "mtcnn", "--every", "1"),
    "track, every frame": ("--detector", "track", "--every", "1"),
}
COMMON = ("model.pretrained=false", "model.warmup_steps=20", "data.balance=pairs")
SMALL = ("model.backbone=resnet10t", "model.learning_rate=1e-3", "data.image_size=64")
LARGE = ("model.learning_rate=5e-4", "data.image_size=224")


def run(*command: str, gpu: bool = True) -> tuple[dict[str, Any], float]:
    """The command's JSON object, and its seconds."""
    environment = dict(os.environ) if gpu else {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    started = time.perf_counter()
    completed = subprocess.run(
        [sys.executable, "-m", "facefeed.pipeline", *command, "--json"],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    print(f"{' '.join(command)}: exit {completed.returncode} in {seconds:.1f} s", file=sys.stderr, flush=True)
    if completed.returncode:
        print(completed.stderr[-3000:], file=sys.stderr, flush=True)
        return {"exit": completed.returncode, "error": completed.stderr[-3000:]}, seconds
    return json.loads(completed.stdout.splitlines()[-1]), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=240)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--lanes", nargs="+", default=["jobs", "training"])
    given = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "gpu job"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        videos = folder / "videos"
        sample = [sys.executable, "-m", "facefeed.pipeline", "sample", str(videos), "--groups", str(given.groups)]
        subprocess.run(sample, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if "jobs" in given.lanes:
            result["jobs"] = {}
            for number, (job, options) in enumerate(JOBS.items()):
                for where, gpu in (("CPU", False), ("GPU", True)):
                    out = str(folder / f"out-{number}-{where}")
                    summary, seconds = run("precompute", str(videos), out, *options, gpu=gpu)
                    result["jobs"][f"{job}, {where}"] = {"seconds": seconds, "summary": summary}
        if "training" in given.lanes:
            out = str(folder / "faces")
            run("precompute", str(videos), out, "--split-ratio", "70,15,15", "--boxes", "source")
            result["training"] = {}
            for kind, changes in (("resnet10t, 64 px", SMALL), ("resnet50, 224 px", LARGE)):
                sets = [part for change in (*changes, *COMMON, f"epochs={given.epochs}") for part in ("--set", change)]
                run_folder = str(folder / kind.split(",")[0])
                summary, seconds = run("train", out, "--recipe", "fast", *sets, "--run", run_folder)
                result["training"][kind] = {"seconds": seconds, "result": summary}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
