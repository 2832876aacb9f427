"""The decoder process as the parent sees it: start it, send requests, read answers within deadlines, kill it."""

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

PARENT_PID_VARIABLE = "FACEFEED_READER_PID"
"""Environment variable that holds the parent's process id, so that the child notices if the parent is already gone."""

_INHERITED_VARIABLES = frozenset(("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TZ"))
_INHERITED_PREFIXES = ("LC_", "PYTHON")
_PIPE_BYTES = 1 << 20
_EXIT_SECONDS = 10.0


class DecoderProcess:
    """One running decoder process. Not thread-safe, and not usable again after a failure.

    The child asks the kernel to kill it when the *thread* that started it ends (PR_SET_PDEATHSIG counts threads,
    not processes). If a reader is passed to another thread, it starts a new child: see `MediaReader`.
    """

    def __init__(self, limits: DecoderLimits) -> None:
        # Nothing else of the environment: a decoder taken over by a malicious file must find no cloud credentials.
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name in _INHERITED_VARIABLES or name.startswith(_INHERITED_PREFIXES)
        }
        environment = {
            **inherited,
            PARENT_PID_VARIABLE: str(os.getpid()),
            "OPENBLAS_NUM_THREADS": "1",  # numpy's threads would only take address space
            "MALLOC_ARENA_MAX": "2",
        }
        try:
            # Not multiprocessing: Dask's workers are daemonic and may not start multiprocessing children.
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
            program = limits.child_command()[0]
            raise UsageError(f"the decoder, {program!r}, cannot be started ({error.strerror})") from error
        self._owner_pid = os.getpid()
        self._limits = limits
        self._waited_seconds = 0.0
        self._poll = select.poll()
        self._poll.register(self._descriptor(self._process.stdout), select.POLLIN)
        with contextlib.suppress(OSError):  # unprivileged users have a limit; a smaller pipe is only slower
            fcntl.fcntl(self._descriptor(self._process.stdout), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    @property
    def pid(self) -> int:
        """Process id, which is also the process group's."""
        return self._process.pid

    @staticmethod
    def _descriptor(stream: IO[bytes] | None) -> int:
        assert stream is not None
        return stream.fileno()

    def is_alive(self) -> bool:
        """Whether the child is running and can take another request."""
        return self._process.poll() is None

    def send_request(self, request: bytes) -> None:
        """Send a request and reset the timer of `total_seconds`; raises BrokenPipeError if the child is gone.

        Cannot block for long: an idle child reads the whole line before it answers, so a request that does not fit
        into the pipe is read as it is written.
        """
        self._waited_seconds = 0.0
        view = memoryview(request)
        while view:
            view = view[os.write(self._descriptor(self._process.stdin), view) :]

    def read_into(self, view: memoryview) -> None:
        """Fill `view` with bytes from the child; raises InputError: timeout, or crashed if the child ended."""
        stdout = self._descriptor(self._process.stdout)
        while view:
            self._wait_readable()
            num_bytes = os.readv(stdout, [view])
            if num_bytes == 0:
                raise self._exit_error()
            view = view[num_bytes:]

    def _wait_readable(self) -> None:
        remaining_seconds = self._limits.total_seconds - self._waited_seconds
        timeout_seconds = min(self._limits.deadline_seconds, max(0.0, remaining_seconds))
        start_seconds = time.monotonic()
        ready = self._poll.poll(timeout_seconds * 1000)
        self._waited_seconds += time.monotonic() - start_seconds
        if ready:
            return
        self.kill()
        if timeout_seconds < self._limits.deadline_seconds:
            rule = f"took more than the total of {self._limits.total_seconds:g} s"
        else:
            rule = f"showed no progress for {self._limits.deadline_seconds:g} s"
        raise InputError("timeout", f"the decoder {rule} and was killed")

    def _exit_error(self) -> InputError:
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
        """Kill the child's process group and close its pipes; may be called more than once.

        Does nothing in a process that was forked from the owner: the child belongs to the owner.
        """
        if os.getpid() != self._owner_pid:
            return
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            # A process stuck in a dead network mount cannot be reaped: leave it rather than hang as well.
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
