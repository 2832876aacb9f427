"""OpenVINO on one core, as every network of facefeed runs in it."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any, Final

# On import OpenVINO would count its uses in the home folder and report them to its makers. Without this module, which
# cannot be imported while None stands for it, it runs as well.
_TELEMETRY: Final = "openvino_telemetry"
_telemetry = sys.modules.get(_TELEMETRY)
sys.modules[_TELEMETRY] = None  # type: ignore[assignment]
try:
    import openvino as ov
    from openvino import opset13 as op
finally:
    if _telemetry is None:
        del sys.modules[_TELEMETRY]
    else:
        sys.modules[_TELEMETRY] = _telemetry

__all__ = ["create_request", "op", "ov", "process_core"]

_COMPILE_CONFIG: Final = {
    "INFERENCE_PRECISION_HINT": "f32",  # the default is bfloat16 on CPUs that support it
    "ENABLE_CPU_PINNING": False,  # all processes of a machine would be pinned to the same cores
    "CPU_RUNTIME_CACHE_CAPACITY": 64,  # the default of 5,000 took 1 GB for shapes that occur once
    # Compiling and inference in the calling thread. With a stream OpenVINO keeps threads to compile with, and a process
    # that was forked after they were idle waits for them forever.
    "NUM_STREAMS": 0,
    "INFERENCE_NUM_THREADS": 1,
}


def create_request(model: ov.Model) -> Any:
    """Compiles a model for one core and returns an inference request; not thread-safe."""
    return process_core().compile_model(model, "CPU", _COMPILE_CONFIG).create_infer_request()


def process_core() -> ov.Core:
    """Return the process's core, which is never released: OpenVINO keeps thread-local state whose cleanup crashes if
    the core, and with it OpenVINO's code, was released before the thread ends.
    """
    return _core(os.getpid())


@cache
def _core(pid: int) -> ov.Core:  # noqa: ARG001
    return ov.Core()
