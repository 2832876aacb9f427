"""Runs all checks of the self-test, and reports them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ..report.json_report import environment
from .checks import Check, constant_delay, delayed_step, headline, null_runs, with_workers
from .checks_cost import evicted_files, hidden_delay, overhead
from .scenarios import CudaDevice, play
from .scenarios_cost import play_files, play_pairs

SCHEMA_VERSION = 1

Progress = Callable[[str], Any]

_KERNEL_SECONDS = 0.02


def run(*, progress: Progress) -> list[Check]:
    """All eight checks, in real time: about two minutes."""
    checks = []
    progress("1 of 8: a constant delay, without workers")
    checks.append(constant_delay(play))
    checks += with_workers(play, lambda what: progress(f"2 and 3 of 8: delays and outliers, {what}"))
    progress("4 of 8: a delay in the step")
    checks.append(delayed_step(play))
    progress("5 of 8: a delay behind the device's work")
    checks.append(hidden_delay(play, CudaDevice(_KERNEL_SECONDS) if torch.cuda.is_available() else None))
    progress("6 of 8: files in memory and on storage")
    with tempfile.TemporaryDirectory(prefix="facefeed-") as folder:
        checks.append(evicted_files(play_files, Path(folder)))
    progress("7 of 8: what the profiler costs")
    checks.append(overhead(play_pairs))
    progress("8 of 8: a loader that is always ready")
    checks.append(null_runs(play))
    return checks


def figures(checks: Sequence[Check]) -> dict[str, Any]:
    """All checks as plain values. `schema` rises when a key changes."""
    values = [{**asdict(check), "passed": check.passed, "outcome": check.outcome} for check in checks]
    return {"schema": SCHEMA_VERSION, "passed": all(check.passed for check in checks), "checks": values,
            "environment": environment()}  # fmt: skip


def text(checks: Sequence[Check]) -> str:
    """A line a check, and one for each comparison that failed."""
    lines = [headline(checks), ""]
    for check in checks:
        lines.append(f"  {check.number}  {check.outcome:<8} {check.name}: {check.not_run or check.detail}")
        lines += [f"       {point}" for point in check.points if not point.holds]
    return "\n".join(lines)
