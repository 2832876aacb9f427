"""A profile's steps as a trace for ui.perfetto.dev or chrome://tracing.

The format is Chrome's "Trace Event Format": one JSON object with `traceEvents`, times in microseconds.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....pipeline.files import write_atomically
from ..measure.batch_timing import BatchTiming
from ..measure.recording import Recording
from ..verdict.result import Profile

_LOOP, _FIRST_WORKER = 1, 2  # processes of the trace: numbers of its own, since a pid may be any number
_WAITING, _STEP = 1, 2
_NOT_READY, _NO_CORE, _SAMPLER, _TRANSPORT = _WAITS = (
    "wait: batch not ready", "wait: no core free", "wait: sampler", "transport"
)  # fmt: skip
_COLOURS = {
    _NOT_READY: "terrible",
    _NO_CORE: "bad",
    _SAMPLER: "bad",
    _TRANSPORT: "grey",
    "step": "good",
}  # names that Chrome reserves

Event = dict[str, Any]


def write_trace(profile: Profile, path: Path) -> None:
    """Writes every step of `profile.live`, and the loading of every batch, to `path`, whole or not at all.

    Raises `UsageError` where it cannot be written.
    """
    events = [*_names(profile), *sorted(_timed(profile.live), key=_by_time)]
    trace = {"displayTimeUnit": "ms", "otherData": {"verdict": str(profile.verdict)}, "traceEvents": events}
    write_atomically(json.dumps(trace, separators=(",", ":")), path, "--trace")


def _by_time(event: Event) -> tuple[float, float]:
    """Sort key: enclosing slices come before those within them."""
    return event["ts"], -event.get("dur", 0.0)


def _names(profile: Profile) -> Iterator[Event]:
    """Names and display order of processes and threads."""
    live = profile.live
    yield from _named(_LOOP, "training loop", {_WAITING: "waiting", _STEP: "step"})
    for process, pid in enumerate(_pids(live), _FIRST_WORKER):
        what = f"worker {process - 1}" if live.num_workers else "loading, in the loop's own process"
        yield from _named(process, f"{what} (pid {pid})", {1: "batches"})


def _named(process: int, name: str, threads: Mapping[int, str]) -> Iterator[Event]:
    about: Event = {"ph": "M", "pid": process}
    yield {**about, "name": "process_name", "args": {"name": name}}
    yield {**about, "name": "process_sort_index", "args": {"sort_index": process}}
    for thread, thread_name in threads.items():
        yield {**about, "tid": thread, "name": "thread_name", "args": {"name": thread_name}}
        yield {**about, "tid": thread, "name": "thread_sort_index", "args": {"sort_index": thread}}


def _pids(recording: Recording) -> list[int]:
    """Process ids of the loading processes, in order of first appearance."""
    return list(dict.fromkeys(timing.pid for timing in recording.batch_timings))


def _timed(recording: Recording) -> Iterator[Event]:
    if not len(recording):
        return
    began = min([float(recording.requested_at.min()), *(timing.start_at for timing in recording.batch_timings)])
    yield from _of_steps(recording, began)
    processes = {pid: process for process, pid in enumerate(_pids(recording), _FIRST_WORKER)}
    for number, timing in enumerate(recording.batch_timings):
        yield from _of_batch(timing, number, began, processes[timing.pid])


def _of_steps(recording: Recording, began: float) -> Iterator[Event]:
    """The loop's two lanes, and the number of ready batches at each request."""
    moments = [
        _nanoseconds(series - began)
        for series in (*recording.wait_boundaries, recording.received_at, recording.step_end_at)
    ]
    ready = recording.queue_depth
    for step in range(len(recording)):
        *edges, received_at, step_end_at = (int(series[step]) for series in moments)
        of_step = {"step": step, "in stretch": int(recording.segment_step[step])}
        for name, (start, end) in zip(_WAITS, itertools.pairwise([*edges, received_at]), strict=True):
            if end > start:
                yield _slice(name, start, end, process=_LOOP, thread=_WAITING, about=of_step)
        yield _slice("step", received_at, step_end_at, process=_LOOP, thread=_STEP, about=of_step)
        if ready[step] >= 0:
            counted = {"batches": int(ready[step])}
            yield {"ph": "C", "name": "batches ready", "pid": _LOOP, "ts": edges[0] / 1e3, "args": counted}


def _of_batch(timing: BatchTiming, number: int, began: float, process: int) -> Iterator[Event]:
    """The loading of a batch, and its stages one after the other: only their lengths are measured."""
    start, finish = _nanoseconds(np.array([timing.start_at, timing.end_at]) - began).tolist()
    about = {
        "cpu ms": round(timing.cpu_seconds * 1e3, 3),
        "queued ms": round(timing.core_wait_seconds * 1e3, 3),
        "kB from storage": round(timing.storage_bytes / 1e3, 1),
    }
    yield _slice(f"batch {number}", start, finish, process=process, thread=1, about=about)
    ends = np.cumsum([0.0, *timing.stage_seconds.values()])
    scale = min(1.0, (finish - start) / 1e9 / ends[-1]) if ends[-1] > 0 else 1.0
    edges = np.minimum(start + _nanoseconds(ends * scale), finish).tolist()
    for (name, seconds), (left, right) in zip(timing.stage_seconds.items(), itertools.pairwise(edges), strict=True):
        if right > left:
            yield _slice(name, left, right, process=process, thread=1, about={"ms": round(seconds * 1e3, 3)})


def _slice(name: str, start: int, end: int, *, process: int, thread: int, about: Mapping[str, Any]) -> Event:
    """A slice; `start` and `end` are whole nanoseconds, so that nested slices nest exactly."""
    event = {"ph": "X", "name": name, "cat": "facefeed", "pid": process, "tid": thread, "ts": start / 1e3,
             "dur": (end - start) / 1e3, "args": dict(about)}  # fmt: skip
    return {**event, "cname": _COLOURS[name]} if name in _COLOURS else event


def _nanoseconds(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(seconds * 1e9).astype(np.int64)
