"""The background load of the workers' machines, and how much it may change the run's speed after the trials."""

from __future__ import annotations

import math
import os
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LOADAVG_SECONDS = 60.0  # Linux's first load average forgets with this time constant
_MIN_SECONDS = 15.0  # three updates of it: what it says of less time is what the kernel saw at one or two moments
_BUSY = 0.5  # other processes per core; below it they fit beside a worker and its decoder
_IDLE_SPREAD = 0.12  # of the logarithm: +-20 %, by which the same work differs on an idle machine an hour later
_BUSY_SPREAD = 0.45
"""Of the logarithm, where a worker gets next to nothing of its core. Measured on two cores with 2.4 to 7.5 other
processes each: in 24 runs right after their dry runs, log(actual / forecast) had a root mean square of 0.35 with
`BackgroundLoad.slowdown`, of 0.43 without. The other processes changed: starting the workers took 0.3 to 2.8 times as
long as in the dry run.
"""


@dataclass(frozen=True, slots=True)
class HostLoad:
    """Load averages (runnable processes) of one worker's host over 1 and 15 minutes, and its number of cores."""

    host: str
    processes: float
    processes_15min: float
    cores: int


def read_host_load() -> HostLoad:
    """Reads the load of this host."""
    one, _, fifteen = os.getloadavg()
    return HostLoad(socket.gethostname(), one, fifteen, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class BackgroundLoad:
    """Other processes per core: `now` during the trials; `usual` in the last 15 minutes, if that is more."""

    now: float = 0.0
    usual: float = 0.0

    @property
    def slowdown(self) -> float:
        """By what factor the run is expected to be slower than trials in a quiet moment.

        All the way back to what is usual would be (1 + usual) / (1 + now). Half of it, in logarithms, came true: in 24
        runs the slope was 0.49, and after the quietest trials, 0 to 0.1 now and 2.7 usual, they took 1.5 to 2.6 times
        as long.
        """
        return math.sqrt((1 + self.usual) / (1 + self.now))


def background_load(before: Sequence[HostLoad], after: Sequence[HostLoad], seconds: float) -> BackgroundLoad:
    """What runs beside the workers, `seconds` after a measurement `before`; `after` has one for each worker.

    The first average's decay is taken out, so that it is of these `seconds` alone. Not where they are few: the kernel
    updates it every 5 s by what it sees at that moment, of the run up to four processes and threads a core, which would
    then count several times over. In less than 15 s these add less to the average as it is than makes a machine busy.
    A worker counts as one process: its decoder may make it two, so a machine of its own may look slightly busy.
    """
    earlier = {load.host: load.processes for load in before}
    workers = Counter(load.host for load in after)
    kept = math.exp(-seconds / _LOADAVG_SECONDS)
    now = usual = 0.0
    for load in after:
        average = load.processes
        if seconds >= _MIN_SECONDS:
            average = (average - kept * earlier.get(load.host, average)) / (1 - kept)
        now += max(0.0, average - workers[load.host]) / load.cores
        usual += max(0.0, load.processes_15min - workers[load.host]) / load.cores
    return BackgroundLoad(now / max(len(after), 1), max(now, usual) / max(len(after), 1))


def is_busy(others_per_core: float) -> bool:
    """Whether the background load widens a forecast's ranges."""
    return others_per_core >= _BUSY


def sample_slowdowns(background: BackgroundLoad, count: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Factors by which the run is slower than its trials, float64 (count,), log-normal around `background.slowdown`."""
    taken = background.usual / (1 + background.usual)  # the share of a core that a worker does not get
    return background.slowdown * np.exp(random.normal(0.0, math.hypot(_IDLE_SPREAD, _BUSY_SPREAD * taken), count))


def sample_startup_factors(count: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Factors, float64 (count,), by which starting the workers is faster than in the trials.

    It takes down to half as long once their files are in memory, which they may have been before: even chances.
    """
    return np.where(random.random(count) < 0.5, random.uniform(0.5, 1.0, count), 1.0)
