"""The file of the face mesh's weights: where it lies, and the check that it is the right one.

Google publishes `face_landmark.tflite` under the Apache License 2.0 (MediaPipe; model card "MediaPipe Face Mesh"). The
wheels of mediapipe that hold it require numpy<2, so they cannot be a dependency: the one file is stored in the user's
cache (`facefeed models fetch face-mesh`).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from ....errors import UsageError
from ....files import cache_folder

FILE_NAME: Final = "face_landmark.tflite"
SIZE_BYTES: Final = 1_242_398
SHA256: Final = "1055cb9d4a9ca8b8c688902a3a5194311138ba256bcc94e336d8373a5f30c814"
FETCH_COMMAND: Final = "facefeed models fetch face-mesh"


def weights_path() -> Path:
    """Where the file lies in the user's cache."""
    return cache_folder() / "models" / FILE_NAME


def is_genuine(weights: bytes) -> bool:
    """Whether these are the bytes of the file."""
    return hashlib.sha256(weights).hexdigest() == SHA256


def read_weights() -> bytes:
    """The bytes of the file; raises `UsageError` with the command that brings it where it is missing or damaged."""
    path = weights_path()
    try:
        weights = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; the face mesh needs its weights ({SIZE_BYTES / 1e6:.1f} MB); "
            f"run `{FETCH_COMMAND}` once"
        ) from error
    if not is_genuine(weights):
        raise UsageError(f"{path}: is not the file that it should be (SHA-256); run `{FETCH_COMMAND}` again")
    return weights
