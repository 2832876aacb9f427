"""`DamageBudget`: how many of the wanted frames of a video or of a clip of images may be damaged."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from ...errors import InputError
from ..limits import max_damaged_frames


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
