"""What loaders leave behind, counted in a process that has nothing else: `python assets_leaks.py OUT`.

Prints one JSON object: for each scenario what was held early on, and at its end. In a process that also runs other
tests, threads and connections of these come and go meanwhile.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from assets_loaders import DEADLINE_SECONDS, Noise, loader, shared_names
from facefeed.loaders import FaceDataLoader

EPOCHS: dict[str, dict[str, Any]] = {
    "persistent": {"persistent_workers": True},
    "new": {"persistent_workers": False},
    "window": {"persistent_workers": True, "shuffle": "window", "window_images": 128},
    "outside the ring": {"persistent_workers": True, "image_size": None},
}
"""Options of the loaders that go through ten epochs."""


@dataclass(frozen=True)
class Held:
    """What this process and its workers hold.

    threads: those of Python; libraries grow pools of native ones as their work happens to overlap, up to a limit.
    """

    descriptors: int
    of_workers: tuple[int, ...]
    processes: int
    threads: int
    shared: int

    @classmethod
    def by(cls, batches: FaceDataLoader | None = None) -> Held:
        gc.collect()
        process = psutil.Process()
        workers = [] if batches is None or batches._iterator is None else batches._iterator._workers
        return cls(
            descriptors=process.num_fds(),
            of_workers=tuple(psutil.Process(worker.pid).num_fds() for worker in workers),
            processes=len(process.children(recursive=True)),
            threads=threading.active_count(),
            shared=len(shared_names(process)),
        )

    def exceeds(self, other: Held) -> bool:
        own, earlier = (
            (usage.descriptors, *usage.of_workers, usage.processes, usage.threads, usage.shared)
            for usage in (self, other)
        )
        return any(held > held_before for held, held_before in zip(own, earlier, strict=True))


def settled(early: Held, batches: FaceDataLoader | None = None) -> Held:
    """What is held once it is no more than `early`, or at the deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (late := Held.by(batches)).exceeds(early) and time.monotonic() < deadline:
        time.sleep(0.01)
    return late


def ten_epochs(out: Path, **options: Any) -> tuple[Held, Held]:
    """After two epochs, and after eight more, of which every second is left in the middle."""
    batches = loader(out, num_workers=2, transform=Noise(), **options)
    for _ in range(2):
        list(batches)
    without_batches_ahead(batches)
    early = Held.by(batches)
    for epoch in range(8):
        for step, batch in enumerate(batches):  # noqa: B007 (held, and released below)
            if epoch % 2 and step == 6:
                break
        del batch
    list(batches)
    without_batches_ahead(batches)
    return early, settled(early, batches)


def without_batches_ahead(batches: FaceDataLoader) -> None:
    """Goes through another epoch than the next, after which workers rest: they hold what they make for the next one."""
    batches.set_epoch(0)
    list(batches)


def released_loaders(out: Path) -> tuple[Held, Held]:
    """After one loader, and after four more that were released before the first batch, and in the middle."""

    def iterate(steps: int) -> None:
        iterator = iter(loader(out, num_workers=1))
        for _ in range(steps):
            next(iterator)

    iterate(2)
    early = Held.by()
    for steps in (0, 1, 5, 11):
        iterate(steps)
    return early, settled(early)


def without_workers(out: Path) -> tuple[Held, Held]:
    """Before and after three loaders without workers."""
    early = Held.by()
    for _ in range(3):
        list(loader(out, num_workers=0))
    return early, Held.by()


def main(out: Path) -> None:
    list(loader(out, num_workers=0))  # torch and pyarrow open files of theirs
    scenarios: dict[str, Callable[[], tuple[Held, Held]]] = {
        "without workers": lambda: without_workers(out),
        "released": lambda: released_loaders(out),
        **{name: lambda options=options: ten_epochs(out, **options) for name, options in EPOCHS.items()},
    }
    usages = {}
    for name, scenario in scenarios.items():
        early, late = scenario()
        usages[name] = {"early": asdict(early), "late": asdict(late), "leaks": late.exceeds(early)}
    print(json.dumps(usages))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
