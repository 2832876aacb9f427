"""Each file system call fails once: the command finishes, or says why not, and then ends as an undisturbed one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from assets_failing_calls import library
from assets_paths import python_path

SOME = {
    "precompute": 251, "update": 509, "last-part": 401, "add": 211, "remove": 127, "compact": 401, "verify": 97,
    "export-folders": 293, "export-webdataset": 149, "export-hf": 149,
}  # fmt: skip
"""Of each command, one in how many faults are tried in `make test`."""

_ARROW = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""It asks libc for memory, so that it too may be refused."""


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("library"))


def check_commands(
    one_in: dict[str, int], folder: Path, preloaded: Path, *, first: int = 0, timeout_seconds: float
) -> None:
    """Tries one in so many faults of each command, from the `first`."""
    commands = [f"{name}={one}={first}" for name, one in one_in.items()]
    result = subprocess.run(
        [sys.executable, "-m", "assets_failing_runs", str(folder), *commands],
        env={**os.environ, "PYTHONPATH": python_path(), "LD_PRELOAD": str(preloaded), **_ARROW},
        capture_output=True, text=True, check=False, timeout=timeout_seconds,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    reports: dict[str, dict[str, Any]] = json.loads(result.stdout.splitlines()[-1])
    for name, report in reports.items():
        print(f"{name}: {report['tried']} faults, {report['endings']}; {report['calls']} calls; {report['seconds']} s")
        print(*report["problems"], sep="\n")  # pytest shortens them
    assert {name: report["problems"] for name, report in reports.items()} == {name: [] for name in one_in}
    endings = {ending for report in reports.values() for ending in report["endings"]}
    assert {"killed", "exit 75"} <= endings, "no fault has had an effect"


@pytest.mark.processes
def test_a_failing_call_costs_nothing_but_another_run(tmp_path: Path, preloaded: Path) -> None:
    check_commands(SOME, tmp_path, preloaded, timeout_seconds=600)


SHARES = {**dict.fromkeys(SOME, 1), "train": 12}
"""In how many tests all faults of a command are tried: in one of training they would take over an hour."""


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("command", "first", "one_in"),
    [(command, first, shares) for command, shares in SHARES.items() for first in range(shares)],
)
def test_every_failing_call_costs_nothing_but_another_run(
    command: str, first: int, one_in: int, tmp_path: Path, preloaded: Path
) -> None:
    check_commands({command: one_in}, tmp_path, preloaded, first=first, timeout_seconds=4 * 3600)
