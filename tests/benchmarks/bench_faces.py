"""The face engine beside facenet-pytorch's MTCNN: speed, agreement, ground truth and memory, side by side in one run.

    python tests/benchmarks/bench_faces.py [--min-face 20 40] [--clips NAME ...] [--frames 16] [--repeats 3]
        [--threads N] [--device cpu|cuda] [--lanes clips photos truth memory track] [--track-frames 128]
        [--media FOLDER]

clips: the same frames, in memory already, through `MTCNN(keep_all=True).detect` frame by frame, through its best batch
size (1, 4, 8 and 16 are tried on each clip's first frames) and through facefeed's; in turn, all with the same number
of threads. Ratio: facenet's seconds over ours in the same repeat, above 1 ours is faster; the median of the repeats;
in total: of the sums over the clips. Decoding: wanted frames a second of one decoder child, alone, at every 10th frame
(what precompute takes by default) and at every frame; share: our detector's frames a second over it; from 1 on
decoding is what a video waits for. facenet's batches against its single frames show how much of a difference is noise.
track: `--detector track` on the first frames of each clip, one after the other, and on every 10th, beside facenet's
search of each frame and ours; recall, landmarks: against facenet's; unconfirmed: faces that no search of a whole frame
has within two frames; jitter: of the crop's middle on a head that keeps still.
photos: the same, one by one, each in its own size. truth: annotated photos. memory: each engine in a process of its
own, on the frames of the largest clip and on one frame of 12 megapixels.

Prints one JSON object with every repeat; tables and goals go to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import faces_memory
import faces_tracking
import torch
from facefeed.pipeline.faces import Faces
from facefeed.pipeline.video import MediaReader, Sampling
from faces_agreement import FOUND_ERROR, STRONG_SCORE, agree, mean_error, truth_errors
from faces_engines import NAMES, Engine, Frames, best_batch, make_engine, use_threads
from faces_figures import speed, totals, tracking
from faces_media import (
    CLIPS,
    LARGEST,
    MEDIA,
    annotated_photos,
    clip_files,
    frames_of,
    large_frame,
    media_at,
    photo,
    photos,
)
from faces_report import print_report, tell

LANES = ("clips", "photos", "truth", "memory", "track")
Found = dict[str, list[Faces]]


def in_turn(engines: dict[str, Engine], frames: Frames, repeats: int) -> tuple[dict[str, list[float]], Found]:
    """Seconds of every repeat of each engine, another one first each time, and what each found."""
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    faces_by_engine: Found = {}
    names = list(engines)
    for number in range(repeats):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            elapsed, faces_by_engine[name] = engines[name].timed(frames)
            seconds[name].append(elapsed)
    return seconds, faces_by_engine


def decoding(path: Path, repeats: int) -> dict[str, list[float]]:
    """Wanted frames a second of a decoder child that does nothing else, at every 10th frame and at each."""
    rates: dict[str, list[float]] = {"every_10": [], "every_1": []}
    with MediaReader() as reader:
        reader.probe(path)  # starts the child
        for _ in range(repeats):
            for every in (10, 1):
                started = time.perf_counter()
                count = sum(1 for _ in reader.frames(path, Sampling(every=every)))
                rates[f"every_{every}"].append(round(count / (time.perf_counter() - started), 2))
    return rates


def clips(given: argparse.Namespace, results: dict[int, dict[str, Any]]) -> None:
    """Every clip at every smallest face."""
    everything: dict[int, Found] = {px: {name: [] for name in NAMES} for px in given.min_face}
    with clip_files(given.media, given.clips) as files:
        for name, path in files.items():
            frames, rates = frames_of(path, given.frames), decoding(path, given.repeats)
            for px in given.min_face:
                figures, detections = clip(frames, px, given)
                figures = {"path": CLIPS[name], **figures, "decoding": rates}
                results[px].setdefault("clips", {})[name] = figures | speed(figures)
                tell(f"{name}, min_face {px} px: done")
                for engine, faces in detections.items():
                    everything[px][engine] += faces
    for px, detections in everything.items():
        agreement = {other: agree(detections["facenet"], detections[other]) for other in NAMES[1:]}
        results[px]["total"] = totals(results[px]["clips"], agreement)


def track(given: argparse.Namespace, results: dict[int, dict[str, Any]]) -> None:
    """Every clip, frame after frame."""
    with clip_files(given.media, given.clips) as files:
        for px, result in results.items():
            clips_: dict[str, Any] = {}
            for name, path in files.items():
                options = {"min_face_px": px, "device": given.device, "repeats": given.repeats}
                clips_[name] = faces_tracking.follow(path, in_turn, frames=given.track_frames, **options)
                rates = decoding(path, given.repeats)
                for sampling, figures in clips_[name].items():
                    figures["decoding"] = {sampling: rates[sampling]}
                tell(f"{name}, min_face {px} px, track: done")
            still = faces_tracking.jitter(min_face_px=px, device=given.device)
            result["track"] = {"clips": clips_, "total": tracking(clips_), "jitter_px": still}


def clip(frames: Frames, px: int, given: argparse.Namespace) -> tuple[dict[str, Any], Found]:
    batch, batch_rates = best_batch(frames, min_face_px=px, device=given.device)
    engines = {name: make_engine(name, min_face_px=px, device=given.device, batch=batch) for name in NAMES}
    for engine in engines.values():
        engine.warm_up(frames)
    seconds, detections = in_turn(engines, frames, given.repeats)
    figures = {
        "size": size(frames[0]),
        "frames": len(frames),
        "best_batch": batch,
        "batch_seconds": batch_rates,
        "seconds": seconds,
        "agreement": {name: agree(detections["facenet"], detections[name]) for name in NAMES[1:]},
    }
    return figures, detections


def photo_lane(given: argparse.Namespace, px: int) -> dict[str, Any]:
    """Photos one by one, as a job meets them."""
    engines = {name: make_engine(name, min_face_px=px, device=given.device) for name in ("facenet", "ours")}
    figures: dict[str, Any] = {}
    everything: Found = {name: [] for name in engines}
    for name, path in photos(given.media).items():
        rgb = photo(path)
        if not figures:
            for engine in engines.values():
                engine.warm_up([rgb])
        seconds, detections = in_turn(engines, [rgb], given.repeats)
        agreement = agree(detections["facenet"], detections["ours"])
        counts = {engine_name: len(faces[0]) for engine_name, faces in detections.items()}
        figures[name] = {"size": size(rgb), "seconds": seconds, "faces": counts, "agreement": agreement}
        for engine_name, faces in detections.items():
            everything[engine_name] += faces
    agreement = {"ours": agree(everything["facenet"], everything["ours"])}
    return {"each": figures, "total": totals(figures, agreement)}


def truth_lane(given: argparse.Namespace, px: int) -> dict[str, Any]:
    """Recall, error of the five points, and strong faces that nobody annotated where all faces are."""
    annotated = annotated_photos(given.media)
    figures: dict[str, Any] = {"found_error": FOUND_ERROR}
    errors: dict[str, list[float | None]] = {}
    for name in ("facenet", "ours"):
        engine = make_engine(name, min_face_px=px, device=given.device)
        each, errors[name], strangers = dict[str, list[float | None]](), [], 0
        for path, annotation in annotated.items():
            faces = engine.timed([annotation.rgb])[1][0]
            each[path] = truth_errors(annotation.landmarks, faces)
            errors[name] += each[path]
            if annotation.complete:
                strong = faces.select(faces.scores > STRONG_SCORE)
                strangers += len(strong) - sum(
                    error is not None for error in truth_errors(annotation.landmarks, strong)
                )
        num_found = sum(error is not None for error in errors[name])
        figures[name] = {"annotated": len(errors[name]), "found": num_found, "recall": num_found / len(errors[name]),
                      "error": mean_error(errors[name]), "strangers": strangers, "each": each}  # fmt: skip
    both = [None not in pair for pair in zip(*errors.values(), strict=True)]
    for name, of in errors.items():  # a face that one engine alone finds must not count against it
        figures[name]["error_where_both"] = mean_error(
            [annotation for annotation, is_both in zip(of, both, strict=True) if is_both]
        )
    return figures


def memory_lane(given: argparse.Namespace, px: int, batch: int) -> dict[str, Any]:
    """A process for each engine and what it looks at."""
    options = ["--media", str(given.media), "--min-face", str(px), "--frames", str(given.frames)]
    options += ["--threads", str(given.threads), "--device", given.device, "--batch", str(batch)]
    subjects: dict[str, tuple[str, ...]] = {"frame": ("facenet", "ours")}
    if (given.media / CLIPS[LARGEST]).is_file():
        subjects["clip"] = NAMES
    return {
        subject: {
            name: faces_memory.in_own_process(Path(__file__), "--memory-of", name, "--memory-on", subject, *options)
            for name in names
        }
        for subject, names in subjects.items()
    } | {"batch": batch}


def memory_of(given: argparse.Namespace) -> dict[str, Any]:
    """What the process that `memory_lane` starts does."""
    on_clip = given.memory_on == "clip"
    frames = frames_of(given.media / CLIPS[LARGEST], given.frames) if on_clip else [large_frame()]
    return faces_memory.measure(
        given.memory_of, frames, min_face_px=given.min_face[0], device=given.device, batch=given.batch
    )


def size(rgb: Any) -> str:
    return f"{rgb.shape[1]}x{rgb.shape[0]}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--media", type=Path, default=MEDIA)
    parser.add_argument("--min-face", type=int, nargs="+", default=[20, 40])
    parser.add_argument("--clips", nargs="+", default=list(CLIPS), choices=list(CLIPS))
    parser.add_argument("--frames", type=int, default=16)
    parser.add_argument("--track-frames", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--lanes", nargs="+", default=list(LANES), choices=LANES)
    parser.add_argument("--batch", type=int, default=8, help="facenet's, for its memory, where the clips are left out")
    parser.add_argument("--memory-of", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--memory-on", choices=("clip", "frame"), default="frame", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    use_threads(given.threads)
    if given.memory_of:
        print(json.dumps(memory_of(given)))
        return
    if given.lanes != ["memory"]:
        media_at(given.media)
    if given.device != "cpu" and not torch.cuda.is_available():
        sys.exit(f"--device {given.device}: torch finds no CUDA device here; leave it out to measure on the CPU")
    results: dict[int, dict[str, Any]] = {px: {} for px in given.min_face}
    if "clips" in given.lanes:
        clips(given, results)
    if "track" in given.lanes:
        track(given, results)
    for px, result in results.items():
        if "photos" in given.lanes:
            result["photos"] = photo_lane(given, px)
        if "truth" in given.lanes:
            result["truth"] = truth_lane(given, px)
        if "memory" in given.lanes:
            batches = [clip_figures["best_batch"] for clip_figures in result.get("clips", {}).values()]
            result["memory"] = memory_lane(given, px, statistics.mode(batches) if batches else given.batch)
    about = {"benchmark": "faces", "device": given.device, "threads": given.threads, "torch": torch.__version__}
    print_report(results)
    print(json.dumps({**about, "repeats": given.repeats, "min_face": results}))


if __name__ == "__main__":
    main()
