"""Forecasts a run's time and disk space from probes: ratios of measured to estimated cost, with ranges."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..planning.cost_model import Cost
from ..planning.plan import Unit
from ..sources import Entry
from .machine_load import BackgroundLoad, sample_slowdowns, sample_startup_factors
from .probe import Probe

_DRAWS = 1000
_PERCENTILES = (5.0, 95.0)  # percentiles
_RESIDUAL = 0.05  # what is never quite as in a probe, of bytes and faces
_FOOTER_BYTES = 9_000  # of a unit's file: schema, statistics and receipt
_MIN_FAMILIES = 5  # families; of fewer, resampling shows less spread than there is
_FEW_FAMILIES_SPREAD = 0.5
_RANGES = ("seconds", "size_bytes", "faces")


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """An estimate (`likely`) and its 90 % interval (`low`, `high`)."""

    likely: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialConditions:
    """How inputs were tried: on `slots` workers, beside `background`.

    `fixed_seconds`: what a run spends once, however much there is to do: planning, starting the workers, their first
    frame, ending them, the account.
    """

    slots: int
    fixed_seconds: float
    background: BackgroundLoad


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a run will come to: `seconds` of the clock, from the command to its end, with `slots` workers.

    `families`: originals with their fakes that were tried. `untried`: the share of the work that was not.
    `others_per_core`: processes beside the workers, as is usual.
    """

    seconds: Range
    size_bytes: Range
    faces: Range
    inputs: int
    probed: int
    slots: int
    config: str
    families: int
    untried: float
    others_per_core: float

    @property
    def is_from_few(self) -> bool:
        """Whether too few families were tried to represent the others."""
        return self.families < _MIN_FAMILIES and round(self.untried, 2) > 0

    def to_json(self) -> dict[str, Any]:
        """All fields as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_json`; raises KeyError or TypeError on anything else."""
        ranges: dict[str, Any] = {name: Range(**data[name]) for name in _RANGES}
        return cls(**{**data, **ranges})


def forecast(
    units: Sequence[Unit],
    cost: Callable[[Entry], Cost],
    families: Sequence[Sequence[Probe]],
    *,
    is_paired: Callable[[Entry], bool],
    conditions: TrialConditions,
    config: str,
) -> Forecast:
    """Adds what was measured on the probed `families` (at least one) to what headers promise of all other inputs.

    That is scaled by what the probed ones came to; apart for inputs that are compared with an original: their pace is
    another.
    """
    entries = {entry.video_id: entry for unit in units for entry in unit.inputs_to_decode}
    costs = {name: cost(entry) for name, entry in entries.items()}
    kinds = {name: int(is_paired(entry)) for name, entry in entries.items()}
    tried = {trial.video_id: trial for family in families for trial in family}
    ratios = _Ratios(families, costs)
    base = np.array([0.0, _FOOTER_BYTES * len(units), 0.0])  # 3 figures
    base += sum(((trial.seconds, trial.size_bytes, trial.faces) for trial in tried.values()), start=np.zeros(3))
    rest = np.zeros((2, 3))  # kinds, figures
    for name in entries.keys() - tried.keys():
        rest[kinds[name]] += (costs[name].seconds, costs[name].sampled_frames, costs[name].sampled_frames)
    scale = ratios.all_families()
    likely = base + (scale * rest).sum(axis=0)
    random = np.random.default_rng(0)
    drawn = base + (ratios.resampled(random) * rest).sum(axis=1)  # (draws, 3 figures)
    untried = max(0.0, 1 - ratios.seconds_tried / max(likely[0], 1e-9))
    few = _FEW_FAMILIES_SPREAD * untried if len(families) < _MIN_FAMILIES else 0.0

    def seconds_of(entry: Entry) -> float:
        name = entry.video_id
        return tried[name].seconds if name in tried else float(costs[name].seconds * scale[kinds[name], 0])

    work = _makespan([sum(map(seconds_of, unit.inputs_to_decode)) for unit in units], conditions.slots)
    once = conditions.fixed_seconds * sample_startup_factors(_DRAWS, random)
    seconds = (once + work * drawn[:, 0] / max(likely[0], 1e-9)) * sample_slowdowns(
        conditions.background, _DRAWS, random
    )
    return Forecast(
        seconds=_range(conditions.background.slowdown * (conditions.fixed_seconds + work), seconds, beyond=few * work),
        size_bytes=_range(likely[1], drawn[:, 1], beyond=(_RESIDUAL + few) * likely[1]),
        faces=_range(likely[2], drawn[:, 2], beyond=(_RESIDUAL + few) * likely[2]),
        inputs=len(entries), probed=len(tried), slots=conditions.slots, config=config,
        families=len(families), untried=untried, others_per_core=conditions.background.usual,
    )  # fmt: skip


class _Ratios:
    """Measured / promised, for (unpaired, paired) inputs and (seconds, bytes a frame, faces a frame)."""

    def __init__(self, families: Sequence[Sequence[Probe]], promised: dict[str, Cost]) -> None:
        self._found = np.zeros((len(families), 2, 3))
        self._promised = np.zeros((len(families), 2, 3))
        self.seconds_tried = 0.0
        for number, family in enumerate(families):
            for trial in family:
                there = promised[trial.video_id]
                self._found[number, int(trial.paired)] += (trial.seconds, trial.size_bytes, trial.faces)
                self._promised[number, int(trial.paired)] += (there.seconds, there.sampled_frames, there.sampled_frames)
                self.seconds_tried += trial.seconds * trial.frames / max(trial.wanted_frames, 1)

    def all_families(self) -> NDArray[np.float64]:
        """Ratios (2, 3)."""
        ratios: NDArray[np.float64] = self._ratios(np.ones((1, len(self._found))))[0]
        return ratios

    def resampled(self, random: np.random.Generator) -> NDArray[np.float64]:
        """Ratios (draws, 2, 3), of families drawn with replacement."""
        count = len(self._found)
        return self._ratios(random.multinomial(count, np.full(count, 1 / count), _DRAWS))

    def _ratios(self, times: NDArray[Any]) -> NDArray[np.float64]:
        found = np.einsum("rf,fkn->rkn", times, self._found)
        promised = np.einsum("rf,fkn->rkn", times, self._promised)
        pooled = found.sum(axis=1, keepdims=True) / np.maximum(promised.sum(axis=1, keepdims=True), 1e-9)
        there = promised > 0  # a kind of input that was not probed goes at the pace of the other
        ratios: NDArray[np.float64] = np.where(there, found / np.where(there, promised, 1.0), pooled)
        return ratios


def _range(likely: float, drawn: NDArray[np.float64], *, beyond: float) -> Range:
    """The percentiles of `drawn`, widened by `beyond` on either side."""
    low, high = np.percentile(drawn, _PERCENTILES)
    return Range(
        likely=float(likely), low=float(max(0.0, min(low, likely) - beyond)), high=float(max(high, likely) + beyond)
    )


def _makespan(seconds: Sequence[float], slots: int) -> float:
    """Time until the last of `slots` workers is done, each taking the next unit as soon as it is idle."""
    busy = [0.0] * slots
    for unit_seconds in seconds:
        heapq.heapreplace(busy, busy[0] + unit_seconds)
    return max(busy)
