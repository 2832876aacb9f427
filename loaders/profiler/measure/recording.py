"""What a training loop and the makers of its batches saw at their clocks, and what follows from it without a model."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...transfer.prefetch import iter_tensors
from ..estimate.queue_model import Queue, Seconds
from .stamps import Stamp

_ROUNDING = 1e-6  # seconds
_SERIES = ("asked", "handed", "done", "called", "returned", "began", "place", "images")


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Some steps, in one or more stretches. Times are of one clock (CLOCK_MONOTONIC), in seconds, float64 (steps,).

    asked, handed, done: when whatever does the steps came to the moment before `next()`, after it, and to the step's
    end. called, returned: when the host came to the first two; the same where the host does the steps. began: when the
    host came to each step, by CLOCK_MONOTONIC_RAW. place: int64, of the step in its stretch: a stretch begins with an
    iteration, and after a pause, which skips a place. settled: the steps before the steady state. stamps: of the
    batches' making, empty where the loader is none of torch's. workers, prefetch: of the loader; ordered: whether it
    hands out batches in the order in which they were begun. images: of each batch, int64 (steps,). computed: seconds of
    a core that the looping process took, its step's included. stored_bytes: what came from storage, not from the page
    cache, to all processes; None where the system does not say. stamping: seconds that the stamps cost a batch, as
    tried.
    """

    asked: Seconds
    handed: Seconds
    done: Seconds
    called: Seconds
    returned: Seconds
    began: Seconds
    place: NDArray[np.int64]
    stamps: Sequence[Stamp] = field(repr=False)
    workers: int
    prefetch: int
    images: NDArray[np.int64]
    settled: int = 0
    ordered: bool = True
    computed: float = 0.0
    stored_bytes: int | None = None
    stamping: float = 0.0

    @classmethod
    def joined(cls, parts: Sequence[Recording]) -> Recording:
        """Several recordings of one loader, one after the other."""
        joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _SERIES}
        stored = [part.stored_bytes for part in parts]
        return cls(
            **joined, stamps=[one for part in parts for one in part.stamps], settled=parts[0].settled,
            workers=parts[0].workers, prefetch=parts[0].prefetch, ordered=parts[0].ordered,
            computed=sum(part.computed for part in parts),
            stored_bytes=None if None in stored else sum(filter(None, stored)), stamping=parts[-1].stamping,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.asked)

    @property
    def steady(self) -> NDArray[np.bool_]:
        """The steps of the steady state, bool (steps,): without those in which the queue fills."""
        return (self.place >= max(self.workers * self.prefetch, 1)) & (np.arange(len(self)) >= self.settled)

    def part(self, kept: NDArray[np.intp]) -> Recording:
        """The steps of these places in the recording, in their order."""
        series = {name: getattr(self, name)[kept] for name in _SERIES}
        computed = self.computed * len(series["asked"]) / max(len(self), 1)
        return replace(
            self,
            **series,
            stamps=[self.stamps[one] for one in kept] if self.stamps else (),
            computed=computed,
            settled=0,
        )

    @property
    def _breaks(self) -> NDArray[np.bool_]:
        """Whether a step does not follow the one before it, bool (steps - 1,)."""
        broken: NDArray[np.bool_] = self.place[1:] != self.place[:-1] + 1
        return broken

    @property
    def stretches(self) -> list[slice]:
        """Where each stretch lies."""
        starts = (np.flatnonzero(self._breaks) + 1).tolist()
        return [slice(start, end) for start, end in itertools.pairwise([0, *starts, len(self)])]

    @property
    def period(self) -> Seconds:
        """From one question to the next; the last of a stretch to the end of its step."""
        until = np.append(self.asked[1:], np.nan)
        last = np.append(self._breaks, True)
        return np.where(last, self.done, until) - self.asked

    @property
    def wait(self) -> Seconds:
        """Estimator A: how long whatever does the steps had nothing to do before each; on the host, all of `next()`."""
        return self.handed - self.asked

    @property
    def step(self) -> Seconds:
        """How long each step took, from the batch to the next question."""
        return self.done - self.handed

    @property
    def load(self) -> Seconds:
        """How long each batch took to make, wherever; of a loader without stamps, how long it was waited for."""
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
    def handover(self) -> Seconds:
        """How long the host took for each batch once it was made and asked for: queue, unpickling, sampler."""
        taken = self.returned - self.called
        if not self.stamps:
            return np.zeros(len(self))
        made = np.clip(self.finish - self.called, 0.0, taken) if self.workers else np.minimum(self.load, taken)
        return taken - made

    @property
    def floor(self) -> float:
        """What handing over a batch that is made takes when nothing is in the way, in seconds: the tenth percentile."""
        handing = (self.handover - self.sampled)[self.steady]
        return max(float(np.quantile(handing, 0.1)), 0.0) if len(handing) else 0.0

    @property
    def unmade(self) -> Seconds:
        """Of each wait, how long the batch was not made yet. Without stamps nobody knows, so all of it counts."""
        if not self.stamps:
            return self.wait
        return np.maximum(np.clip(self.finish - self.asked, 0.0, self.wait) - self._sampled_first, 0.0)

    @property
    def sampled(self) -> Seconds:
        """How long the sampler took within each `next()`. Workers make batches meanwhile, but the loop stands still."""
        sampled = [stamp.sampled for stamp in self.stamps] if self.stamps else np.zeros(len(self))
        return np.minimum(np.asarray(sampled, np.float64), self.returned - self.called)

    @property
    def _sampled_first(self) -> Seconds:
        """Without workers the sampler comes before the making, within the same wait."""
        return np.zeros(len(self)) if self.workers else np.minimum(self.sampled, self.wait)

    @property
    def late(self) -> Seconds:
        """How much longer than the floor the host took for each batch that was made, where that is far longer.

        The loop, its workers and the queue between them wanted more cores than there are, or the sampler was slow.
        Within three times the floor it is the noise of a clock, and counts for transport; and without workers nobody
        hands anything over.
        """
        beyond = self.handover - self.floor
        far = beyond > 2 * self.floor if self.stamps and self.workers else np.zeros(len(self), np.bool_)
        return np.where(far, beyond, 0.0)

    @property
    def late_by_sampler(self) -> Seconds:
        """Of that, what the sampler took."""
        return np.where(self.sampled > 2 * self.floor, np.minimum(self.late, self.sampled), 0.0)

    @property
    def sampling(self) -> Seconds:
        """Of each wait, how long the sampler kept the loop; with workers only where it is more than a clock's noise."""
        if not self.workers:
            return self._sampled_first
        return np.minimum(self.late_by_sampler, self.wait - self.unmade)

    @property
    def contention(self) -> Seconds:
        """Of each wait, how long a batch that was made did not come for want of a free core."""
        return np.minimum(self.late - self.late_by_sampler, self.wait - self.unmade - self.sampling)

    @property
    def waits(self) -> NDArray[np.float64]:
        """The moments within each wait, (4, steps): asked; made; a core was free; the sampler was done.

        From there to `handed` it is handed over. Only how long each part took is known, not always their order.
        """
        parts = np.cumsum([np.zeros(len(self)), self.unmade, self.contention, self.sampling], axis=0)
        moments: NDArray[np.float64] = np.minimum(self.asked + parts, self.handed)
        return moments

    @property
    def transport(self) -> Seconds:
        """Of each wait, how long a batch that was made took to be handed over, unless a device's work hid it."""
        return self.wait - self.unmade - self.contention - self.sampling

    @property
    def launch(self) -> float:
        """Seconds that a host which is ahead of its device computes a step, besides taking the batch."""
        if not self.lead:
            return 0.0  # it does the step itself
        making = 0.0 if self.workers else sum(stamp.cpu for stamp in self.stamps)
        return max((self.computed - making) / len(self) - float(np.median(self.handover)), 0.0)

    @property
    def closure(self) -> float:
        """Of the steady state's time by a second clock, the share that is not explained by its parts, 0 to 1.

        The parts: steps, batches not made (from the stamps), sampler, no core free, and of what is left of each wait no
        more than handing over a batch that is made usually takes. The time: from the beginning of one step to the next
        one's, as the host saw it on a clock that nobody else reads.
        """
        steady, usual = self.steady, 0.0
        if self.stamps and steady.any():
            alone = self.handover - (self.late if self.workers else self.sampled)
            usual = max(float(np.median(alone[steady])), 0.0)
        parts = self.unmade + self.sampling + self.contention
        parts = parts + np.clip(self.wait - parts, 0.0, usual)
        follows = steady[1:] & steady[:-1] & ~self._breaks
        time = float(np.diff(self.began)[follows].sum())
        explained = float((self.step[:-1] + parts[1:])[follows].sum())
        return abs(time - explained) / time if time else 1.0

    @property
    def lead(self) -> int:
        """How many steps the host was ahead of whatever does them, when it asked for a batch: the median."""
        before = np.arange(len(self)) - np.searchsorted(self.done - _ROUNDING, self.called, side="right")
        return int(np.median(before)) if len(self) else 0

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
            workers=self.workers, prefetch=self.prefetch, transport=self.floor, turnaround=self.turnaround,
            lead=self.lead, launch=self.launch,
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
        unmade, handing = np.zeros(len(self)), self.handover
        for stretch in self.stretches:
            # What was made before the stretch began was there at once.
            load = np.where(self.finish[stretch] > self.asked[stretch.start], self.load[stretch], 0.0)
            unmade[stretch] = self.queue.replay(load, self.step[stretch], handing[stretch]).unmade
        return unmade


def images_of(batch: Any) -> int:
    """How many images a batch holds: the length of the first tensor in it; 0 where it has none."""
    first = next(iter_tensors(batch), None)
    return len(first) if first is not None and first.ndim else 0
