"""Crop protocols: what the papers of the field cut around a face, cut again from the stored crop.

In: rows of the index. Out: affine maps from stored crops to a protocol's images.
Must not know: pixels, torch, how a row was made.

| module | what it holds |
|---|---|
| geometry | `FaceGeometry`: boxes, landmarks and stored crops of some rows, in frame px |
| protocols | the protocols that ship, and a user's own |
| coverage | whether the stored crops hold what a protocol cuts: refused, or counted and black |
"""

from .coverage import black_parts, check_coverage
from .geometry import FaceGeometry
from .protocols import CropProtocol, crop_protocol

__all__ = ["CropProtocol", "FaceGeometry", "black_parts", "check_coverage", "crop_protocol"]
