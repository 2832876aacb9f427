"""Settings of a loader one after the other, each measured, none predicted: which is the cheapest that is enough."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..verdict.judgement import Word
from ..verdict.result import Profile, Tried

Settings = tuple[int, int | None]
"""Workers, and batches that each makes ahead; None without workers."""


def settings_of(axes: Mapping[str, Sequence[int]], workers: int, prefetch: int | None) -> list[Settings]:
    """All settings on these axes, "workers" and "prefetch", the cheapest first; what is on no axis stays as it is."""
    each = itertools.product(axes.get("workers", [workers]), axes.get("prefetch", [prefetch or 2]))
    return sorted({(many, ahead if many else None) for many, ahead in each}, key=_cost)


def swept(settings: Iterable[Settings], measure: Callable[[Settings], Profile]) -> tuple[Tried, ...]:
    """Each measured: those first that feed the device, of these the cheapest; then by how long they may wait."""
    tried = []
    for workers, prefetch in settings:
        found = measure((workers, prefetch))
        throughput = sum(one.images_per_second for one in found.ranks) or found.live.images_per_second
        tried.append(
            Tried(num_workers=workers, prefetch_factor=prefetch, verdict=found.verdict, images_per_second=throughput)
        )
    return tuple(sorted(tried, key=_rank))


def told(settings: Settings) -> str:
    """In words."""
    workers, prefetch = settings
    return f"{workers} workers x {prefetch} ahead" if workers else "no workers"


def _rank(one: Tried) -> tuple[int, float, tuple[int, int]]:
    word = one.verdict.word
    order = {Word.FED: 0, Word.INCONCLUSIVE: 2}.get(word, 1)
    return order, 0.0 if word is Word.FED else one.most_waiting, _cost((one.num_workers, one.prefetch_factor))


def _cost(settings: Settings) -> tuple[int, int]:
    """Processes first: each has memory of its own and wants a core; then batches, which lie in memory."""
    workers, prefetch = settings
    return workers, workers * (prefetch or 0)
