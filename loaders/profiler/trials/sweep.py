"""Measures several loader settings to find the cheapest that feeds the device."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from ....pipeline.console import plural
from ..verdict.result import Profile, SweepResult
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


def run_sweep(settings: Iterable[Settings], measure: Callable[[Settings], Profile]) -> tuple[SweepResult, ...]:
    """Measures each setting; first those that feed the device, the cheapest first, then by their longest waiting."""
    results = []
    for workers, prefetch in settings:
        profile = measure((workers, prefetch))
        images_per_second = sum(rank.images_per_second for rank in profile.ranks) or profile.live.images_per_second
        results.append(
            SweepResult(
                num_workers=workers,
                prefetch_factor=prefetch,
                verdict=profile.verdict,
                images_per_second=images_per_second,
            )
        )
    return tuple(sorted(results, key=_sort_key))


def describe_settings(settings: Settings) -> str:
    """The settings as text."""
    workers, prefetch = settings
    return f"{plural(workers, 'worker')} x {prefetch} ahead" if workers else "no workers"


def _sort_key(result: SweepResult) -> tuple[int, float, tuple[int, int]]:
    kind = result.verdict.kind
    order = {VerdictKind.FED: 0, VerdictKind.INCONCLUSIVE: 2}.get(kind, 1)
    return (
        order,
        0.0 if kind is VerdictKind.FED else result.upper_wait_share,
        _cost((result.num_workers, result.prefetch_factor)),
    )


def _cost(settings: Settings) -> tuple[int, int]:
    """Processes first, since each needs memory and a core; then batches in memory."""
    workers, prefetch = settings
    return workers, workers * (prefetch or 0)
