"""Find the faces of a frame, cut them out, outline them and follow them through the video.

    frame -> FaceDetector -> Faces -> FaceFilter -> Tracker (-> align, smooth) -> Square -> Landmarker's hull -> regions

| module | what it holds |
|---|---|
| detection | `Faces`, the `FaceDetector` contract, `FaceFilter` |
| fixed, mtcnn, yunet | the shipped detectors: a fake, facenet-pytorch's MTCNN, and OpenCV's YuNet |
| tracking, follow | MTCNN that searches some frames, and follows faces through the others |
| align, smooth | where asked for: how far the square is turned, and a track without jitter |
| crop | the square that is cut, and the way from `frame` to `crop` pixels |
| hull, regions | the outline of the face and the boxes of its parts |
| track, looks | one id for one person through a video, by place, motion and looks |

This door imports numpy alone: torch, OpenCV and facenet-pytorch come with the modules that need them.
"""

from .detection import FaceDetector, FaceFilter, Faces

__all__ = ["FaceDetector", "FaceFilter", "Faces"]
