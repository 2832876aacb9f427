"""The gate of a build: what a profile has to prove, and the exit codes."""

from __future__ import annotations

from dataclasses import dataclass

from ....pipeline.errors import UsageError
from ..estimate.rounding import rounded_down, rounded_up
from .verdict import FED_BELOW, Verdict, VerdictKind

INCONCLUSIVE_EXIT = 4
"""Exit status where nothing can be concluded; those of errors are in `pipeline.errors`."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Requirements on a verdict's bounds, not its means. None: not required.

    max_wait_share: of the time that steps wait, steady and over an epoch, and of the steps that are starved.
    min_headroom: how many times faster the step could be. It is met only where waiting, steady and over an epoch, is
    surely under 1 % with the present step: headroom is on the steady state, and an epoch that waits too long at its
    beginning waits for a larger share of its time with a faster step.
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
                f"{what} <= {rounded_up(bound.upper, 4):.2%}, wanted {100 * self.max_wait_share:.4g}%"
                for what, bound in bounds.items()
                if bound is not None and bound.upper > self.max_wait_share
            ]
        if self.min_headroom is not None:
            failures += self._headroom_failures(verdict, self.min_headroom)
        return failures

    @staticmethod
    def _headroom_failures(verdict: Verdict, min_headroom: float) -> list[str]:
        headroom_lower, epoch = verdict.headroom_lower, verdict.epoch_wait_share
        if headroom_lower is None:
            known = "not known"
        elif epoch is not None and epoch.upper > FED_BELOW:
            known = f"not known, since an epoch's waiting <= {rounded_up(epoch.upper, 4):.2%}"
        elif headroom_lower < min_headroom:
            known = f">= {rounded_down(headroom_lower, 2):.2f}x"
        else:
            return []
        return [f"headroom {known}, wanted {min_headroom:g}x"]

    def exit_code(self, verdict: Verdict) -> int:
        """0: ok; 1: starved, marginal or the gate is not met; 4: inconclusive."""
        if verdict.kind is VerdictKind.INCONCLUSIVE:
            return INCONCLUSIVE_EXIT
        if self != Gate():
            return int(bool(self.failures(verdict)))
        return int(verdict.kind is not VerdictKind.FED)
