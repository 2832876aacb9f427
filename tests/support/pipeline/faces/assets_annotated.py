"""Photos with 68 annotated points a face, beside the checkout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assets_paths import MEDIA
from numpy.typing import NDArray

Points = NDArray[np.float64]


def annotated_photos() -> Iterator[tuple[Path, list[Points]]]:
    """Each photo, with the points (68, 2) of its faces, frame px."""
    path = MEDIA / "GROUNDTRUTH.json"
    if not path.exists():
        pytest.skip(f"test media are not here: {path}")
    photos: dict[str, dict[str, Any]] = json.loads(path.read_text())
    for name, photo in photos.items():
        yield MEDIA / name, [np.array(face["pts"]) - ("1-based" in face["pts_kind"]) for face in photo["faces"]]


def annotated_faces() -> Iterator[tuple[Points, Points]]:
    """68 points and the five landmarks they give, for each annotated face; frame px."""
    for _, faces in annotated_photos():
        for points in faces:
            yield points, five_of_68(points)


def five_of_68(points: Points) -> Points:
    """Eyes, nose tip and mouth corners (5, 2) of 68 points."""
    eyes = points[36:42].mean(axis=0), points[42:48].mean(axis=0)
    return np.stack([*eyes, points[30], points[48], points[54]])
