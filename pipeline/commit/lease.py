"""The leases of OUT: one driver at a time or, in its place, any number of parts of the job.

A part holds the driver's lease while it plans, and again while it finishes the dataset. While it processes units it
holds a lease of its own instead, by which a driver finds out that parts are at work, and the same part is not run
twice at once. Leases of parts are taken and removed by holders of the driver's lease alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ..errors import RefusedError
from ..files import stop_on_disk_error
from ..lock import ADVICE, HeldLock, hold_lock, is_held
from ..planning.job_share import JobShare

_POLL_SECONDS = 1.0
_WAIT_SECONDS = 120.0  # a file server may keep the lock of a host that died for longer than a heartbeat counts


class Lease:
    """The driver's lease, held by this process, or given up for that of `job_share` in `shared_with_parts`."""

    def __init__(
        self, path: Path, on_wait: Callable[[str], object], work: str, job_share: JobShare | None, *, waits: bool
    ) -> None:
        self._path, self._on_wait, self._job_share, self._waits = path, on_wait, job_share, waits
        self._work = work if job_share is None else f"{work} --part {job_share}"
        self._driver = ExitStack()
        self._held: HeldLock | None = None

    def check(self) -> None:
        """Raises `StoppedError` where another process has taken the driver's lease over; see `HeldLock.check`."""
        assert self._held is not None
        self._held.check()

    def parts_at_work(self) -> list[str]:
        """Names of the files of all other parts that are at work, or may be; those of parts that ended are removed."""
        at_work = []
        for path in self._part_leases():
            if is_held(path):
                at_work.append(path.name)
            else:
                path.unlink(missing_ok=True)
        return at_work

    @contextmanager
    def shared_with_parts(self) -> Iterator[None]:
        """Where this is a part, lets others plan and finish during the block, after which this one may.

        Raises `RefusedError` where the same part is at work already.
        """
        if self._job_share is None:
            yield
            return
        path = self._path.with_name(f"part-{self._job_share.number}-of-{self._job_share.count}.lease")
        with self._remove_after_error(), hold_lock(path, work=self._work, on_wait=self._on_wait):
            self._driver.close()
            yield
            self._acquire()
        path.unlink(missing_ok=True)

    @contextmanager
    def _remove_after_error(self) -> Iterator[None]:
        """After an error in the block removes leases of parts that ended, unless another process plans or finishes."""
        try:
            yield
        except BaseException:
            with suppress(RefusedError, OSError):
                if not is_held(self._path):  # `hold_lock` would wait where its holder may be dead
                    with hold_lock(self._path, work=self._work):
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
                with stop_on_disk_error(self._path):
                    lock = hold_lock(self._path, work=self._work, on_wait=self._on_wait)
                    self._held = self._driver.enter_context(lock)
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

    def _part_leases(self) -> list[Path]:
        return sorted(self._path.parent.glob("part-*.lease"))

    def _refuse_parts(self) -> None:
        for path in self._part_leases():
            with hold_lock(path, work=self._work, on_wait=self._on_wait):  # refused where a part is at work
                path.unlink()


@contextmanager
def hold_lease(
    path: Path,
    on_wait: Callable[[str], object] = lambda _: None,
    *,
    work: str = "facefeed precompute",
    job_share: JobShare | None = None,
    waits: bool = False,
) -> Iterator[Lease]:
    """Holds the lease of OUT during the block.

    Args:
        path: the lock file.
        on_wait: called before a wait, with a sentence that says for whom.
        work: the command that holds it, for the messages of others.
        job_share: the share that this process runs, None for the whole job; a part waits for another holder.
        waits: whether a process that is no part waits for two minutes, too.

    Raises:
        RefusedError: another driver or a part of the job is at work; the message names it.

    """
    lease = Lease(path, on_wait, work, job_share, waits=waits)
    with lease.held():
        yield lease
