"""How much the pace of the workers' machines may change between the trials and the run: by what else runs on them."""

from __future__ import annotations

import math
import os
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_AVERAGE_SECONDS = 60.0  # Linux's first load average forgets with this time constant
_BUSY = 0.5  # other processes per core; below it they fit beside a worker and its decoder
_IDLE_SPREAD = 0.12  # of the logarithm: +-20 %, by which the same work differs on an idle machine an hour later
_BUSY_SPREAD = 0.50
"""Of the logarithm, where a worker gets next to nothing of its core. Measured on two cores with 2.4 to 7.5 other
processes each: in 22 runs, at once after their dry runs, log(actual / forecast) had a root mean square of 0.40 (0.37 to
2.2 times as long). It was the other processes that changed: starting the workers took 0.55 to 2.4 times as long as in
the dry run.
"""


@dataclass(frozen=True, slots=True)
class Load:
    """Of the machine of one worker: processes that want a core, averaged over 1 and 15 minutes, and its cores."""

    host: str
    processes: float
    processes_15min: float
    cores: int


def load_here() -> Load:
    """The machine that this is called on."""
    one, _, fifteen = os.getloadavg()
    return Load(socket.gethostname(), one, fifteen, os.cpu_count() or 1)


def other_processes_per_core(before: Sequence[Load], after: Sequence[Load], seconds: float) -> float:
    """What ran beside the workers for the `seconds` between two measurements, or in the last 15 minutes if more.

    `after` has one measurement for each worker. The first average's decay is taken out, so that short trials count in
    full. What ran in 15 minutes counts since a busy machine has quiet moments: trials in one of them took 11 s, the run
    after it 23 s. A worker counts as one process: its decoder may make it two, so a machine of its own may look
    slightly busy.
    """
    earlier = {load.host: load.processes for load in before}
    workers = Counter(load.host for load in after)
    kept = math.exp(-seconds / _AVERAGE_SECONDS)
    others = 0.0
    for load in after:
        between = (load.processes - kept * earlier.get(load.host, load.processes)) / (1 - kept)
        others += max(0.0, max(between, load.processes_15min) - workers[load.host]) / load.cores
    return others / max(len(after), 1)


def is_busy(others_per_core: float) -> bool:
    """Whether what else runs makes a forecast less sure than it would be."""
    return others_per_core >= _BUSY


def draw_pace(others_per_core: float, count: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Factors by which the run is slower than its trials, float64 (count,), log-normal around 1."""
    taken = others_per_core / (1 + others_per_core)  # the share of a core that a worker does not get
    return np.exp(random.normal(0.0, math.hypot(_IDLE_SPREAD, _BUSY_SPREAD * taken), count))


def draw_cached(count: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Factors, float64 (count,), by which starting the workers is faster than in the trials.

    It takes down to half as long once their files are in memory, which they may have been before: even chances.
    """
    return np.where(random.random(count) < 0.5, random.uniform(0.5, 1.0, count), 1.0)
