"""What a profile has to show for a build to pass, and the exit codes."""

from __future__ import annotations

from dataclasses import dataclass

from ....pipeline.errors import UsageError
from .judgement import Verdict, Word


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What a profile has to show: bounds, not means. None: not asked for."""

    max_stall: float | None = None
    min_headroom: float | None = None

    def __post_init__(self) -> None:
        if self.max_stall is not None and not 0 < self.max_stall < 1:
            raise UsageError(f"max_stall={self.max_stall}: must be a share between 0 and 1; try 0.01")
        if self.min_headroom is not None and not self.min_headroom > 0:
            raise UsageError(f"min_headroom={self.min_headroom}: must be above 0; try 1.5")

    def failures(self, verdict: Verdict) -> list[str]:
        """What a verdict does not show of it."""
        found = []
        if self.max_stall is not None:
            bounds = {"waiting": verdict.live, "starved steps": verdict.starved, "an epoch's waiting": verdict.epoch}
            found += [
                f"{what} <= {bound.upper:.2%}, wanted {self.max_stall:.2%}"
                for what, bound in bounds.items()
                if bound is not None and bound.upper > self.max_stall
            ]
        sure = verdict.sure_headroom
        if self.min_headroom is not None and (sure is None or sure < self.min_headroom):
            seen = "not known" if sure is None else f">= {sure:.2f}x"
            found.append(f"headroom {seen}, wanted {self.min_headroom:.2f}x")
        return found

    def exit_code(self, verdict: Verdict) -> int:
        """0: good; 1: starved, marginal or not what was asked for; 4: inconclusive."""
        if verdict.word is Word.INCONCLUSIVE:
            return 4
        if self != Gate():
            return int(bool(self.failures(verdict)))
        return int(verdict.word is not Word.FED)
