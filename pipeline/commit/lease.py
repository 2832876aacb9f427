"""The leases of OUT: one driver at a time or, in its place, any number of parts of the job.

A part holds the driver's lease while it plans, and again while it finishes the dataset. While it processes units it
holds a lease of its own instead, by which a driver finds out that parts are at work, and the same part is not run
twice at once. Leases of parts are taken and removed by holders of the driver's lease alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from .. import lock
from ..dataset.out import OutPaths
from ..dataset.stores.writing import StoreFiles
from ..errors import FacefeedError, RefusedError
from ..files import stop_on_disk_error
from ..lock import ADVICE, HeldLock, hold_lock, is_held
from ..planning.job_share import JobShare
from .store_lock import StoreLocks

_DRIVER, _PART = OutPaths(Path()).lease.name, "part-"
_POLL_SECONDS = 1.0
_WAIT_SECONDS = 120.0  # a file server may keep the lock of a host that died for longer than a heartbeat counts


class Held(Protocol):
    """A lock that this process holds."""

    def check(self) -> None:
        """Raises `StoppedError` where another process has taken it over."""


class Locks(Protocol):
    """Locks of one OUT, by their names."""

    def hold(self, name: str, *, work: str, on_wait: Callable[[str], object] = ...) -> AbstractContextManager[Held]:
        """Holds a lock during the block; see `lock.hold_lock`. Raises `RefusedError` where another process has it."""

    def are_held(self) -> dict[str, bool]:
        """Whether a process holds a lock, or may, by the names of all that there are, sorted."""

    def remove(self, name: str) -> None:
        """Removes a lock that nobody holds, or that the caller holds."""


class FolderLocks:
    """Locks of an OUT in a folder: its lock files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def hold(self, name: str, *, work: str, on_wait: Callable[[str], object] = lambda _: None) -> Iterator[HeldLock]:
        """See `Locks`."""
        with ExitStack() as stack:
            with stop_on_disk_error(self._folder / name):
                held = stack.enter_context(hold_lock(self._folder / name, work=work, on_wait=on_wait))
            yield held

    def are_held(self) -> dict[str, bool]:
        """See `Locks`."""
        return {path.name: is_held(path) for path in sorted(self._folder.glob("*.lease"))}

    def remove(self, name: str) -> None:
        """See `Locks`."""
        (self._folder / name).unlink(missing_ok=True)


class Lease:
    """The driver's lease, held by this process, or given up for that of `job_share` in `shared_with_parts`."""

    def __init__(
        self, locks: Locks, on_wait: Callable[[str], object], work: str, job_share: JobShare | None, *, waits: bool
    ) -> None:
        self._locks, self._on_wait, self._job_share, self._waits = locks, on_wait, job_share, waits
        self._work = work if job_share is None else f"{work} --part {job_share}"
        self._driver = ExitStack()
        self._held: Held | None = None

    def check(self) -> None:
        """Raises `StoppedError` where another process has taken the driver's lease over; see `HeldLock.check`."""
        assert self._held is not None
        self._held.check()

    def parts_at_work(self) -> list[str]:
        """Names of the files of all other parts that are at work, or may be; those of parts that ended are removed."""
        at_work = []
        for name, may_live in self._locks.are_held().items():
            if not name.startswith(_PART):
                continue
            if may_live:
                at_work.append(name)
            else:
                self._locks.remove(name)
        return at_work

    @contextmanager
    def shared_with_parts(self) -> Iterator[None]:
        """Where this is a part, lets others plan and finish during the block, after which this one may.

        Raises `RefusedError` where the same part is at work already.
        """
        if self._job_share is None:
            yield
            return
        name = f"part-{self._job_share.number}-of-{self._job_share.count}.lease"
        with self._remove_after_error(), self._locks.hold(name, work=self._work, on_wait=self._on_wait):
            self._driver.close()
            yield
            self._acquire()
        self._locks.remove(name)

    @contextmanager
    def _remove_after_error(self) -> Iterator[None]:
        """After an error in the block removes leases of parts that ended, unless another process plans or finishes."""
        try:
            yield
        except BaseException:
            with suppress(FacefeedError, OSError):
                if not self._locks.are_held().get(_DRIVER):  # `hold` would wait where its holder may be dead
                    with self._locks.hold(_DRIVER, work=self._work):
                        self.parts_at_work()
            raise

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the driver's lease during the block; a whole job is refused where parts are at work."""
        with self._driver:
            self._acquire()
            if self._job_share is None:
                self._refuse_parts()
            yield

    def _acquire(self) -> None:
        """Takes the driver's lease; a part waits for whoever has it, since other parts have it for moments.

        One that `waits` does so for `_WAIT_SECONDS` at most: its holder may have died.
        """
        is_announced = False
        deadline = time.monotonic() + (_WAIT_SECONDS if self._waits else 0.0)
        while True:
            try:
                on_wait = (lambda _: None) if is_announced else self._on_wait
                self._held = self._driver.enter_context(self._locks.hold(_DRIVER, work=self._work, on_wait=on_wait))
            except RefusedError as error:
                if self._job_share is None and time.monotonic() >= deadline:
                    raise
                if not is_announced:
                    until = "until it has planned or finished"
                    if self._job_share is None:
                        until = f"for {_WAIT_SECONDS:.0f} s at most, since it may have died"
                    self._on_wait(f"{str(error).removesuffix(ADVICE)}; waiting {until}")
                is_announced = True
                time.sleep(_POLL_SECONDS)
            else:
                return

    def _refuse_parts(self) -> None:
        for name in self._locks.are_held():
            if not name.startswith(_PART):
                continue
            with self._locks.hold(name, work=self._work, on_wait=self._on_wait):  # refused where a part is at work
                self._locks.remove(name)


def advice_to_wait(paths: OutPaths) -> str | None:
    """Names those who hold leases of OUT, for others that wait for what they make; None where nobody does."""
    if isinstance(paths.files, StoreFiles):
        return StoreLocks(paths.files.remote).advice_to_wait()
    return lock.advice_to_wait(paths.root)


@contextmanager
def hold_lease(
    paths: OutPaths,
    on_wait: Callable[[str], object] = lambda _: None,
    *,
    work: str = "facefeed precompute",
    job_share: JobShare | None = None,
    waits: bool = False,
) -> Iterator[Lease]:
    """Holds the lease of OUT during the block.

    Args:
        paths: of OUT.
        on_wait: called before a wait, with a sentence that says for whom.
        work: the command that holds it, for the messages of others.
        job_share: the share that this process runs, None for the whole job; a part waits for another holder.
        waits: whether a process that is no part waits for two minutes, too.

    Raises:
        RefusedError: another driver or a part of the job is at work; the message names it.

    """
    locks = StoreLocks(paths.files.remote) if isinstance(paths.files, StoreFiles) else FolderLocks(paths.root)
    lease = Lease(locks, on_wait, work, job_share, waits=waits)
    with lease.held():
        yield lease
