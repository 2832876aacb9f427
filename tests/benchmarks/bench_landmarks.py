"""The face mesh beside the template: errors on annotated photos, faces that it rejects, and time a face on one core.

    python tests/benchmarks/bench_landmarks.py [--media DIR] [--out OUT] [--repeats 5]

OUT: a dataset of all media, made by

    facefeed precompute MEDIA OUT --layout folder --frames 12 --min-score 0.8 --min-face 20 --landmarks mesh \
        --allow-unlabelled --max-failed 100%

Its faces were labelled by eye: `labelled_faces.json` has of each the frame's index, the box in whole px, and whether it
is a face (a person's, drawn ones too; an animal's is none). Without --out they are left out. Prints one JSON object
with every face and repeat; a summary goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow.dataset as ds
from facefeed.pipeline.faces import FaceFilter, Faces
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
from facefeed.pipeline.faces.geometry.hull import template_hull
from facefeed.pipeline.faces.landmarks import FaceShape
from facefeed.pipeline.faces.landmarks.mesh.landmarker import MeshLandmarker
from facefeed.pipeline.faces.landmarks.mesh.weights import read_weights
from facefeed.pipeline.faces.landmarks.template import TemplateLandmarker
from faces_agreement import five_points
from faces_media import CLIPS, MEDIA, frames_of, media_at, photo
from numpy.typing import NDArray

Points = NDArray[np.floating]
LABELS = Path(__file__).with_name("labelled_faces.json")
PARTS = {"inner": slice(17, 68), "eyes": slice(36, 48), "mouth": slice(48, 68), "all": slice(0, 68)}
TIMED_CLIPS = ("obama", "zl", "hamilton", "again")
TIMED_FRAMES = 24


def overlap(points: Points, others: Points) -> float:
    """Intersection over union of the convex hulls of two sets of points."""
    first, second = (cv2.convexHull(each.astype(np.float32))[:, 0] for each in (points, others))
    common: float = cv2.intersectConvexConvex(first, second)[0]
    return common / (cv2.contourArea(first) + cv2.contourArea(second) - common)


def annotated(media: Path, mesh: MeshLandmarker) -> list[dict[str, Any]]:
    """Each annotated face that MTCNN detects: errors in distances between the eyes' outer corners, and hulls' IoU."""
    detector = MTCNNDetector(min_face_px=12)
    measured = []
    for name, described in json.loads((media / "GROUNDTRUTH.json").read_text()).items():
        rgb = photo(media / name)
        (detected,) = detector.detect([rgb])
        (shapes,) = mesh.locate([rgb], [detected])
        for face in described["faces"]:
            truth = np.array(face["pts"], np.float64) - ("1-based" in face["pts_kind"])
            row: dict[str, Any] = {"photo": name, "eyes_px": float(np.linalg.norm(truth[36] - truth[45]))}
            nearest = _nearest(detected, np.asarray(five_points(truth)), row["eyes_px"])
            row["outcome"] = "not detected" if nearest is None else "located"
            if nearest is not None:
                row |= _errors(shapes[nearest], detected.landmarks[nearest], truth, row["eyes_px"])
            measured.append(row)
    return measured


def _nearest(detected: Faces, truth5: Points, eyes_px: float) -> int | None:
    if not len(detected):
        return None
    distances = np.linalg.norm(detected.landmarks - truth5, axis=2).mean(axis=1)
    return int(distances.argmin()) if distances.min() < eyes_px / 2 else None


def _errors(shape: FaceShape, landmarks5: Points, truth: Points, eyes_px: float) -> dict[str, Any]:
    if shape.points_68 is None:
        return {"outcome": "rejected", "score": shape.score}
    errors = np.linalg.norm(shape.points_68 - truth, axis=1) / eyes_px
    return {
        "score": shape.score,
        **{name: float(errors[part].mean()) for name, part in PARTS.items()},
        "iou": overlap(shape.points_68, truth),
        "iou_template_below_brows": overlap(_below(template_hull(landmarks5), truth), truth),
    }


def _below(hull: Points, truth: Points) -> Points:
    """The part of a hull below the annotated brows, the highest of the 68 points: these have no forehead."""
    cut = np.array([(-1e4, truth[:, 1].min()), (1e4, truth[:, 1].min()), (1e4, 1e4), (-1e4, 1e4)], np.float32)
    part: Points = cv2.intersectConvexConvex(hull.astype(np.float32), cut)[1][:, 0]
    return part


def labelled(out: Path) -> list[dict[str, Any]]:
    """Each labelled detection in OUT, with its scores."""
    labels: dict[str, list[list[Any]]] = json.loads(LABELS.read_text())
    columns = ["video_id", "frame_index", "box_xyxy", "score", "landmark_score"]
    measured = []
    for row in ds.dataset(out / "faces").to_table(columns=columns).to_pylist():
        for frame_index, *box, label in labels.get(row["video_id"], []):
            if frame_index == row["frame_index"] and np.abs(np.array(row["box_xyxy"]) - box).max() <= 2:
                measured.append({**row, "label": label})
    return measured


def timed(media: Path, mesh: MeshLandmarker, repeats: int) -> dict[str, list[dict[str, float]]]:
    """Milliseconds a face, and a frame of detection, on one core, clip by clip and side by side."""
    detector, template, keep = MTCNNDetector(), TemplateLandmarker(), FaceFilter()
    measured = {}
    for name in TIMED_CLIPS:
        frames = frames_of(media / CLIPS[name], TIMED_FRAMES)
        faces = [keep(detected) for detected in detector.detect(frames)]
        count = sum(map(len, faces))
        mesh.locate(frames[:1], faces[:1])
        calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
            "mesh_ms_a_face": (mesh.locate, (frames, faces), count),
            "template_ms_a_face": (template.locate, (frames, faces), count),
            "mtcnn_ms_a_frame": (detector.detect, (frames,), len(frames)),
        }
        measured[name] = [
            {
                "faces": count,
                **{key: _milliseconds(call, *given) / parts for key, (call, given, parts) in calls.items()},
            }
            for _ in range(repeats)
        ]
    return measured


def _milliseconds(call: Callable[..., Any], *given: Any) -> float:
    started = time.perf_counter()
    call(*given)
    return (time.perf_counter() - started) * 1e3


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--media", type=Path, default=MEDIA)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    cv2.setNumThreads(1)
    mesh, media = MeshLandmarker(read_weights()), media_at(given.media)
    figures = {"annotated": annotated(media, mesh), "timed": timed(media, mesh, given.repeats)}
    for least_px, name in ((25, "eyes at least 25 px apart"), (0, "all")):
        rows = [row for row in figures["annotated"] if row["outcome"] == "located" and row["eyes_px"] >= least_px]
        columns = (*PARTS, "iou", "iou_template_below_brows")
        means = [f"{column} {statistics.mean(row[column] for row in rows):.3f}" for column in columns]
        print(f"{name}: {len(rows)} faces, {', '.join(means)}", file=sys.stderr)
    for clip, repeats in figures["timed"].items():
        medians = {key: statistics.median(repeat[key] for repeat in repeats) for key in repeats[0]}
        print(f"{clip}: {', '.join(f'{key} {value:.2f}' for key, value in medians.items())}", file=sys.stderr)
    if given.out:
        figures["labelled"] = labelled(given.out)
        for least in (0.3, 0.5, 0.9):
            outcomes = Counter((row["label"], row["landmark_score"] >= least) for row in figures["labelled"])
            print(f"minimum {least}: " + ", ".join(
                f"{label}: {outcomes[label, False]} of {outcomes[label, False] + outcomes[label, True]} rejected"
                for label in ("no face", "face", "unclear")
            ), file=sys.stderr)  # fmt: skip
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
