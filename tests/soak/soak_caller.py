"""The long-lived process of a soak that calls `precompute()`, as its parent sees it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import soak_python
from assets_paths import python_path
from soak_command import DEADLINE_SECONDS, SoakError


class Caller:
    """Calls `precompute()` in a process of its own, which the first call starts."""

    def __init__(self, source: Path, out: Path, samples: Path, seconds: float) -> None:
        self._arguments = [str(source), str(out), str(samples), str(seconds)]

    @cached_property
    def _process(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, soak_python.__file__, *self._arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "PYTHONPATH": python_path(Path(__file__).parent)},
        )  # fmt: skip

    def call(self, *expected: int) -> int:
        """The exit code that a command would have, one of those expected."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        line = self._read_line()
        answer = json.loads(line) if line else {"exit": None, "error": "the process is gone, or hangs"}
        if answer["exit"] not in expected:
            raise SoakError(f"precompute() has ended with {answer['exit']}: {answer['error']}")
        return int(answer["exit"])

    def _read_line(self) -> str:
        """The next line; empty where the process ends, or is silent for too long."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], DEADLINE_SECONDS)[0]:
            return ""
        return self._process.stdout.readline()

    def close(self) -> None:
        """The process, if there was a call, ends by itself once it is not needed any longer."""
        if "_process" not in self.__dict__:
            return
        self._process.communicate(timeout=60)
        if self._process.returncode:
            raise SoakError(f"the process that calls precompute() has ended with {self._process.returncode}")
