"""What the stages of a slot were at, and when: spans taken at the seams between them, for `bench_slot.py`."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from facefeed.pipeline.dataset.image_codec import ImageEncoder
from facefeed.pipeline.execution import decode_pool
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.rows import row_builder
from facefeed.pipeline.rows.input_pipeline import InputPipeline
from facefeed.pipeline.rows.prefetch import prefetch_one
from facefeed.pipeline.rows.row_builder import RowBuilder
from facefeed.pipeline.video.child_process import DecoderProcess

STAGES = ("decode", "read", "find", "cut")
PARENT = {
    "decode": None,
    "read": None, "waits for the decoder": "read",
    "follow": None, "waits for frames": "follow", "waits for its turn": "follow", "detect": "waits for its turn",
    "rows": None, "waits for faces": "rows", "crop and hull": "rows", "encode": "crop and hull", "file": None,
    "waits for the finder": None, "waits for the cutter": None,
}  # fmt: skip
"""What lies within what: the time of each is its own without that of its children."""
WORK = {
    "decode": ("decode",), "read": ("read",), "find": ("detect", "follow"),
    "cut": ("crop and hull", "encode", "rows", "file"),
}  # fmt: skip
UPSTREAM = {"decode": None, "read": "waits for the decoder", "find": "waits for frames", "cut": "waits for faces"}
DOWNSTREAM = {"decode": None, "read": "waits for the finder", "find": "waits for the cutter", "cut": None}
SAMPLE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Span:
    """Something that went on in a stage of a lane. share: of a core, for the decoder alone; else 1."""

    lane: int
    stage: str
    what: str
    start: float
    end: float
    share: float = 1.0


@dataclass
class Spans:
    """Spans as they are recorded, from any thread."""

    all: list[Span] = field(default_factory=list)
    lane_of: dict[int, int] = field(default_factory=dict)
    """By the identity of a lane's reading and finding threads, and of its row maker."""

    @contextmanager
    def during(self, lane: int, stage: str, what: str) -> Iterator[None]:
        """Records the time that is spent within."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.all.append(Span(lane, stage, what, start, time.perf_counter()))

    def own_seconds(self) -> Counter[tuple[int, str, str]]:
        """By lane, stage and what: how long it took, without what lies within it."""
        seconds: Counter[tuple[int, str, str]] = Counter()
        for span in self.all:
            span_seconds = (span.end - span.start) * span.share
            seconds[span.lane, span.stage, span.what] += span_seconds
            if (parent := PARENT[span.what]) is not None:
                seconds[span.lane, span.stage, parent] -= span_seconds
        return seconds


@dataclass
class RecordingDetector:
    """Another detector, with a span for each call; `here.lane`: whose the calling thread is."""

    inner: Any
    spans: Spans
    here: threading.local = field(default_factory=threading.local)

    @property
    def fingerprint(self) -> str:
        return str(self.inner.fingerprint)

    @property
    def frames_at_once(self) -> int:
        return int(self.inner.frames_at_once)

    def detect(self, frames: Sequence[Any]) -> Any:
        lane = getattr(self.here, "lane", 0)
        with self.spans.during(lane, "find", "detect"):
            return self.inner.detect(frames)


@dataclass(frozen=True, kw_only=True)
class RecordingEncoder(ImageEncoder):
    """An encoder with a span for each crop."""

    spans: Spans
    lane: int

    def __call__(self, rgb: Any) -> bytes:
        with self.spans.during(self.lane, "cut", "encode"):
            return super().__call__(rgb)


@contextmanager
def recorded(worker: UnitWorker, spans: Spans, detector: RecordingDetector, *, in_series: bool) -> Iterator[None]:
    """Records what `worker` does; `in_series`: without `prefetch_one`, one stage after the other, on one decoder."""
    pipelines = worker._pool._pipelines
    for number, lane in enumerate(pipelines):
        maker = lane._row_builder
        spans.lane_of.update({id(maker.read_executor): number, id(maker._detect_executor): number, id(maker): number})
        encoder = RecordingEncoder(**vars(maker._options.image), spans=spans, lane=number)
        maker._options = replace(maker._options, image=encoder)
    with ExitStack() as stack:
        stack.enter_context(
            patch.object(row_builder, "prefetch_one", _recording_ahead(spans, detector, in_series=in_series))
        )
        stack.enter_context(patch.object(RowBuilder, "_frame_rows", _recording_rows(spans)))
        stack.enter_context(patch.object(DecoderProcess, "_wait_readable", _recording_wait(spans, detector)))
        stack.enter_context(patch.object(InputPipeline, "process_family", _recording_family(spans, pipelines)))
        turn = decode_pool._LockedDetector.detect
        stack.enter_context(patch.object(decode_pool._LockedDetector, "detect", _recording_turn(spans, detector, turn)))
        stack.enter_context(_sampled(worker, spans))
        yield


def _recording_ahead(spans: Spans, detector: RecordingDetector, *, in_series: bool) -> Any:
    @contextmanager
    def watched(items: Iterator[Any], thread: Executor) -> Iterator[Iterator[Any]]:
        lane = spans.lane_of[id(thread)]
        if "read" in thread._thread_name_prefix:  # type: ignore[attr-defined]
            making, waiting = ("read", "read", "waits for the finder"), ("find", "waits for frames")
        else:
            making, waiting = ("find", "follow", "waits for the cutter"), ("cut", "waits for faces")
        recorded_items = _made(items, spans, lane, making, detector)
        if in_series:
            yield _taken(recorded_items, spans, lane, waiting)
            recorded_items.close()
        else:
            with prefetch_one(recorded_items, thread) as prefetched:
                yield _taken(prefetched, spans, lane, waiting)

    return watched


def _made(
    items: Iterator[Any], spans: Spans, lane: int, making: tuple[str, str, str], detector: RecordingDetector
) -> Any:
    stage, what, standing = making
    ended = None
    try:
        while True:
            start = time.perf_counter()
            if ended is not None:
                spans.all.append(Span(lane, stage, standing, ended, start))
            detector.here.lane = lane
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                ended = time.perf_counter()
                spans.all.append(Span(lane, stage, what, start, ended))
            yield item
    finally:
        items.close()  # type: ignore[attr-defined]


def _taken(items: Iterator[Any], spans: Spans, lane: int, waiting: tuple[str, str]) -> Iterator[Any]:
    while True:
        with spans.during(lane, *waiting):
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


def _recording_rows(spans: Spans) -> Any:
    genuine = RowBuilder._frame_rows

    def frame_rows(self: RowBuilder, *arguments: Any) -> list[Any]:
        with spans.during(spans.lane_of[id(self)], "cut", "crop and hull"):
            return list(genuine(self, *arguments))

    return frame_rows


def _recording_wait(spans: Spans, detector: RecordingDetector) -> Any:
    genuine = DecoderProcess._wait_readable

    def await_bytes(self: DecoderProcess) -> None:
        with spans.during(getattr(detector.here, "lane", 0), "read", "waits for the decoder"):
            genuine(self)

    return await_bytes


def _recording_family(spans: Spans, made: Sequence[Any]) -> Any:
    genuine = InputPipeline.process_family

    def family(self: Any, *arguments: Any) -> Iterator[Any]:
        items, lane = genuine(self, *arguments), made.index(self)
        while True:
            with spans.during(lane, "cut", "rows"):
                try:
                    item = next(items)
                except StopIteration:
                    return
            with spans.during(lane, "cut", "file"):
                yield item

    return family


def _recording_turn(spans: Spans, detector: RecordingDetector, genuine: Any) -> Any:
    def detect(self: Any, frames: Sequence[Any]) -> Any:
        with spans.during(getattr(detector.here, "lane", 0), "find", "waits for its turn"):
            return genuine(self, frames)

    return detect


@contextmanager
def _sampled(worker: UnitWorker, spans: Spans) -> Iterator[None]:
    """Looks every 20 ms at how much the decoders' children have computed."""
    is_stopped = threading.Event()

    def watch() -> None:
        before: dict[int, tuple[float, float]] = {}
        while not is_stopped.wait(SAMPLE_SECONDS):
            for number, lane in enumerate(worker._pool._pipelines):
                pid = lane.reader.child_pid
                if pid is None:
                    continue
                with suppress(OSError, ValueError):
                    now, computed = time.perf_counter(), _computed_seconds(pid)
                    since, so_far = before.get(pid, (now, computed))
                    if computed > so_far:
                        share = (computed - so_far) / (now - since)
                        spans.all.append(Span(number, "decode", "decode", since, now, share))
                    before[pid] = now, computed

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        is_stopped.set()
        watcher.join()


def _computed_seconds(pid: int) -> float:
    """On a core so far, all threads together, to the microsecond: what `times` tells is too coarse for a picture."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
