"""The soak in its bounded form: a run that is killed and one that ends, while two ranks read; then all is equal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("soak.py")


@pytest.mark.processes
def test_with_everything_at_once_all_is_equal_at_the_end_and_nothing_is_left(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), "--steps", "1", "--seed", "1", "--folder", str(tmp_path)]
    soak = subprocess.run(command, capture_output=True, text=True, check=False)
    assert soak.returncode == 0, soak.stderr
    result = json.loads(soak.stdout.splitlines()[-1])
    assert result["passed"]
    counts = result["counts"]
    assert counts["readers killed"] == counts["readers: resumed"] == 1
    assert counts["epochs of both ranks"] >= 3
    assert counts["rows at the end"] > 0
