"""All use of torch's private parts by `loaders`: its DataLoader iterators above all. Checked with `CHECKED_TORCH`.

`FaceDataLoader`, a subclass of `DataLoader`, also resets its own inherited `_iterator`.
"""

from __future__ import annotations

import math
import pickle
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import queues
from multiprocessing.queues import Queue
from multiprocessing.reduction import ForkingPickler
from types import FrameType
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data._utils import signal_handling
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

CHECKED_TORCH = "2.15"
"""The version with which these attributes were last read in torch's source."""


def pin_batch(batch: Any, device: Any = None) -> Any:
    """A batch, of any nesting, in page-locked memory."""
    return pin_memory(batch, device)  # type: ignore[no-untyped-call]


def empty_shared(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialized tensor in shared memory; raises `RuntimeError` where the system has not so much.

    The memory is reserved, but takes no pages of a process until they are used: `Tensor.share_memory_` copies, and so
    uses all of them.
    """
    size_bytes = math.prod(shape) * dtype.itemsize
    storage = torch.UntypedStorage._new_shared(size_bytes)  # type: ignore[no-untyped-call]  # noqa: SLF001
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage).view(*shape)


def occupy_gpu(cycles: int) -> None:
    """Launches a kernel of so many cycles on the current GPU, as torch's own tests do."""
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]  # noqa: SLF001


def workers_of(iterator: Any) -> list[Any]:
    """Worker processes of an iterator, in order."""
    return list(iterator._workers)  # noqa: SLF001


def is_shut_down(iterator: Any) -> bool:
    """Whether torch ends, or has ended, the workers itself."""
    return bool(iterator._shutdown)  # noqa: SLF001


def shut_down_workers(iterator: Any) -> bool:
    """Ends the workers of an iterator, as torch does when it is gone; whether all have ended."""
    iterator._shutdown_workers()  # noqa: SLF001
    return not any(worker.is_alive() for worker in workers_of(iterator))


def send_errors_of_sending(describe: Callable[[Any, Exception], Any]) -> None:
    """Makes a worker, which calls this, send an error in place of what cannot be pickled.

    Python's queue would print why and drop it, and the loader's process would wait for it for ever. In place of an
    error a `RuntimeError` of its text is sent, in place of a batch `describe(batch, error)`, or where that is None the
    error itself.
    """
    drop = Queue._on_queue_feeder_error  # type: ignore[attr-defined]  # noqa: SLF001

    def send_error(queue: Any, error: Exception, answer: Any) -> None:
        match answer:
            case (int() as task, ExceptionWrapper() as data):
                data.exc_type = RuntimeError
            case (int() as task, batch):
                raised_here = type(error), error, error.__traceback__
                of_sending = ExceptionWrapper(raised_here, "as it sent a batch")  # type: ignore[no-untyped-call]
                data = describe(batch, error) or of_sending
            case _:
                drop(error, answer)
                return
        with queue._notempty:  # noqa: SLF001
            queue._sem.acquire()  # which Python released  # noqa: SLF001
            queue._buffer.appendleft((task, data))  # before later answers: torch relies on their order  # noqa: SLF001

    Queue._on_queue_feeder_error = send_error  # type: ignore[attr-defined]  # noqa: SLF001
    queues._ForkingPickler = _Pickler  # type: ignore[attr-defined]  # noqa: SLF001


class _Pickler(ForkingPickler):
    """Raises `PicklingError` for an `IndexError`: Python's queue takes that for its own buffer, which is empty."""

    @classmethod
    def dumps(cls, obj: Any, protocol: int | None = None) -> memoryview:
        try:
            return super().dumps(obj, protocol)
        except IndexError as error:
            raise pickle.PicklingError(f"IndexError: {error}") from error


def free_frame_of_worker_error(error: BaseException) -> None:
    """Breaks the cycle between an error that a worker raised and torch's frame that raised it again.

    Else the error would keep torch's iterator until a garbage collection, which ends the queues of workers before
    them: torch then waits for each for 5 s.
    """
    if frame := _frame_of_worker_error(error):
        frame.clear()


def was_raised_by_worker(error: BaseException) -> bool:
    """Whether a worker raised the error, in place of returning a batch; else the batch could not be received."""
    return _frame_of_worker_error(error) is not None


def _frame_of_worker_error(error: BaseException) -> FrameType | None:
    """Torch's frame that raised a worker's error again."""
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code is ExceptionWrapper.reraise.__code__:
            return traceback.tb_frame
        traceback = traceback.tb_next
    return None


@contextmanager
def starting_iterator() -> Iterator[None]:
    """Context in which torch makes an iterator; where that is interrupted, ends the workers that were started.

    Torch's `__del__` of a half-made iterator fails on what it lacks, and Python prints that.
    """
    try:
        yield
    except BaseException as error:
        traceback = error.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code is _MultiProcessingDataLoaderIter.__init__.__code__:
                _end_half_made(traceback.tb_frame.f_locals["self"])
            traceback = traceback.tb_next
        raise


def _end_half_made(iterator: Any) -> None:
    iterator._shutdown = True  # so that `__del__` does nothing  # noqa: SLF001
    if getattr(iterator, "_worker_pids_set", False):
        signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]  # noqa: SLF001
    for worker in getattr(iterator, "_workers", []):
        worker.kill()


def kill_workers(iterator: Any) -> None:
    """Kills all workers of an iterator, without alarming torch's signal handler, and closes their result queue."""
    if iterator._worker_pids_set:  # noqa: SLF001
        iterator._worker_pids_set = False  # noqa: SLF001
        signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]  # noqa: SLF001
    for worker in workers_of(iterator):
        worker.kill()
        if worker.exitcode is not None:  # reported by Python for all whose fork server is dead, although none is killed
            worker._popen.close()  # closes the sentinel that they wait on, so they exit; see `WorkerInit`  # noqa: SLF001
    iterator._worker_result_queue._writer.close()  # noqa: SLF001


def count_ready_batches(iterator: Any) -> int:
    """How many batches of an iterator are ready; 0 without workers.

    They are in the workers' queue, in the queue of pinned batches, or were received ahead of their turn.
    """
    if not hasattr(iterator, "_worker_result_queue"):
        return 0
    queues = {iterator._worker_result_queue, iterator._data_queue}  # noqa: SLF001 (two where batches are pinned)
    out_of_order = sum(len(task) == 2 for task in iterator._task_info.values())  # noqa: SLF001
    return out_of_order + sum(int(queue.qsize()) for queue in queues)


def intercept_batches(loader: Any, on_batch: Callable[[Any, float], Any], clock: Callable[[], float]) -> None:
    """Makes a loader's iterators return `on_batch(batch, sampler_seconds)` in place of each batch.

    sampler_seconds: time of the loader's sampler in the `next()` that returned the batch, on `clock`. Changes the
    loader's class, since a method of its own would tie it, and the iterator that it keeps, to the garbage collector.
    """
    loader_class = type(loader)

    def _get_iterator(self: Any) -> Any:
        with starting_iterator():
            iterator = loader_class._get_iterator(self)  # noqa: SLF001
        self._intercepted_iterator = weakref.ref(iterator)  # for `end_requests`; that of persistent workers remains
        return _with_intercepted_batches(iterator, on_batch, clock)

    loader.__class__ = type(
        loader_class.__name__, (loader_class,), {"_get_iterator": _get_iterator, "__module__": loader_class.__module__}
    )


def keeps_iterator(loader: Any) -> bool:
    """Whether a loader goes on with one iterator of torch's over all its epochs, besides that of persistent workers."""
    return any(isinstance(value, _BaseDataLoaderIter) for name, value in vars(loader).items() if name != "_iterator")


def end_requests(loader: Any) -> bool:
    """Makes the current iterator of a loader of `intercept_batches` end with the batches that it has requested.

    Also where the loader's own `__iter__` is a generator over it. False where there is none.
    """
    iterator = getattr(loader, "_intercepted_iterator", lambda: None)()
    if iterator is None:
        return False
    iterator._sampler_iter = iter(())  # noqa: SLF001
    return True


def _with_intercepted_batches(iterator: Any, on_batch: Callable[[Any, float], Any], clock: Callable[[], float]) -> Any:
    """The same iterator, since torch compares it by identity, of a class that intercepts."""
    iterator_class = type(iterator)

    def _next_index(self: Any) -> Any:
        started_at = clock()
        try:
            return iterator_class._next_index(self)  # noqa: SLF001
        finally:
            self.sampler_seconds += clock() - started_at

    def _next_data(self: Any) -> Any:
        self.sampler_seconds = 0.0
        batch = iterator_class._next_data(self)  # noqa: SLF001
        return on_batch(batch, self.sampler_seconds)

    iterator.__class__ = type(
        iterator_class.__name__, (iterator_class,), {"_next_data": _next_data, "_next_index": _next_index}
    )
    return iterator
