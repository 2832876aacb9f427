"""The ranks of a job that is tried out: processes of this host, which share its cores, its memory and its storage."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch import distributed

from ...pipeline.errors import FacefeedError, UsageError
from ...pipeline.machine import usable_cores
from ..workers.processes import exit_with_parent, worker_context
from .request import Asked
from .verdict.job import slowest
from .verdict.loader_verdict import Progress
from .verdict.result import Profile

_LOOPBACK = "lo" if sys.platform == "linux" else "lo0"
_SECONDS_TO_LOOK = 5.0
_DONE = "done"

_Running = dict[Connection, BaseProcess]


class RankDiedError(FacefeedError, RuntimeError):
    """A rank that was tried out ended before it was done."""

    exit_code = 1


class RankFailedError(FacefeedError, RuntimeError):
    """What a rank ran failed, such as a transform: the last line of its trace, which is added as a note."""

    exit_code = 1


def profiled_by_ranks(asked: Asked, progress: Progress) -> Profile:
    """What `asked.ranks` processes of this host find together: as the rank saw it that held the others up most.

    Raises what a rank raises, where facefeed or the system refuses something; `RankFailedError` for all else that is
    raised there, and `RankDiedError` where a rank ends.
    """
    found = list[Profile]()
    with _started(asked) as ranks:
        running = dict(ranks)
        while running:
            for one in wait([*running]):
                assert isinstance(one, Connection)
                heard = _heard(one)
                if heard is None:
                    raise _death_of(running[one])
                if isinstance(heard, Exception):
                    raise next((_death_of(running[other]) for other in running if _has_ended(other)), heard)
                if isinstance(heard, tuple):
                    progress(*heard)
                else:
                    del running[one]
                    found += [heard] if isinstance(heard, Profile) else []
        for process in ranks.values():
            process.join(_SECONDS_TO_LOOK)
    return found[0]


def _heard(rank: Connection) -> Any:
    """What a rank sends next; None where it has ended."""
    try:
        return rank.recv()
    except (EOFError, OSError):  # the latter in the middle of sending
        return None


def _has_ended(rank: Connection) -> bool:
    """Whether a rank has ended without having been asked to: then what others raise is that they have lost it."""
    while rank.poll():
        if _heard(rank) is None:
            return True
    return False


def _death_of(process: BaseProcess) -> RankDiedError:
    process.join(_SECONDS_TO_LOOK)
    code = process.exitcode
    if code is None:
        return RankDiedError(f"{process.name} is not heard of any more")
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}; its error is above"
    return RankDiedError(f"{process.name} {how}")


@contextmanager
def _started(asked: Asked) -> Iterator[_Running]:
    """The ranks and what they are heard through; none is left afterwards, and their workers end with them."""
    with _quiet_about_semaphores():
        resource_tracker.ensure_running()
    context, ranks, meeting = worker_context(None), _Running(), _meeting()
    try:
        for number in range(asked.ranks):
            heard, telling = Pipe(duplex=False)
            process: Any = context.Process(  # type: ignore[attr-defined]
                target=_rank, args=(number, asked, meeting.port, telling), name=f"rank {number}"
            )
            with telling, _stops_held():  # whoever is started is known, and ended with the others
                process.start()
                ranks[heard] = process
        yield ranks
    finally:
        for heard, process in ranks.items():
            process.kill()
            process.join()
            heard.close()


def _meeting() -> Any:
    """Where the ranks find each other, on a port of this host alone; nothing of it is left when this process ends."""
    listening = socket.create_server(("127.0.0.1", 0))
    return distributed.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1", listening.getsockname()[1], is_master=True, wait_for_workers=False,
        master_listen_fd=listening.detach(),
    )  # fmt: skip


@contextmanager
def _quiet_about_semaphores() -> Iterator[None]:
    """Around the start of the process that removes what others leave: it does so for ranks that are killed, silently.

    To end a rank in order is no alternative: it may wait for the others inside a library, which no signal interrupts.
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


@contextmanager
def _stops_held() -> Iterator[None]:
    """Puts off Ctrl-C and requests to end; to block the signals would not do, since any thread may get them."""
    noted, handlers = list[int](), dict[signal.Signals, Any]()
    if threading.current_thread() is threading.main_thread():
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handlers[name] = signal.signal(name, lambda number, _: noted.append(number))
    try:
        yield
    finally:
        for name, handler in handlers.items():
            signal.signal(name, handler)
    if noted:
        raise KeyboardInterrupt


def _rank(number: int, asked: Asked, port: int, telling: Connection) -> None:
    """One of the ranks, in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for who started it, and ends it
    exit_with_parent()
    told = _profiled(number, asked, port, telling)
    telling.send(told)
    if isinstance(told, Exception):
        threading.Event().wait()  # the other ranks would fail without this one; the command ends all of them
    distributed.destroy_process_group()


def _profiled(number: int, asked: Asked, port: int, telling: Connection) -> Any:
    """What a rank sends at its end, set up as a launcher such as torchrun would: the profile, or why there is none."""
    os.environ.update(
        RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(asked.ranks), LOCAL_WORLD_SIZE=str(asked.ranks),
        NO_ALBUMENTATIONS_UPDATE="1",
    )  # fmt: skip
    os.environ.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK)  # a host's own name may lead nowhere
    torch.set_num_threads(max(usable_cores() // asked.ranks, 1))
    try:
        store = distributed.TCPStore("127.0.0.1", port)  # type: ignore[attr-defined]
        distributed.init_process_group("gloo", store=store, rank=number, world_size=asked.ranks)
        found = asked.profiled(lambda *told: None if number else telling.send(told))
        return found if slowest(found.ranks) == number else _DONE
    except Exception as error:
        return _named(error, number)


def _named(error: Exception, number: int) -> Exception:
    """The error as it would end the command without ranks, with the rank that raised it.

    What is refused is refused on every rank alike, and names none.
    """
    if isinstance(error, UsageError):
        return error
    if isinstance(error, FacefeedError):
        error.args = (f"rank {number}: {error}", *error.args[1:])
        return error
    if isinstance(error, OSError) and error.strerror:
        return OSError(error.errno, f"{error.strerror} (rank {number})", error.filename)
    failed = RankFailedError(f"rank {number}: {_last_line(error)}; for its trace run it without --ranks")
    failed.add_note("".join(traceback.format_exception(error)))
    return failed


def _last_line(error: Exception) -> str:
    """As a trace ends; of an error that a loader's worker has raised, as the worker's own trace ends."""
    lines = [line for line in "".join(traceback.format_exception_only(error)).splitlines() if line.strip()]
    return lines[-1]
