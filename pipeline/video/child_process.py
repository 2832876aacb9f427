"""The parent's end of the child: start it, read from it against the clock, end it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import time
from typing import IO

from ..errors import InputError, UsageError
from .limits import DecoderLimits

PARENT_PID = "FACEFEED_READER_PID"
"""Environment variable that tells the child whose child it is."""

_INHERITED = frozenset(("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TZ"))
_INHERITED_PREFIXES = ("LC_", "PYTHON")
_PIPE_BYTES = 1 << 20
_EXIT_SECONDS = 10.0


class DecoderProcess:
    """One running child; used by one thread at a time, and dead for good after its first failure.

    The child asks the kernel to kill it when the *thread* that started it ends (PR_SET_PDEATHSIG counts threads,
    not processes). A reader that is handed on to another thread just starts a new child: see MediaReader.
    """

    def __init__(self, limits: DecoderLimits) -> None:
        # Nothing else of the environment: a decoder that a file takes over must find no key to a cloud.
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
        }
        environment = {
            **inherited,
            PARENT_PID: str(os.getpid()),
            "OPENBLAS_NUM_THREADS": "1",  # numpy's threads would only take address space
            "MALLOC_ARENA_MAX": "2",
        }
        try:
            # Not multiprocessing: Dask's workers are daemonic and may not have such children.
            self._process = subprocess.Popen(
                limits.child_command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
                bufsize=0,
            )
        except OSError as error:
            raise UsageError(f"command={limits.command!r}: cannot be started ({error.strerror})") from error
        self._owner_pid = os.getpid()
        self._limits = limits
        self._waited_seconds = 0.0
        self._poll = select.poll()
        self._poll.register(self._pipe(self._process.stdout), select.POLLIN)
        with contextlib.suppress(OSError):  # an unprivileged user's pipes are limited; smaller is only slower
            fcntl.fcntl(self._pipe(self._process.stdout), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    @property
    def pid(self) -> int:
        """Process id, which is also that of its process group."""
        return self._process.pid

    @staticmethod
    def _pipe(stream: IO[bytes] | None) -> int:
        assert stream is not None
        return stream.fileno()

    def is_alive(self) -> bool:
        """Whether the child can be asked for another file."""
        return self._process.poll() is None

    def begin(self, request: bytes) -> None:
        """Send a request and start its clock; raises BrokenPipeError if the child is gone.

        A request is one line that a listening child reads at once. What does not fit in the pipe waits until the
        child has taken what is there, which it does before it answers anything: so this cannot block for long.
        """
        self._waited_seconds = 0.0
        view = memoryview(request)
        while view:
            view = view[os.write(self._pipe(self._process.stdin), view) :]

    def read_into(self, view: memoryview) -> None:
        """Fill the view, or raise InputError: timeout, or crashed if the child ended."""
        stdout = self._pipe(self._process.stdout)
        while view:
            self._await_bytes()
            count = os.readv(stdout, [view])
            if count == 0:
                raise self._ended()
            view = view[count:]

    def _await_bytes(self) -> None:
        left_seconds = self._limits.total_seconds - self._waited_seconds
        patience_seconds = min(self._limits.deadline_seconds, max(0.0, left_seconds))
        started = time.monotonic()
        ready = self._poll.poll(patience_seconds * 1000)
        self._waited_seconds += time.monotonic() - started
        if ready:
            return
        self.kill()
        if patience_seconds < self._limits.deadline_seconds:
            rule = f"took more than the total of {self._limits.total_seconds:g} s"
        else:
            rule = f"showed no progress for {self._limits.deadline_seconds:g} s"
        raise InputError("timeout", f"the decoder {rule} and was killed")

    def _ended(self) -> InputError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_SECONDS)
        status = self._process.returncode
        self.kill()
        if status is None:
            return InputError("crashed", "the decoder closed its pipe without ending")
        if status == -signal.SIGXCPU:
            return InputError("timeout", f"the decoder used more than {self._limits.cpu_seconds:g} s of CPU")
        if status < 0:
            return InputError("crashed", f"the decoder was ended by {_signal_name(-status)}")
        return InputError("crashed", f"the decoder ended with exit status {status}")

    def kill(self) -> None:
        """End the child and whatever it started; safe to call again.

        In a process that was forked off the owner it does nothing: the child is not that one's.
        """
        if os.getpid() != self._owner_pid:
            return
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            # A process stuck in a dead network mount cannot be reaped: leave it rather than hang with it.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_EXIT_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
