"""PNet, RNet and ONet as OpenVINO graphs over facenet-pytorch's weights.

OpenVINO fuses a convolution with its PReLU, pools without indices and keeps its kernels' memory layout. On one core it
is two to three times as fast as torch (in both layouts, and with oneDNN tensors), ONNX Runtime and OpenCV.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...openvino_runtime import create_request, op, ov
from .weights import read_weights

Array = NDArray[Any]
Weights = dict[str, Array]

_COMPILE_AFTER_CALLS: Final = 32
"""Calls with one input shape before a network is compiled for it; compiling takes as long as some 50 calls save."""
_MAX_SHAPES: Final = 64
"""Maximum number of shapes that a network is compiled for; each takes 1 to 2 MB."""


class OpenVinoNetworks:
    """PNet, RNet and ONet on one core. Not thread-safe; returned arrays are valid until the next call.

    Pixels are (N, H, W, 4) float32, normalised; the fourth channel is ignored, but must be finite.
    """

    def __init__(self) -> None:
        self._pnet, self._rnet, self._onet = (_ShapeCachedNetwork(build) for build in (_pnet, _rnet, _onet))

    def pnet(self, pixels: Array) -> Array:
        """(N, H, W, 4) -> (N, H', W', 6): 2 logits and 4 offsets per cell."""
        (cells,) = self._pnet(pixels)
        return cells

    def rnet(self, pixels: Array) -> list[Array]:
        """(N, 24, 24, 4) -> logits (N, 2) and offsets (N, 4)."""
        return self._rnet(pixels)

    def onet(self, pixels: Array) -> list[Array]:
        """(N, 48, 48, 4) -> logits (N, 2), offsets (N, 4) and points (N, 10)."""
        return self._onet(pixels)


class _ShapeCachedNetwork:
    """A network compiled for any input shape, and in addition for each of the frequent shapes."""

    def __init__(self, build: Callable[[], ov.Model]) -> None:
        self._build = build
        self._dynamic_request = create_request(build())
        self._static_requests: dict[tuple[int, ...], Any] = {}
        self._calls_by_shape: Counter[tuple[int, ...]] = Counter()

    def __call__(self, pixels: Array) -> list[Array]:
        request = self._static_requests.get(pixels.shape) or self._request(pixels.shape)
        shared = ov.Tensor(pixels, shared_memory=True)
        return list(request.infer(shared, share_inputs=True, share_outputs=True).values())

    def _request(self, shape: tuple[int, ...]) -> Any:
        self._calls_by_shape[shape] += 1
        if self._calls_by_shape[shape] < _COMPILE_AFTER_CALLS:
            if len(self._calls_by_shape) > _MAX_SHAPES * _COMPILE_AFTER_CALLS:  # images of many different sizes
                self._calls_by_shape.clear()
            return self._dynamic_request
        del self._calls_by_shape[shape]
        model = self._build()
        model.reshape(list(shape))
        if len(self._static_requests) == _MAX_SHAPES:
            del self._static_requests[next(iter(self._static_requests))]  # the oldest
        self._static_requests[shape] = create_request(model)
        return self._static_requests[shape]


def _pnet() -> ov.Model:
    weights = read_weights("pnet.pt")
    pixels = op.parameter([-1, -1, -1, 4], ov.Type.f32)
    maps = _max_pool(_conv_prelu(_as_nchw(pixels), weights, 1), 2)
    maps = _conv_prelu(_conv_prelu(maps, weights, 2), weights, 3)
    heads = {
        f"heads.{kind}": np.concatenate([weights[f"conv4_1.{kind}"], weights[f"conv4_2.{kind}"]])
        for kind in ("weight", "bias")
    }
    return ov.Model([op.transpose(_conv(maps, heads, "heads"), _int_constant(0, 2, 3, 1))], [pixels], "pnet")


def _rnet() -> ov.Model:
    weights = read_weights("rnet.pt")
    pixels = op.parameter([-1, 24, 24, 4], ov.Type.f32)
    maps = _max_pool(_conv_prelu(_as_nchw(pixels), weights, 1), 3)
    maps = _max_pool(_conv_prelu(maps, weights, 2), 3)
    features = _prelu(_linear(_flatten(_conv_prelu(maps, weights, 3)), weights, "dense4"), weights, 4)
    return ov.Model([_linear(features, weights, head) for head in ("dense5_1", "dense5_2")], [pixels], "rnet")


def _onet() -> ov.Model:
    weights = read_weights("onet.pt")
    pixels = op.parameter([-1, 48, 48, 4], ov.Type.f32)
    maps = _max_pool(_conv_prelu(_as_nchw(pixels), weights, 1), 3)
    maps = _max_pool(_conv_prelu(maps, weights, 2), 3)
    maps = _max_pool(_conv_prelu(maps, weights, 3), 2)
    features = _prelu(_linear(_flatten(_conv_prelu(maps, weights, 4)), weights, "dense5"), weights, 5)
    return ov.Model(
        [_linear(features, weights, head) for head in ("dense6_1", "dense6_2", "dense6_3")], [pixels], "onet"
    )


def _as_nchw(pixels: Any) -> Any:
    return op.transpose(pixels, _int_constant(0, 3, 1, 2))


def _conv_prelu(maps: Any, weights: Weights, number: int) -> Any:
    return _prelu(_conv(maps, weights, f"conv{number}"), weights, number)


def _conv(maps: Any, weights: Weights, layer: str) -> Any:
    weight, bias = weights[f"{layer}.weight"], weights[f"{layer}.bias"]
    if weight.shape[1] == 3:  # zero weights for the fourth channel
        weight = np.pad(weight, ((0, 0), (0, 1), (0, 0), (0, 0)))
    product = op.convolution(maps, op.constant(weight), [1, 1], [0, 0], [0, 0], [1, 1])
    return op.add(product, op.constant(bias.reshape(1, -1, 1, 1)))


def _prelu(values: Any, weights: Weights, number: int) -> Any:
    return op.prelu(values, op.constant(weights[f"prelu{number}.weight"]))


def _max_pool(maps: Any, size: int) -> Any:
    return op.max_pool(maps, [2, 2], [1, 1], [0, 0], [0, 0], [size, size], "ceil").output(0)


def _flatten(maps: Any) -> Any:
    """Flatten in the order of the authors' MATLAB code: by column, row, channel."""
    return op.reshape(op.transpose(maps, _int_constant(0, 3, 2, 1)), _int_constant(0, -1), True)


def _linear(features: Any, weights: Weights, layer: str) -> Any:
    product = op.matmul(features, op.constant(weights[f"{layer}.weight"]), False, True)
    return op.add(product, op.constant(weights[f"{layer}.bias"]))


def _int_constant(*values: int) -> Any:
    return op.constant(np.array(values, np.int64))
