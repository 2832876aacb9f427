"""Face detection, identity tracking, alignment, crops, hulls and regions.

    frame -> FaceDetector -> Faces -> FaceFilter -> Landmarker -> Tracker (-> align, smooth) -> CropSquare -> regions

In: frames, RGB uint8 (H, W, 3). Out: faces with boxes, landmarks, ids, crops, hulls and regions.
Must not know: files, videos, rows.

| module | what it holds |
|---|---|
| detection | `Faces`, the `FaceDetector` contract, `FaceFilter` |
| detectors/ | MTCNN, exact or with tracking; YuNet; and `FixedBoxDetector` for tests |
| identity/ | one track id per person in a video |
| landmarks/ | hulls, and dense points where a model gives them |
| geometry/ | crop, alignment, smoothing, hull, regions, overlap of boxes |
| openvino_runtime | OpenVINO on one core, for all networks |

This package imports numpy alone: torch, OpenCV and facenet-pytorch come with the modules that need them.
"""

from .detection import FaceDetector, FaceFilter, Faces

__all__ = ["FaceDetector", "FaceFilter", "Faces"]
