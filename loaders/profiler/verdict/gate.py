"""The gate of a build: what a profile has to prove, and the exit codes."""

from __future__ import annotations

from dataclasses import dataclass

from ....pipeline.errors import UsageError
from .verdict import Verdict, VerdictKind

INCONCLUSIVE_EXIT = 4
"""Exit status where nothing can be concluded; those of errors are in `pipeline.errors`."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Requirements on a verdict's bounds, not its means. None: not required.

    max_wait_share: of the time that steps wait, steady and over an epoch, and of the steps that are starved.
    min_headroom: how many times faster the step could be.
    """

    max_wait_share: float | None = None
    min_headroom: float | None = None

    def __post_init__(self) -> None:
        if self.max_wait_share is not None and not 0 < self.max_wait_share < 1:
            raise UsageError(f"max_wait_share={self.max_wait_share}: must be a share between 0 and 1; try 0.01")
        if self.min_headroom is not None and not self.min_headroom > 0:
            raise UsageError(f"min_headroom={self.min_headroom}: must be above 0; try 1.5")

    def failures(self, verdict: Verdict) -> list[str]:
        """The requirements that a verdict does not meet."""
        failures = []
        if self.max_wait_share is not None:
            bounds = {
                "waiting": verdict.wait_share,
                "starved steps": verdict.starved_share,
                "an epoch's waiting": verdict.epoch_wait_share,
            }
            failures += [
                f"{what} <= {bound.upper:.2%}, wanted {self.max_wait_share:.2%}"
                for what, bound in bounds.items()
                if bound is not None and bound.upper > self.max_wait_share
            ]
        headroom_lower = verdict.headroom_lower
        if self.min_headroom is not None and (headroom_lower is None or headroom_lower < self.min_headroom):
            known = "not known" if headroom_lower is None else f">= {headroom_lower:.2f}x"
            failures.append(f"headroom {known}, wanted {self.min_headroom:.2f}x")
        return failures

    def exit_code(self, verdict: Verdict) -> int:
        """0: ok; 1: starved, marginal or the gate is not met; 4: inconclusive."""
        if verdict.kind is VerdictKind.INCONCLUSIVE:
            return INCONCLUSIVE_EXIT
        if self != Gate():
            return int(bool(self.failures(verdict)))
        return int(verdict.kind is not VerdictKind.FED)
