"""`FrameRequest` and `DamageBudget`: which frames of a medium are wanted, and how many of them may be damaged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ...errors import InputError
from ..limits import max_damaged_frames
from ..sampling import Sampling


@dataclass(slots=True)
class DamageBudget:
    """Counts frames that are damaged or missing; at most `max_percent` of `counted_indices`, rounded up, never all."""

    counted_indices: Collection[int]
    max_percent: float
    num_lost: int = 0
    first_lost: str = ""

    def drop_due(self, due: deque[int], first_error: str, *, before: int) -> None:
        """Remove the frames of `due` below index `before` and count them as lost.

        first_error: the decoder's, or "". Raises InputError: decode_error if that exceeds the limit.
        """
        while due and due[0] < before:
            self.lose(due[0], first_error or "the decoder did not return it")
            due.popleft()

    def lose(self, index: int, why: str) -> None:
        """Count a frame as lost, if it counts at all; raises InputError: decode_error if that exceeds the limit."""
        if index not in self.counted_indices:
            return
        self.first_lost = self.first_lost or f"frame {index}: {why}"
        if self.num_lost == max_damaged_frames(len(self.counted_indices), self.max_percent):
            raise InputError("decode_error", f"damaged or missing are {self._lost_text(self.num_lost + 1)}")
        self.num_lost += 1

    def summary(self) -> str:
        """Return how many frames are lost and why the first one is; "" if none is."""
        return f"damaged or missing are {self._lost_text(self.num_lost)}" if self.num_lost else ""

    def _lost_text(self, num_lost: int) -> str:
        return f"{num_lost} of {len(self.counted_indices)} wanted frames, first {self.first_lost}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRequest:
    """Which frames of a video, a picture or a clip of images to decode.

    sampling: which frames are wanted. max_damaged_percent: share of those that may be damaged, rounded up, but never
    all; damaged frames are skipped, and the others keep their index and time. on_plan: called once, before decoding,
    with the number of frames that `sampling` selects. extra_indices: indices of further frames; those that are damaged
    or do not exist are skipped.
    """

    sampling: Sampling
    max_damaged_percent: float
    on_plan: Callable[[int], None]
    extra_indices: Collection[int] = ()

    def plan(self, sampled: Sequence[int], num_frames: int) -> tuple[list[int], DamageBudget]:
        """Return the indices of all frames to decode, ascending, and the budget of the sampled ones; calls `on_plan`.

        sampled: the indices that `sampling` selects of `num_frames` frames.
        """
        wanted = sorted({*sampled, *(index for index in self.extra_indices if 0 <= index < num_frames)})
        self.on_plan(len(sampled))
        return wanted, DamageBudget(frozenset(sampled), self.max_damaged_percent)
