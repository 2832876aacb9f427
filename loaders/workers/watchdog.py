"""A worker's end, noticed at once, wherever in its work it came."""

from __future__ import annotations

import os
import threading
import weakref
from multiprocessing.connection import wait
from typing import Any

from torch.utils.data._utils import signal_handling

from .processes import death_of

_SECONDS_TO_LOOK = 5.0


class Watch:
    """Waits on a thread for the end of any worker of torch's iterator; then ends the others, and says which it was.

    A worker that is killed while it sends leaves half a message behind, and whoever reads it waits for the rest for as
    long as any process could still send it. Without any such process the reader learns at once that nothing will come.
    """

    def __init__(self, batches: Any) -> None:
        self._batches, self._ends = weakref.ref(batches), ""
        self.of_their_own = False
        """Whether those that ended did so in order, as workers do on Ctrl-C."""
        sentinels = [os.dup(worker.sentinel) for worker in batches._workers]  # noqa: SLF001
        self._thread = threading.Thread(target=self._run, args=(sentinels,), name="facefeed-watch", daemon=True)
        self._thread.start()

    def watches(self, batches: Any) -> bool:
        """Whether these are its workers."""
        return self._batches() is batches

    def verdict(self) -> str:
        """Which worker ended and how, for a message; empty where all are well."""
        batches = self._batches()
        seen = "" if self._ends or batches is None else death_of(batches._workers)  # noqa: SLF001
        if seen:
            self._thread.join(_SECONDS_TO_LOOK)
        return self._ends or seen

    def _run(self, sentinels: list[int]) -> None:
        ended: Any = wait(sentinels)[0]
        for sentinel in sentinels:
            os.close(sentinel)
        batches: Any = self._batches()
        if batches is not None and not batches._shutdown:  # noqa: SLF001 (else it was time)
            batches._workers[sentinels.index(ended)].join(_SECONDS_TO_LOOK)  # noqa: SLF001 (it may not be reaped yet)
            self.of_their_own = all(one.exitcode in (None, 0) for one in batches._workers)  # noqa: SLF001
            self._ends = death_of(batches._workers)  # noqa: SLF001
            _end(batches)


def _end(batches: Any) -> None:
    """Ends all workers of an iterator, without torch's signal handler taking notice, and with them its queue."""
    if batches._worker_pids_set:  # noqa: SLF001
        batches._worker_pids_set = False  # noqa: SLF001
        signal_handling._remove_worker_pids(id(batches))  # type: ignore[attr-defined]  # noqa: SLF001
    for worker in batches._workers:  # noqa: SLF001
        worker.kill()
        if worker.exitcode is not None:  # so Python says of all whose fork server is dead, and kills none of them
            worker._popen.close()  # they take the loader for gone then, and end; see `WorkerInit`  # noqa: SLF001
    batches._worker_result_queue._writer.close()  # noqa: SLF001
