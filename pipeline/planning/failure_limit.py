"""Which inputs failed, and whether there are more of them than the user allows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from ..console import plural, printable
from ..dataset.manifest import Manifest
from ..errors import TooManyFailedError, UsageError
from ..sources import Entry
from .run_state import RunState

_NAMED = 20
MORE_FACES = "look at some inputs; smaller or less certain faces need a lower --min-face or --min-score"


class Failure(NamedTuple):
    """One input that failed."""

    video_id: str
    reason: str
    detail: str

    @property
    def why(self) -> str:
        """Reason and detail, for people."""
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """How many inputs may fail: a number, or percent of all, rounded up (1 % of 30 inputs is one), but never all."""

    count: int | None = None
    percent: Fraction = Fraction(1)

    @classmethod
    def parse(cls, text: str) -> Allowance:
        """`5` or `1%`; raises `UsageError` on anything else."""
        try:
            if text.endswith("%"):
                percent = Fraction(text[:-1].strip())
                if 0 <= percent <= 100:
                    return cls(percent=percent)
            elif int(text) >= 0:
                return cls(count=int(text))
        except (ValueError, ZeroDivisionError):
            pass
        raise UsageError(f"max_failed={text!r}: must be a number of inputs or a percentage; try 5 or 1%")

    def allowed(self, total: int) -> int:
        """The number of failures that pass, of `total` inputs."""
        if self.count is not None:
            return self.count
        rounded_up = math.ceil(self.percent * total / 100)
        return rounded_up if self.percent == 100 else min(rounded_up, max(total - 1, 0))


def failures_of(run_state: RunState | None, refused: Iterable[Entry]) -> list[Failure]:
    """Every failed input of `run_state`'s receipts, by name, and of `refused`, those that never reach a unit."""
    outcomes = () if run_state is None else (one for _, one in run_state.outcomes() if one.outcome == "failed")
    found = (Failure(one.video_id, str(one.reason), one.detail or "") for one in outcomes)
    return sorted([*found, *(Failure(one.video_id, str(one.problem), one.detail or "") for one in refused)])


def failures_there(run_state: RunState, refused: Iterable[Entry], gone: Iterable[str]) -> list[Failure]:
    """`failures_of` what may be too much: without `gone`, inputs that were taken out of the source and left no rows."""
    left = set(gone)
    return [one for one in failures_of(run_state, refused) if one.video_id not in left]


def refuse_known_failures(failures: Sequence[Failure], total: int, allowance: Allowance) -> None:
    """Raises `TooManyFailedError` before the work begins, where its end is known already."""
    allowed = allowance.allowed(total)
    if len(failures) > allowed:
        accept = "" if len(failures) == total else f", or accept them with --max-failed {len(failures)}"
        raise _too_many(
            f"{_counted(failures, total, allowed)}: nothing was done", failures,
            f"fix them (what failed before is done again with --retry-failed) or leave them out of SRC{accept}",
        )  # fmt: skip


def check_failures(manifest: Manifest, failures: Sequence[Failure], allowance: Allowance, out: Path) -> None:
    """Raises `TooManyFailedError` where the account has more failures than allowed, or no row at all."""
    total = manifest.inputs["total"]
    allowed = allowance.allowed(total)
    figures = {"inputs": manifest.inputs, "rows": manifest.rows}
    kept = f"no manifest was written, all finished work is kept in {printable(str(out))}"
    if len(failures) > allowed:
        accept = f", or accept them with --max-failed {len(failures)}" if manifest.rows else ""
        raise _too_many(
            f"{_counted(failures, total, allowed)}: {kept}", failures,
            f"fix them and run the same command with --retry-failed{accept}", figures,
        )  # fmt: skip
    if not manifest.rows:
        raise _too_many(f"no face in any of {plural(total, 'input')}: {kept}", failures, MORE_FACES, figures)


def by_reason(failures: Iterable[Failure]) -> dict[str, int]:
    """How many inputs failed for each reason, sorted by reason."""
    return dict(sorted(Counter(one.reason for one in failures).items()))


def reasons_text(failures: Iterable[Failure]) -> str:
    """The same for people: `2 empty, 1 truncated`."""
    return ", ".join(f"{count:,} {reason}" for reason, count in by_reason(failures).items())


def named_failures(failures: Sequence[Failure]) -> list[str]:
    """A line each for the first of them, and one that counts the others."""
    lines = [f"  {printable(f'{one.video_id}: {one.why}')}" for one in failures[:_NAMED]]
    if len(failures) > _NAMED:
        lines.append(f"  and {len(failures) - _NAMED:,} more: the same command with --json names all of them")
    return lines


def _counted(failures: Sequence[Failure], total: int, allowed: int) -> str:
    named = reasons_text(failures)
    most = f"at most {allowed:,} may fail" if allowed else "none may fail"
    return f"{len(failures):,} of {plural(total, 'input')} failed ({named}), {most} (--max-failed)"


def _too_many(
    what: str, failures: Sequence[Failure], remedy: str, figures: dict[str, Any] | None = None
) -> TooManyFailedError:
    named = [one._asdict() for one in failures]
    return TooManyFailedError(
        "\n".join([what, *named_failures(failures), remedy]), figures={**(figures or {}), "failures": named}
    )
