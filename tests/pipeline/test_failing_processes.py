"""`facefeed precompute` as a whole, of which a system call fails in the driver, in a worker or in a decoder.

What no other test reaches: processes and threads that cannot be started, connections that are refused, and what the
decoder meets when it reads. `strace` fails the N-th call of every process that gets that far.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from facefeed.pipeline.verify.check import verify

MakeSource = Callable[..., Path]

_HANGS_SECONDS = 240
_ONE_THREAD = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"


@dataclass(frozen=True)
class Command:
    """The real command, on two videos with one worker."""

    source: Path
    out: Path

    def run(self, *tracer: str, retry: bool = False) -> subprocess.CompletedProcess[str]:
        """Runs it, below `tracer`; `retry`: with failed inputs once more."""
        command = [
            sys.executable, "-m", "facefeed.pipeline", "precompute", str(self.source), str(self.out),
            "--workers", "1", "--detector", "whole-frame", "--every", "5", "--min-face", "16", "--size", "64",
            "--max-failed", "0", *(["--retry-failed"] if retry else []),
        ]  # fmt: skip
        environment = {**os.environ, **dict.fromkeys(_ONE_THREAD, "1")}
        return subprocess.run(
            [*tracer, *command], env=environment, capture_output=True, text=True, check=False, timeout=_HANGS_SECONDS,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def rows(self) -> pa.Table:
        return pads.dataset(self.out / "faces").to_table().sort_by("face_id")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, small_video: Path) -> Command:
    folder = tmp_path_factory.mktemp("undisturbed")
    for name in ("a", "b"):
        (folder / "src/real").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(small_video, folder / f"src/real/{name}.mp4")
    command = Command(folder / "src", folder / "out")
    result = command.run()
    assert result.returncode == 0, result.stderr
    return command


def check_failing(undisturbed: Command, out: Path, strace: str, call: str, error: str, when: str, *paths: str) -> str:
    """Runs the command with the fault, then again without; returns how it ended at first."""
    command = Command(undisturbed.source, out)
    below = [option for path in paths for option in ("-P", str(command.source / path))]
    tracer = [strace, "-f", "-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={when}"]
    result = command.run(*tracer, *below)
    assert result.returncode in {0, 2, 3, 75}, result.stderr
    assert "Traceback" not in result.stderr
    if result.returncode:
        assert "facefeed: " in result.stderr
        again = command.run(retry=result.returncode == 3)
        assert again.returncode == 0, again.stderr
    assert command.rows().equals(undisturbed.rows())
    assert verify(out).findings == []
    return f"exit {result.returncode}: {result.stderr.splitlines()[-1] if result.stderr else ''}"


FAULTS = [
    ("openat", "EIO", "1", "real/a.mp4"),  # the decoder's, to read it
    ("openat", "EMFILE", "2", "real/a.mp4"),
    ("read", "EIO", "1", "real/a.mp4"),
    ("read", "EIO", "4", "real/b.mp4"),
    ("mmap", "ENOMEM", "1", "real/a.mp4"),
    *(("execve", error, "1") for error in ("ENOMEM", "EACCES", "EMFILE")),
    *(("connect", error, when) for error in ("ECONNREFUSED", "EMFILE") for when in ("1", "2", "3")),
    *(("fsync", error, when) for error in ("ENOSPC", "EIO") for when in ("1", "4", "9")),
    *(("clone3", "EAGAIN", when) for when in ("8", "12", "16", "20", "24")),
    *(("clone", "EAGAIN", when) for when in ("1", "2")),
    *(("vfork", "ENOMEM", when) for when in ("1", "2")),
]


@pytest.mark.processes
@pytest.mark.parametrize("fault", [FAULTS[0]], ids="-".join)
def test_a_system_call_that_fails_anywhere_costs_no_row(
    undisturbed: Command, tmp_path: Path, strace: str, fault: tuple[str, ...]
) -> None:
    print(check_failing(undisturbed, tmp_path / "out", strace, *fault))


@pytest.mark.chaos
@pytest.mark.parametrize("fault", FAULTS, ids="-".join)
def test_whatever_system_call_fails_no_row_is_lost(
    undisturbed: Command, tmp_path: Path, strace: str, fault: tuple[str, ...]
) -> None:
    print(check_failing(undisturbed, tmp_path / "out", strace, *fault))
