"""What the child gives up before it touches a file."""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal

from ..child_process import PARENT_PID

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent ends, and leave at once if it already has.

    Strictly when the *thread* that started us ends: see DecoderProcess. End of file on standard input says the
    same, but only once this process reads it.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = os.environ.get(PARENT_PID)
    if parent is not None and os.getppid() != int(parent):
        os._exit(0)


def take_protocol_descriptor() -> int:
    """Keep the pipe to the parent for messages alone; whatever libraries print goes nowhere."""
    pipe = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    return pipe


def limit_resources(*, memory_bytes: int, cpu_seconds: float) -> None:
    """Bound address space and this file's CPU time; write no files and no core dumps.

    RLIMIT_CPU counts from the start of the process, so the budget is added to what is used; only the soft limit
    moves (SIGXCPU), because a hard limit could not be raised again for the next file.
    """
    _lower(resource.RLIMIT_AS, memory_bytes)
    _lower(resource.RLIMIT_FSIZE, 0)
    _lower(resource.RLIMIT_CORE, 0)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _lower(resource.RLIMIT_CPU, math.ceil(usage.ru_utime + usage.ru_stime + cpu_seconds))


def _lower(which: int, soft: int) -> None:
    hard = resource.getrlimit(which)[1]
    resource.setrlimit(which, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
