"""Peak memory of one engine at work, in a process that does nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from faces_engines import Frames, make_engine

_STATUS = Path("/proc/self/status")


def measure(engine: str, frames: Frames, *, min_face_px: int, device: str, batch: int) -> dict[str, Any]:
    """To be called in a fresh process: MB resident with weights and frames loaded, at the peak, and between.

    `rise_mb` is what detecting itself takes. On CUDA `device_peak_mb` is what torch had allocated there.
    """
    loaded = make_engine(engine, min_face_px=min_face_px, device=device, batch=batch)
    before_mb = _resident_mb("VmRSS")
    # The peak so far is that of importing and decoding: 5 sets it back to what is resident now.
    Path("/proc/self/clear_refs").write_text("5")
    loaded.timed(frames)
    peak_mb = _resident_mb("VmHWM")
    figures: dict[str, Any] = {"before_mb": before_mb, "peak_mb": peak_mb, "rise_mb": peak_mb - before_mb}
    if device.startswith("cuda"):
        figures["device_peak_mb"] = round(torch.cuda.max_memory_allocated() / 1e6)
    return {"frames": len(frames), "size": f"{frames[0].shape[1]}x{frames[0].shape[0]}", **figures}


def in_own_process(script: Path, *arguments: str) -> dict[str, Any]:
    """What `script --memory-of ...` prints, or how it ended if it was killed for its memory."""
    completed = subprocess.run(
        [sys.executable, str(script), *arguments], stdout=subprocess.PIPE, text=True, check=False
    )  # fmt: skip
    return (
        json.loads(completed.stdout) if completed.returncode == 0 else {"failed": f"exit status {completed.returncode}"}
    )


def _resident_mb(field: str) -> int:
    """A line of the process's status; ru_maxrss will not do: it starts with what the parent process had."""
    lines = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return round(int(lines[field].split()[0]) * 1024 / 1e6)
