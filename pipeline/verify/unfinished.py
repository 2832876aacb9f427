"""An OUT on which a run has not come to its end: what there is of it so far, and what finishes it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from ..commit.finalize import account
from ..console import plural
from ..dataset.manifest import Manifest, OutPaths
from ..errors import UsageError
from ..planning.failure_limit import MORE_FACES, Failure, failures_of, reasons_text
from ..planning.options import hash_config
from ..planning.plan import Plan
from ..planning.run_state import RunState


@dataclass(frozen=True)
class Unfinished:
    """What the receipts say: `manifest` is what it would be, had the run ended here; `pending` inputs are left to do.

    `failures` lacks the inputs that never reach a unit: the listing alone knows them. `units`, of which `units_done`
    are done, are those of the plan. `is_later`: an earlier run came to its end, and its manifest and index are there.
    """

    run_state: RunState
    manifest: Manifest
    failures: list[Failure]
    pending: int
    units: int
    units_done: int
    is_later: bool

    @classmethod
    def of(cls, out: Path) -> Unfinished | None:
        """None where OUT holds a manifest that accounts for the whole plan, or no plan either.

        Raises `CorruptDataError` where manifest or plan is damaged.
        """
        paths = OutPaths(out)
        if not (paths.plan / "0.json").exists():
            return None
        try:
            accounted = Manifest.read(out).plan_parts
        except UsageError:
            is_later = False
        else:
            if accounted is None or not (paths.plan / f"{accounted}.json").exists():
                return None
            is_later = True
        plan = Plan.load(paths)
        config = plan.parts[0].config
        run_state = RunState(paths, plan, hash_config(config))
        left = [[leaf for leaf, receipt in run_state.leaves(unit) if receipt is None] for unit in plan.units()]
        return cls(
            run_state=run_state,
            manifest=account(run_state, config, (), 0),
            failures=failures_of(run_state, ()),
            pending=sum(len(leaf.to_decode) for leaves in left for leaf in leaves),
            units=len(left),
            units_done=sum(not leaves for leaves in left),
            is_later=is_later,
        )

    @property
    def state(self) -> str:
        """How far the run came."""
        done = (
            f"{self.units_done:,} of {plural(self.units, 'unit')} are done, {plural(self.pending, 'input')} left to do"
        )
        return f"unfinished: a later run did not come to its end; {done}" if self.is_later else f"unfinished: {done}"

    @property
    def remarks(self) -> list[str]:
        """What follows from that and which inputs failed, in a sentence each, and what finishes it."""
        lines = []
        if self.is_later:
            lines.append(
                "manifest.json and index.arrow are of the run before; readers of OUT/faces may see rows that they do "
                "not account for"
            )
        if self.failures:
            lines.append(f"{plural(len(self.failures), 'input')} failed: {reasons_text(self.failures)}")
        if not (self.pending or self.manifest.rows):
            lines.append(f"no face in any of {plural(self.manifest.inputs['total'], 'input')}: {MORE_FACES}")
        return [*lines, f"next: {self._next()}"]

    def _next(self) -> str:
        ways = [
            f"run `facefeed precompute SRC {shlex.quote(str(self.run_state.paths.root))}` again, with the same options"
        ]
        if self.failures:
            ways.append("--retry-failed does the failed inputs again")
            if self.manifest.rows:  # those that the listing refuses count too, so it may take more
                ways[-1] += f", --max-failed {len(self.failures)} or more accepts them"
        return "; ".join(ways)
