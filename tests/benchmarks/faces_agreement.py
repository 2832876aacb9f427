"""How far two sets of faces agree, and how far faces are from annotated ones; nothing but arithmetic.

Boxes are xyxy and points xy, both in px of one frame; which face is whose is settled greedily, closest first, each
face at most once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from facefeed.pipeline.faces import Faces
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]

STRONG_SCORE = 0.95
"""Faces above it count in recall, those below in the other figures only."""
SAME_FACE_IOU = 0.6
CONFIRMED_WITHIN = 2
"""Frames of the video in which a full search must find what following found."""
FOUND_ERROR = 0.25
"""An annotated face is found if five points lie, in the mean, less than this share of its eyes' distance away."""
_IBUG_EYES = (slice(36, 42), slice(42, 48))
_IBUG_NOSE_TIP, _IBUG_MOUTH_CORNERS = 30, (48, 54)


def agree(reference: Sequence[Faces], other: Sequence[Faces]) -> dict[str, Any]:
    """What two engines make of the same frames, the first of them being right.

    recall: share of the reference's strong faces that the other has too; reverse: the other way round.
    landmarks: mean distance of the five points over the reference's distance between the eyes, of all pairs.
    box_px, score: the largest difference of any number. None where there is nothing to compare.
    """
    strong, matched = [0, 0], [0, 0]
    landmarks, boxes, scores = list[float](), list[float](), list[float]()
    for right, detections in zip(reference, other, strict=True):
        pairs = pair_off(1 - iou(right.boxes_xyxy, detections.boxes_xyxy), below=1 - SAME_FACE_IOU)
        for side, faces in enumerate((right, detections)):
            strong[side] += int((faces.scores > STRONG_SCORE).sum())
            matched[side] += sum(bool(faces.scores[pair[side]] > STRONG_SCORE) for pair in pairs)
        for i, j in pairs:
            landmarks.append(float(point_error(right.landmarks[i], detections.landmarks[j])))
            boxes.append(float(np.abs(right.boxes_xyxy[i] - detections.boxes_xyxy[j]).max()))
            scores.append(float(abs(right.scores[i] - detections.scores[j])))
    return {
        "frames": len(reference),
        "strong_faces": strong,
        "recall": _share(matched[0], strong[0]),
        "reverse": _share(matched[1], strong[1]),
        "landmarks_mean": float(np.mean(landmarks)) if landmarks else None,
        "landmarks_worst": max(landmarks, default=None),
        "box_px": max(boxes, default=None),
        "score": max(scores, default=None),
        "same_count": _share(sum(len(a) == len(b) for a, b in zip(reference, other, strict=True)), len(reference)),
    }


def unconfirmed(full: list[Faces], other: list[Faces], every: int) -> tuple[int, int]:
    """Faces that no full search has at the same place within `CONFIRMED_WITHIN` frames, and all faces."""
    reach = CONFIRMED_WITHIN // every
    alone = count = 0
    for number, faces in enumerate(other):
        around = np.concatenate(
            [frame_faces.boxes_xyxy for frame_faces in full[max(number - reach, 0) : number + reach + 1]]
        )
        best = iou(faces.boxes_xyxy, around).max(axis=1, initial=0)
        alone, count = alone + int((best < SAME_FACE_IOU).sum()), count + len(faces)
    return alone, count


def truth_errors(annotated: Array, faces: Faces) -> list[float | None]:
    """The point error of each annotated face (T, 5, 2), or None where it was not found."""
    errors: list[float | None] = [None] * len(annotated)
    for i, j in pair_off(point_error(annotated[:, None], faces.landmarks[None]), below=FOUND_ERROR):
        errors[i] = float(point_error(annotated[i], faces.landmarks[j]))
    return errors


def pair_off(cost: Array, *, below: float) -> list[tuple[int, int]]:
    """Greedy one-to-one pairs (row, column) of a table of costs (N, M), cheapest first, each cost under `below`."""
    pairs, rows, columns = list[tuple[int, int]](), set[int](), set[int]()
    for flat in np.argsort(cost, axis=None, kind="stable"):
        row, column = (int(index) for index in np.unravel_index(flat, cost.shape))
        if cost[row, column] >= below:
            break
        if row not in rows and column not in columns:
            pairs.append((row, column))
            rows.add(row)
            columns.add(column)
    return pairs


def iou(first: Array, second: Array) -> Array:
    """Intersection over union of each box (N, 4) with each other (M, 4): (N, M)."""
    a, b = first[:, None].astype(np.float64), second[None].astype(np.float64)
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    shared = sides.clip(min=0).prod(axis=-1)
    areas = (a[..., 2:] - a[..., :2]).prod(axis=-1) + (b[..., 2:] - b[..., :2]).prod(axis=-1)
    return np.asarray(shared / np.maximum(areas - shared, np.finfo(np.float64).tiny))


def point_error(right: Array, detected: Array) -> Array:
    """Mean distance of five points (..., 5, 2) over the distance between the right ones' eyes: (...)."""
    eyes = np.linalg.norm(right[..., 0, :] - right[..., 1, :], axis=-1)
    # In full profile both eyes may fall together; less than a pixel apart they say nothing of a face's size.
    return np.asarray(np.linalg.norm(right - detected, axis=-1).mean(axis=-1) / np.maximum(eyes, 1.0))


def five_points(ibug: Array) -> Array:
    """The middles of both eyes, nose tip and mouth corners of 68 points (68, 2) in iBUG's order: (5, 2).

    Order: Sagonas et al. 2013, "300 Faces in-the-Wild Challenge"; its first eye is the image-left one.
    """
    eyes = [ibug[eye].mean(axis=0) for eye in _IBUG_EYES]
    return np.stack([*eyes, ibug[_IBUG_NOSE_TIP], *(ibug[corner] for corner in _IBUG_MOUTH_CORNERS)])


def mean_error(errors: Sequence[float | None]) -> float | None:
    """The mean over those that were found."""
    known_errors = [error for error in errors if error is not None]
    return math.fsum(known_errors) / len(known_errors) if known_errors else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
