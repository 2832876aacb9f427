"""A process of its own that reads hostile files, so that a crash, a hang or a huge allocation is a failed test.

Both sides are here: `ReaderProcess` in the test, `main` in the process, which runs a reader of `assets_readers` on a
folder and answers with what came of it.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from assets_paths import python_path
from facefeed.pipeline.errors import CorruptDataError, StoppedError, UsageError

CPU_SECONDS = 20.0
"""Of one reading; what is read here takes milliseconds."""
WALL_SECONDS = 300.0
"""Against readers that wait for ever, such as for a pipe; no measure of speed."""
MEMORY_BYTES = 1 << 30
"""What one reading may allocate; a file that is read here has a megabyte at most."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a reading.

    kind: "read"; "refused", by a `UsageError` or a `CorruptDataError`; "raised" anything else; "trespassed": wrote or
    removed outside the folder, read there or started a program; "died" or "hung" with the process. text: the message,
    the traceback, what was done, or how the process ended.
    """

    kind: Literal["read", "refused", "raised", "trespassed", "died", "hung"]
    text: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether the file was read or refused, as any file must be."""
        return self.kind in ("read", "refused")


class ReaderProcess:
    """Runs readers by name in a process that is started on first use, and again after each death."""

    def __init__(self, folder: Path) -> None:
        self._errors = folder / "stderr"
        self._process: subprocess.Popen[str] | None = None

    def read(self, reader: str, folder: Path) -> Outcome:
        """Runs the reader on what `folder` holds."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([reader, str(folder)]) + "\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], WALL_SECONDS)[0]:
            self.close()
            return Outcome(kind="hung", text=f"no answer within {WALL_SECONDS:g} s")
        if answer := process.stdout.readline():
            return Outcome(**json.loads(answer))
        status = process.wait()
        self.close()
        if status == -signal.SIGPROF:
            return Outcome(kind="hung", text=f"took more than {CPU_SECONDS:g} s of CPU")
        ended = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return Outcome(kind="died", text=f"{ended}\n{self._errors.read_text(errors='replace')[-4000:]}")

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            with self._errors.open("wb") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-B", __file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    cwd=self._errors.parent,
                    env={
                        **os.environ,
                        "PYTHONPATH": f"{python_path()}:{os.environ.get('PYTHONPATH', '')}",
                        "ARROW_DEFAULT_MEMORY_POOL": "system",  # mimalloc reserves 1 GB of addresses, all of the limit
                    },
                )
        return self._process

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


# ---- the process


def main() -> None:
    """Answers requests, a line each, until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.enable()
    watch = _Watch()
    sys.addaudithook(watch.on_event)
    for line in sys.stdin:
        reader, folder = json.loads(line)
        answers.write(json.dumps(asdict(_read(reader, Path(folder), watch))) + "\n")
        answers.flush()


def _read(name: str, folder: Path, watch: _Watch) -> Outcome:
    module, _, function = name.rpartition(".")
    reader = getattr(importlib.import_module(module), function)
    try:
        with _limits(), watch.of(folder):
            reader(folder)
        outcome = Outcome(kind="read")
    except (CorruptDataError, UsageError) as error:
        outcome = Outcome(kind="refused", text=str(error))
    except StoppedError as error:  # of a size that a machine has, but this process may not
        is_of_memory = isinstance(error.__cause__, MemoryError)
        outcome = Outcome(kind="refused" if is_of_memory else "raised", text=str(error))
    except Exception:
        outcome = Outcome(kind="raised", text=traceback.format_exc()[-6000:])
    return Outcome(kind="trespassed", text="\n".join(watch.trespasses)) if watch.trespasses else outcome


@contextmanager
def _limits() -> Iterator[None]:
    """Bounds CPU, whose end kills the process, and address space, whose end is a MemoryError or a crash."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


_STARTS = ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "subprocess.Popen",
           "socket.connect", "socket.bind", "socket.sendto", "pty.spawn", "webbrowser.open")  # fmt: skip
_CHANGES = ("os.remove", "os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod",
            "os.chown", "shutil.rmtree", "shutil.move", "shutil.copyfile")  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_BAIT = ("/etc/passwd", "owned")


class _Watch:
    """Notes, by Python's audit events, what a reader does outside the folder that it was given."""

    def __init__(self) -> None:
        self.trespasses: list[str] = []
        self._folder: str | None = None

    @contextmanager
    def of(self, folder: Path) -> Iterator[None]:
        """Watches for the length of the block."""
        self.trespasses, self._folder = [], f"{os.path.realpath(folder)}/"
        try:
            yield
        finally:
            self._folder = None

    def on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._folder is None:
            return
        if event in _STARTS:
            self.trespasses.append(f"{event}{arguments!r:.300}")
        elif event in _CHANGES:
            self._note(
                event, [each for each in arguments if isinstance(each, str | bytes | os.PathLike)], self._outside
            )
        elif event == "open":
            path, _, flags = arguments
            is_write = isinstance(flags, int) and bool(flags & _WRITES)
            if not isinstance(path, int):
                self._note(f"open ({flags})", [path], self._outside if is_write else _is_bait)

    def _note(self, event: str, paths: list[Any], is_trespass: Callable[[str], bool]) -> None:
        for path in map(os.fsdecode, paths):
            if is_trespass(path):
                self.trespasses.append(f"{event}: {path!r:.300}")

    def _outside(self, path: str) -> bool:
        if path == os.devnull or "\0" in path:
            return False
        return not f"{os.path.realpath(path)}/".startswith(str(self._folder))


def _is_bait(path: str) -> bool:
    """Whether hostile files name it, and it lies in no dataset."""
    return path.endswith(_BAIT[0]) or Path(path).name.startswith(_BAIT[1])


if __name__ == "__main__":
    main()
