"""A profile for people (one screen) and for programs (one JSON object)."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from typing import Any

import torch

from .profile import Gate, Profile

SCHEMA_VERSION = 1


def environment() -> dict[str, Any]:
    """What the figures depend on besides the loader."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"cores": len(os.sched_getaffinity(0)), "machine": platform.machine(), "device": device,
            "python": platform.python_version(), "torch": str(torch.__version__)}  # fmt: skip


def figures(profile: Profile, gate: Gate) -> dict[str, Any]:
    """The whole profile as plain values: seconds, and shares from 0 to 1. `schema` rises when a name changes."""
    verdict = profile.verdict
    return {
        "schema": SCHEMA_VERSION,
        "verdict": {**asdict(verdict), "headroom": verdict.headroom, "text": str(verdict)},
        "estimators": {"live": verdict.live.value, "differential": profile.differential, "model": verdict.model},
        "seconds_per_step": profile.bars,
        "seconds_per_batch": profile.spans,
        "opening_seconds": profile.opening_seconds,
        "first_batch_seconds": profile.first_batch_seconds,
        "images_per_second": profile.images_per_second,
        "step": profile.step,
        "workers": profile.live.workers,
        "prefetch": profile.live.prefetch,
        "gate": {**asdict(gate), "failures": gate.failures(verdict)},
        "environment": environment(),
    }


def text(profile: Profile, gate: Gate) -> str:
    """One screen."""
    verdict = profile.verdict
    model = "-" if verdict.model is None else f"{verdict.model:.2%}"
    lines = [
        str(verdict),
        "",
        f"  A  live, by the clock        {verdict.live.value:7.2%}  of the time the step waited",
        f"  B  against replayed batches  {profile.differential:7.2%}  goes with loading, whatever the reason",
        f"  C  the queue's model         {model:>7}  batches not made when asked for",
        "",
        *_bars("a step", profile.bars),
        "",
        *_bars("a batch's making", profile.spans),
        "",
        f"  {profile.live.workers} workers x {profile.live.prefetch} batches ahead, "
        f"{profile.images_per_second:,.0f} images/s; first batch after {profile.first_batch_seconds:.2f} s",
    ]
    return "\n".join([*lines, *(f"  not shown: {one}" for one in gate.failures(verdict))])


def _bars(what: str, seconds: dict[str, float]) -> list[str]:
    """A line a part, with its bar."""
    longest = max([*seconds.values(), 1e-9])
    total = sum(seconds.values())
    rows = [f"  {what}: {total * 1e3:.2f} ms"] if seconds else []
    for name, value in seconds.items():
        rows.append(f"    {name:<12} {value * 1e3:8.2f} ms  {'█' * round(40 * max(value, 0.0) / longest)}")
    return rows
