"""All that only a GPU can show: every benchmark of one GPU, one after the other.

    python tests/benchmarks/gpu.py [--lanes engine loader ...] [--folder build/gpu] [--small]

Each lane is a command of its own with a time limit; together they take at most half an hour. Its JSON, with the
machine's description, is FOLDER/LANE.json, its log FOLDER/LANE.log; of what failed or took too long the end of the log
is printed, and the other lanes go on. FOLDER/measured-gpu.md has a table of each. --small: on the CPU, a little of
everything, to see that it works.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from gpu_page import write_page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FACEFEED = ("-m", "facefeed.pipeline")
CLIPS = ("zl", "hamilton", "crowd")
NO_WEIGHTS = ("--set", "model.pretrained=false")
LEVERS = ("bf16", "fp16", "tf32", "channels_last", "fused", "compile", "adamw8bit", "checkpointing", "accumulate:4",
          "zero:1", "zero:2", "zero:3", "bf16,channels_last,fused", "bf16,channels_last,fused,compile")  # fmt: skip


def lanes(out: Path, videos: Path, folder: Path, *, small: bool) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Each lane's time limit in seconds, and its command for this Python."""
    device = "cpu" if small else "cuda"
    levers = tuple(part for lever in (LEVERS[:1] if small else LEVERS) for part in ("--levers", lever))
    clips = ("d9",) if small else CLIPS
    return {
        "engine": (150, (
            str(HERE / "bench_faces.py"), "--device", device, "--lanes", "clips", "track", "--min-face", "40",
            "--repeats", "1" if small else "2", "--clips", *clips, *(("--frames", "2", "--track-frames", "8")
            if small else ()),
        )),
        "loader": (100, (
            str(HERE / "gpu_loader.py"), "--out", str(out), "--device", device,
            *(("--images", "256", "--repeats", "1", "--workers", "1") if small else ()),
        )),
        "starvation": (360, (
            str(HERE / "gpu_starvation.py"), "--out", str(out), "--device", device,
            *(("--models", "resnet10t", "--sides", "32", "--steps", "50", "--workers", "1") if small else ()),
        )),
        "selftest": (150, (*FACEFEED, "profile", "--self-test", "--json", "--page", str(folder / "selftest.html"))),
        "job": (330, (
            str(HERE / "gpu_job.py"), *(("--groups", "15", "--epochs", "1", "--lanes", "jobs") if small else ()),
        )),
        "ladder": (440, (
            *FACEFEED, "ladder", str(out), "--videos", str(videos), "--recipe", "quick" if small else "baseline",
            *NO_WEIGHTS, *levers, "--repeats", "1", "--steps", "2" if small else "30", "--json",
            "--page", str(folder / "ladder.html"), *(("--set", "data.image_size=32") if small else ()),
        )),
        "models": (180, (
            str(HERE / "bench_ladder.py"), *(("--models", "Mlp", "--steps", "2", "--repeats", "1") if small else ()),
        )),
    }  # fmt: skip


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "gpu": gpu,
        "gpu_memory_bytes": torch.cuda.get_device_properties(0).total_memory if gpu else None,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "python": sys.version.split()[0],
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
    }


def measured(name: str, limit_seconds: int, command: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """One lane; the last line of its output, one JSON object, is the result."""
    started = time.perf_counter()
    with (folder / f"{name}.log").open("w") as log:
        job = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            cwd=folder,
        )  # fmt: skip
        try:
            output, _ = job.communicate(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            for process in [*psutil.Process(job.pid).children(recursive=True), psutil.Process(job.pid)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            output, _ = job.communicate()
    seconds = round(time.perf_counter() - started, 1)
    outcome: dict[str, Any] = {"lane": name, "exit": job.returncode, "seconds": seconds, "machine": machine()}
    try:
        outcome["result"] = json.loads(output.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        outcome["error"] = (folder / f"{name}.log").read_text()[-3000:] or output[-3000:]
    (folder / f"{name}.json").write_text(json.dumps(outcome, indent=1))
    return outcome


def dataset(folder: Path) -> tuple[Path, Path]:
    """A finished dataset of the sample, made once."""
    videos, out = folder / "videos", folder / "faces"
    if not (out / "manifest.json").is_file():
        sample = [sys.executable, *FACEFEED, "sample", str(videos), "--groups", "40"]
        precompute = [sys.executable, *FACEFEED, "precompute", str(videos), str(out), "--boxes", "source"]
        for command in (sample, [*precompute, "--split-ratio", "70,15,15"]):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return out, videos


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", nargs="+")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/gpu")
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    if not given.small and not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device here; --small tries the benchmarks on the CPU")
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    out, videos = dataset(folder)
    all_lanes = lanes(out, videos, folder, small=given.small)
    failed = []
    if unknown := set(given.lanes or ()) - all_lanes.keys():
        sys.exit(f"--lanes {min(unknown)}: no such lane; there are {', '.join(all_lanes)}")
    for name in given.lanes or all_lanes:
        outcome = measured(name, *all_lanes[name], folder)
        ok = outcome["exit"] == 0 and "error" not in outcome
        print(f"{name}: {'done' if ok else 'FAILED'} in {outcome['seconds']} s", flush=True)
        if not ok:
            failed.append(name)
            print(outcome.get("error", f"exit {outcome['exit']}"), flush=True)
    print(write_page(folder, all_lanes))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
