"""Checks 5 (behind device work), 6 (from storage) and 7 (the profiler's own cost) of the self-test."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimate.estimator import Estimator
from ..verdict.verdict import WARM_BYTES_PER_IMAGE
from .checks import STEP_SECONDS, Check, Comparison, tolerance
from .scenarios import Device, Plan, PlayedSegment, Segment

_HIDDEN_PART, _EXPOSED_PART = 0.25, 2.0  # of the device's work: a delay that it covers, and one that it does not
_DEVICE_STEPS = 40

_FILES, _FILE_BYTES, _FILE_DELAY_SECONDS, _ROUNDS = 16, 4_000_000, 0.002, 3

_PAIRS = 80
_MAX_OVERHEAD_SHARE = 0.01
_ONE_SIDED = 1.645  # standard deviations: 95 % lie below


def hidden_delay(play: Callable[[Plan, Device | None], list[PlayedSegment]], device: Device | None) -> Check:
    """5: only what the device waits for counts, not what the host waits for behind the device's work."""
    name = "a delay behind the device's work is no wait"
    if device is None:
        return Check(number=5, name=name, not_run="needs a GPU")
    points = list[Comparison]()
    for part in (_HIDDEN_PART, _EXPOSED_PART):
        delays = np.full(_DEVICE_STEPS, part * device.seconds)
        [seen] = play(Plan(segments=[Segment(delay_seconds=delays, step_seconds=np.zeros(_DEVICE_STEPS))]), device)
        waits, steady = float(seen.wait_seconds[1:].mean()), seen.recording.is_steady
        # The device goes idle once its work is done; until the host comes with more, it waits.
        exposed = max(waits + float(seen.step_seconds.mean()) - device.seconds, 0.0)
        label = f"{delays[0] * 1e3:.0f} ms beside {device.seconds * 1e3:.0f} ms of work"
        points += [
            Comparison(
                label=f"{label}, the host's wait",
                injected=float(seen.delay_seconds[1:].mean()),
                recovered=waits,
                allowed=tolerance(seen),
            ),
            Comparison(
                label=f"{label}, the device's wait",
                injected=exposed,
                estimator=Estimator.LIVE,
                recovered=float(seen.recording.wait_seconds[steady].mean()),
                allowed=tolerance(seen),
            ),
        ]
    hidden_wait, exposed_wait = points[1], points[3]
    detail = (
        f"the host waited {points[0].recovered * 1e3:.1f} ms a step, the device {hidden_wait.recovered * 1e3:.2f} ms; "
        f"once the delay was longer than the work, {exposed_wait.recovered * 1e3:.1f} of "
        f"{exposed_wait.injected * 1e3:.1f} ms"
    )
    return Check(number=5, name=name, points=tuple(points), detail=detail)


def evicted_files(play_files: Callable[..., list[PlayedSegment]], folder: Path) -> Check:
    """6: files outside the page cache make a period longer by what the items' and steps' own clocks say, by part."""
    name = "files from storage take longer by what the items' and steps' clocks say"
    seen = play_files(
        folder,
        count=_FILES,
        size_bytes=_FILE_BYTES,
        delay_seconds=_FILE_DELAY_SECONDS,
        step_seconds=STEP_SECONDS,
        rounds=_ROUNDS,
    )
    warm, cold = seen[::2], seen[1::2]
    if sum(segment.storage_bytes for segment in cold) < _ROUNDS * _FILES * _FILE_BYTES / 2:
        return Check(number=6, name=name, not_run=f"the file system of {folder.parent} keeps its files in memory")
    allowed = max(tolerance(segment) for segment in seen)
    points = (
        *(
            Comparison(
                label=what,
                injected=_cold_excess_seconds(cold, warm, truth),
                recovered=_cold_excess_seconds(cold, warm, profiled),
                allowed=allowed,
            )
            for what, (profiled, truth) in _PARTS.items()
        ),
        Comparison(
            label="from storage, cold",
            injected=_FILE_BYTES,
            recovered=_storage_bytes_per_item(cold),
            allowed=0.1 * _FILE_BYTES,
            unit="bytes",
        ),
        Comparison(
            label="from storage, warm",
            injected=0,
            recovered=_storage_bytes_per_item(warm),
            allowed=WARM_BYTES_PER_IMAGE,
            unit="bytes",
        ),
    )
    detail = (
        f"a batch and its step took {points[0].injected * 1e3:.2f} ms longer from storage, recovered "
        f"{points[0].recovered * 1e3:.2f} ms; step, transport and transform moved by at most "
        f"{max(abs(point.recovered) for point in points[1:4]) * 1e3:.2f} ms"
    )
    return Check(number=6, name=name, points=points, detail=detail)


Part = Callable[[PlayedSegment], Any]


def _transform_seconds_where_timed(seen: PlayedSegment) -> Any:
    """By the items' own clock, of the batches whose stages the profiler timed, which may be unlike the others."""
    is_timed = np.array([bool(timing.stage_seconds) for timing in seen.recording.batch_timings])
    return (seen.collated_at - seen.file_read_at)[is_timed & seen.recording.is_steady]


_PARTS: dict[str, tuple[Part, Part]] = {
    # With the step: others that use the machine may delay it in one round and not in another.
    "period": (
        lambda seen: seen.recording.period_seconds,
        lambda seen: seen.collated_at - seen.item_start_at + seen.step_seconds,
    ),
    "step": (lambda seen: seen.recording.step_seconds, lambda seen: seen.step_seconds),
    "transport": (lambda seen: seen.recording.transport_seconds, lambda _: 0.0),
    "transform": (lambda seen: seen.recording.stage_seconds.get("augment", 0.0), _transform_seconds_where_timed),
}
"""What a part of the period is by the profiler, and by the clocks of items and steps."""


def _cold_excess_seconds(cold: Sequence[PlayedSegment], warm: Sequence[PlayedSegment], part: Part) -> float:
    """Additional seconds a step of a part with a cold page cache."""
    return float(
        np.mean([np.mean(part(segment)) for segment in cold]) - np.mean([np.mean(part(segment)) for segment in warm])
    )


def _storage_bytes_per_item(seen: Sequence[PlayedSegment]) -> float:
    """Bytes an item from storage, by the profiler; where it does not know, none. Of the usual round: a process may
    have to read a page of its own libraries anew in one of them.
    """
    return float(np.median([segment.recording.storage_bytes_per_image or 0.0 for segment in seen]))


def overhead(play_pairs: Callable[[int], NDArray[np.float64]]) -> Check:
    """7: the profiler costs under 1 % of a batch.

    A busy machine spreads the pairs, so the check fails only once 95 % of certainty say that it is more.
    """
    plain, profiled = play_pairs(_PAIRS).T
    more = np.sort(profiled / plain - 1)
    off = math.ceil(_ONE_SIDED * math.sqrt(len(more)) / 2)  # ranks from the median to its bound: a sign test
    lower, median, upper = more[len(more) // 2 - off], np.median(more), more[len(more) // 2 + off]
    spread = np.quantile(more, [0.25, 0.75])
    point = Comparison(label="overhead, shown at 95 %", injected=0.0, recovered=max(float(lower), 0.0),
                  allowed=_MAX_OVERHEAD_SHARE, unit="share")  # fmt: skip
    detail = (
        f"{median:.2%} of a batch of {np.median(plain) * 1e3:.0f} ms (at 95 % from {lower:.2%} to {upper:.2%}), "
        f"the median of {len(more)} pairs; half of them from {spread[0]:.2%} to {spread[1]:.2%}"
    )
    return Check(number=7, name="the profiler is not shown to cost over 1 % of a batch", points=(point,), detail=detail)
