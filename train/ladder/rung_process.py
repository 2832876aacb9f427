"""A rung's process: started, listened to, and gone when it is no longer wanted, with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from ...pipeline.errors import UsageError
from .scheduler import RungError

CHILD = (sys.executable, "-m", "facefeed.train.ladder.rung.worker")
_TAIL_BYTES = 4000
_GRACE_SECONDS = 5.0
_LOOK_SECONDS = 0.2

Told = Callable[[int, int], None]
"""Is called with steps done and steps wanted."""


def answer(
    question: str, *, patience_seconds: float, tell: Told = lambda _done, _wanted: None, command: Sequence[str] = CHILD
) -> dict[str, Any]:
    """What a process of its own answers to `question`, both JSON.

    The process runs `command QUESTION_FILE ANSWER_FILE` and writes a line "done wanted" to its standard output after
    every step. It is ended, with all it started, when none came for `patience_seconds`, and when this call is left
    early, as by Ctrl-C; should this process die, its standard input ends. Raises `RungError` with the reason where it
    does not answer, and `UsageError` where it answers that what was asked cannot be meant.
    """
    with tempfile.TemporaryDirectory(prefix="facefeed-ladder-") as name:
        asked, answered, said = (Path(name) / one for one in ("question.json", "answer.json", "stderr.txt"))
        asked.write_text(question, encoding="utf-8")
        with said.open("wb") as stderr, _started([*command, str(asked), str(answered)], stderr) as process:
            patient = _followed(process, patience_seconds, tell)
        if not patient:
            raise RungError(
                f"made no step for {patience_seconds:,.0f} s and was ended; if it is only slow, give more --patience"
            )
        return _read(answered, process.returncode, _last_line(said))


@contextlib.contextmanager
def _started(command: Sequence[str], stderr: Any) -> Iterator[subprocess.Popen[bytes]]:
    """In a session of its own, so that a terminal's Ctrl-C comes to this process alone, and all of it can be ended."""
    environment = {**os.environ, "NO_ALBUMENTATIONS_UPDATE": "1"}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True, env=environment
    )
    try:
        yield process
    finally:
        for end in (process.stdin, process.stdout):
            assert end is not None
            end.close()
        process.kill()
        process.wait()
        _end_rest(process.pid)


def _end_rest(group: int) -> None:
    """Loader workers and other ranks end with their process, and give back shared memory; who does not, is ended."""
    until = time.monotonic() + _GRACE_SECONDS
    while (left := _of_group(group)) and time.monotonic() < until:
        time.sleep(0.02)
    for one in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(left, timeout=_GRACE_SECONDS)


def _of_group(group: int) -> list[psutil.Process]:
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(one.pid) == group and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


def _followed(process: subprocess.Popen[bytes], patience_seconds: float, tell: Told) -> bool:
    """Until the process ends, whoever else may still hold its output; False where it was silent for too long."""
    assert process.stdout is not None
    rest, until = b"", time.monotonic() + patience_seconds
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < until:
            if not waiting.select(_LOOK_SECONDS):
                if process.poll() is not None:
                    return True
                continue
            read = os.read(process.stdout.fileno(), 1 << 16)
            if not read:
                return _ended(process, max(until - time.monotonic(), 0))
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                done, _, wanted = line.decode(errors="replace").partition(" ")
                if done.isdigit() and wanted.isdigit():
                    tell(int(done), int(wanted))
                    until = time.monotonic() + patience_seconds
    return False


def _ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _read(answered: Path, code: int, last_line: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        killed = f"was killed by signal {-code}{' (out of memory?)' if code == -9 else ''}"
        how = killed if code < 0 else f"ended with code {code}"
        raise RungError(f"its process {how}" + (f"; it last said: {last_line}" if last_line else "")) from None
    if "refused" in found:
        raise UsageError(found["refused"])
    if "failed" in found:
        raise RungError(found["failed"])
    return found


def _last_line(said: Path) -> str:
    tail = said.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(tail) if line.strip()), "")
