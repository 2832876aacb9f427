"""Makers of columns as a user writes them; run by worker processes too, by `assets_columns.py:Class`."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

FILE = Path(__file__)
POISON = "TEST_POISONED_FACE"
"""Variable of the environment: the face that `Poisoned` fails on."""
DEED = "TEST_DEED"
"""What it does then: "raise" or "kill"."""


class Colour:
    """Two numbers, a string and a short vector of each face."""

    name = "colour"
    fingerprint = "colour-1"
    columns = pa.schema([
        pa.field("brightness", pa.float32()), pa.field("side", pa.int32()), pa.field("tone", pa.string()),
        pa.field("mean_rgb", pa.list_(pa.float32(), 3)),
    ])  # fmt: skip

    def compute(self, faces: Any) -> dict[str, Any]:
        means = np.array([image.mean(axis=(0, 1)) for image in faces.images])
        brightness = means.mean(axis=1)
        return {
            "brightness": brightness,
            "side": faces.rows.column("width").combine_chunks().cast(pa.int32()),
            "tone": ["dark" if value < 128 else None if value < 130 else "light" for value in brightness],
            "mean_rgb": means,
        }


class Large:
    """A column that is too large for the index, beside one that is not."""

    name = "large"
    fingerprint = "1"
    columns = pa.schema([("vector_513", pa.list_(pa.float32(), 513)), ("vector_512", pa.list_(pa.float32(), 512))])

    def compute(self, faces: Any) -> dict[str, Any]:
        numbers = np.arange(len(faces) * 513, dtype=np.float32).reshape(len(faces), 513)
        return {"vector_513": numbers, "vector_512": numbers[:, 1:]}


class Slow(Colour):
    """Takes long enough to be killed on the way."""

    name = "slow"
    columns = pa.schema([("slowness", pa.float64())])

    def compute(self, faces: Any) -> dict[str, Any]:
        time.sleep(0.05)
        return {"slowness": [image.mean() for image in faces.images]}


class Poisoned(Colour):
    """Fails on one face."""

    name = "poisoned"
    columns = pa.schema([("poisoned", pa.int8())])

    def compute(self, faces: Any) -> dict[str, Any]:
        if os.environ.get(POISON) in faces.rows.column("face_id").to_pylist():
            if os.environ[DEED] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ZeroDivisionError("a bug in the maker")
        return {"poisoned": np.zeros(len(faces), np.int8)}


@dataclass
class Returning:
    """Returns what it was told to, as an object; declares one column of float32 unless told otherwise."""

    value: Any = None
    columns: Any = field(default_factory=lambda: pa.schema([("value", pa.float32())]))
    name: Any = "returning"
    fingerprint: Any = "1"

    def compute(self, faces: Any) -> Any:
        return self.value(faces) if callable(self.value) else self.value
