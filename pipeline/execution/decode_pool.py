"""A pool of decoders that processes the inputs of a unit, and yields outcomes and rows in the unit's order.

Each decoder is a process of its own with the stages that follow it. A worker that has one CPU core needs one decoder.
A GPU detects faces faster than one decoder delivers frames, so several share it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..dataset.manifest import InputOutcome
from ..errors import InputError, StoppedError
from ..faces import FaceDetector, Faces
from ..planning.content_hash import StatSignature, content_sha256, stat_signature
from ..planning.options import JobSpec
from ..planning.plan import Unit
from ..rows.input_pipeline import InputPipeline
from ..rows.reuse import SupersededRows
from ..sources import Entry
from .spools import Spool, SpoolMemory

_SPOOL_BYTES = 32 << 20
"""Memory for the rows of all finished inputs that wait for earlier ones; beyond it they go to disk."""
_MAX_FAMILIES_PER_DECODER = 2


@dataclass(frozen=True, slots=True)
class ProcessedInput:
    """One finished input: its outcome, and its rows, which can be iterated once."""

    outcome: InputOutcome
    batches: Iterable[pa.RecordBatch] = ()


class DecodePool:
    """Processes the inputs of one unit after the other with `num_decoders` decoders, which share the job's detector.

    A family (a source video and its fakes) is processed by one decoder; families start in the unit's order, each on
    the next idle decoder. At most two per decoder are in progress or wait for earlier ones to be consumed, so that a
    long one does not stop the others at once. Waiting rows take at most `_SPOOL_BYTES` of memory; the rest is on disk.
    """

    def __init__(self, job: JobSpec, num_decoders: int) -> None:
        shared = job if num_decoders == 1 else replace(job, detector=_LockedDetector(job.detector))
        memory = SpoolMemory(job.paths.temporary, _SPOOL_BYTES)
        self._workers = [_InputWorker(shared, memory) for _ in range(num_decoders)]
        self._idle: SimpleQueue[_InputWorker] = SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._executor = ThreadPoolExecutor(num_decoders, "facefeed-decode")

    @property
    def first_pipeline(self) -> InputPipeline:
        """The pipeline of the first decoder."""
        return self._workers[0].pipeline

    def close(self) -> None:
        """Ends the decoder processes and all threads, from any thread; a unit in progress ends with an error."""
        for worker in self._workers:
            worker.close()
        self._executor.shutdown(wait=False)

    @contextmanager
    def process(self, unit: Unit) -> Iterator[Iterator[ProcessedInput]]:
        """Yields an iterator over the unit's inputs, in order; their rows are deleted when the block ends."""
        families = group_families(unit.inputs)
        started: deque[Future[list[ProcessedInput]]] = deque()
        cancelled = threading.Event()
        try:
            if len(self._workers) == 1:
                yield chain.from_iterable(self._workers[0].process_family(family, unit) for family in families)
            else:
                yield self._in_order(families, unit, started, cancelled)
        finally:
            cancelled.set()
            for family in started:
                family.cancel()
            wait(started)
            for worker in self._workers:
                worker.release()

    def _in_order(
        self,
        families: Iterable[Sequence[Entry]],
        unit: Unit,
        started: deque[Future[list[ProcessedInput]]],
        cancelled: threading.Event,
    ) -> Iterator[ProcessedInput]:
        for family in families:
            if len(started) == _MAX_FAMILIES_PER_DECODER * len(self._workers):
                yield from started[0].result()
                started.popleft()  # not earlier: on exit, `process` waits for all that may be in progress
            started.append(self._executor.submit(self._process_family, family, unit, cancelled))
        while started:
            yield from started[0].result()
            started.popleft()

    def _process_family(self, family: Sequence[Entry], unit: Unit, cancelled: threading.Event) -> list[ProcessedInput]:
        worker = self._idle.get()
        try:
            return list(takewhile(lambda _: not cancelled.is_set(), worker.process_family(family, unit)))
        finally:
            self._idle.put(worker)


def group_families(inputs: Sequence[Entry]) -> list[list[Entry]]:
    """Groups consecutive inputs that are linked by `source_id`: source videos with their fakes."""
    families: list[list[Entry]] = []
    family_ids: set[str] = set()
    for entry in inputs:
        ids = {entry.video_id, entry.source_id or entry.video_id}
        if families and family_ids & ids:
            families[-1].append(entry)
            family_ids |= ids
        else:
            families.append([entry])
            family_ids = {*ids}
    return families


class _LockedDetector:
    """A detector that several threads share, of which one at a time may use it."""

    def __init__(self, detector: FaceDetector) -> None:
        self._detector = detector
        self._lock = threading.Lock()

    @property
    def fingerprint(self) -> str:
        return self._detector.fingerprint

    @property
    def frames_at_once(self) -> int:
        with self._lock:
            return self._detector.frames_at_once

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        with self._lock:
            return self._detector.detect(frames)


class _InputWorker:
    """Processes one input after the other, with a decoder process and a source-frame cache of its own."""

    def __init__(self, job: JobSpec, memory: SpoolMemory) -> None:
        self._job = job
        self.pipeline = InputPipeline(job)
        self._superseded = SupersededRows(job, self.pipeline.schema)
        self._memory = memory
        self._spools: list[Spool] = []
        self._closing = False

    def close(self) -> None:
        self._closing = True
        self.pipeline.close()

    def release(self) -> None:
        """Frees what is held for the unit; no thread may be using this worker."""
        self.pipeline.release()
        for spool in self._spools:
            spool.close()
        self._spools.clear()

    def process_family(self, family: Sequence[Entry], unit: Unit) -> Iterator[ProcessedInput]:
        """Processes one input after the other; raises `StoppedError` for failures that are no input's fault."""
        for entry in family:
            yield self._reuse(entry, unit) or self._process(entry, unit.split, family)

    def _process(self, entry: Entry, split: str, family: Sequence[Entry]) -> ProcessedInput:
        """Decodes one input; one that fails half-way gives no rows."""
        started = time.monotonic()
        path = self._job.root / entry.video_id
        before = stat_signature(path) if self.pipeline.file_exists(entry.video_id) else None
        common: dict[str, Any] = {
            "video_id": entry.video_id, "size_bytes": entry.size_bytes, "mtime_ns": entry.mtime_ns,
        }  # fmt: skip
        max_damaged_percent = self._job.limits.max_damaged_percent
        spool = self._memory.open()
        self._spools.append(spool)
        try:
            faces = without_mask = 0
            rows = self.pipeline.batches(entry, split, family)
            with closing(rows), pa.ipc.new_stream(spool, self.pipeline.schema) as stream:
                for batch in rows:
                    stream.write_batch(batch)
                    faces += batch.num_rows
                    without_mask += batch.column("mask").null_count
        except InputError as error:
            spool.close()
            self._raise_if_no_input_at_fault(error)
            return ProcessedInput(InputOutcome(
                **common, outcome="failed", reason=error.reason, detail=error.detail or None,
                max_damaged_percent=max_damaged_percent if error.reason == "decode_error" else None,
                # Reading a file that stalled the decoder may never return.
                sha256=None if error.reason == "timeout" else self._sha256(path, before),
                frames_wanted=error.frames_wanted, frames_decoded=error.frames_decoded, seconds=_seconds_since(started),
            ))  # fmt: skip
        reader = self.pipeline.reader
        outcome = InputOutcome(
            **common, outcome="partial" if reader.last_damage else "ok" if faces else "no_faces", faces=faces,
            reason="decode_error" if reader.last_damage else None, detail=reader.last_damage or None,
            max_damaged_percent=max_damaged_percent if reader.last_damage else None,
            frames_wanted=reader.last_frames_wanted, frames_decoded=reader.last_frames_decoded,
            sha256=self._sha256(path, before), seconds=_seconds_since(started),
            faces_without_mask=without_mask if self.pipeline.has_source(entry) else 0,
        )  # fmt: skip
        return ProcessedInput(outcome, _read_batches(spool))

    def _raise_if_no_input_at_fault(self, error: InputError) -> None:
        if self._closing:
            raise StoppedError("this worker was told to stop; run the same command again") from error
        missing_roots = [root for root in self._job.roots if not root.is_dir()] if error.reason == "unreadable" else []
        if missing_roots:
            raise StoppedError(
                f"{missing_roots[0]}: is not there on this worker; fix that and run the same command again"
            ) from error

    def _reuse(self, entry: Entry, unit: Unit) -> ProcessedInput | None:
        """Rows of an unchanged input, or one that is gone from the source, from the units that `unit` supersedes."""
        if not unit.supersedes or (entry.video_id not in unit.reuses and self.pipeline.file_exists(entry.video_id)):
            return None
        reused = self._superseded.lookup(entry, unit)
        return ProcessedInput(*reused) if reused else None

    def _sha256(self, path: Path, before: StatSignature | None) -> str | None:
        """The hash of a file; None if it is missing or has changed since `before`."""
        digest = content_sha256(path, cancelled=lambda: self._closing) if before else None
        return digest if stat_signature(path) == before else None


def _read_batches(spool: Spool) -> Iterator[pa.RecordBatch]:
    with spool:
        spool.seek(0)
        with pa.ipc.open_stream(spool) as stream:
            yield from stream


def _seconds_since(started: float) -> float:
    return round(time.monotonic() - started, 3)
