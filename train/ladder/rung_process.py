"""Runs a rung in a process group of its own, follows its steps, and ends the group with all its children."""

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

OnStep = Callable[[int, int], None]
"""Called with the steps done and the total."""


def run_process(
    request: str,
    *,
    patience_seconds: float,
    on_step: OnStep = lambda _done, _wanted: None,
    command: Sequence[str] = CHILD,
) -> dict[str, Any]:
    """Runs a request in a process of its own and returns its answer; both are JSON.

    The process runs `command REQUEST_FILE ANSWER_FILE` and writes a line "done total" to its standard output after
    every step. It is killed, with all its children, if no line came for `patience_seconds`, and if this call is left
    early, as by Ctrl-C; if this process dies, its standard input ends. Raises `RungError` with the reason if there is
    no answer, and `UsageError` if the answer is that the request cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="facefeed-ladder-") as folder:
        request_file, answer_file, stderr_file = (
            Path(folder) / name for name in ("request.json", "answer.json", "stderr.txt")
        )
        request_file.write_text(request, encoding="utf-8")
        with (
            stderr_file.open("wb") as stderr,
            _start([*command, str(request_file), str(answer_file)], stderr) as process,
        ):
            ended_in_time = _follow(process, patience_seconds, on_step)
        if not ended_in_time:
            raise RungError(
                f"made no step for {patience_seconds:,.0f} s and was ended; if it is only slow, give more --patience"
            )
        return _read(answer_file, process.returncode, _last_line(stderr_file))


@contextlib.contextmanager
def _start(command: Sequence[str], stderr: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Context that starts a process in a session of its own: Ctrl-C reaches only the parent, which kills the group."""
    environment = {**os.environ, "NO_ALBUMENTATIONS_UPDATE": "1"}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True, env=environment
    )
    try:
        yield process
    finally:
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        process.kill()
        process.wait()
        _end_group(process.pid)


def _end_group(group: int) -> None:
    """Waits for loader workers and other ranks, which release shared memory as they end, and then kills the rest."""
    deadline = time.monotonic() + _GRACE_SECONDS
    while (remaining := _processes_of_group(group)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in remaining:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(remaining, timeout=_GRACE_SECONDS)


def _processes_of_group(group: int) -> list[psutil.Process]:
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def _follow(process: subprocess.Popen[bytes], patience_seconds: float, on_step: OnStep) -> bool:
    """Follows a process until it ends, even if a child keeps its output open; False if it was silent for too long."""
    assert process.stdout is not None
    buffer, deadline = b"", time.monotonic() + patience_seconds
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            if not selector.select(_LOOK_SECONDS):
                if process.poll() is not None:
                    return True
                continue
            read = os.read(process.stdout.fileno(), 1 << 16)
            if not read:
                return _wait(process, max(deadline - time.monotonic(), 0))
            *lines, buffer = (buffer + read).split(b"\n")
            for line in lines:
                done, _, total = line.decode(errors="replace").partition(" ")
                if done.isdigit() and total.isdigit():
                    on_step(int(done), int(total))
                    deadline = time.monotonic() + patience_seconds
    return False


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _read(answer_file: Path, code: int, last_line: str) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(answer_file.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        killed = f"was killed by signal {-code}{' (out of memory?)' if code == -9 else ''}"
        ending = killed if code < 0 else f"ended with code {code}"
        raise RungError(f"its process {ending}" + (f"; it last said: {last_line}" if last_line else "")) from None
    if "refused" in answer:
        raise UsageError(answer["refused"])
    if "failed" in answer:
        raise RungError(answer["failed"])
    return answer


def _last_line(stderr_file: Path) -> str:
    tail = stderr_file.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(tail) if line.strip()), "")
