"""Landmarkers: the hull of each face and, from a dense model, its points, pose and a second opinion on the detection.

In: frames and their `Faces`. Out: a `FaceShape` per face, frame px.
Must not know: the crops that are stored, rows.

| module | what it holds |
|---|---|
| landmarker | `FaceShape`, the `Landmarker` contract |
| template | the default: a mean face fitted to the five landmarks |
| mesh/ | Google's face mesh, 468 points |
| by_name | landmarkers by the name that `--landmarks` takes |
"""

from .landmarker import FaceShape, Landmarker

__all__ = ["FaceShape", "Landmarker"]
