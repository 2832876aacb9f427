"""One real command of facefeed, to be run to its end, or struck at a moment of its work; and what its output may hold.

Detection is by fixed boxes: it takes no time, and `assets_fresh_runs` knows its rows.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import psutil
from assets_paths import python_path

DEADLINE_SECONDS = 400
"""What takes longer than this hangs: a run on a busy machine takes 20 s."""
OPTIONS = ("--every", "2", "--min-face", "16", "--size", "32", "--workers", "1", "--max-failed", "6")
"""Those of the setting "usual" of `assets_fresh_runs`."""
LAST_LINE = "next: facefeed verify"
TRACES = ("Traceback (most recent call last)", "leaked", "Task exception was never retrieved", "Exception ignored")

DRIVER = """
from facefeed.pipeline.cli import main
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning import validation

validation.make_detector = lambda name, keep: FixedBoxDetector()
if __name__ == "__main__":
    main()
"""


class SoakError(Exception):
    """Something that must not happen did."""


_SIGNS = {
    "lease": ("*.lease",), "attempt": ("_tmp/*.inprogress",), "receipt": ("receipts/*",),
    "index": ("index.next.arrow", "_tmp/index.*"), "manifest": ("manifest.json",),
}  # fmt: skip
"""Files in OUT that a run writes when it comes to a point of its work, by the name of that."""


def _times(out: Path, name: str) -> set[tuple[str, int]]:
    """The files of a sign, each with the time at which it was written; one that goes meanwhile is left out."""
    times = set()
    for path in (path for pattern in _SIGNS[name] for path in out.glob(pattern)):
        with suppress(FileNotFoundError):
            times.add((path.name, path.stat().st_mtime_ns))
    return times


class Command:
    """A command that is at work. `ended`: the last ones that have ended, each with its exit code and its output."""

    ended: ClassVar[deque[str]] = deque(maxlen=4)

    def __init__(self, folder: Path, *arguments: str) -> None:
        driver = folder / "driver.py"
        driver.write_text(DRIVER)
        self.arguments = arguments
        self._errors = tempfile.TemporaryFile("w+", dir=folder)  # noqa: SIM115 (read once it has ended)
        self.process = psutil.Popen(
            [sys.executable, str(driver), *arguments], stdout=subprocess.DEVNULL, stderr=self._errors,
            env={**os.environ, "PYTHONPATH": python_path()}, start_new_session=True,
        )  # fmt: skip

    def wait_until(self, happened: Callable[[], bool]) -> bool:
        """Whether it has happened before the command ended."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.process.poll() is None:
            if happened():
                return True
            self._check(time.monotonic() < deadline, f"still at work after {DEADLINE_SECONDS} s")
            time.sleep(0.01)
        return False

    def strike(self, kind: str) -> None:
        """KILL: the whole tree; INT: all of it, as a terminal does; TERM: the command alone."""
        tree = [self.process, *(self.process.children(recursive=True) if self.process.is_running() else [])]
        if kind == "KILL":
            for proc in tree:
                _send(proc, signal.SIGKILL)
        else:
            number = {"INT": signal.SIGINT, "TERM": signal.SIGTERM}[kind]
            for proc in tree if kind == "INT" else tree[:1]:
                _send(proc, number)
        self._wait()
        _, alive = psutil.wait_procs(tree[1:], timeout=60)
        self._check(not alive, f"outlived SIG{kind}: {alive}")

    def end(self, *expected: int) -> int:
        """Waits for its end; the exit code, which must be one of these. A killed one may print anything."""
        self._wait()
        code, text = int(self.process.returncode), self.errors()
        if code in (-signal.SIGINT, -signal.SIGTERM) and LAST_LINE in text:  # Python had removed its handlers by then
            code = 0
        self._check(code in expected, f"exit code {code}, not in {expected}")
        if code != -signal.SIGKILL:
            self._check(not any(trace in text for trace in TRACES), "a trace")
        self.ended.append(f"facefeed {' '.join(self.arguments)}: exit code {code}\n{text}")
        self._errors.close()
        return code

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def _wait(self) -> None:
        try:
            self.process.wait(DEADLINE_SECONDS)
        except psutil.TimeoutExpired:
            self._check(False, f"still at work after {DEADLINE_SECONDS} s")

    def _check(self, holds: bool, what: str) -> None:
        if not holds:
            raise SoakError(f"facefeed {' '.join(self.arguments)}: {what}\n{self.errors()}")


def _send(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def draw_moment(out: Path, draws: random.Random, *names: str) -> tuple[str, Callable[[], bool]]:
    """A point of the next command's work, and whether it has come to that, or up to half a second beyond."""
    name = draws.choice(names or sorted(_SIGNS))
    delay_seconds = draws.choice((0.0, draws.uniform(0.0, 0.5)))
    before = _times(out, name)

    def happened() -> bool:
        if _times(out, name) <= before:
            return False
        time.sleep(delay_seconds)
        return True

    return name, happened


def precompute_arguments(source: Path, out: Path, options: Sequence[str] = ()) -> list[str]:
    return ["precompute", str(source), str(out), *OPTIONS, *options]
