"""`facefeed precompute` as a whole, of which a system call fails in the driver, in a worker or in a decoder.

What no other test reaches: processes and threads that cannot be started, connections that are refused, and what the
decoder meets when it reads. `strace` fails the N-th call of every process that gets that far, or kills it: N is 1, 2,
and so on, until no process gets there.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from facefeed.pipeline.verify.check import verify

MakeSource = Callable[..., Path]

_HANGS_SECONDS = 240
_OF_DASK = re.compile(r"^Process Dask Worker process.*\nTraceback.*\n(?: .*\n)*.*\n", re.MULTILINE)
"""What a worker process of Dask prints where its end fails."""
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


@dataclass(frozen=True)
class Fault:
    """The N-th `call` of every process and thread that makes so many fails with `error`, or kills its process.

    `path`: only calls on it count, a file of the source.
    """

    call: str
    error: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.call}-{self.error}{'-read' if self.path else ''}"

    def options(self, source: Path, number: int, trace: Path) -> list[str]:
        """Those of `strace`, which writes the calls to `trace`."""
        what = "signal=KILL" if self.error == "SIGKILL" else f"error={self.error}"
        below = ["-P", str(source / self.path)] if self.path else []
        return [
            "-f", "-o", str(trace), *below,
            "-e", f"trace={self.call}", "-e", f"inject={self.call}:{what}:when={number}",
        ]  # fmt: skip


def ending_with(fault: Fault, number: int, undisturbed: Command, out: Path, strace: str) -> str:
    """Runs the command with the fault, then again without; returns how it ended at first, "" where none was reached."""
    command, trace = Command(undisturbed.source, out), out.with_suffix(".trace")
    result = command.run(strace, *fault.options(command.source, number, trace))
    callers = re.findall(rf"^(\d+) +{fault.call}\(", trace.read_text(errors="replace"), re.MULTILINE)
    is_reached = max(Counter(callers).values(), default=0) >= number
    if fault.error == "SIGKILL" and result.returncode == -signal.SIGKILL:
        ending = "killed"
    else:
        assert result.returncode in {0, 2, 3, 75}, result.stderr
        assert "Traceback" not in _OF_DASK.sub("", result.stderr)
        assert result.returncode == 0 or "facefeed: " in result.stderr
        ending = f"exit {result.returncode}"
    if result.returncode:
        again = command.run(retry=result.returncode == 3)
        assert again.returncode == 0, again.stderr
    assert command.rows().equals(undisturbed.rows())
    assert verify(out).findings == []
    return f"{ending}: {result.stderr.splitlines()[-1] if result.stderr else ''}" if is_reached else ""


FAULTS = [
    *(Fault("openat", error, "real/a.mp4") for error in ("EIO", "EMFILE")),  # the decoder's, to read it
    Fault("read", "EIO", "real/a.mp4"),
    *(Fault("execve", error) for error in ("ENOMEM", "EACCES", "EMFILE", "SIGKILL")),
    *(Fault("connect", error) for error in ("ECONNREFUSED", "EMFILE", "SIGKILL")),
    *(Fault("fsync", error) for error in ("ENOSPC", "EIO", "SIGKILL")),
    # of threads; a process is begun by vfork, or by Python's fork server
    *(Fault("clone3", error) for error in ("EAGAIN", "SIGKILL")),
    *(Fault("vfork", error) for error in ("ENOMEM", "SIGKILL")),
]


@pytest.mark.processes
def test_a_system_call_that_fails_anywhere_costs_no_row(undisturbed: Command, tmp_path: Path, strace: str) -> None:
    assert ending_with(FAULTS[0], 1, undisturbed, tmp_path / "out", strace)


@pytest.mark.chaos
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_whatever_system_call_fails_no_row_is_lost(
    undisturbed: Command, tmp_path: Path, strace: str, fault: Fault
) -> None:
    endings = list(takewhile(bool, (
        ending_with(fault, number, undisturbed, tmp_path / f"out-{number}", strace) for number in count(1)
    )))  # fmt: skip
    assert endings, "the call is never made"
    print(*endings, sep="\n")
