"""The inputs of a unit to outcomes and rows, in the unit's order: on one lane, or on several at once.

A lane is a decoder's child with the stages behind it. One is enough where a slot is a core. Where it is a GPU, which is
done with a frame long before a child has decoded the next one, several share it.
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
from ..rows.input_rows import InputRows
from ..rows.reuse import ReplacedRows
from ..sources import Entry
from .spools import Spool, SpoolMemory

_SPOOL_BYTES = 32 << 20
"""What the rows of all inputs that are done, and wait for those before them, take in memory before they go to disk."""
_FAMILIES_A_LANE = 2


@dataclass(frozen=True, slots=True)
class Made:
    """One input that is done: what became of it, and its rows, to be taken once."""

    outcome: InputOutcome
    batches: Iterable[pa.RecordBatch] = ()


class Lanes:
    """Does the inputs of one unit after the other; `count` lanes share the job's detector, and take turns at it.

    Families are begun in the unit's order, each by the lane that is free next. At most two a lane are held, at work or
    waiting for those before them to be taken: so a long one does not stop the others at once. The rows of all of them
    together take `_SPOOL_BYTES` of memory at most, the others lie on disk.
    """

    def __init__(self, job: JobSpec, count: int) -> None:
        shared = job if count == 1 else replace(job, detector=_InTurn(job.detector))
        memory = SpoolMemory(job.paths.temporary, _SPOOL_BYTES)
        self._lanes = [_Lane(shared, memory) for _ in range(count)]
        self._free: SimpleQueue[_Lane] = SimpleQueue()
        for lane in self._lanes:
            self._free.put(lane)
        self._threads = ThreadPoolExecutor(count, "facefeed-lane")

    @property
    def first(self) -> InputRows:
        """What makes the rows on the first lane."""
        return self._lanes[0].inputs

    def close(self) -> None:
        """Ends the decoders' children and all threads, from any thread; a unit under way ends with an error."""
        for lane in self._lanes:
            lane.close()
        self._threads.shutdown(wait=False)

    @contextmanager
    def made(self, unit: Unit) -> Iterator[Iterator[Made]]:
        """Every input of the unit, in its order; the rows of each are gone with the end of this."""
        families = families_of(unit.inputs)
        begun: deque[Future[list[Made]]] = deque()
        given_up = threading.Event()
        try:
            if len(self._lanes) == 1:
                yield chain.from_iterable(self._lanes[0].family(family, unit) for family in families)
            else:
                yield self._in_order(families, unit, begun, given_up)
        finally:
            given_up.set()
            for family in begun:
                family.cancel()
            wait(begun)
            for lane in self._lanes:
                lane.let_go()

    def _in_order(
        self,
        families: Iterable[Sequence[Entry]],
        unit: Unit,
        begun: deque[Future[list[Made]]],
        given_up: threading.Event,
    ) -> Iterator[Made]:
        for family in families:
            if len(begun) == _FAMILIES_A_LANE * len(self._lanes):
                yield from begun[0].result()
                begun.popleft()  # not before: whoever leaves here must know that it is at work
            begun.append(self._threads.submit(self._on_free_lane, family, unit, given_up))
        while begun:
            yield from begun[0].result()
            begun.popleft()

    def _on_free_lane(self, family: Sequence[Entry], unit: Unit, given_up: threading.Event) -> list[Made]:
        lane = self._free.get()
        try:
            return list(takewhile(lambda _: not given_up.is_set(), lane.family(family, unit)))
        finally:
            self._free.put(lane)


def families_of(inputs: Sequence[Entry]) -> list[list[Entry]]:
    """Originals with their fakes: neighbours that are linked by what they were made from."""
    families: list[list[Entry]] = []
    names: set[str] = set()
    for entry in inputs:
        own = {entry.video_id, entry.source_id or entry.video_id}
        if families and names & own:
            families[-1].append(entry)
            names |= own
        else:
            families.append([entry])
            names = {*own}
    return families


class _InTurn:
    """A detector for several threads, of which one at a time is at it."""

    def __init__(self, detector: FaceDetector) -> None:
        self._detector = detector
        self._turn = threading.Lock()

    @property
    def fingerprint(self) -> str:
        return self._detector.fingerprint

    @property
    def frames_at_once(self) -> int:
        with self._turn:
            return self._detector.frames_at_once

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        with self._turn:
            return self._detector.detect(frames)


class _Lane:
    """Does one input after the other, with a decoder's child and an original in hand of its own."""

    def __init__(self, job: JobSpec, memory: SpoolMemory) -> None:
        self._job = job
        self.inputs = InputRows(job)
        self._replaced = ReplacedRows(job, self.inputs.schema)
        self._memory = memory
        self._spools: list[Spool] = []
        self._closing = False

    def close(self) -> None:
        self._closing = True
        self.inputs.close()

    def let_go(self) -> None:
        """Gives back what is held for the unit; no one else may be at work on this lane."""
        self.inputs.let_go()
        for spool in self._spools:
            spool.close()
        self._spools.clear()

    def family(self, family: Sequence[Entry], unit: Unit) -> Iterator[Made]:
        """One input after the other; raises `StoppedError` where none of them is to blame."""
        for entry in family:
            yield self._reused(entry, unit) or self._made(entry, unit.split, family)

    def _made(self, entry: Entry, split: str, family: Sequence[Entry]) -> Made:
        """The rows of one input, all or, where it fails on the way, none."""
        started = time.monotonic()
        path = self._job.root / entry.video_id
        before = stat_signature(path) if self.inputs.is_there(entry.video_id) else None
        common: dict[str, Any] = {
            "video_id": entry.video_id, "size_bytes": entry.size_bytes, "mtime_ns": entry.mtime_ns,
        }  # fmt: skip
        max_damaged_percent = self._job.limits.max_damaged_percent
        spool = self._memory.open()
        self._spools.append(spool)
        try:
            faces = without_mask = 0
            rows = self.inputs.batches(entry, split, family)
            with closing(rows), pa.ipc.new_stream(spool, self.inputs.schema) as stream:
                for batch in rows:
                    stream.write_batch(batch)
                    faces += batch.num_rows
                    without_mask += batch.column("mask").null_count
        except InputError as error:
            spool.close()
            self._raise_if_none_is_to_blame(error)
            return Made(InputOutcome(
                **common, outcome="failed", reason=error.reason, detail=error.detail or None,
                max_damaged_percent=max_damaged_percent if error.reason == "decode_error" else None,
                # Whoever reads a file that kept the decoder waiting may wait without end.
                sha256=None if error.reason == "timeout" else self._sha256(path, before),
                frames_wanted=error.frames_wanted, frames_decoded=error.frames_decoded, seconds=_since(started),
            ))  # fmt: skip
        reader = self.inputs.reader
        outcome = InputOutcome(
            **common, outcome="partial" if reader.last_damage else "ok" if faces else "no_faces", faces=faces,
            reason="decode_error" if reader.last_damage else None, detail=reader.last_damage or None,
            max_damaged_percent=max_damaged_percent if reader.last_damage else None,
            frames_wanted=reader.last_frames_wanted, frames_decoded=reader.last_frames_decoded,
            sha256=self._sha256(path, before), seconds=_since(started),
            faces_without_mask=without_mask if self.inputs.has_source(entry) else 0,
        )  # fmt: skip
        return Made(outcome, _stored(spool))

    def _raise_if_none_is_to_blame(self, error: InputError) -> None:
        if self._closing:
            raise StoppedError("this worker was told to stop; run the same command again") from error
        gone = [root for root in self._job.roots if not root.is_dir()] if error.reason == "unreadable" else []
        if gone:
            raise StoppedError(
                f"{gone[0]}: is not there on this worker; fix that and run the same command again"
            ) from error

    def _reused(self, entry: Entry, unit: Unit) -> Made | None:
        """The rows of an input that is as it was, or gone from the source, from the units that this one replaces."""
        if not unit.supersedes or (entry.video_id not in unit.reuses and self.inputs.is_there(entry.video_id)):
            return None
        found = self._replaced.of(entry, unit)
        return Made(*found) if found else None

    def _sha256(self, path: Path, before: StatSignature | None) -> str | None:
        """The hash of a file that has not changed since `before`."""
        digest = content_sha256(path, cancelled=lambda: self._closing) if before else None
        return digest if stat_signature(path) == before else None


def _stored(spool: Spool) -> Iterator[pa.RecordBatch]:
    with spool:
        spool.seek(0)
        with pa.ipc.open_stream(spool) as stream:
            yield from stream


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)
