"""A stand-in for YuNet's model file: a real ONNX network of YuNet's outputs, which OpenCV runs and decodes as YuNet's.

It takes a blue pixel for a face: in each cell of 8 x 8 px, the score is the blue of the upper left pixel, 0..1, the
box is `BOX_PX` wide and high round the cell's middle, and the points lie `POINTS_PX` from the cell's upper left corner.
The cells of 16 and 32 px see nothing. The file is protobuf, written by hand: onnx.proto has the numbers of the fields.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CELL_PX = 8
BOX_PX = (32, 48)
POINTS_PX = ((-4, -8), (12, -7), (5, 2), (-3, 12), (11, 13))
"""The person's right eye, left eye, nose, right and left corner of the mouth, as YuNet has them."""

_FLOAT, _INT64 = 1, 7
_INTS = 7


def blue_pixels(width: int, height: int, *marks: tuple[int, int, int]) -> NDArray[np.uint8]:
    """A black RGB frame (height, width, 3) with pixels (x, y, blue)."""
    rgb = np.zeros((height, width, 3), np.uint8)
    for x, y, blue in marks:
        rgb[y, x, 2] = blue
    return rgb


def write_stand_in(path: Path, *, kinds: Sequence[str] = ("cls", "obj", "bbox", "kps"), dx: float = 0.5) -> Path:
    """Write the model; `kinds`: what its outputs are called, `dx`: where in its cell a box's middle lies."""
    log_size = [math.log(side / CELL_PX) for side in BOX_PX]
    offsets = {
        "cls": [0.0],
        "obj": [0.0],
        "bbox": [dx, 0.5, *log_size],
        "kps": [value / CELL_PX for point in POINTS_PX for value in point],
    }
    nodes, tensors, outputs = [], [], []
    for kind in kinds:
        for stride in (8, 16, 32):
            name, bias = f"{kind}_{stride}", np.array(offsets.get(kind, [0.0]), np.float32)
            weights = np.zeros((len(bias), 3, 1, 1), np.float32)
            if kind in {"cls", "obj"} and stride == CELL_PX:
                weights[:, 0] = 1 / 255  # of blue, green, red
            tensors += [_tensor(f"{name}_w", weights), _tensor(f"{name}_b", bias)]
            tensors.append(_tensor(f"{name}_shape", np.array([1, -1, len(bias)], np.int64)))
            nodes.append(_node("Conv", ["input", f"{name}_w", f"{name}_b"], f"{name}_map", strides=[stride, stride]))
            nodes.append(_node("Transpose", [f"{name}_map"], f"{name}_last", perm=[0, 2, 3, 1]))
            nodes.append(_node("Reshape", [f"{name}_last", f"{name}_shape"], name))
            outputs.append(_value(name, [1, (640 // stride) ** 2, len(bias)]))
    graph = b"".join(_bytes(1, node) for node in nodes) + _bytes(2, b"stand-in")
    graph += b"".join(_bytes(5, tensor) for tensor in tensors) + _bytes(11, _value("input", [1, 3, 640, 640]))
    graph += b"".join(_bytes(12, output) for output in outputs)
    path.write_bytes(_number(1, 8) + _bytes(7, graph) + _bytes(8, _bytes(1, b"") + _number(2, 11)))
    return path


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1  # negative ones are written as int64
    low = bytearray()
    while number > 127:
        low.append(number & 127 | 128)
        number >>= 7
    return bytes([*low, number])


def _number(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _tensor(name: str, array: NDArray[np.float32] | NDArray[np.int64]) -> bytes:
    kind = _FLOAT if array.dtype == np.float32 else _INT64
    dims = b"".join(_number(1, side) for side in array.shape)
    return dims + _number(2, kind) + _bytes(8, name.encode()) + _bytes(9, array.tobytes())


def _node(kind: str, inputs: Sequence[str], output: str, **attributes: Sequence[int]) -> bytes:
    node = b"".join(_bytes(1, name.encode()) for name in inputs) + _bytes(2, output.encode())
    node += _bytes(3, f"{kind}_{output}".encode()) + _bytes(4, kind.encode())
    for name, values in attributes.items():
        ints = b"".join(_number(8, value) for value in values)
        node += _bytes(5, _bytes(1, name.encode()) + ints + _number(20, _INTS))
    return node


def _value(name: str, shape: Sequence[int]) -> bytes:
    dims = b"".join(_bytes(1, _number(1, side)) for side in shape)
    tensor = _number(1, _FLOAT) + _bytes(2, dims)
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, tensor))
