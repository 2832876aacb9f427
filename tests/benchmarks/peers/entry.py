"""An entry's process as the benchmark sees it: started, told what to do, measured from outside, held still."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

_HERE = Path(__file__).resolve().parent


class Entry:
    """One long-living process with the workers it starts; a group of its own, so that all of it can be stopped."""

    def __init__(
        self, python: Path, module: str, lane: str, folder: Path, *, workers: int = 2, whole: bool = True,
        arguments: Sequence[str] = (),
    ) -> None:  # fmt: skip
        command = [str(python), str(_HERE / "serve.py"), "--peer", module, "--lane", lane, "--folder", str(folder)]
        command += ["--workers", str(workers), *(["--whole"] if whole else []), *arguments]
        quiet = {"HF_HUB_OFFLINE": "1", "NO_ALBUMENTATIONS_UPDATE": "1", "PYTHONWARNINGS": "ignore"}
        self.log = (folder / f"{module}-{lane.replace(chr(39), '_')}.log").open("a")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True,
            env={**os.environ, **quiet},
        )  # fmt: skip

    def __enter__(self) -> Entry:
        return self

    def __exit__(self, *args: object) -> None:
        self.go_on()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write('{"do": "quit"}\n')
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # what was left of this entry's own group
        self._process.wait()
        self.log.close()

    def ask(self, do: str, **wanted: Any) -> dict[str, Any]:
        """Has something done; raises `RuntimeError` where the process ended instead of answering."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": do, **wanted}) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"no answer to {do}; see {self.log.name}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def epoch(self) -> dict[str, float]:
        """One timed epoch, and the CPU seconds of all the entry's processes in it."""
        before = self._cpu_seconds()
        answer = self.ask("epoch")
        cpu_seconds = self._cpu_seconds() - before
        images = answer["images"]
        return {
            **answer,
            "images_per_second": images / answer["seconds"],
            "cpu_seconds_per_1000_images": cpu_seconds / images * 1000,
        }

    def first(self) -> dict[str, float]:
        """The first batch and the rest of its epoch, untimed: here the memory is measured, which costs time."""
        peak, is_stopped = 0, threading.Event()

        def watch() -> None:
            nonlocal peak
            while not is_stopped.wait(0.25):
                peak = max(peak, sum(_pss_bytes(process) for process in self._processes()))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            answer = self.ask("first")
            return {**answer, "peak_pss_mb": peak / 1e6}
        finally:
            is_stopped.set()
            watcher.join()

    def hold(self) -> None:
        """Stops all its processes, so that threads of one library take nothing from the next."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Lets them go on."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGCONT)

    def _processes(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.Error:
            return []

    def _cpu_seconds(self) -> float:
        """Of all that live, and of the children that they have waited for."""
        total = 0.0
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                spent = process.cpu_times()
                total += spent.user + spent.system + spent.children_user + spent.children_system
        return total


def _pss_bytes(process: psutil.Process) -> int:
    try:
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0)
