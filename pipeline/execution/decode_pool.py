"""A pool of decoders that processes the inputs of a unit, and yields outcomes and rows in the unit's order.

Each decoder is a process of its own with the stages that follow it. A worker that has one CPU core needs one decoder.
A GPU detects faces faster than one decoder delivers frames, so several share it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, takewhile
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from ..faces import FaceDetector, Faces
from ..faces.landmarks.landmarker import FaceShape, Landmarker
from ..planning.options import JobSpec
from ..planning.plan import Unit
from ..rows.input_pipeline import InputPipeline, ProcessedInput
from ..rows.spools import SpoolMemory
from ..sources import Entry

_MAX_FAMILIES_PER_DECODER = 2


class DecodePool:
    """Processes the inputs of one unit after the other with `num_decoders` decoders.

    They share the job's detector and its landmarker, neither of which need be thread-safe.

    A family (a source video and its fakes) is processed by one decoder; families start in the unit's order, each on
    the next idle decoder. At most two per decoder are in progress or wait for earlier ones to be consumed, so that a
    long one does not stop the others at once. Waiting rows take at most `SPOOL_BYTES` of memory; the rest is on disk.
    """

    def __init__(self, job: JobSpec, num_decoders: int) -> None:
        shared = job
        if num_decoders > 1:
            shared = replace(job, detector=_LockedDetector(job.detector), landmarker=_LockedLandmarker(job.landmarker))
        memory = SpoolMemory(job.paths.temporary)
        self._pipelines = [InputPipeline(shared, memory) for _ in range(num_decoders)]
        self._idle: SimpleQueue[InputPipeline] = SimpleQueue()
        for pipeline in self._pipelines:
            self._idle.put(pipeline)
        self._executor = ThreadPoolExecutor(num_decoders, "facefeed-decode")

    @property
    def first_pipeline(self) -> InputPipeline:
        """The pipeline of the first decoder."""
        return self._pipelines[0]

    def close(self) -> None:
        """Ends the decoder processes and all threads, from any thread; a unit in progress ends with an error."""
        for pipeline in self._pipelines:
            pipeline.close()
        self._executor.shutdown(wait=False)

    @contextmanager
    def process(self, unit: Unit) -> Iterator[Iterator[ProcessedInput]]:
        """Yields an iterator over the unit's inputs, in order; their rows are deleted when the block ends."""
        families = group_families(unit.inputs)
        started: deque[Future[list[ProcessedInput]]] = deque()
        cancelled = threading.Event()
        try:
            if len(self._pipelines) == 1:
                yield chain.from_iterable(self._pipelines[0].process_family(family, unit) for family in families)
            else:
                yield self._in_order(families, unit, started, cancelled)
        finally:
            cancelled.set()
            for family in started:
                family.cancel()
            wait(started)
            for pipeline in self._pipelines:
                pipeline.release()

    def _in_order(
        self,
        families: Iterable[Sequence[Entry]],
        unit: Unit,
        started: deque[Future[list[ProcessedInput]]],
        cancelled: threading.Event,
    ) -> Iterator[ProcessedInput]:
        for family in families:
            if len(started) == _MAX_FAMILIES_PER_DECODER * len(self._pipelines):
                yield from started[0].result()
                started.popleft()  # not earlier: on exit, `process` waits for all that may be in progress
            started.append(self._executor.submit(self._process_family, family, unit, cancelled))
        while started:
            yield from started[0].result()
            started.popleft()

    def _process_family(self, family: Sequence[Entry], unit: Unit, cancelled: threading.Event) -> list[ProcessedInput]:
        pipeline = self._idle.get()
        try:
            return list(takewhile(lambda _: not cancelled.is_set(), pipeline.process_family(family, unit)))
        finally:
            self._idle.put(pipeline)


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


class _LockedLandmarker:
    """A landmarker that several threads share, of which one at a time may use it."""

    def __init__(self, landmarker: Landmarker) -> None:
        self._landmarker = landmarker
        self._lock = threading.Lock()

    @property
    def fingerprint(self) -> str:
        return self._landmarker.fingerprint

    @property
    def is_dense(self) -> bool:
        return self._landmarker.is_dense

    def locate(self, frames: Sequence[NDArray[np.uint8]], faces: Sequence[Faces]) -> list[list[FaceShape]]:
        with self._lock:
            return self._landmarker.locate(frames, faces)
