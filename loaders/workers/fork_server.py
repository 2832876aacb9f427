"""The fork server: a process that imports torch and the loader once, and that workers are forked from."""

from __future__ import annotations

import signal
import tempfile
from multiprocessing import forkserver
from typing import Any

from ...pipeline.errors import UsageError
from ...pipeline.interrupts import signals_blocked_in_children

SIGNALS_TO_ALL = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM)
"""What terminals, batch systems and `timeout` send to all processes of a run; the loader's process handles them."""

_PRELOAD_MODULE = "facefeed.loaders.workers.preload"

_pid_when_ready: int | None = None


def start_fork_server(*modules: str) -> None:
    """Starts the fork server, unless it runs; it imports the loader's modules, then `modules` and those of the user.

    That takes over a second. A command calls this before it imports torch itself, so that both do so at once.

    Raises `UsageError` where the path of the temporary folder is too long for its socket.
    """
    forkserver.set_forkserver_preload(list(dict.fromkeys([_PRELOAD_MODULE, *modules, *_preload_modules_of_user()])))
    with signals_blocked_in_children(*SIGNALS_TO_ALL):  # the loader ends its workers; Python its resource tracker
        try:
            forkserver.ensure_running()
        except OSError as error:
            if "AF_UNIX path too long" not in str(error):
                raise
            raise UsageError(
                f"TMPDIR={tempfile.gettempdir()}: too long for the socket of processes that prepare batches: its path "
                "may have 107 characters; set TMPDIR to a shorter folder, such as /tmp"
            ) from error


def note_fork_server_is_ready() -> None:
    """Called once it has forked a worker, so that it has imported everything."""
    global _pid_when_ready  # noqa: PLW0603 (a process has one fork server)
    _pid_when_ready = _server()._forkserver_pid  # noqa: SLF001


def fork_server_is_ready() -> bool:
    """Whether a worker was forked from it, so that the next one comes at once; it may be sooner, but that is unseen."""
    return _pid_when_ready is not None and _pid_when_ready == _server()._forkserver_pid  # noqa: SLF001


def _preload_modules_of_user() -> list[str]:
    """Modules that the script or a library has set the fork server to import; not the script, Python's own default."""
    requested: list[str] = _server()._preload_modules  # noqa: SLF001
    return [] if requested == ["__main__"] else requested


def _server() -> Any:
    return getattr(forkserver, "_forkserver")  # noqa: B009 (typeshed lacks it)
