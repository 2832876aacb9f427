"""OpenVINO without what it does on import: it would count its uses in the home folder and report them to its makers."""

from __future__ import annotations

import sys

_TELEMETRY = "openvino_telemetry"

_before = sys.modules.get(_TELEMETRY)
sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # cannot be imported: OpenVINO goes on without
try:
    import openvino as ov
    from openvino import opset13 as op
finally:
    if _before is None:
        del sys.modules[_TELEMETRY]
    else:
        sys.modules[_TELEMETRY] = _before

__all__ = ["op", "ov"]
