"""PNet, RNet and ONet as OpenVINO graphs over facenet-pytorch's weights.

OpenVINO fuses a convolution with its PReLU, pools without indices and keeps the layout its kernels like; of what was
tried (torch in both layouts, oneDNN tensors, ONNX Runtime, OpenCV) it is two to three times as fast on one core.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .openvino_import import op, ov
from .weights import read_weights

Array = NDArray[Any]
Weights = dict[str, Array]

_CONFIG: Final = {
    "INFERENCE_PRECISION_HINT": "f32",  # its default is bfloat16 where there are instructions for that
    "ENABLE_CPU_PINNING": False,  # the processes of a machine would all be pinned to the same cores
    "CPU_RUNTIME_CACHE_CAPACITY": 64,  # of its 5,000: what is kept for sizes that come once; they have taken 1 GB
    "NUM_STREAMS": 1,
    "INFERENCE_NUM_THREADS": 1,  # the caller's own: OpenVINO starts none, so that a process may fork later
}


_OFTEN: Final = 32
"""How often a network looks at pixels of one shape before it is compiled for that shape: it costs as long as some 50
looks save by it."""
_MOST_SHAPES: Final = 64
"""Of one network: 1 to 2 MB each."""


class Networks:
    """The three networks, for one thread and on one core; what a call gives is valid until the next.

    Pixels come as (N, H, W, 4) float32, normalised, the fourth channel anything finite: it has no weight.
    """

    def __init__(self) -> None:
        core = _core(os.getpid())
        self._pnet, self._rnet, self._onet = (_Network(core, build) for build in (_pnet, _rnet, _onet))

    def pnet(self, pixels: Array) -> Array:
        """(N, H, W, 4) -> (N, H', W', 6): for each cell 2 logits and 4 offsets."""
        (cells,) = self._pnet(pixels)
        return cells

    def rnet(self, pixels: Array) -> list[Array]:
        """(N, 24, 24, 4) -> logits (N, 2) and offsets (N, 4)."""
        return self._rnet(pixels)

    def onet(self, pixels: Array) -> list[Array]:
        """(N, 48, 48, 4) -> logits (N, 2), offsets (N, 4) and points (N, 10)."""
        return self._onet(pixels)


@cache
def _core(pid: int) -> ov.Core:  # noqa: ARG001
    """One for each process, and for good: OpenVINO leaves something in every thread that has called it, which crashes
    as the thread ends if the core, and with it the code that would clear it away, was let go before.
    """
    return ov.Core()


class _Network:
    """One network for pixels of any shape, and beside it for each of those that come often."""

    def __init__(self, core: ov.Core, build: Callable[[], ov.Model]) -> None:
        self._core, self._build = core, build
        self._for_any = self._compiled(build())
        self._for_shapes: dict[tuple[int, ...], Any] = {}
        self._looks: Counter[tuple[int, ...]] = Counter()

    def __call__(self, pixels: Array) -> list[Array]:
        request = self._for_shapes.get(pixels.shape) or self._request(pixels.shape)
        shared = ov.Tensor(pixels, shared_memory=True)
        return list(request.infer(shared, share_inputs=True, share_outputs=True).values())

    def _request(self, shape: tuple[int, ...]) -> Any:
        self._looks[shape] += 1
        if self._looks[shape] < _OFTEN:
            if len(self._looks) > _MOST_SHAPES * _OFTEN:  # photos, each of its own size
                self._looks.clear()
            return self._for_any
        del self._looks[shape]
        model = self._build()
        model.reshape(list(shape))
        if len(self._for_shapes) == _MOST_SHAPES:
            del self._for_shapes[next(iter(self._for_shapes))]  # the oldest
        self._for_shapes[shape] = self._compiled(model)
        return self._for_shapes[shape]

    def _compiled(self, model: ov.Model) -> Any:
        return self._core.compile_model(model, "CPU", _CONFIG).create_infer_request()


def _pnet() -> ov.Model:
    net = read_weights("pnet.pt")
    pixels = op.parameter([-1, -1, -1, 4], ov.Type.f32)
    maps = _pooled(_convolved(_as_nchw(pixels), net, 1), 2)
    maps = _convolved(_convolved(maps, net, 2), net, 3)
    heads = {
        f"heads.{kind}": np.concatenate([net[f"conv4_1.{kind}"], net[f"conv4_2.{kind}"]]) for kind in ("weight", "bias")
    }
    return ov.Model([op.transpose(_conv(maps, heads, "heads"), _ints(0, 2, 3, 1))], [pixels], "pnet")


def _rnet() -> ov.Model:
    net = read_weights("rnet.pt")
    pixels = op.parameter([-1, 24, 24, 4], ov.Type.f32)
    maps = _pooled(_convolved(_as_nchw(pixels), net, 1), 3)
    maps = _pooled(_convolved(maps, net, 2), 3)
    features = _prelu(_dense(_flat(_convolved(maps, net, 3)), net, "dense4"), net, 4)
    return ov.Model([_dense(features, net, head) for head in ("dense5_1", "dense5_2")], [pixels], "rnet")


def _onet() -> ov.Model:
    net = read_weights("onet.pt")
    pixels = op.parameter([-1, 48, 48, 4], ov.Type.f32)
    maps = _pooled(_convolved(_as_nchw(pixels), net, 1), 3)
    maps = _pooled(_convolved(maps, net, 2), 3)
    maps = _pooled(_convolved(maps, net, 3), 2)
    features = _prelu(_dense(_flat(_convolved(maps, net, 4)), net, "dense5"), net, 5)
    return ov.Model([_dense(features, net, head) for head in ("dense6_1", "dense6_2", "dense6_3")], [pixels], "onet")


def _as_nchw(pixels: Any) -> Any:
    return op.transpose(pixels, _ints(0, 3, 1, 2))


def _convolved(maps: Any, net: Weights, number: int) -> Any:
    return _prelu(_conv(maps, net, f"conv{number}"), net, number)


def _conv(maps: Any, net: Weights, layer: str) -> Any:
    weight, bias = net[f"{layer}.weight"], net[f"{layer}.bias"]
    if weight.shape[1] == 3:  # the fourth channel
        weight = np.pad(weight, ((0, 0), (0, 1), (0, 0), (0, 0)))
    summed = op.convolution(maps, op.constant(weight), [1, 1], [0, 0], [0, 0], [1, 1])
    return op.add(summed, op.constant(bias.reshape(1, -1, 1, 1)))


def _prelu(values: Any, net: Weights, number: int) -> Any:
    return op.prelu(values, op.constant(net[f"prelu{number}.weight"]))


def _pooled(maps: Any, size: int) -> Any:
    return op.max_pool(maps, [2, 2], [1, 1], [0, 0], [0, 0], [size, size], "ceil").output(0)


def _flat(maps: Any) -> Any:
    """In the order of the authors' MATLAB code: by column, row, channel."""
    return op.reshape(op.transpose(maps, _ints(0, 3, 2, 1)), _ints(0, -1), True)


def _dense(features: Any, net: Weights, layer: str) -> Any:
    summed = op.matmul(features, op.constant(net[f"{layer}.weight"]), False, True)
    return op.add(summed, op.constant(net[f"{layer}.bias"]))


def _ints(*values: int) -> Any:
    return op.constant(np.array(values, np.int64))
