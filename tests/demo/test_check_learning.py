"""The last step of `make demo` fails where the classifier learned nothing, or the control learned something."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("check_learning.py")


def run(folder: Path, auc: float) -> Path:
    """The folder of a run with this AUC on test."""
    folder.mkdir()
    result = {"val": {"val/auc": 0.95}, "test": {"test/auc": auc, "test/video_auc": auc}}
    (folder / "result.json").write_text(json.dumps(result))
    return folder


@pytest.mark.parametrize(("auc", "control_auc", "code", "reason"), [
    (0.95, 0.52, 0, ""), (0.85, 0.52, 1, "does not find the fakes"), (0.95, 0.7, 1, "something but the face"),
])  # fmt: skip
def test_the_demo_ends_with_both_figures_and_fails_on_either(
    tmp_path: Path, auc: float, control_auc: float, code: int, reason: str
) -> None:
    command = [
        sys.executable,
        str(SCRIPT),
        str(run(tmp_path / "run", auc)),
        str(run(tmp_path / "control", control_auc)),
    ]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == code
    assert reason in finished.stderr
    assert f"{auc:.3f}" in finished.stdout
    assert f"{control_auc:.3f}" in finished.stdout
