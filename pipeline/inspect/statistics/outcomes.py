"""What became of the inputs: which failed or are partial, and why."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ...dataset.index import index_file
from ...dataset.manifest import InputOutcome, Manifest, OutPaths
from ...planning.failure_limit import Failure
from ...planning.options import hash_config
from ...planning.plan import Plan
from ...planning.run_state import RecordedRunState
from ...sources import Ties
from .split_crossings import Crossing, crossings


@dataclass(frozen=True)
class Account:
    """A dataset as its manifest describes it, each failed and each partial input by name, and what crosses splits.

    `ties`: of how many videos it is known whether anything does. `dropped_identities`: people who were left out when
    splits were drawn, because they link too many videos.
    """

    out: Path
    manifest: Manifest
    failures: list[Failure]
    partial: list[InputOutcome]
    crossing: list[Crossing]
    ties: Ties
    dropped_identities: frozenset[str]

    @classmethod
    def of(cls, out: Path, manifest: Manifest, shown: Container[str]) -> Self:
        """Reads the plan and all receipts; raises `CorruptDataError` where the plan is damaged.

        `shown`: the videos that have rows.
        """
        paths = OutPaths(out)
        plan = Plan.load(paths)
        run_state = RecordedRunState(paths, plan, hash_config(manifest.config))
        lost = [one for _, one in run_state.outcomes() if one.outcome in ("failed", "partial")]
        failed = [Failure(one.video_id, str(one.reason), one.detail or "") for one in lost if one.outcome == "failed"]
        failures = sorted([*_refused(manifest), *failed], key=lambda one: (one.reason, one.video_id))
        partial = sorted((one for one in lost if one.outcome == "partial"), key=lambda one: one.video_id)
        return cls(
            out=out,
            manifest=manifest,
            failures=failures,
            partial=partial,
            crossing=crossings(plan, shown),
            ties=Ties.of([entry for name, (entry, _) in plan.videos().items() if name in shown], manifest.labels),
            dropped_identities=frozenset(plan.dropped_identities()),
        )

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
        return self.manifest.bytes + index_file(self.out).stat().st_size


def _refused(manifest: Manifest) -> Iterator[Failure]:
    for one in manifest.refused:
        yield Failure(str(one["video_id"]), str(one["reason"]), one["detail"] or "")
