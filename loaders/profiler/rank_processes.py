"""Runs a profile on several ranks: processes of this host that share its cores, memory and storage."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch import distributed

from ...pipeline.errors import FacefeedError, UsageError
from ...pipeline.interrupts import exit_with_parent, start_resource_tracker, stop_signals_deferred
from ...pipeline.machine import usable_cores
from ..workers.processes import worker_context
from .request import ProfileRequest
from .verdict.job import slowest_rank
from .verdict.loader_verdict import Progress
from .verdict.result import Profile

_LOOPBACK = "lo" if sys.platform == "linux" else "lo0"
_JOIN_TIMEOUT_SECONDS = 5.0
_DONE = "done"

_Processes = dict[Connection, BaseProcess]


class RankDiedError(FacefeedError, RuntimeError):
    """A rank process ended before it was done."""

    exit_code = 1


class RankFailedError(FacefeedError, RuntimeError):
    """Code run by a rank raised, such as a transform: the last line of its traceback, which is added as a note."""

    exit_code = 1


def profile_on_ranks(request: ProfileRequest, progress: Progress) -> Profile:
    """The profile of `request.ranks` processes of this host, as measured by the rank that held up the others most.

    Raises what a rank raises where facefeed or the system refuses something; `RankFailedError` for any other error of a
    rank, and `RankDiedError` where a rank ends.
    """
    profiles = list[Profile]()
    with _rank_processes(request) as ranks:
        running = dict(ranks)
        while running:
            for connection in wait([*running]):
                assert isinstance(connection, Connection)
                message = _receive(connection)
                if message is None:
                    raise _died_error(running[connection])
                if isinstance(message, Exception):
                    raise next((_died_error(running[other]) for other in running if _has_ended(other)), message)
                if isinstance(message, tuple):
                    progress(*message)
                else:
                    del running[connection]
                    profiles += [message] if isinstance(message, Profile) else []
        for process in ranks.values():
            process.join(_JOIN_TIMEOUT_SECONDS)
    return profiles[0]


def _receive(connection: Connection) -> Any:
    """The next message of a rank; None where it has ended."""
    try:
        return connection.recv()
    except (EOFError, OSError):  # the latter in the middle of sending
        return None


def _has_ended(connection: Connection) -> bool:
    """Whether a rank has ended unexpectedly: other ranks then raise only that they have lost it."""
    while connection.poll():
        if _receive(connection) is None:
            return True
    return False


def _died_error(process: BaseProcess) -> RankDiedError:
    process.join(_JOIN_TIMEOUT_SECONDS)
    code = process.exitcode
    if code is None:
        return RankDiedError(f"{process.name} is not heard of any more")
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}; its error is above"
    return RankDiedError(f"{process.name} {how}")


@contextmanager
def _rank_processes(request: ProfileRequest) -> Iterator[_Processes]:
    """Starts the ranks, and yields them by the connection they report through; ends them and their workers."""
    with _without_semaphore_warnings():
        start_resource_tracker()
    context, ranks = worker_context(None), _Processes()
    with stop_signals_deferred():  # torch's C++ aborts the process where it meets an exception
        store = _rendezvous_store()
    try:
        for number in range(request.ranks):
            receiver, sender = Pipe(duplex=False)
            process: Any = context.Process(  # type: ignore[attr-defined]
                target=_run_rank, args=(number, request, store.port, sender), name=f"rank {number}"
            )
            with sender, stop_signals_deferred():  # whoever is started is known, and ended with the others
                process.start()
                ranks[receiver] = process
        yield ranks
    finally:
        for receiver, process in ranks.items():
            process.kill()
            process.join()
            receiver.close()


def _rendezvous_store() -> Any:
    """The store through which the ranks find each other, on a loopback port; it ends with this process."""
    server = socket.create_server(("127.0.0.1", 0))
    return distributed.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1", server.getsockname()[1], is_master=True, wait_for_workers=False,
        master_listen_fd=server.detach(),
    )  # fmt: skip


@contextmanager
def _without_semaphore_warnings() -> Iterator[None]:
    """Silences the resource tracker, which removes semaphores of ranks that are killed.

    Ending ranks in order is no alternative: a rank may block inside a library, which no signal interrupts.
    """
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, [before, "ignore:resource_tracker"]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def _run_rank(number: int, request: ProfileRequest, port: int, sender: Connection) -> None:
    """Runs one rank in its own process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for who started it, and ends it
    exit_with_parent()
    result = _profile_or_error(number, request, port, sender)
    sender.send(result)
    if isinstance(result, Exception):
        threading.Event().wait()  # the other ranks would fail without this one; the command ends all of them
    distributed.destroy_process_group()


def _profile_or_error(number: int, request: ProfileRequest, port: int, sender: Connection) -> Any:
    """The result of a rank, set up as a launcher such as torchrun does: its profile, or the error."""
    os.environ.update(
        RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(request.ranks), LOCAL_WORLD_SIZE=str(request.ranks),
        NO_ALBUMENTATIONS_UPDATE="1",
    )  # fmt: skip
    os.environ.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK)  # a host's own name may lead nowhere
    torch.set_num_threads(max(usable_cores() // request.ranks, 1))
    try:
        store = distributed.TCPStore("127.0.0.1", port)  # type: ignore[attr-defined]
        distributed.init_process_group("gloo", store=store, rank=number, world_size=request.ranks)
        profile = request.run(lambda *progress: None if number else sender.send(progress))
        return profile if slowest_rank(profile.ranks) == number else _DONE
    except Exception as error:
        return _name_rank_in_error(error, number)


def _name_rank_in_error(error: Exception, number: int) -> Exception:
    """The error as the command without ranks would raise it, with the rank that raised it.

    A `UsageError` is raised on every rank alike, and names none.
    """
    if isinstance(error, UsageError):
        return error
    if isinstance(error, FacefeedError):
        error.args = (f"rank {number}: {error}", *error.args[1:])
        return error
    if isinstance(error, OSError) and error.strerror:
        return OSError(error.errno, f"{error.strerror} (rank {number})", error.filename)
    # The last line of the traceback; for an error of a loader's worker, that of the worker's traceback.
    *_, last_line = filter(str.strip, "".join(traceback.format_exception_only(error)).splitlines())
    rank_error = RankFailedError(f"rank {number}: {last_line}; for its trace run it without --ranks")
    rank_error.add_note("".join(traceback.format_exception(error)))
    return rank_error
