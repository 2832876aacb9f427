"""The face mesh's real weights, which `make` brings into the project's environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from facefeed.pipeline.faces.landmarks.mesh.landmarker import MeshLandmarker
from facefeed.pipeline.faces.landmarks.mesh.weights import FILE_NAME

CACHE = Path(sys.prefix) / "cache"
"""The `XDG_CACHE_HOME` in which they lie."""


def mesh_landmarker() -> MeshLandmarker:
    """The landmarker; skips where the weights are not there, fails where they were promised."""
    path = CACHE / "facefeed" / "models" / FILE_NAME
    if not path.is_file():
        reason = f"{path}: not there; run `XDG_CACHE_HOME={CACHE} facefeed models fetch face-mesh`"
        if os.environ.get("FACEFEED_REQUIRE"):
            pytest.fail(reason)
        pytest.skip(reason)
    return MeshLandmarker(path.read_bytes())
