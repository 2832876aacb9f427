"""Landmarkers by the name that `--landmarks` takes."""

from __future__ import annotations

from ...errors import UsageError
from .landmarker import Landmarker
from .template import TemplateLandmarker


def make_landmarker(name: str) -> Landmarker:
    """Creates the landmarker `name`: "template5" or "mesh".

    Raises `UsageError` for another name, and where the mesh's weights are missing or damaged.
    """
    if name == TemplateLandmarker.fingerprint:
        return TemplateLandmarker()
    if name == "mesh":
        from .mesh.landmarker import MeshLandmarker  # noqa: PLC0415 (OpenVINO takes long to import)
        from .mesh.weights import read_weights  # noqa: PLC0415

        return MeshLandmarker(read_weights())
    raise UsageError(f"landmarks={name!r}: must be template5, mesh, or your own (from Python, an object)")
