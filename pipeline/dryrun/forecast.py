"""Forecasts a run's time and size from probes: ratios of measured to estimated cost, with ranges.

A forecast is kept in the user's cache, so that the run can compare itself with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..dataset.manifest import InputOutcome, Receipt
from ..files import cache_folder
from ..json_records import parse_json, record_of
from ..planning.cost_model import Cost
from ..planning.plan import Unit
from ..sources import Entry
from .machine_load import BackgroundLoad, sample_slowdowns, sample_startup_factors
from .probe import Probe

_DRAWS = 1000
_PERCENTILES = (5.0, 95.0)
_RESIDUAL = 0.05  # what is never quite as in a probe, of bytes and faces
_FOOTER_BYTES = 9_000  # of a unit's file: schema, statistics and receipt
_MIN_FAMILIES = 5  # families; of fewer, resampling shows less spread than there is
_FEW_FAMILIES_SPREAD = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """An estimate (`likely`) and its 90 % interval (`low`, `high`)."""

    likely: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a run will come to: `seconds` of the clock, from the command to its end, with that number of `workers`.

    `size_bytes`: of the files of rows that it writes, without the index; `faces`: rows in them. `families`: originals
    with their fakes that were tried. `untried`: the share of the work that was not. `others_per_core`: processes
    beside the workers, as is usual.
    """

    seconds: Range
    size_bytes: Range
    faces: Range
    inputs: int
    probed: int
    workers: int
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
        """The inverse of `to_json`; raises ValueError on anything else."""
        return record_of(cls, data)


def forecast(
    units: Sequence[Unit],
    cost: Callable[[Entry], Cost],
    families: Sequence[Sequence[Probe]],
    *,
    copied: Sequence[tuple[Receipt, InputOutcome]],
    is_paired: Callable[[Entry], bool],
    workers: int,
    fixed_seconds: float,
    background: BackgroundLoad,
    config: str,
) -> Forecast:
    """Adds what was measured on the probed `families` (at least one) to what headers promise of all other inputs.

    That is scaled by what the probed ones came to; apart for inputs that are compared with an original (`is_paired`):
    their pace is another. `copied`: see `RunState.outcomes_to_reuse`; copies take space, but hardly any time.
    `workers`: how many, probed beside `background`. `fixed_seconds`: what a run spends once, however much there is to
    do: planning, starting the workers, their first frame, ending them, the account.
    """
    random = np.random.default_rng(0)
    entries = {entry.video_id: entry for unit in units for entry in unit.inputs_to_decode}
    costs = {name: cost(entry) for name, entry in entries.items()}
    kinds = {name: int(is_paired(entry)) for name, entry in entries.items()}
    probes = {probe.video_id: probe for family in families for probe in family}
    ratios = _measured_ratios(families, costs, random)
    rest = np.zeros((2, 3))  # promised of the inputs that were not probed: kinds, figures
    for name in entries.keys() - probes.keys():
        rest[kinds[name]] += _promised_figures(costs[name])
    known = np.sum([probe.figures for probe in probes.values()], axis=0)
    footers = np.array([0.0, _FOOTER_BYTES * len(units), 0.0])
    totals = known + footers + (ratios * rest).sum(axis=1)
    likely, drawn = totals[0], totals[1:]

    seconds_of = {name: float(costs[name].seconds * ratios[0, kinds[name], 0]) for name in entries}
    seconds_of |= {name: probe.seconds for name, probe in probes.items()}
    work = _makespan([sum(seconds_of[entry.video_id] for entry in unit.inputs_to_decode) for unit in units], workers)
    once = fixed_seconds * sample_startup_factors(_DRAWS, random)
    slowdowns = sample_slowdowns(background, _DRAWS, random)
    seconds = (once + work * drawn[:, 0] / max(likely[0], 1e-9)) * slowdowns

    untried = max(0.0, 1 - sum(probe.seconds_tried for probe in probes.values()) / max(likely[0], 1e-9))
    few = _FEW_FAMILIES_SPREAD * untried if len(families) < _MIN_FAMILIES else 0.0
    return Forecast(
        seconds=_range(background.slowdown * (fixed_seconds + work), seconds, beyond=few * work),
        size_bytes=_range(likely[1], drawn[:, 1], beyond=(_RESIDUAL + few) * likely[1], known=_copied_bytes(copied)),
        faces=_range(
            likely[2], drawn[:, 2], beyond=(_RESIDUAL + few) * likely[2], known=sum(each.faces for _, each in copied)
        ),
        inputs=len(entries), probed=len(probes), workers=workers, config=config,
        families=len(families), untried=untried, others_per_core=background.usual,
    )  # fmt: skip


def _measured_ratios(
    families: Sequence[Sequence[Probe]], costs: dict[str, Cost], random: np.random.Generator
) -> NDArray[np.float64]:
    """Ratios of measured to promised figures, float64 (1 + draws, 2, 3): (unpaired, paired) inputs and 3 figures.

    The first is of all families, the others are of as many that are drawn with replacement.
    """
    sums = np.zeros((2, len(families), 2, 3))  # measured and promised, families, kinds, figures
    for number, family in enumerate(families):
        for probe in family:
            sums[:, number, int(probe.paired)] += (probe.figures, _promised_figures(costs[probe.video_id]))
    count = len(families)
    drawn = random.multinomial(count, np.full(count, 1 / count), _DRAWS)
    weights = np.vstack([np.ones(count), drawn])
    measured, promised = np.einsum("rf,sfkn->srkn", weights, sums)
    pooled = measured.sum(axis=1, keepdims=True) / np.maximum(promised.sum(axis=1, keepdims=True), 1e-9)
    is_known = promised > 0  # a kind of input that was not probed goes at the pace of the other
    ratios: NDArray[np.float64] = np.where(is_known, measured / np.where(is_known, promised, 1.0), pooled)
    return ratios


def _promised_figures(cost: Cost) -> tuple[float, float, float]:
    """What a `Probe`'s figures are compared with: seconds, and for bytes and faces the number of frames."""
    return cost.seconds, cost.sampled_frames, cost.sampled_frames


def _copied_bytes(copied: Sequence[tuple[Receipt, InputOutcome]]) -> float:
    """Size of rows that are copied: of the files that hold them, by their share of the rows there."""
    return sum(
        max(0, receipt.bytes - _FOOTER_BYTES) * outcome.faces / receipt.rows
        for receipt, outcome in copied
        if outcome.faces
    )


def _range(likely: float, drawn: NDArray[np.float64], *, beyond: float, known: float = 0.0) -> Range:
    """The percentiles of `drawn`, widened by `beyond` on either side; `known` is added to all three."""
    low, high = np.percentile(drawn, _PERCENTILES)
    return Range(
        likely=float(known + likely),
        low=float(known + max(0.0, min(low, likely) - beyond)),
        high=float(known + max(high, likely) + beyond),
    )


def _makespan(seconds: Sequence[float], workers: int) -> float:
    """Time until the last of the workers is done, each taking the next unit as soon as it is idle."""
    busy = [0.0] * workers
    for unit_seconds in seconds:
        heapq.heapreplace(busy, busy[0] + unit_seconds)
    return max(busy)


def forecast_file(out: str) -> Path:
    """The file in the user's cache that belongs to this OUT, a folder or an address."""
    name = hashlib.sha256(out.encode()).hexdigest()[:16]
    return cache_folder() / "forecasts" / f"{name}.json"


def save_forecast(forecast: Forecast, out: str) -> None:
    """Saves a forecast in the user's cache, since a dry run writes nothing to OUT.

    Ignores errors: the run only compares itself with the forecast.
    """
    file = forecast_file(out)
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(forecast.to_json(), indent=1), encoding="utf-8")


def load_forecast(out: str) -> Forecast | None:
    """Loads the forecast of an earlier dry run; None where there is none that can be read."""
    try:
        return Forecast.from_json(parse_json(forecast_file(out).read_bytes()))
    except (OSError, ValueError):
        return None
