"""Processes of training, which a test may kill and start anew: `in_processes`.

All are forked from one process, which imports Lightning once for all tests of a session and does nothing else: that
import takes longer than what most tests do in such a process.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any


def in_processes(*stages: dict[str, Any], timeout_seconds: float = 240) -> list[list[int]]:
    """Runs stages one after the other, each in new processes, one a rank; returns their exit codes.

    A stage is a function of a module, "FILE:function", the number of its `ranks`, and its further `arguments`.
    """
    origin = _Origin.running or _Origin()
    return origin.run(stages, timeout_seconds)


class _Origin:
    """The process that others are forked from, until the session ends or it is lost."""

    running: _Origin | None = None

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        from assets_paths import python_path  # noqa: PLC0415 (pytest, which the process need not import)

        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": python_path()}
        # No file as the script, which workers would import too.
        self._process = subprocess.Popen(
            [sys.executable, "-c", "import assets_processes; assets_processes.serve()"], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True,
        )  # fmt: skip
        atexit.register(self.end)
        _Origin.running = self

    def run(self, stages: tuple[dict[str, Any], ...], timeout_seconds: float) -> list[list[int]]:
        """The exit codes of all ranks, by stage."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        begin = self._errors.seek(0, os.SEEK_END)
        try:
            self._process.stdin.write(json.dumps(stages).encode() + b"\n")
            self._process.stdin.flush()
            ready, _, _ = select.select([self._process.stdout], [], [], timeout_seconds)
            reply = self._process.stdout.readline() if ready else b""
        except BaseException:
            self.end()
            raise
        self._errors.seek(begin)
        errors = self._errors.read().decode(errors="replace")
        print(errors, file=sys.stderr)
        if not reply:
            self.end()
        assert reply, errors[-3000:]
        codes: list[list[int]] = json.loads(reply)
        return codes

    def end(self) -> None:
        """Ends it, and all that it has forked."""
        _Origin.running = None
        atexit.unregister(self.end)
        with self._process, self._errors:
            os.killpg(self._process.pid, signal.SIGKILL)


def serve() -> None:
    """Runs stages as `in_processes` asks for them, a line each, and answers with exit codes, a line each."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a rank prints is no answer
    warnings.simplefilter("ignore")
    import_module("timm")  # the classifier would, in each process anew
    for line in sys.stdin:
        codes = [_run(**stage) for stage in json.loads(line)]
        os.write(answers, json.dumps(codes).encode() + b"\n")


def _run(run: str, ranks: int, arguments: dict[str, Any]) -> list[int]:
    file, name = run.rsplit(":", 1)
    work = getattr(_module(file), name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [_fork(work, arguments, rank, ranks, port) for rank in range(ranks)]
    return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]


def _module(file: str) -> ModuleType:
    """A module by its file: test modules lie in folders that are on no path."""
    name = Path(file).stem
    if getattr(sys.modules.get(name), "__file__", None) != file:
        spec = spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _fork(work: Callable[..., None], arguments: dict[str, Any], rank: int, ranks: int, port: int) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        import torch  # noqa: PLC0415 (this module's importer need not)

        if ranks > 1:  # as a launcher such as torchrun or srun would say it
            os.environ |= {
                "LOCAL_RANK": str(rank), "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            }  # fmt: skip
        torch.set_num_threads(1)
        work(**arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
