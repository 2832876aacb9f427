"""From probes to time and disk: ratios of what was measured to what headers promised, and how sure they are."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..estimate import Cost
from ..plan import Unit
from ..sources import Entry
from .probe import Probe

_RESAMPLES = 1000
_SURE = (5.0, 95.0)  # percentiles
_PACE = 0.20  # by which the same work takes longer or shorter on the same machine an hour later
_OVERHEAD = (0.5, 1.3)  # starting a cluster takes half as long once its files are in memory
_REST = 0.05  # what is never quite as in a probe, of bytes and faces
_FOOTER_BYTES = 9_000  # of a unit's file: schema, statistics and receipt
_FEW = 5  # families; of fewer, resampling shows less spread than there is
_FEW_SPREAD = 0.5
_RANGES = ("seconds", "size_bytes", "faces")


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A figure and where it lies nine times out of ten."""

    likely: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a run will come to: `seconds` of the clock, from the command to its end, with `slots` workers."""

    seconds: Range
    size_bytes: Range
    faces: Range
    inputs: int
    probed: int
    slots: int
    config: str

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The inverse; raises KeyError or TypeError on anything else."""
        ranges: dict[str, Any] = {name: Range(**data[name]) for name in _RANGES}
        return cls(**{**data, **ranges})


def forecast(
    units: Sequence[Unit],
    cost: Callable[[Entry], Cost],
    families: Sequence[Sequence[Probe]],
    *,
    is_paired: Callable[[Entry], bool],
    overhead_seconds: float,
    slots: int,
    config: str,
) -> Forecast:
    """Scales what headers promise for all inputs of `units` by what the probed `families` (at least one) came to.

    Inputs that are compared with an original are scaled apart from the others: their pace is another.
    """
    entries = {entry.video_id: entry for unit in units for entry in unit.to_decode}
    ratios = _Ratios(families, {name: cost(entry) for name, entry in entries.items()})
    paired = np.array([is_paired(entry) for entry in entries.values()])
    costs = [cost(entry) for entry in entries.values()]
    promised = np.array([(one.seconds, one.wanted_frames, one.wanted_frames) for one in costs])
    totals = np.stack([promised[~paired].sum(axis=0), promised[paired].sum(axis=0)])  # (2 kinds, 3 figures)
    footers = np.array([0, _FOOTER_BYTES * len(units), 0])
    likely = (ratios.all_families() * totals).sum(axis=0) + footers
    drawn = (ratios.resampled() * totals).sum(axis=1) + footers  # (resamples, 3 figures)
    spread = drawn / np.maximum(likely, 1e-9)
    tried = ratios.seconds_tried / max(likely[0], 1e-9)
    scale = ratios.all_families()[:, 0]
    makespan = _makespan(
        [sum(cost(entry).seconds * scale[int(is_paired(entry))] for entry in unit.to_decode) for unit in units], slots
    )
    ranges = [
        _range(centre, spread[:, number], left=max(0.0, 1 - tried), families=len(families), least=least)
        for number, (centre, least) in enumerate(((makespan, _PACE), (likely[1], _REST), (likely[2], _REST)))
    ]
    least, most = (share * overhead_seconds for share in _OVERHEAD)
    seconds = Range(likely=ranges[0].likely + overhead_seconds, low=ranges[0].low + least, high=ranges[0].high + most)
    return Forecast(
        seconds=seconds, size_bytes=ranges[1], faces=ranges[2], inputs=len(entries),
        probed=sum(len(family) for family in families), slots=slots, config=config,
    )  # fmt: skip


class _Ratios:
    """Measured / promised, for (unpaired, paired) inputs and (seconds, bytes a frame, faces a frame)."""

    def __init__(self, families: Sequence[Sequence[Probe]], promised: dict[str, Cost]) -> None:
        self._found = np.zeros((len(families), 2, 3))
        self._promised = np.zeros((len(families), 2, 3))
        self.seconds_tried = 0.0
        for number, family in enumerate(families):
            for one in family:
                there = promised[one.video_id]
                self._found[number, int(one.paired)] += (one.seconds, one.size_bytes, one.faces)
                self._promised[number, int(one.paired)] += (there.seconds, there.wanted_frames, there.wanted_frames)
                self.seconds_tried += one.seconds * one.frames / max(one.wanted_frames, 1)

    def all_families(self) -> NDArray[np.float64]:
        """Ratios (2, 3)."""
        ratios: NDArray[np.float64] = self._ratios(np.ones((1, len(self._found))))[0]
        return ratios

    def resampled(self) -> NDArray[np.float64]:
        """Ratios (resamples, 2, 3), of families drawn with replacement."""
        count = len(self._found)
        drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), _RESAMPLES)
        return self._ratios(drawn)

    def _ratios(self, times: NDArray[Any]) -> NDArray[np.float64]:
        found = np.einsum("rf,fkn->rkn", times, self._found)
        promised = np.einsum("rf,fkn->rkn", times, self._promised)
        pooled = found.sum(axis=1, keepdims=True) / np.maximum(promised.sum(axis=1, keepdims=True), 1e-9)
        there = promised > 0  # a kind of input that was not probed goes at the pace of the other
        ratios: NDArray[np.float64] = np.where(there, found / np.where(there, promised, 1.0), pooled)
        return ratios


def _range(centre: float, spread: NDArray[np.float64], *, left: float, families: int, least: float) -> Range:
    """`left`: the share of the work that was not tried. `least`: how far off it may be all the same."""
    low, high = (1 + (edge - 1) * np.sqrt(left) for edge in np.percentile(spread, _SURE))
    few = _FEW_SPREAD * left if families < _FEW else 0.0
    return Range(
        likely=centre, low=centre * max(0.0, min(low, 1.0) - least - few), high=centre * (max(high, 1.0) + least + few)
    )


def _makespan(seconds: Sequence[float], slots: int) -> float:
    """When the last of `slots` workers is done, each taking the next unit as soon as it is free."""
    busy = [0.0] * slots
    for one in seconds:
        heapq.heapreplace(busy, busy[0] + one)
    return max(busy)
