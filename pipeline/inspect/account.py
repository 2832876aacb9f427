"""What became of the inputs: which failed, and why."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from ..job import config_hash
from ..ledger import Ledger
from ..manifest import Manifest, OutPaths
from ..plan import Plan
from .crossing import Crossing, crossings


class Failure(NamedTuple):
    """One input that failed."""

    video_id: str
    reason: str
    detail: str


@dataclass(frozen=True)
class Account:
    """A dataset as its manifest describes it, each failure by name, and what crosses splits.

    `dropped_identities`: people who were left out when splits were drawn, because they link too many videos.
    """

    out: Path
    manifest: Manifest
    failures: list[Failure]
    crossing: list[Crossing]
    dropped_identities: frozenset[str]

    @classmethod
    def of(cls, out: Path, manifest: Manifest, shown: Container[str]) -> Self:
        """Reads the plan and all receipts; raises `CorruptDataError` where the plan is damaged.

        `shown`: the videos that have rows.
        """
        paths = OutPaths(out)
        plan = Plan.load(paths)
        ledger = Ledger(paths, plan, config_hash(manifest.config))
        failures = sorted([*_refused(manifest), *_failed(ledger)], key=lambda one: (one.reason, one.video_id))
        return cls(out, manifest, failures, crossings(plan, shown), frozenset(plan.dropped_identities()))

    @property
    def inputs(self) -> dict[str, Any]:
        """The manifest's counts of inputs by outcome."""
        return self.manifest.inputs

    @property
    def failed(self) -> int:
        """How many inputs failed."""
        return sum(self.inputs["failed"].values())

    @property
    def size_bytes(self) -> int:
        """Of the faces and the index together."""
        return self.manifest.bytes + OutPaths(self.out).index.stat().st_size


def _refused(manifest: Manifest) -> Iterator[Failure]:
    for one in manifest.refused:
        yield Failure(str(one["video_id"]), str(one["reason"]), one["detail"] or "")


def _failed(ledger: Ledger) -> Iterator[Failure]:
    for _, outcome in ledger.outcomes():
        if outcome.outcome == "failed":
            yield Failure(outcome.video_id, str(outcome.reason), outcome.detail or "")
