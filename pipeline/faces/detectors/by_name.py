"""Detectors by the name that `--detector` takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...errors import UsageError
from ..detection import FaceDetector, FaceFilter
from .cascade.pyramid import WINDOW_PX
from .fixed import FixedBoxDetector
from .keyframe_detector import TrackingDetector
from .mtcnn import MTCNNDetector
from .yunet import MIN_FACE_PX, YuNetDetector

WHOLE_FRAME = "whole-frame"
"""Every frame is one face: for media that is cropped already."""


def whole_frame_detector() -> FixedBoxDetector:
    """The detector of media that is cropped already: each frame is one face, and nothing is searched."""
    return FixedBoxDetector([(0.0, 0.0, 1.0, 1.0)])


def whole_frame_filter(keep: FaceFilter) -> FaceFilter:
    """`keep` for media that is cropped already: no frame is too small or too uncertain to be a face."""
    return replace(keep, min_face_px=0, min_score=0.0)


def make_detector(name: str, keep: FaceFilter) -> FaceDetector:
    """Creates the detector `name`: "mtcnn", "track", "yunet:FILE.onnx" or "whole-frame"; else raises `UsageError`.

    `keep`: which faces are kept: the detector searches for none that are too small or, with YuNet, too uncertain.
    """
    kind, _, file = name.partition(":")
    if name == "mtcnn":
        return MTCNNDetector(min_face_px=max(keep.min_face_px, WINDOW_PX))
    if name == "track":
        return TrackingDetector(min_face_px=max(keep.min_face_px, WINDOW_PX))
    if kind == "yunet" and file:
        least_px = max(keep.min_face_px, MIN_FACE_PX)
        return YuNetDetector(Path(file).expanduser(), min_face_px=least_px, min_score=keep.min_score)
    if name == WHOLE_FRAME:
        return whole_frame_detector()
    raise UsageError(
        f"detector={name!r}: must be mtcnn, track, yunet:FILE.onnx, the model file of OpenCV's YuNet, {WHOLE_FRAME}, "
        "or your own (from Python, an object)"
    )
