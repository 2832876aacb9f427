"""An unfinished run: how much of the dataset exists, and what finishes it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from ..commit.finalize import build_manifest
from ..commit.lease import advice_to_wait
from ..console import plural
from ..dataset.manifest import Manifest
from ..dataset.out import OutPaths
from ..errors import RefusedError, UsageError
from ..planning.failure_limit import (
    NO_FACES_REMEDY,
    Failure,
    failures_in_source,
    format_reason_counts,
    remedies_by_reason,
)
from ..planning.options import hash_config
from ..planning.plan import Plan
from ..planning.run_state import RunState


@dataclass(frozen=True)
class UnfinishedRun:
    """State of an unfinished run, from its plan and receipts.

    `manifest`: what the manifest would be if the run ended now. `failures`: failed inputs, without those that never
    reach a unit (only the listing has them) and those that SRC no longer had at the end of an earlier, finished run.
    `pending`: number of inputs left. `units`: number of planned units, of which `units_done` are finished.
    `has_previous_manifest`: whether manifest and index of an earlier, finished run exist. `advice_to_wait`: for the
    runs and parts of the job that are at work on it; None where none is.
    """

    run_state: RunState
    manifest: Manifest
    failures: list[Failure]
    pending: int
    units: int
    units_done: int
    has_previous_manifest: bool
    advice_to_wait: str | None

    @classmethod
    def find(cls, out: Path | OutPaths) -> UnfinishedRun | None:
        """Reads plan and receipts of a folder, or of open paths.

        None where its manifest covers the whole plan, or where it has no plan.

        Raises `CorruptDataError` where manifest or plan is damaged.
        """
        paths = out if isinstance(out, OutPaths) else OutPaths(out)
        if not (paths.plan / "0.json").exists():
            return None
        try:
            previous = Manifest.read(paths.root)
        except UsageError:
            previous = None
        if previous and (previous.plan_parts is None or not (paths.plan / f"{previous.plan_parts}.json").exists()):
            return None
        removed = {*previous.removed} if previous else set()
        plan = Plan.load(paths)
        config = plan.parts[0].config
        run_state = RunState(paths, plan, hash_config(config))
        pending = [[leaf for leaf, receipt in run_state.leaf_units(unit) if receipt is None] for unit in plan.units()]
        return cls(
            run_state=run_state,
            manifest=build_manifest(run_state, config, (), 0, removed),
            failures=failures_in_source(run_state, (), removed)[0],
            pending=sum(len(leaf.inputs_to_decode) for leaves in pending for leaf in leaves),
            units=len(pending),
            units_done=sum(not leaves for leaves in pending),
            has_previous_manifest=previous is not None,
            advice_to_wait=advice_to_wait(paths),
        )

    @property
    def state(self) -> str:
        """One line on how far the run came."""
        done = (
            f"{self.units_done:,} of {plural(self.units, 'unit')} are done, {plural(self.pending, 'input')} left to do"
        )
        if not self.has_previous_manifest:
            return f"unfinished: {done}"
        later = "did not come to its end" if self.advice_to_wait is None else "is at work"
        return f"unfinished: a {'compaction' if self.is_compaction else 'later run'} {later}; {done}"

    @property
    def is_compaction(self) -> bool:
        """Whether it is one of `facefeed compact`, which begins with a finished dataset alone."""
        return self.has_previous_manifest and self.run_state.plan.parts[-1].is_compaction

    @property
    def remarks(self) -> list[str]:
        """Sentences on consequences and failed inputs; the last one says how to finish the run."""
        lines = []
        if self.has_previous_manifest:
            lines.append(
                "manifest.json and index.arrow are of the run before; readers of OUT/faces may see rows that they do "
                "not account for"
            )
        if self.failures:
            lines.append(f"{plural(len(self.failures), 'input')} failed: {format_reason_counts(self.failures)}")
        if not (self.is_compaction or self.pending or self.manifest.rows):
            lines.append(f"no face in any of {plural(self.manifest.inputs['total'], 'input')}: {NO_FACES_REMEDY}")
        return [*lines, f"next: {self._next_step()}"]

    def _next_step(self) -> str:
        if self.advice_to_wait is not None:
            return self.advice_to_wait
        if self.is_compaction:
            return f"run `facefeed compact {shlex.quote(self.run_state.paths.place)}` again"
        remedies = [
            f"run `facefeed precompute SRC {shlex.quote(self.run_state.paths.place)}` again, with the same options"
        ]
        if self.failures:
            is_fixable, others = remedies_by_reason(failure.reason for failure in self.failures)
            options = ["--retry-failed does the failed inputs again"] if is_fixable else []
            if self.manifest.rows:  # inputs that the listing refuses count too, so the limit may have to be higher
                options.append(f"--max-failed {len(self.failures)} or more accepts them")
            remedies += filter(None, [", ".join(options), *others])
            remedies.append("those that are no longer in SRC do not count then")
        return "; ".join(remedies)


def finished_manifest(paths: OutPaths, *, or_in_compaction: bool = False) -> Manifest:
    """The manifest of a finished dataset; with `or_in_compaction` also of one that was, until a compaction of it began.

    Raises `UsageError` where OUT holds no dataset that was ever finished, `RefusedError` where a later run of it did
    not come to its end, and `CorruptDataError` where manifest or plan is damaged.
    """
    manifest = Manifest.read(paths.root)
    unfinished = UnfinishedRun.find(paths)
    if unfinished is not None and not (or_in_compaction and unfinished.is_compaction):
        raise RefusedError("\n".join([f"{paths.place}: {unfinished.state}; nothing was written", *unfinished.remarks]))
    return manifest
