"""What stands for the training step: a callable of the user's, or, without a GPU, a time that is stated."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from ...pipeline.errors import UsageError
from .stamps import clock


@dataclass(frozen=True)
class SleepingStep:
    """Takes `seconds`, of which the host computes a `host_share` and sleeps the rest, as it does beside a busy GPU.

    A step that only slept would give the loader the whole machine; one that only computed would take a core away that
    a GPU leaves free.
    """

    seconds: float
    host_share: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf or not 0 <= self.host_share <= 1:
            raise UsageError(f"{self}: needs more than 0 seconds and a host_share from 0 to 1; try 0.01 and 0.2")

    def __call__(self, _batch: Any) -> None:
        """Takes its time."""
        began = clock()
        busy_until, done = began + self.seconds * self.host_share, began + self.seconds
        while clock() < busy_until:
            pass
        rest = done - clock()
        if rest > 0:
            time.sleep(rest)
