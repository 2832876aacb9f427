"""Measures several loader settings to find the cheapest that feeds the device."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ....pipeline.console import plural
from ....pipeline.errors import FacefeedError
from ..verdict.result import Profile, SweepFailure, SweepResult
from ..verdict.verdict import VerdictKind

Settings = tuple[int, int | None]
"""Workers, and batches that each makes ahead; None without workers."""


def settings_grid(axes: Mapping[str, Sequence[int]], workers: int, prefetch: int | None) -> list[Settings]:
    """All settings on the axes "workers" and "prefetch", the cheapest first; other settings keep their value."""
    combinations = itertools.product(axes.get("workers", [workers]), axes.get("prefetch", [prefetch or 2]))
    return sorted(
        {(num_workers, prefetch_factor if num_workers else None) for num_workers, prefetch_factor in combinations},
        key=_cost,
    )


def run_sweep(settings: Iterable[Settings], measure: Callable[[Settings], Profile]) -> Profile:
    """Measures each setting; the profile of the best, with the results of all, the best first, and what failed.

    First come those that feed the device, the cheapest first, then those that surely wait, by their waiting, then
    inconclusive ones. A setting that fails (too little shared memory, a worker that is killed) is counted with its
    reason. Where all of them fail, the first error is raised.
    """
    results, failures = list[SweepResult](), list[SweepFailure]()
    best: Profile | None = None  # the profiles of all settings would take too much memory
    first_error: Exception | None = None
    for workers, prefetch in settings:
        try:
            profile = measure((workers, prefetch))
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # they hold the loader, with its workers and memory
            first_error = first_error or error
            failures.append(SweepFailure(num_workers=workers, prefetch_factor=prefetch, reason=failure_reason(error)))
            continue
        images_per_second = sum(rank.images_per_second for rank in profile.ranks) or profile.live.images_per_second
        results.append(
            SweepResult(
                num_workers=workers,
                prefetch_factor=prefetch,
                verdict=profile.verdict,
                images_per_second=images_per_second,
            )
        )
        if min(results, key=_sort_key) is results[-1]:
            best = profile
    if first_error is not None and best is None:
        raise first_error
    assert best is not None
    return replace(best, sweep=tuple(sorted(results, key=_sort_key)), sweep_failures=tuple(failures))


def failure_reason(error: Exception) -> str:
    """Why a trial failed, on one line: the message, and the kind of an error that facefeed does not raise itself."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    message = lines[0].strip() if lines else "no message"
    return message if isinstance(error, FacefeedError) else f"{type(error).__name__}: {message}"


def describe_settings(settings: Settings) -> str:
    """The settings as text."""
    workers, prefetch = settings
    return f"{plural(workers, 'worker')} x {prefetch} ahead" if workers else "no workers"


def _sort_key(result: SweepResult) -> tuple[int, float, tuple[int, int]]:
    kind = result.verdict.kind
    order = {VerdictKind.FED: 0, VerdictKind.INCONCLUSIVE: 2}.get(kind, 1)
    return (
        order,
        0.0 if kind is VerdictKind.FED else result.verdict.longest_wait_share,
        _cost((result.num_workers, result.prefetch_factor)),
    )


def _cost(settings: Settings) -> tuple[int, int]:
    """Processes first, since each needs memory and a core; then batches in memory."""
    workers, prefetch = settings
    return workers, workers * (prefetch or 0)
