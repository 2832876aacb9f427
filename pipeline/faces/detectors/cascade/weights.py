"""facenet-pytorch's MTCNN weights: their files, and their arrays."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ....errors import UsageError

WEIGHT_FILES = ("pnet.pt", "rnet.pt", "onet.pt")


def weights_folder() -> Path:
    """Return the folder of the weight files, without torch; raises `UsageError` if facenet-pytorch is missing."""
    spec = importlib.util.find_spec("facenet_pytorch")
    if spec is None or spec.origin is None:
        raise UsageError("facenet-pytorch is not installed: MTCNN has no weights; pip install facenet-pytorch")
    return Path(spec.origin).parent / "data"


@cache
def read_weights(file: str) -> dict[str, NDArray[Any]]:
    """Return a file's arrays by the names of facenet's layers, such as `conv1.weight`."""
    import torch  # noqa: PLC0415 (the driver needs the folder only)

    stored = torch.load(weights_folder() / file, map_location="cpu", weights_only=True)
    return {name: values.numpy() for name, values in stored.items()}
