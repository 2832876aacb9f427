"""What precompute costs, stage by stage, side by side in one run: decode alone, detect alone, the whole job.

    python tests/benchmarks/bench_precompute.py [--videos DIR] [--repeats 3] [--workers 1 2] [--every 10]
        [--detectors mtcnn track] [--landmarks template5 mesh]

Prints one JSON object with every repeat: frames a second (wanted frames), MB/s of video, and for the whole job the
CPU time and peak memory of all its processes (PSS, so that shared pages count once), the peak memory of its largest
worker (without the decoder), and the seconds from its start until a worker starts its decoder. Without --videos the
built-in sample is used.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from facefeed.data.sample import make_sample
from facefeed.pipeline.errors import InputError
from facefeed.pipeline.faces.detectors.keyframe_detector import TrackingDetector
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
from facefeed.pipeline.sources import list_source
from facefeed.pipeline.video import MediaReader, Sampling

DETECTORS = {"mtcnn": MTCNNDetector, "track": TrackingDetector}


def decode_only(videos: list[Path], sampling: Sampling) -> dict[str, float]:
    """Every wanted frame through the decoder's child, and nothing else."""
    started, frames = time.perf_counter(), 0
    with MediaReader() as reader:
        for path in videos:
            frames += sum(1 for _ in reader.frames(path, sampling))
    return rates(frames, videos, time.perf_counter() - started)


def detect_only(videos: list[Path], sampling: Sampling, name: str) -> dict[str, float]:
    """The detector on frames that lie in memory already; one thread, as a slot on a full machine has."""
    os.environ["OMP_NUM_THREADS"] = "1"
    detector = DETECTORS[name]().load()
    seconds, frames = 0.0, 0
    with MediaReader() as reader:
        for path in videos:
            decoded = [frame.rgb for frame in reader.frames(path, sampling)]
            started = time.perf_counter()
            for start in range(0, len(decoded), detector.frames_at_once):
                detector.detect(decoded[start : start + detector.frames_at_once])
            seconds += time.perf_counter() - started
            frames += len(decoded)
    return rates(frames, videos, seconds)


def whole_job(
    source: Path, videos: list[Path], workers: int, every: int, detector: str, landmarks: str
) -> dict[str, float]:
    """The command itself, from start to exit, into a fresh OUT; its own start-up is counted in `seconds`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "facefeed.pipeline", "precompute", str(source), f"{folder}/out"]
        command += ["--workers", str(workers), "--max-failed", "100%", "--allow-unlabelled", "--json"]
        command += ["--every", str(every), "--detector", detector, "--landmarks", landmarks]
        started, cpu_before = time.perf_counter(), cpu_seconds_of_children()
        job = psutil.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        peak_bytes = worker_peak_bytes = start_seconds = 0.0
        while job.poll() is None:
            workers_ = [process for process in children_of(job) if is_worker(process)]
            if not start_seconds and any(children_of(worker) for worker in workers_):
                start_seconds = time.perf_counter() - started
            bytes_by_process = {process: memory_bytes(process) for process in [job, *children_of(job, recursive=True)]}
            peak_bytes = max(peak_bytes, sum(bytes_by_process.values()))
            worker_peak_bytes = max([worker_peak_bytes, *(bytes_by_process.get(worker, 0) for worker in workers_)])
            time.sleep(0.05 if not start_seconds else 0.25)
        figures = json.loads(job.stdout.read())
        seconds = time.perf_counter() - started
    return {
        **rates(figures["this_run"]["frames"], videos, seconds),
        "frames_per_second_at_work": figures["frames_per_second"],
        "faces": figures["this_run"]["faces"],
        "cpu_seconds": round(cpu_seconds_of_children() - cpu_before, 2),
        "start_seconds": round(start_seconds, 2),
        "peak_memory_mb": round(peak_bytes / 1e6),
        "worker_peak_memory_mb": round(worker_peak_bytes / 1e6),
    }


def children_of(process: psutil.Process, *, recursive: bool = False) -> list[psutil.Process]:
    try:
        return process.children(recursive=recursive)
    except psutil.Error:
        return []


def is_worker(process: psutil.Process) -> bool:
    """Whether a child of the job is a worker, rather than the decoder that it tries inputs with."""
    try:
        return "multiprocessing.spawn" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def cpu_seconds_of_children() -> float:
    """User and system time of all processes that this one started and has waited for, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def memory_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def rates(frames: int, videos: list[Path], seconds: float) -> dict[str, float]:
    size_bytes = sum(path.stat().st_size for path in videos)
    return {
        "frames": frames,
        "seconds": round(seconds, 2),
        "frames_per_second": round(frames / seconds, 2),
        "video_mb_per_second": round(size_bytes / 1e6 / seconds, 3),
    }


def readable(source: Path) -> list[Path]:
    """The inputs that decode to their end; a broken file would make repeats differ in nothing but noise."""
    videos = []
    with MediaReader() as reader:
        for entry in list_source(source).entries:
            try:
                sum(1 for _ in reader.frames(source / entry.video_id, Sampling(frames=1)))
            except InputError:
                continue
            videos.append(source / entry.video_id)
    return videos


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--videos", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--detectors", nargs="+", default=["mtcnn"], choices=list(DETECTORS))
    parser.add_argument("--landmarks", nargs="+", default=["template5"], choices=["template5", "mesh"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = arguments.videos or Path(folder) / "sample"
        if arguments.videos is None:
            make_sample(source)
        videos = readable(source)
        sampling = Sampling(every=arguments.every)
        stages: dict[str, Any] = {"decode_only": lambda: decode_only(videos, sampling)}
        for name in arguments.detectors:
            stages[f"{name}_only"] = lambda name=name: detect_only(videos, sampling, name)
            for workers, landmarks in itertools.product(arguments.workers, arguments.landmarks):
                stages[f"whole_job_{name}_{landmarks}_{workers}_workers"] = partial(
                    whole_job, source, videos, workers, arguments.every, name, landmarks
                )
        repeats: dict[str, list[dict[str, float]]] = {name: [] for name in stages}
        for _ in range(arguments.repeats):  # in turn, so that a drifting machine drifts under all of them
            for name, measure in stages.items():
                repeats[name].append(measure())
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for name, runs in repeats.items()
    }
    about = {"benchmark": "precompute", "cores": len(os.sched_getaffinity(0)), "videos": len(videos)}
    print(json.dumps({**about, "median": medians, "repeats": repeats}, indent=1))


if __name__ == "__main__":
    main()
