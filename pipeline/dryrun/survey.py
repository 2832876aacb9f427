"""What a source holds, as far as it is known without opening more than headers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..planning.cost_model import Cost
from ..planning.incremental import Changes
from ..planning.plan import Unit
from ..sources import Listing, unlabelled_name


@dataclass(frozen=True, kw_only=True)
class Survey:
    """`by_split[split][label name]` counts inputs. `leak` is what the run would refuse, None where nothing leaks.

    `groups`: how many sets of inputs no split may cut; `largest_group`: inputs in the largest one. `hours` of playing
    time are those of `headers_read` headers, the rest by their bytes. `missing_files` names the first 100 of `missing`.
    `fakes`: inputs that name an original; `without_original`: of these, those whose original is not there.
    `caveats`: what the source does not say, and what OUT holds that another `--max-damaged` has decided.
    """

    layout: str
    inputs: int
    new: int
    size_bytes: int
    hours: float
    headers_read: int
    by_split: dict[str, Counter[str]]
    groups: int
    largest_group: int
    dropped_identities: Sequence[str]
    leak: str | None
    refused: Counter[str]
    missing: int
    missing_files: list[str]
    ignored: Counter[str]
    fakes: int
    without_original: int
    caveats: list[str]


def by_split(units: Sequence[Unit], labels: Sequence[str]) -> dict[str, Counter[str]]:
    """Inputs of `units` by split and label."""
    names = {-1: unlabelled_name(labels), **dict(enumerate(labels))}
    found: dict[str, Counter[str]] = {}
    for unit in units:
        found.setdefault(unit.split, Counter()).update(names[entry.label] for entry in unit.inputs)
    return found


def play_hours(listing: Listing, cost: Callable[..., Cost]) -> float:
    """Playing time of everything that may be opened."""
    return sum(cost(entry).duration_seconds for entry in listing.entries if not entry.problem) / 3600


def refused_by_reason(changes: Changes) -> Counter[str]:
    """Inputs that will reach no unit."""
    return Counter(str(entry.problem) for entry in changes.refused)
