"""The network: an upright square around a face -> 468 points and a score, on one core."""

from __future__ import annotations

from tempfile import NamedTemporaryFile
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...openvino_runtime import create_request, ov, process_core
from ..landmarker import Points
from .topology import NUM_POINTS

INPUT_PX: Final = 192


class MeshNetwork:
    """Google's `face_landmark.tflite` in OpenVINO. Not thread-safe.

    It runs face by face: on a CPU core, batches of 2 to 16 faces took as long a face, or longer (1.3 to 1.6 ms), and so
    a face's points do not depend on what it is batched with.
    """

    def __init__(self, weights: bytes) -> None:
        with NamedTemporaryFile(suffix=".tflite") as file:  # OpenVINO reads this format from files alone
            file.write(weights)
            file.flush()
            model = process_core().read_model(file.name)
        model.reshape([1, INPUT_PX, INPUT_PX, 3])
        self._request = create_request(model)

    def __call__(self, square: NDArray[np.uint8]) -> tuple[Points, float]:
        """Return points (468, 3) float32, px of the square, and a score 0..1, for an RGB square (192, 192, 3)."""
        pixels = square[None].astype(np.float32) / np.float32(255)
        outputs = self._request.infer(ov.Tensor(pixels, shared_memory=True), share_inputs=True, share_outputs=False)
        points, logit = sorted(outputs.values(), key=np.size, reverse=True)
        return points.reshape(NUM_POINTS, 3), float(1 / (1 + np.exp(-logit.item())))
