"""Process setup of the child before it reads a file: parent death signal, output redirection, resource limits."""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal

from ...child_process import PARENT_PID_VARIABLE

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent ends, and exit at once if it already has.

    Strictly, when the *thread* that started this process ends: see `DecoderProcess`. Standard input ends as well, but
    this process notices that only between two requests.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = os.environ.get(PARENT_PID_VARIABLE)
    if parent is not None and os.getppid() != int(parent):
        os._exit(0)


def claim_protocol_descriptor() -> int:
    """Return a descriptor of the pipe to the parent; redirect what libraries print to the null device."""
    pipe = os.dup(1)
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.dup2(devnull, 2)
    os.close(devnull)
    return pipe


def limit_resources(*, memory_bytes: int, cpu_seconds: float) -> None:
    """Limit address space and the CPU time for the next file; forbid writing files and core dumps.

    RLIMIT_CPU counts from the start of the process, so `cpu_seconds` is added to the time used so far. Only the soft
    limit is set (SIGXCPU), because a hard limit could not be raised again for the next file.
    """
    _set_soft_limit(resource.RLIMIT_AS, memory_bytes)
    _set_soft_limit(resource.RLIMIT_FSIZE, 0)
    _set_soft_limit(resource.RLIMIT_CORE, 0)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _set_soft_limit(resource.RLIMIT_CPU, math.ceil(usage.ru_utime + usage.ru_stime + cpu_seconds))


def _set_soft_limit(resource_id: int, soft: int) -> None:
    hard = resource.getrlimit(resource_id)[1]
    resource.setrlimit(resource_id, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
