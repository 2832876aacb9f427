"""What a training loop and the makers of its batches saw at their clocks, and what follows from it without a model."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..prefetch import tensors_in
from .queue import Queue, Seconds
from .stamps import Stamp


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Some steps, in one or more stretches. Times are of one clock (CLOCK_MONOTONIC), in seconds, float64 (steps,).

    asked, handed: before and after `next()`. done: after the step. place: int64, of the step in its stretch: a stretch
    begins with an iteration, and after a pause in which the queue filled. stamps: of the batches' making, empty where
    the loader is none of torch's. workers, prefetch: of the loader; ordered: whether it hands out batches in the order
    in which they were begun. images: of each batch, int64 (steps,). computed: seconds of a core that the looping
    process took, its step's included. stored_bytes: what came from storage, not from the page cache,
    to all processes; None where the system does not say. stamping: seconds that the stamps cost a batch, as tried.
    """

    asked: Seconds
    handed: Seconds
    done: Seconds
    place: NDArray[np.int64]
    stamps: Sequence[Stamp] = field(repr=False)
    workers: int
    prefetch: int
    images: NDArray[np.int64]
    ordered: bool = True
    computed: float = 0.0
    stored_bytes: int | None = None
    stamping: float = 0.0

    @classmethod
    def joined(cls, parts: Sequence[Recording]) -> Recording:
        """Several recordings of one loader, one after the other."""
        asked, handed, done, place, images = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("asked", "handed", "done", "place", "images")
        )
        stored = [part.stored_bytes for part in parts]
        return cls(
            asked=asked, handed=handed, done=done, place=place, stamps=[one for part in parts for one in part.stamps],
            workers=parts[0].workers, prefetch=parts[0].prefetch, images=images, ordered=parts[0].ordered,
            computed=sum(part.computed for part in parts),
            stored_bytes=None if None in stored else sum(filter(None, stored)), stamping=parts[-1].stamping,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.asked)

    @property
    def steady(self) -> NDArray[np.bool_]:
        """The steps of the steady state, bool (steps,): without those in which the queue fills, or is still full."""
        return self.place >= max(self.workers * self.prefetch, 1)

    @property
    def stretches(self) -> list[slice]:
        """Where each stretch lies."""
        starts = np.flatnonzero(self.place == 0).tolist()
        return [slice(start, end) for start, end in itertools.pairwise([*starts, len(self)])]

    @property
    def period(self) -> Seconds:
        """From one question to the next; the last of a stretch to the end of its step."""
        until = np.append(self.asked[1:], np.nan)
        last = np.append(self.place[1:] == 0, True)
        return np.where(last, self.done, until) - self.asked

    @property
    def wait(self) -> Seconds:
        """How long each `next()` took."""
        return self.handed - self.asked

    @property
    def step(self) -> Seconds:
        """How long each step took, from the batch to the next question."""
        return self.done - self.handed

    @property
    def load(self) -> Seconds:
        """How long each batch took to make, wherever; of a loader without stamps, how long `next()` took."""
        return self.finish - self.start if self.stamps else self.wait

    @property
    def start(self) -> Seconds:
        """When the making of each batch began."""
        return np.array([stamp.start for stamp in self.stamps])

    @property
    def finish(self) -> Seconds:
        """When each batch was made."""
        return np.array([stamp.finish for stamp in self.stamps])

    @property
    def floor(self) -> float:
        """What handing over a batch that is made takes when nothing is in the way, in seconds: the tenth percentile."""
        handing = (self.wait - self.unmade - self.sampled)[self.steady]
        return float(np.quantile(handing, 0.1)) if len(handing) else 0.0

    @property
    def unmade(self) -> Seconds:
        """Of each wait, how long the batch was not made yet. Without stamps nobody knows, so all of it counts."""
        if not self.stamps:
            return self.wait
        return np.clip(self.finish - self.asked, 0.0, self.wait) - (0.0 if self.workers else self.sampled)

    @property
    def sampled(self) -> Seconds:
        """How long the sampler took within each `next()`. Workers make batches meanwhile, but the loop stands still."""
        sampled = [stamp.sampled for stamp in self.stamps] if self.stamps else np.zeros(len(self))
        return np.minimum(np.asarray(sampled, np.float64), self.wait)

    @property
    def sampling(self) -> Seconds:
        """Of each wait, how long the sampler kept the loop; with workers only where it is more than a clock's noise."""
        if not self.workers:
            return self.sampled
        return np.where(self.sampled > 2 * self.floor, np.minimum(self._late, self.sampled), 0.0)

    @property
    def contention(self) -> Seconds:
        """Of each wait, how much longer than the floor a batch that was made took to come, where that is far longer.

        The loop, its workers and the queue between them wanted more cores than there are.
        """
        return self._late - self.sampling if self.workers else self._late

    @property
    def _late(self) -> Seconds:
        """What is beyond the floor; within three times that it is the noise of a clock, and counts for transport.

        Without workers nobody hands anything over.
        """
        beyond = self.wait - self.unmade - self.floor
        late = beyond > 2 * self.floor if self.stamps and self.workers else np.zeros(len(self), np.bool_)
        return np.where(late, beyond, 0.0)

    @property
    def stall(self) -> Seconds:
        """Estimator A: how long the loop waited for each batch beyond what handing one over takes."""
        return self.unmade + self.contention + self.sampling

    @property
    def waits(self) -> NDArray[np.float64]:
        """The moments within each `next()`, (4, steps): asked; made; a core was free; the sampler was done.

        From there to `handed` it is handed over. Only how long each part took is known, not always their order.
        """
        parts = np.cumsum([np.zeros(len(self)), self.unmade, self.contention, self.sampling], axis=0)
        moments: NDArray[np.float64] = np.minimum(self.asked + parts, self.handed)
        return moments

    @property
    def transport(self) -> Seconds:
        """How long each batch took to be handed over."""
        return self.wait - self.stall

    @property
    def depth(self) -> NDArray[np.int64]:
        """How many batches were made and waited when each was asked for, int64 (steps,); -1 where that is not known.

        It is not at the end of a stretch: batches that were made there, but handed out later, bear no stamp in it.
        """
        ready, ahead = np.full(len(self), -1, np.int64), self.workers * self.prefetch
        for stretch in self.stretches if self.stamps else ():
            finish, asked = self.finish[stretch], self.asked[stretch]
            known = max(len(finish) - max(ahead - 1, 0), 0)
            counted = (finish[later:][:known] <= asked[:known] for later in range(ahead))
            ready[stretch][:known] = sum(counted, np.zeros(known, np.int64))
        return ready

    @property
    def seconds(self) -> float:
        """Of the steady state."""
        return float(self.period[self.steady].sum())

    @property
    def images_per_second(self) -> float:
        """Of the steady state."""
        return float(self.images[self.steady].sum()) / self.seconds if self.seconds else 0.0

    @property
    def images_per_batch(self) -> float:
        """Of the steady state."""
        return float(self.images[self.steady].mean()) if self.steady.any() else 0.0

    @property
    def stored_per_image(self) -> float | None:
        """Bytes an image that came from storage; None where the system does not say."""
        return None if self.stored_bytes is None else self.stored_bytes / max(int(self.images.sum()), 1)

    @property
    def made(self) -> list[Stamp]:
        """The stamps of the steady state."""
        return [stamp for stamp, steady in zip(self.stamps, self.steady, strict=False) if steady]

    @property
    def spans(self) -> dict[str, float]:
        """How long a batch takes to make, by what is done, in seconds a batch of the steady state.

        In the order in which it is done; "other" is what nobody timed. Empty without stamps.
        """
        stamps = [stamp for stamp in self.made if stamp.spans]
        if not stamps:
            return {}
        names = list(dict.fromkeys(name for stamp in stamps for name in stamp.spans))
        found = {name: float(np.mean([stamp.spans.get(name, 0.0) for stamp in stamps])) for name in names}
        whole = float(np.mean([stamp.finish - stamp.start for stamp in stamps]))
        return {**found, "other": max(whole - sum(found.values()), 0.0)}

    @property
    def overhead(self) -> float:
        """What the stamps cost, as a share of the time, 0 to 1: workers share the cost, as they share the work."""
        between = self.seconds / max(int(self.steady.sum()), 1)
        return self.stamping / (max(self.workers, 1) * between) if self.stamps and between else 0.0

    @property
    def queue(self) -> Queue:
        """The loader as the model sees it."""
        return Queue(
            workers=self.workers, prefetch=self.prefetch, transport=self.floor, turnaround=self.turnaround
        )  # fmt: skip

    @property
    def turnaround(self) -> float:
        """What a worker takes between two batches, in seconds, when the next one is asked for already: the median."""
        gaps = [np.zeros(0)]
        for stretch in self.stretches if self.workers and self.stamps else ():
            start, finish, handed = self.start[stretch], self.finish[stretch], self.handed[stretch]
            count, ahead = len(start), self.workers * self.prefetch
            if count > ahead:
                before, asked = finish[ahead - self.workers : count - self.workers], handed[: count - ahead]
                gaps.append((start[ahead:] - before)[asked < before])
        return max(float(np.median(found)), 0.0) if len(found := np.concatenate(gaps)) else 0.0

    def replayed(self) -> Seconds:
        """Estimator C: how long each batch should not have been made when asked for, by the queue alone, (steps,)."""
        stall, handing = np.zeros(len(self)), self.wait - self.unmade
        for stretch in self.stretches:
            # What was made before the stretch began was there at once.
            load = np.where(self.finish[stretch] > self.asked[stretch.start], self.load[stretch], 0.0)
            stall[stretch] = self.queue.replay(load, self.step[stretch], handing[stretch]).stall
        return stall


def images_of(batch: Any) -> int:
    """How many images a batch holds: the length of the first tensor in it; 0 where it has none."""
    first = next(tensors_in(batch), None)
    return len(first) if first is not None and first.ndim else 0
