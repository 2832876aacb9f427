"""Implementations of `FaceDetector`: facenet-pytorch's MTCNN, exact or with tracking; YuNet; a fake for tests.

In: frames, RGB uint8 (H, W, 3). Out: `Faces` in `frame` pixels.
Must not know: crops, rows, files.
"""
