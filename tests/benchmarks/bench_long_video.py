"""Memory of one slot, its decoder's child included, on a 1080p video of two hours: it must not depend on the length.

    python tests/benchmarks/bench_long_video.py [--minutes 2 120] [--frames 400] [--repeats 1]
        [--detector mtcnn|track]

The video is made by encoding ten seconds of a moving portrait and repeating its packets. Prints one JSON object:
peak memory (PSS) of the worker and of its child for each length.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import threading
import time
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import psutil
from facefeed.data.portraits import load_portrait
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.by_name import make_detector
from facefeed.pipeline.planning.options import JobSpec, Options
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.sources import list_source
from facefeed.pipeline.video import Sampling

RATE, WIDTH, HEIGHT, CLIP_SECONDS = 25, 1920, 1080, 10


def write_clip(path: Path) -> None:
    portrait = cv2.resize(load_portrait("astronaut").image, (1400, 1400))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE, options={"preset": "ultrafast", "crf": "30"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(RATE * CLIP_SECONDS):
            frame = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
            left = 100 + number
            frame[:, left : left + 1400] = portrait[100 : 100 + HEIGHT]
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def repeat_clip(clip: Path, path: Path, minutes: float) -> None:
    with av.open(str(clip)) as source, av.open(str(path), "w") as target:
        stream = source.streams.video[0]
        output = target.add_stream_from_template(stream)
        packets = [
            (bytes(demuxed), demuxed.pts, demuxed.dts, demuxed.is_keyframe)
            for demuxed in source.demux(stream)
            if demuxed.size
        ]
        length = int(CLIP_SECONDS / stream.time_base)
        for turn in range(int(minutes * 60 / CLIP_SECONDS)):
            for data, pts, dts, is_key in packets:
                packet = av.Packet(data)
                packet.pts, packet.dts = pts + turn * length, dts + turn * length
                packet.time_base, packet.stream, packet.is_keyframe = Fraction(stream.time_base), output, is_key
                target.mux(packet)


def slot(source: Path, out: Path, frames: int, detector: str) -> None:
    listing = list_source(source)
    options = Options(sampling=Sampling(frames=frames), keep=FaceFilter(min_face_px=100))
    job = JobSpec(
        root=source, out=out, options=options, labels=listing.labels, config_hash="bench",
        detector=make_detector(detector, options.keep),
    )  # fmt: skip
    make_folders(job.paths)
    receipt = UnitWorker(job).run(Unit.make(listing.entries, "train", config_hash="bench", salt="0"))
    assert receipt.inputs[0].outcome == "ok", receipt


def peak_memory(source: Path, out: Path, frames: int, detector: str) -> dict[str, float]:
    started = time.perf_counter()
    worker = multiprocessing.get_context("spawn").Process(target=slot, args=(source, out, frames, detector))
    worker.start()
    process, peak, is_stopped = psutil.Process(worker.pid), {"worker": 0, "child": 0}, threading.Event()

    def watch() -> None:
        while not is_stopped.wait(0.2):
            for name, members in (("worker", [process]), ("child", process.children(recursive=True))):
                try:
                    peak[name] = max(peak[name], sum(member.memory_full_info().pss for member in members))
                except psutil.Error:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    worker.join()
    is_stopped.set()
    watcher.join()
    assert worker.exitcode == 0
    megabytes = {f"{name}_peak_mb": round(size / 1e6) for name, size in peak.items()}
    return {**megabytes, "slot_peak_mb": sum(megabytes.values()), "seconds": round(time.perf_counter() - started, 1)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, nargs="+", default=[2, 120])
    parser.add_argument("--frames", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--detector", choices=("mtcnn", "track"), default="mtcnn")
    arguments = parser.parse_args()
    results: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        clip = Path(folder) / "clip.mp4"
        write_clip(clip)
        for minutes in arguments.minutes:
            source = Path(folder) / f"{minutes:g}"
            source.mkdir()
            repeat_clip(clip, source / "long.mp4", minutes)
            for number in range(arguments.repeats):
                run = peak_memory(
                    source, Path(folder) / f"out{minutes:g}-{number}", arguments.frames, arguments.detector
                )
                results.setdefault(f"{minutes:g}_minutes", []).append(run)
    print(json.dumps({"benchmark": "long_video", "size": f"{WIDTH}x{HEIGHT}", "repeats": results}, indent=1))


if __name__ == "__main__":
    main()
